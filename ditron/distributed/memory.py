"""Symmetric memory: tensors that every rank of a group has at the same place of its heap."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ditron.distributed.group import Group, require_group
from ditron.distributed.packets import PacketMemory
from ditron.distributed.ranks import barrier
from ditron_compiler.analysis.packet_layout import place_bytes
from ditron_compiler.errors import DitronError

if TYPE_CHECKING:
    import torch

__all__ = ["symm_empty", "symm_free", "symm_packets", "symm_zeros"]


def symm_empty(
    *shape: int | Sequence[int], dtype: torch.dtype, name: str = "", group: Group | None = None
) -> torch.Tensor:
    """A symmetric tensor: every rank of the group gets one, at the same place of its heap. Collective over the group.

    Args:
        shape: extents, as separate integers or one sequence. dtype: of the elements. Contents are undefined.
        name: what reports of the simulator and the sanitizer call it, e.g. ``signals[3]``.

    Raises DitronError when the ranks do not ask for the same shape and dtype, MemoryError when the heap is full.

        workspace = ditron.symm_empty(1024, 512, dtype=torch.bfloat16)
    """
    if not isinstance(name, str):
        raise DitronError(f"symm_empty: expected a string as name, got {name!r}")
    return require_group(group, "ditron.symm_empty()").allocate(_extents(shape), _dtype(dtype), name)


def _extents(shape: tuple) -> tuple[int, ...]:
    listed = shape[0] if len(shape) == 1 and isinstance(shape[0], Sequence) else shape
    try:
        extents = tuple(operator.index(extent) for extent in listed)
    except TypeError:
        raise DitronError(f"symm_empty: expected integers as extents, got {tuple(listed)}") from None
    if not all(extent > 0 for extent in extents):
        raise DitronError(
            f"symm_empty: expected extents of at least 1, got {extents}: symmetric memory is made once, "
            "for the largest size that is needed"
        )
    return extents


def _dtype(dtype: torch.dtype) -> torch.dtype:
    import torch

    if not isinstance(dtype, torch.dtype):
        raise DitronError(f"symm_empty: expected a torch dtype such as torch.float32, got {dtype!r}")
    return dtype


def symm_zeros(
    *shape: int | Sequence[int], dtype: torch.dtype, name: str = "", group: Group | None = None
) -> torch.Tensor:
    """As :func:`symm_empty`, filled with zeros on every rank before any rank returns: what signals start as."""
    tensor = symm_empty(*shape, dtype=dtype, name=name, group=group)
    tensor.zero_()
    barrier(group)
    return tensor


def symm_packets(*shape: int | Sequence[int], nbytes: int, name: str = "", group: Group | None = None) -> torch.Tensor:
    """Packet memory (int64 zeros, ``[*shape, words]``) for messages of up to ``nbytes`` bytes, two at each place.

    Kernels of the pipelines ``"low-latency..."`` take it where they say signals: signal ``i`` of the kernel is place
    ``i``. Compiled by another pipeline they find their signals in it too, at its beginning. A launch that gives them
    other memory, or less of it for each signal than their messages need, raises DitronError.

        signals = ditron.symm_packets(num_ranks, nbytes=CHUNK * 2)
    """
    import torch

    if not isinstance(nbytes, int) or nbytes < 0:
        raise DitronError(
            f"symm_packets: expected nbytes of 0 or more, got {nbytes!r}: the size of the largest message"
        )
    place = place_bytes(nbytes)
    tensor = symm_zeros(*_extents(shape), place // 8, dtype=torch.int64, name=name, group=group)
    require_group(group, "ditron.symm_packets()").packets[tensor.data_ptr()] = PacketMemory(tensor.nbytes, place)
    return tensor


def symm_free(tensor: torch.Tensor, group: Group | None = None) -> None:
    """Give a symmetric tensor back, on every rank in the same order. Waits until no rank uses it."""
    barrier(group)
    group = require_group(group, "ditron.symm_free()")
    group.free(tensor)
    group.packets.pop(tensor.data_ptr(), None)
