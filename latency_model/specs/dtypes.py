"""Number formats: their names in the wild, their size, and what a device without one computes in instead."""

from __future__ import annotations

from latency_model.errors import InputError, nearest, shorten

__all__ = ["COMPUTE_FALLBACK", "DTYPES", "canonical_dtype", "dtype_bytes"]

# Bytes per element; block scales of microscaled formats are counted where the quantisation scheme is known.
DTYPES = {
    "fp32": 4.0,
    "tf32": 4.0,  # a compute format: stored as fp32
    "bf16": 2.0,
    "fp16": 2.0,
    "fp8": 1.0,
    "int8": 1.0,
    "fp4": 0.5,
    "int4": 0.5,
}

_ALIASES = {
    "float32": "fp32",
    "float": "fp32",
    "single": "fp32",
    "f32": "fp32",
    "tfloat32": "tf32",
    "bfloat16": "bf16",
    "float16": "fp16",
    "half": "fp16",
    "f16": "fp16",
    "float8": "fp8",
    "float8_e4m3": "fp8",
    "float8_e4m3fn": "fp8",
    "float8_e4m3fnuz": "fp8",
    "float8_e5m2": "fp8",
    "fp8_e4m3": "fp8",
    "fp8_e5m2": "fp8",
    "fp8_ds_mla": "fp8",
    "e4m3": "fp8",
    "e5m2": "fp8",
    "mxfp8": "fp8",
    "i8": "int8",
    "float4": "fp4",
    "float4_e2m1fn_x2": "fp4",
    "e2m1": "fp4",
    "mxfp4": "fp4",
    "nvfp4": "fp4",
    "i4": "int4",
}

# A device without units for a format converts operands to the next format here that it has.
COMPUTE_FALLBACK = {
    "fp32": (),
    "tf32": ("fp32",),
    "bf16": ("fp16", "fp32"),
    "fp16": ("bf16", "fp32"),
    "fp8": ("bf16", "fp16", "fp32"),
    "int8": ("bf16", "fp16", "fp32"),
    "fp4": ("bf16", "fp16", "fp32"),  # engines unpack 4-bit floats and multiply in 16 bits
    "int4": ("int8", "bf16", "fp16", "fp32"),
}


def canonical_dtype(name: str) -> str:
    """Return the short name of a number format.

    Parameters
    ----------
    name
        Any spelling used by PyTorch, Hugging Face or an engine; a ``torch.`` prefix and case do not matter.

    Returns
    -------
    str
        One of ``DTYPES``.

    Examples
    --------
    >>> canonical_dtype("torch.bfloat16"), canonical_dtype("float8_e4m3fn"), canonical_dtype("NVFP4")
    ('bf16', 'fp8', 'fp4')
    >>> canonical_dtype("fp7")
    Traceback (most recent call last):
    latency_model.errors.InputError: 'fp7' is not a number format; did you mean 'fp8' or 'fp4' or 'fp32'?
    """
    if isinstance(name, str):
        folded = name.strip().casefold().removeprefix("torch.")
        short = _ALIASES.get(folded, folded)
        if short in DTYPES:
            return short
    raise InputError(f"{shorten(name)} is not a number format; {nearest(name, DTYPES)}")


def dtype_bytes(name: str) -> float:
    """Return the bytes one element takes.

    Parameters
    ----------
    name
        Any spelling ``canonical_dtype`` accepts.

    Returns
    -------
    float
        Size [B], without block scales.

    Examples
    --------
    >>> dtype_bytes("half"), dtype_bytes("mxfp4")
    (2.0, 0.5)
    """
    return DTYPES[canonical_dtype(name)]
