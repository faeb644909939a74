"""Element types: what a tile's element is in the kernel, in a register, in a tile buffer and in memory.

A narrow float (bf16, f16, fp8) is *carried* in an f32 that always holds a value of the narrow type: every operation
computes in f32 and rounds, which is what the GPU does, and a tile of bf16 is then already the f32 buffer a dot wants.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

_FLOAT_BITS = {
    "f64": 64,
    "f32": 32,
    "f16": 16,
    "bf16": 16,
    "f8E5M2": 8,
    "f8E4M3FN": 8,
    "f8E5M2FNUZ": 8,
    "f8E4M3FNUZ": 8,
}
# ABI numbers of ditron_sim_atomic_rmw's dtype (runtime/sim/abi/abi.h); 6 and 7 are the unsigned views of i32 and i64.
_ABI_DTYPE = {"i32": 0, "i64": 1, "f32": 2, "f16": 3, "bf16": 4, "f64": 5}


@dataclass(frozen=True)
class Elem:
    """One element type; `name` is MLIR's spelling (`bf16`, `i32`), or `ptr` with `pointee` set."""

    name: str
    kind: str  # "int" | "float" | "ptr"
    bits: int
    pointee: Elem | None = None

    @property
    def narrow(self) -> bool:
        return self.kind == "float" and self.bits < 32

    @property
    def carrier(self) -> str:
        """Type of one element as an SSA value."""
        if self.kind == "ptr":
            return "!llvm.ptr"
        return "f32" if self.narrow else self.name

    @property
    def stored(self) -> str:
        """Type of one element in a tile buffer."""
        return "i8" if self.name == "i1" else self.carrier

    @property
    def memory(self) -> str:
        """Type of one element in the user's memory; narrow floats other than f16 are moved as their bits."""
        if self.kind == "ptr":
            return "!llvm.ptr"
        if self.name == "i1":
            return "i8"
        return f"i{self.bits}" if self.narrow and self.name != "f16" else self.name

    @property
    def bytes(self) -> int:
        return max(self.bits, 8) // 8

    @property
    def stored_bytes(self) -> int:
        return 4 if self.narrow else self.bytes

    @property
    def abi_dtype(self) -> int | None:
        return _ABI_DTYPE.get(self.name)


@dataclass(frozen=True)
class Shaped:
    """A value's type: `shape` is None for a scalar; `elem` is None for a token, which has no data, or a descriptor."""

    shape: tuple[int, ...] | None
    elem: Elem | None
    block: Shaped | None = None  # of a tensor descriptor

    @property
    def is_tile(self) -> bool:
        return self.shape is not None and self.elem is not None

    @property
    def is_token(self) -> bool:
        return self.elem is None and self.block is None


class UnsupportedType(Exception):
    """A type the simulator does not compute with."""


I1 = Elem("i1", "int", 1)
I32 = Elem("i32", "int", 32)
I64 = Elem("i64", "int", 64)
F32 = Elem("f32", "float", 32)
F64 = Elem("f64", "float", 64)


def _element(text: str) -> Elem:
    text = text.strip()
    if text.startswith("!tt.ptr<"):
        inner = re.sub(r",\s*\d+\s*$", "", text[len("!tt.ptr<") : -1])
        if inner.startswith("tensor<"):
            raise UnsupportedType("a pointer to a block (tl.make_block_ptr); use a tensor descriptor")
        return Elem("ptr", "ptr", 64, _element(inner))
    integer = re.fullmatch(r"[su]?i(1|8|16|32|64)", text)  # a descriptor's block type keeps the sign
    if integer:
        return Elem(f"i{integer[1]}", "int", int(integer[1]))
    if text in _FLOAT_BITS:
        return Elem(text, "float", _FLOAT_BITS[text])
    raise UnsupportedType(f"element type {text}")


@cache
def parse_type(text: str) -> Shaped:
    """Read a type by its spelling, which is the same whichever MLIR printed it."""
    if text == "!ditron.token":
        return Shaped(None, None)
    if text.startswith("!tt.tensordesc<"):
        block = text[len("!tt.tensordesc<") : -1]  # Triton up to 3.8 writes tensor<4x8xf32> there, 3.9 just 4x8xf32
        return Shaped(None, None, parse_type(block if block.startswith("tensor<") else f"tensor<{block}>"))
    if text.startswith("tensor<"):
        body = text[len("tensor<") : -1].split(", ")[0]
        dims = re.match(r"(?:\d+x)*", body).group()
        shape = tuple(int(d) for d in dims.split("x")[:-1])
        return Shaped(shape, _element(body[len(dims) :]))
    return Shaped(None, _element(text))
