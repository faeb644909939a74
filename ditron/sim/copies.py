"""Tensors of copies, fills and signals on a stream, as the native machine takes them: rows with a pitch."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ditron import _sim
from ditron.sim.report import host_error
from ditron_compiler.host.rows import pitched_rows

if TYPE_CHECKING:
    import torch

__all__ = ["check_signal", "copy_of", "fill_of", "named_operands"]


def check_signal(what: str, signal: torch.Tensor, count: int | None, line: str) -> None:
    """Raise SimulationError unless a tensor is ``count`` signals (None: one or more)."""
    import torch

    if (
        signal.dtype != torch.int64
        or not signal.is_contiguous()
        or signal.numel() < 1
        or (count is not None and signal.numel() != count)
    ):
        wanted = "one int64 element" if count == 1 else "contiguous int64 elements, at least one"
        raise host_error(
            f"{what}: expected {wanted}, got {signal.numel()} of {signal.dtype}: pass a view such as "
            "signals[i:i + 1] or signals[i]",
            line,
        )


def named_operands(named: Iterable[tuple[str, torch.Tensor]]) -> list[_sim.Operand]:
    """Tensors by the names that reports call them."""
    return [_sim.Operand(name, tensor.data_ptr(), _span(tensor), tensor.itemsize) for name, tensor in named]


def _span(tensor: torch.Tensor) -> int:
    """Bytes from the first element to the end of the last."""
    if tensor.numel() == 0:
        return 0
    last = sum((extent - 1) * stride for extent, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return (last + 1) * tensor.itemsize


def copy_of(what: str, src: torch.Tensor, dst: torch.Tensor, line: str) -> _sim.StridedCopy:
    """A copy between tensors of the same shape and dtype. Raises SimulationError for others."""
    for name, tensor in (("src", src), ("dst", dst)):
        if tensor.device.type != "cpu":
            raise host_error(
                f"{what}: {name} is on {tensor.device}: make tensors of the simulator on ditron.device()", line
            )
    if src.shape != dst.shape or src.dtype != dst.dtype:
        raise host_error(
            f"{what}: expected src and dst of the same shape and dtype, got {list(src.shape)} of {src.dtype} "
            f"and {list(dst.shape)} of {dst.dtype}",
            line,
        )
    rows, nbytes, to_pitch, from_pitch = _rows(what, dst, src, line)
    return _sim.StridedCopy(rows, nbytes, dst.data_ptr(), to_pitch, src.data_ptr(), from_pitch, src.itemsize,
                            is_data=src.dtype.is_floating_point)  # fmt: skip


def fill_of(dst: torch.Tensor, value: int | float, line: str) -> _sim.StridedCopy:
    """A fill of a tensor with one value."""
    import torch

    rows, nbytes, pitch, _ = _rows("fill", dst, dst, line)
    element = bytes(torch.tensor([value]).to(dst.dtype).view(torch.uint8).tolist())
    return _sim.StridedCopy(rows, nbytes, dst.data_ptr(), pitch, 0, 0, dst.itemsize, element,
                            is_data=dst.dtype.is_floating_point)  # fmt: skip


def _rows(what: str, dst: torch.Tensor, src: torch.Tensor, line: str) -> tuple[int, int, int, int]:
    """How many rows, bytes in a row, and the pitches of both sides in bytes."""
    rows = pitched_rows(dst.shape, src.stride(), dst.stride(), dst.itemsize)
    if rows is None:
        raise host_error(
            f"{what}: expected rows, each without a gap, at one distance from each other; got shape "
            f"{list(dst.shape)} with strides {list(src.stride())} and {list(dst.stride())}: enqueue a copy "
            "for each part, or make one side contiguous",
            line,
        )
    return rows.height, rows.width, rows.dst_pitch, rows.src_pitch
