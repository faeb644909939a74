"""Accesses of host code, by torch operations, to tensors that others may use, for race detection."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING, Any

import torch
from torch._ops import HigherOrderOperator
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from ditron.sim.report import failure
from ditron_compiler.source_location import caller_line

if TYPE_CHECKING:
    from ditron.sim.rank import RankView

__all__ = ["HostAccessMode", "byte_ranges"]

# A view with more rows than this is taken as the whole range that it spans.
_MAX_ROWS = 4096


class HostAccessMode(TorchDispatchMode):
    """Within it, every torch operation of this thread on symmetric memory, and while there is work on streams on any
    memory, is reported as an access of host code.

    Accesses that bypass torch (``tensor.numpy()``, ctypes) are not recorded.
    """

    supports_higher_order_operators = True
    sees_into_operators = True  # ditron.kernels need not be called through torch for it

    def __init__(self, rank: RankView):
        super().__init__()
        self._rank = rank
        rank.host_mode = self

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs = kwargs or {}
        if isinstance(
            func, HigherOrderOperator
        ):  # as torch.cond: what it calls is not known, so it reads all of its arguments
            for value in tree_leaves((args, kwargs)):
                if isinstance(value, torch.Tensor):
                    self._access(value, writes=False)
            return func(*args, **kwargs)
        for number, name, writes in _tensor_arguments(func):
            value = args[number] if number < len(args) else kwargs.get(name)
            if isinstance(value, torch.Tensor):
                self._access(value, writes)
            elif value is not None:
                for tensor in _tensors(value):
                    self._access(tensor, writes)
        return func(*args, **kwargs)

    def _access(self, tensor: torch.Tensor, writes: bool) -> None:
        if self._rank.may_race(tensor):
            line = caller_line()
            for address, nbytes in byte_ranges(tensor):
                for report in self._rank.host_access(address, nbytes, writes, line):
                    raise failure(report)


@cache
def _tensor_arguments(func: Any) -> tuple[tuple[int, str, bool], ...]:
    """Number, name, and whether it is written, of each argument that may hold tensors; none for what makes a view."""
    schema = func._schema
    if any(result.alias_info is not None and not result.alias_info.is_write for result in schema.returns):
        return ()
    return tuple(
        (number, argument.name, argument.alias_info is not None and argument.alias_info.is_write)
        for number, argument in enumerate(schema.arguments)
        if "Tensor" in str(argument.type)
    )


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for entry in value:
            yield from _tensors(entry)


def byte_ranges(tensor: torch.Tensor) -> Iterator[tuple[int, int]]:
    """Address and length of the runs of bytes that a tensor covers."""
    if tensor.numel() == 0:
        return
    if tensor.is_contiguous():
        yield tensor.data_ptr(), tensor.nbytes
        return
    # Dimensions by falling stride: the last ones may be contiguous together.
    extents = sorted(((s, n) for n, s in zip(tensor.shape, tensor.stride(), strict=True) if n > 1), reverse=True)
    run = tensor.itemsize
    while extents and extents[-1][0] * tensor.itemsize == run:
        run *= extents.pop()[1]
    starts = [tensor.data_ptr()]
    for stride, extent in extents:
        starts = [start + i * stride * tensor.itemsize for start in starts for i in range(extent)]
        if len(starts) > _MAX_ROWS:
            span = sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True)) + 1
            yield tensor.data_ptr(), span * tensor.itemsize
            return
    yield from ((start, run) for start in starts)
