"""Rules a profile must keep to ship: what the loader accepts but a careful reader would not."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from latency_model.errors import InputError
from latency_model.specs.hardware import HardwareProfile, load_hardware
from latency_model.specs.quantity import Quantity
from latency_model.specs.toml_fields import read_toml

__all__ = ["check_profile"]

# Dense rates of two formats stand in these ratios; anything else is usually one sparse and one dense figure.
_RATIOS = {  # (faster, slower): (lowest, highest)
    ("fp8", "bf16"): (1.0, 2.0),
    ("fp4", "fp8"): (1.0, 2.0),
    ("int8", "bf16"): (1.0, 4.0),
    ("int8", "fp16"): (1.0, 4.0),
    ("int4", "int8"): (1.0, 2.0),
}
_RATIO_SLACK = 0.03  # datasheets round

# NVIDIA tensor cores run tf32 at half the dense bf16 rate, from A100 to B200
# (GeForce: with fp32 accumulation).
_NVIDIA_TF32_SHARE = 0.5

# bf16 figures that datasheets print with 2:4 sparsity [TFLOP/s]: no ratio tells when every rate is doubled.
_SPARSE_BF16 = {
    "NVIDIA": {
        "A100": 624.0,
        "H100 SXM": 1978.9,
        "H100 PCIe": 1513.0,
        "H100 NVL": 1671.0,
        "H20": 296.0,
        "B200": 4500.0,
        "GB200": 5000.0,
        "A10": 250.0,
        "A40": 299.4,
        "L4": 242.0,
        "L40S": 733.0,
        "RTX 4090": 330.3,
        "RTX 5090": 419.0,
    },
    "AMD": {"MI300X": 2614.9, "MI355X": 5000.0},
}
_SPARSE_SLACK = 0.005

# NVLink per GPU and direction [B/s], by generation (NVIDIA prints the sum of both directions).
_NVLINK = {"NVLink2": 150e9, "NVLink3": 300e9, "NVLink4": 450e9, "NVLink5": 900e9}
_BANDWIDTH_LIMITS = (1e9, 1e17)  # [B/s]


def check_profile(path: str | Path) -> list[str]:
    """Check a profile file against the rules for shipping one.

    Parameters
    ----------
    path
        TOML file of one device.

    Returns
    -------
    list of str
        One sentence for each broken rule; empty when there is none.

    Examples
    --------
    >>> from latency_model.specs.hardware import profiles_directory
    >>> check_profile(profiles_directory() / "h100-sxm.toml")
    []
    """
    file = Path(path)
    try:
        profile = load_hardware(file)
        document, _ = read_toml(file)
    except InputError as error:
        return [str(error)]
    found = [
        *_identity(file, profile),
        *_compute(profile),
        *_bandwidths(profile),
        *_sources(document, profile, file),
    ]
    return [f"{file.name}: {sentence}" for sentence in found]


def _identity(file: Path, profile: HardwareProfile) -> Iterator[str]:
    if file.stem != profile.name:
        yield f"id {profile.name!r} differs from the file name; name the file {profile.name}.toml"
    if not profile.vendor or profile.title == profile.name:
        yield "title and vendor must be stated"
    for name in {profile.name, *profile.aliases}:
        with contextlib.suppress(InputError):  # a name of its own leads nowhere else
            if (other := load_hardware(name).name) != profile.name:
                yield f"the name {name!r} belongs to {other!r} already"


def _compute(profile: HardwareProfile) -> Iterator[str]:
    peaks = profile.peaks
    for (fast, slow), (low, high) in _RATIOS.items():
        if fast in peaks and slow in peaks and not peaks[fast].exception:
            ratio = peaks[fast].value / peaks[slow].value
            if not low * (1 - _RATIO_SLACK) <= ratio <= high * (1 + _RATIO_SLACK):
                yield (
                    f"compute.{fast} is {ratio:.3g} times compute.{slow}, expected {low:g} to {high:g}; "
                    f"is one of them a sparse figure? If it is right, say why in compute.{fast}.exception"
                )
    if profile.vendor == "NVIDIA" and "tf32" in peaks and "bf16" in peaks and not peaks["tf32"].exception:
        share = peaks["tf32"].value / peaks["bf16"].value
        if abs(share / _NVIDIA_TF32_SHARE - 1) > _RATIO_SLACK:
            yield (
                f"compute.tf32 is {share:.3g} of compute.bf16, expected 0.5 on NVIDIA parts; "
                "is bf16 a sparse figure? If it is right, say why in compute.tf32.exception"
            )
    for dtype in ("bf16", "fp16"):
        if dtype in peaks and not peaks[dtype].exception:
            for device, sparse in _SPARSE_BF16.get(profile.vendor, {}).items():
                if abs(peaks[dtype].value / (sparse * 1e12) - 1) < _SPARSE_SLACK:
                    yield (
                        f"compute.{dtype} is the rate the {device} datasheet prints with 2:4 sparsity; "
                        f"write half of it, or say in compute.{dtype}.exception why it is dense"
                    )


def _bandwidths(profile: HardwareProfile) -> Iterator[str]:
    low, high = _BANDWIDTH_LIMITS
    if not low <= profile.memory_bandwidth.value <= high:
        yield f"memory.bandwidth of {profile.memory_bandwidth.value:g} B/s is not between 1 GB/s and 1e8 GB/s"
    link = profile.link_bandwidth
    limit = _NVLINK.get(profile.link_name)
    if link and limit and link.value > limit * (1 + _RATIO_SLACK):
        yield (
            f"link.bandwidth of {link.value / 1e9:g} GB/s exceeds the {limit / 1e9:g} GB/s per direction of "
            f"{profile.link_name}; is it the sum of both directions?"
        )


def _sources(document: dict[str, object], profile: HardwareProfile, file: Path) -> Iterator[str]:
    listed = document.get("sources", {})
    texts = "; ".join(profile.sources)
    if isinstance(listed, dict):
        for key, text in listed.items():
            if text not in texts:
                yield f"sources.{key} is used by no number; remove it"
    numbers: dict[str, Quantity | None] = {
        **{f"compute.{dtype}": peak for dtype, peak in profile.peaks.items()},
        "memory.bandwidth": profile.memory_bandwidth,
        "memory.capacity": profile.memory_capacity,
        "link.bandwidth": profile.link_bandwidth,
        "board.pcie": profile.pcie,
        "board.tdp": profile.tdp,
    }
    for name, quantity in numbers.items():
        if quantity and quantity.source == f"stated in {file}":
            yield f"{name} has no source; say where the number comes from"
