"""Element types of buffers: torch's, and how MLIR spells them."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

__all__ = ["as_allocated", "dtypes", "from_mlir", "names_of", "to_mlir"]


@cache
def _table() -> dict[torch.dtype, str]:
    import torch

    return {
        torch.bfloat16: "bf16",
        torch.float16: "f16",
        torch.float32: "f32",
        torch.float64: "f64",
        torch.int64: "i64",
        torch.int32: "i32",
        torch.int16: "i16",
        torch.int8: "i8",
        torch.uint8: "i8",
        torch.bool: "i1",
        torch.float8_e4m3fn: "f8E4M3FN",
        torch.float8_e5m2: "f8E5M2",
    }


def dtypes() -> list[torch.dtype]:
    """All that programs have."""
    return list(_table())


def names_of(listed: list[torch.dtype]) -> str:
    """``"bfloat16, float16"``."""
    return ", ".join(str(dtype).removeprefix("torch.") for dtype in listed)


def to_mlir(dtype: torch.dtype) -> str:
    """``"bf16"``; KeyError for a dtype that kernels do not have."""
    return _table()[dtype]


@cache
def from_mlir(spelled: str) -> torch.dtype:
    """The dtype to allocate; integers are signed."""
    for dtype, name in _table().items():
        if name == spelled:
            return dtype
    raise KeyError(spelled)


def as_allocated(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor by the dtype that memory of its elements is allocated with: uint8 is int8, as MLIR has one i8."""
    import torch

    return tensor.view(torch.int8) if tensor.dtype == torch.uint8 else tensor
