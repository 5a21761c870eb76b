"""How a weight matrix is stored: bits per weight, scales, and the arithmetic the engine multiplies in."""

from __future__ import annotations

import math

from attrs import frozen

from latency_model.errors import InputError, nearest, shorten

__all__ = ["FORMATS", "WeightFormat", "weight_format"]


@frozen(kw_only=True)
class WeightFormat:
    """One way to store the weights of a matrix.

    Parameters
    ----------
    name : str
        What people call it: ``bf16``, ``fp8_block``, ``mxfp4``, ``nvfp4``, ``int4``...
    bits : float
        Bits of one weight without its scales [bit].
    compute : str
        Number format of the multiplication (the peak and efficiency that apply).  Weight-only formats
        multiply in ``bf16``.
    block : tuple of int
        Weights that share one scale, as (inputs, outputs); 0 stands for the whole dimension.
    scale_bytes : float
        Bytes of one scale (zero point included) [B]; 0 for formats without scales.
    tensor_bytes : float
        Bytes stored once per matrix, such as a global scale [B].

    Examples
    --------
    >>> weight_format("fp8_block").matrix_bytes(256, 128)  # 32768 weights and two fp32 scales
    32776.0
    """

    name: str
    bits: float
    compute: str
    block: tuple[int, int] = (0, 0)
    scale_bytes: float = 0.0
    tensor_bytes: float = 0.0

    def matrix_bytes(self, inputs: int, outputs: int) -> float:
        """Bytes of an [inputs, outputs] matrix with its scales [B]."""
        along_inputs = math.ceil(inputs / self.block[0]) if self.block[0] else 1
        along_outputs = math.ceil(outputs / self.block[1]) if self.block[1] else 1
        scales = along_inputs * along_outputs * self.scale_bytes
        return inputs * outputs * self.bits / 8 + scales + self.tensor_bytes


#: Formats by name.  Block shapes and scale types as the checkpoints of each method store them:
#: DeepSeek fp8 (128 x 128 fp32 scales), OCP MX v1.0 (32 weights, one E8M0 byte), NVFP4 (16 weights, one E4M3
#: byte, one fp32 per tensor), AWQ and GPTQ (128 weights along the inputs, fp16 scale and 4-bit zero point).
FORMATS: dict[str, WeightFormat] = {
    format.name: format
    for format in (
        WeightFormat(name="fp32", bits=32, compute="fp32"),
        WeightFormat(name="bf16", bits=16, compute="bf16"),
        WeightFormat(name="fp16", bits=16, compute="fp16"),
        WeightFormat(name="fp8", bits=8, compute="fp8", tensor_bytes=4.0),
        WeightFormat(name="fp8_channel", bits=8, compute="fp8", block=(0, 1), scale_bytes=4.0),
        WeightFormat(name="fp8_block", bits=8, compute="fp8", block=(128, 128), scale_bytes=4.0),
        WeightFormat(name="int8", bits=8, compute="int8", block=(0, 1), scale_bytes=4.0),
        WeightFormat(name="int4", bits=4, compute="bf16", block=(128, 1), scale_bytes=2.5),
        WeightFormat(name="mxfp4", bits=4, compute="bf16", block=(32, 1), scale_bytes=1.0),
        WeightFormat(name="nvfp4", bits=4, compute="fp4", block=(16, 1), scale_bytes=1.0, tensor_bytes=4.0),
    )
}


def weight_format(name: str) -> WeightFormat:
    """Look a weight format up by name."""
    try:
        return FORMATS[name]
    except (KeyError, TypeError):
        raise InputError(f"weight format {shorten(name)} is not known; {nearest(name, FORMATS)}") from None
