"""What a device can do: dense peaks, bandwidths, capacity, and how much of them kernels reach."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import attrs
from attrs import field, frozen

from latency_model.errors import InputError, nearest, shorten
from latency_model.specs.dtypes import COMPUTE_FALLBACK, DTYPES, canonical_dtype, dtype_bytes
from latency_model.specs.frozen_map import FrozenMap
from latency_model.specs.quantity import Quantity

__all__ = [
    "ANY_DTYPE",
    "DEVICE_KINDS",
    "ENGINES_WITH_KERNELS",
    "HOST_TIMES",
    "OPERATIONS",
    "Efficiency",
    "FitRecord",
    "HardwareProfile",
    "Peak",
    "PriceRange",
]

OPERATIONS = (
    "gemm",
    "attention_decode",
    "attention_prefill",
    "moe",
    "moe_int4",  # experts stored in 4-bit integers and multiplied in 16 bits: kernels of their own
    "moe_mxfp4",
    "elementwise",  # norms, rotary, activations: traffic only
    "quantise",  # rounding activations to the format of a product, launched with it: traffic only
    "all_reduce",  # memory: fraction of the link reached; overhead: time of an empty message
    "all_to_all",
    "p2p",
)
#: Operation whose block serves another where that has none.
STAND_INS = {"quantise": "elementwise", "moe_int4": "moe", "moe_mxfp4": "moe"}
EXPERTS = ("moe", "moe_int4", "moe_mxfp4")
ENGINES_WITH_KERNELS = ("vllm", "sglang", "trtllm")  # whose blocks a profile may state apart from the common ones
DEVICE_KINDS = ("gpu", "tpu", "asic", "asic-sram", "soc", "cpu")
#: Host times of an engine: those of any step, and those that only speculation adds.
STEP_TIMES = ("per_step", "per_step_doubling", "per_layer", "per_moe_layer")
ROUND_TIMES = ("per_draft_step", "per_round", "per_round_doubling", "per_host_proposal", "per_sequence")
HOST_TIMES = (*STEP_TIMES, *ROUND_TIMES)
ANY_DTYPE = "any"  # for operations whose efficiency does not depend on the number format

# Error added when a block of another number format stands in (assumed).  Kernels for formats of one size run
# alike; across sizes they do not: a fitted H100 GEMM reaches .81 of the bf16 peak and .49 of the fp8 peak.
SAME_SIZE_ERROR = 0.05
OTHER_SIZE_ERROR = 0.30


@frozen(kw_only=True)
class FitRecord:
    """What the constants of a measured block were fitted on, and their error on rows they have not seen."""

    rows: int  # used to fit
    held_out: int  # kept aside to score
    median_error: float  # |predicted / measured - 1| on those
    p90_error: float
    coverage: float  # share of them inside their 80 % interval
    date: str  # ISO 8601, of the fit


@frozen(kw_only=True)
class Efficiency:
    """How one operation in one number format uses the device: the four constants of the roofline."""

    compute: float  # fraction of the dense peak reached
    memory: float  # fraction of the memory (or link) bandwidth reached
    overhead: float  # [s] per kernel or message
    sharpness: float  # p of the p-norm; inf is max(), 1 is the sum
    tail: float = 0.0  # how many pieces of work that cannot be split a core does alone at the end [1]
    compute_uncertainty: float  # relative, one sigma; so are the next two
    memory_uncertainty: float
    overhead_uncertainty: float
    kind: str
    source: str
    note: str = ""
    fit: FitRecord | None = None  # where the constants were fitted to a table

    def transferred(self, error: float, note: str) -> Efficiency:
        """Return the same constants for use elsewhere: wider by ``error`` (in quadrature) and saying so."""
        return attrs.evolve(
            self,
            compute_uncertainty=math.hypot(self.compute_uncertainty, error),
            memory_uncertainty=math.hypot(self.memory_uncertainty, error),
            overhead_uncertainty=math.hypot(self.overhead_uncertainty, error),
            kind="assumed" if self.kind == "assumed" else "transferred",
            note="; ".join(filter(None, (note, self.note))),
            fit=None,  # those errors are not the errors here
        )


@frozen(kw_only=True)
class Peak:
    """The dense rate used for a number format; ``note`` says so when another format stands in."""

    dtype: str
    quantity: Quantity
    note: str = ""

    @property
    def value(self) -> float:
        """Dense peak [FLOP/s]."""
        return self.quantity.value


@frozen(kw_only=True)
class PriceRange:
    """What renting one device costs [$/h], lowest and highest price seen."""

    low: float
    high: float
    source: str
    kind: str
    note: str = ""


def _frozen_map(items: Mapping[Any, Any]) -> FrozenMap[Any, Any]:
    return items if isinstance(items, FrozenMap) else FrozenMap(items)


@frozen(kw_only=True)
class HardwareProfile:
    """One device: everything the cost model needs to know about it, with provenance.

    >>> from latency_model.specs.hardware import load_hardware
    >>> h100 = load_hardware("H100 SXM")
    >>> h100.title, h100.memory_bandwidth.value, h100.peak_flops("bf16").value
    ('H100 SXM 80 GB', 3350000000000.0, 989400000000000.0)
    """

    name: str
    title: str
    vendor: str
    device_kind: str
    peaks: Mapping[str, Quantity] = field(converter=_frozen_map)  # dense [FLOP/s] by number format
    memory_bandwidth: Quantity  # [B/s]
    memory_capacity: Quantity  # [B]
    link_name: str = ""
    link_bandwidth: Quantity | None = None  # [B/s] per direction, all links of the device together
    pcie: Quantity | None = None  # [B/s] per direction
    tdp: Quantity | None = None  # [W]
    on_chip: Quantity | None = None  # [B]
    exponentials: Quantity | None = None  # of all cores [1/s]
    cores: int | None = None
    price: PriceRange | None = None
    price_per_hour: float | None = None  # [$/h]; the typical price, or the middle of the range
    efficiencies: Mapping[tuple[str, str], Efficiency] = field(converter=_frozen_map, repr=False)
    #: Blocks of engines whose kernels differ from those above, by (engine, operation, format).
    engine_efficiencies: Mapping[tuple[str, str, str], Efficiency] = field(
        factory=FrozenMap, converter=_frozen_map, repr=False
    )
    # Host times [s] of engines as measured with this machine, by (engine, part); they replace the shipped ones.
    host_times: Mapping[tuple[str, str], Quantity] = field(factory=FrozenMap, converter=_frozen_map, repr=False)
    note: str = ""
    aliases: tuple[str, ...] = ()
    digest: str = field(default="", eq=False)  # of the files it was read from

    def peak_flops(self, dtype: str, *, allow_fallback: bool = False) -> Peak:
        """Return the dense peak for a number format.

        Parameters
        ----------
        dtype
            Number format of the operands.
        allow_fallback
            Use the next format the device has (fp8 or fp4 → bf16 → fp16 → fp32) and note it, as engines do
            when they convert operands first.

        Returns
        -------
        Peak
            Format used, rate [FLOP/s] with provenance, and a note when it is not the one asked for.

        Examples
        --------
        >>> from latency_model.specs.hardware import load_hardware
        >>> load_hardware("v100").peak_flops("bf16")
        Traceback (most recent call last):
        latency_model.errors.InputError: V100 SXM2 32 GB (v100-sxm2) has no bf16 peak; it has fp16, fp32;
        bf16 operands would run at the fp16 rate with allow_fallback
        (--allow-dtype-fallback)
        >>> load_hardware("v100").peak_flops("bf16", allow_fallback=True).note
        'bf16 runs at the fp16 rate: V100 SXM2 32 GB has no bf16 peak'
        """
        wanted = canonical_dtype(dtype)
        if wanted in self.peaks:
            return Peak(dtype=wanted, quantity=self.peaks[wanted])
        other = next((name for name in COMPUTE_FALLBACK[wanted] if name in self.peaks), None)
        if other is not None and allow_fallback:
            note = f"{wanted} runs at the {other} rate: {self.title} has no {wanted} peak"
            return Peak(dtype=other, quantity=self.peaks[other], note=note)
        has = f"it has {', '.join(sorted(self.peaks))}" if self.peaks else "its profile states no compute peak at all"
        hint = (
            f"{wanted} operands would run at the {other} rate with allow_fallback (--allow-dtype-fallback)"
            if other
            else "state one in a profile of your own that extends this one"
        )
        raise InputError(f"{self.title} ({self.name}) has no {wanted} peak; {has}; {hint}")

    def efficiency(self, operation: str, dtype: str) -> Efficiency:
        """Return how an operation uses the device.

        Looks for the format itself, then a block for any format, then the format nearest in size, which is
        marked in ``kind`` and ``note`` and carries a wider uncertainty.

        Parameters
        ----------
        operation
            One of ``OPERATIONS``.
        dtype
            Number format of the operands.

        Returns
        -------
        Efficiency
            Fractions reached [1], overhead [s], sharpness [1] and their uncertainties [1].

        Examples
        --------
        >>> from latency_model.specs.hardware import load_hardware
        >>> load_hardware("h100-sxm").efficiency("gemm", "bf16").compute
        0.81
        >>> load_hardware("h100-sxm").efficiency("gemm", "fp16").note.partition(";")[0]
        'bf16 block used for fp16'
        """
        if operation not in OPERATIONS:
            raise InputError(f"{shorten(operation)} is not an operation; {nearest(operation, OPERATIONS)}")
        stand_in = STAND_INS.get(operation)
        if stand_in and all(known != operation for known, _ in self.efficiencies):
            block = self.efficiency(stand_in, dtype)
            return block.transferred(OTHER_SIZE_ERROR, f"{stand_in} block used for {operation}")
        wanted = canonical_dtype(dtype)
        for exact in (wanted, ANY_DTYPE):
            if (operation, exact) in self.efficiencies:
                return self.efficiencies[operation, exact]
        size = dtype_bytes(wanted)
        for other in sorted(DTYPES, key=lambda name: abs(math.log2(DTYPES[name] / size))):
            if (operation, other) in self.efficiencies:
                error = SAME_SIZE_ERROR if DTYPES[other] == size else OTHER_SIZE_ERROR
                return self.efficiencies[operation, other].transferred(error, f"{other} block used for {wanted}")
        raise InputError(f"{self.name} has no efficiency for {operation}; add an [efficiency.{operation}] table")

    def for_engine(self, engine: str) -> HardwareProfile:
        """Return the device as one engine uses it: with that engine's own blocks in place of the common ones.

        >>> from latency_model.specs.hardware import load_hardware
        >>> h100 = load_hardware("h100-sxm")
        >>> h100.for_engine("vllm") == h100, h100.for_engine("sglang") == h100
        (True, False)
        """
        own = {key[1:]: block for key, block in self.engine_efficiencies.items() if key[0] == engine}
        return attrs.evolve(self, efficiencies={**self.efficiencies, **own}) if own else self

    @property
    def sources(self) -> tuple[str, ...]:
        """Every source a number of this profile rests on, in order and once each."""
        numbers = [
            *self.peaks.values(),
            *filter(
                None,
                (
                    self.memory_bandwidth,
                    self.memory_capacity,
                    self.on_chip,
                    self.exponentials,
                    self.link_bandwidth,
                    self.pcie,
                    self.tdp,
                ),
            ),
        ]
        stated = [number.source for number in numbers]
        stated += [self.price.source] if self.price else []
        stated += [block.source for block in self.efficiencies.values()]
        stated += [block.source for block in self.engine_efficiencies.values()]
        stated += [quantity.source for quantity in self.host_times.values()]
        return tuple(dict.fromkeys(source for joined in stated for source in joined.split("; ")))
