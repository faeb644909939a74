"""Arguments of a kernel as the simulator takes them: 64-bit slots."""

from __future__ import annotations

import struct

__all__ = ["FLOATS", "float_bits"]

#: Formats of ``struct`` by MLIR's and Triton's names of types; bf16 has none.
FLOATS = {"f16": "e", "fp16": "e", "f32": "f", "fp32": "f", "f64": "d", "fp64": "d", "bf16": ""}


def float_bits(value: float, kind: str) -> int:
    """The bits of a float of a type in :data:`FLOATS`; bfloat16 is rounded to nearest, ties to even."""
    if kind != "bf16":
        return int.from_bytes(struct.pack("<" + FLOATS[kind], value), "little")
    bits = struct.unpack("<I", struct.pack("<f", float(value)))[0]
    if bits & 0x7FFFFFFF <= 0x7F800000:  # not NaN
        bits = (bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFFFFFF
    return bits >> 16
