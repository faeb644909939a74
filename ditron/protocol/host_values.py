"""Which values of tensors host code knows while no kernel runs, for the protocol checker.

A tensor that a script fills holds what it would hold in a run. One of ``torch.empty`` does not, nor one that a launch
may have written to, nor what is computed from these.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import torch
from torch.utils._pytree import tree_leaves

from ditron.sim.host_accesses import HostAccessMode

__all__ = ["HostValuesMode", "bytes_at"]

_UNDEFINED = frozenset(("empty", "empty_like", "new_empty", "empty_strided", "new_empty_strided", "empty_permuted"))
#: In-place operations that do not read what they write to.
_OVERWRITES = frozenset(("zero_", "fill_", "copy_", "random_", "uniform_", "normal_", "bernoulli_", "exponential_"))


class HostValuesMode(HostAccessMode):
    """Also notes which values are known, and of what host code writes to captured memory, the bytes."""

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        rank, given = self._rank, kwargs or {}
        rank.host_writes.clear()
        result = super().__torch_dispatch__(func, types, args, kwargs)
        schema = getattr(func, "_schema", None)
        name = getattr(getattr(func, "overloadpacket", None), "__name__", "")
        if schema is None:
            return result
        written = {id(tensor) for tensor in _written(schema, args, given)}
        inputs = [tensor for tensor in tree_leaves((args, given)) if isinstance(tensor, torch.Tensor)]
        known = all(rank.knows(tensor) for tensor in inputs if id(tensor) not in written or name not in _OVERWRITES)
        if name in _UNDEFINED:
            known = False
        for tensor in inputs:
            if id(tensor) in written and (not known or (name in _OVERWRITES and _is_whole(tensor))):
                rank.mark(tensor, known)
        views = any(r.alias_info is not None for r in schema.returns) and name != "lift_fresh"
        for tensor in () if views else tree_leaves(result):
            if isinstance(tensor, torch.Tensor):
                rank.mark(tensor, known)
        rank.fill_host_writes(known)
        return result


def _written(schema: Any, args: tuple, kwargs: dict) -> Iterator[Any]:
    for number, argument in enumerate(schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            value = args[number] if number < len(args) else kwargs.get(argument.name)
            yield from (tensor for tensor in tree_leaves(value) if isinstance(tensor, torch.Tensor))


def _is_whole(tensor: Any) -> bool:
    return tensor.numel() * tensor.itemsize == tensor.untyped_storage().nbytes()


def bytes_at(runs: Iterable[tuple[int, int]]) -> list[np.ndarray]:
    """A copy of the bytes at each (address, length)."""
    return [
        np.frombuffer((ctypes.c_uint8 * nbytes).from_address(address), dtype=np.uint8).copy() if nbytes else np.empty(0)
        for address, nbytes in runs
    ]
