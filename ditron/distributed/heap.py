"""Symmetric memory on GPUs: a heap per group and rank, laid out alike on every rank.

Because every rank of a group allocates the same sizes in the same order (checked, see :func:`ditron.symm_empty`), an
object lies at the same offset on every rank: that is what lets ``symm_at`` translate a pointer with one subtraction and
one addition.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from ditron.distributed.context import barrier_area_bytes
from ditron.distributed.local_sockets import GroupSockets
from ditron.distributed.ranges import RangeAllocator
from ditron_compiler.errors import DitronError

if TYPE_CHECKING:
    import torch

__all__ = ["FixedHeap", "Heap", "TorchHeap", "held_text", "size_text"]

_SHOWN = 8  # names in a message


class Heap:
    """What the heaps of all providers share.

    Attributes:
        base: address of this rank's heap. peer_bases: where each rank's is mapped here, 0 where it is not.
        barrier_offset: of the in-kernel barriers' counters. nbytes: behind which offset nothing of the group lies.
        team: of the provider; 0 where it has no teams.
        peers: connections to the group's processes, where the heap has them.
        held: name and bytes of what is allocated, by offset.
    """

    base: int
    peer_bases: list[int]
    barrier_offset = 0
    team = 0
    peers: GroupSockets | None = None

    def __init__(self) -> None:
        self.held: dict[int, tuple[str, int]] = {}

    @property
    def nbytes(self) -> int:
        raise NotImplementedError

    def allocate(self, shape: tuple[int, ...], dtype: torch.dtype, name: str) -> torch.Tensor:
        """A tensor of ``shape`` and ``dtype`` in the heap; contents are undefined. Every rank has asked for the same.

        Raises MemoryError, on every rank, when there is no memory on one.
        """
        count = 1
        for extent in shape:
            count *= extent
        nbytes = count * dtype.itemsize
        offset = self._allocate(nbytes, name)
        self.held[offset] = name, nbytes
        return self._bytes(offset, nbytes).view(dtype).view(shape)

    def free(self, tensor: torch.Tensor) -> None:
        """Give back what :meth:`allocate` returned; no rank uses it any more."""
        offset = tensor.data_ptr() - self.base
        try:
            self._free(offset)
        except KeyError:
            raise DitronError(
                f"symm_free: expected a tensor that symm_empty returned, got one at offset {offset} of "
                "the symmetric heap, which is no allocation (freed twice, or a view?)"
            ) from None
        self.held.pop(offset, None)

    def _allocate(self, nbytes: int, name: str) -> int:
        """Offset of fresh memory."""
        raise NotImplementedError

    def _free(self, offset: int) -> None:
        """Raises KeyError for what is no allocation."""
        raise NotImplementedError

    def _bytes(self, offset: int, nbytes: int) -> torch.Tensor:
        raise NotImplementedError

    def subgroup(self, ranks: list[int], process_group: Any, member: bool) -> Heap | None:
        """The heap of some world ranks, None where this rank is no member. Of the world's heap, collective over it."""
        raise NotImplementedError

    def of_process_group(self, ranks: list[int], process_group: Any) -> Heap:
        """The heap of a process group of torch; collective over its ranks alone."""
        raise NotImplementedError

    def on_module_loaded(self, module: int) -> None:
        """Called with the driver's handle of each module that was loaded."""

    def finalize(self, in_use: bool = False) -> None:
        """Return the memory; where this rank's GPU still uses it, leave it to the end of the process."""
        raise NotImplementedError


class FixedHeap(Heap):
    """One allocation, of a size that is given, cut up: ``buffer`` (uint8)."""

    def __init__(self, buffer: torch.Tensor, peer_bases: list[int], num_ranks: int):
        super().__init__()
        self.buffer, self.base, self.peer_bases = buffer, buffer.data_ptr(), peer_bases
        # The in-kernel barriers' counters lie at offset 0, before anything a user allocates.
        area = barrier_area_bytes(num_ranks)
        buffer[:area].zero_()
        self._ranges = RangeAllocator(area, buffer.numel())

    @property
    def nbytes(self) -> int:
        return self.buffer.numel()

    def _allocate(self, nbytes: int, name: str) -> int:
        offset = self._ranges.allocate(nbytes)
        if offset is None:
            raise MemoryError(
                f"symm_empty: no room for {name or 'a tensor'} ({size_text(nbytes)}) in a symmetric heap of "
                f"{size_text(self.nbytes)}, whose largest free range has {size_text(self._ranges.largest)}; it holds "
                f"{held_text(self.held.values())}. Make it larger (DITRON_SYMMETRIC_SIZE or "
                "ditron.init(heap_bytes=...)), or give back what is not needed: program.free(), symm_free()"
            )
        return offset

    def _free(self, offset: int) -> None:
        self._ranges.free(offset)

    def _bytes(self, offset: int, nbytes: int) -> torch.Tensor:
        return self.buffer[offset : offset + nbytes]


class TorchHeap(FixedHeap):
    """Peers' memory mapped into this process by torch symmetric memory: one node, nothing extra to install."""

    def __init__(self, nbytes: int, device: torch.device, process_group: Any, world_ranks: list[int]):
        import torch
        import torch.distributed as dist
        import torch.distributed._symmetric_memory as symm_mem

        buffer = symm_mem.empty(nbytes, dtype=torch.uint8, device=device)
        self._handle: Any = symm_mem.rendezvous(buffer, process_group)
        order = dist.get_process_group_ranks(process_group)  # ascending, whatever was asked for
        bases = [int(self._handle.buffer_ptrs[order.index(rank)]) for rank in world_ranks]
        super().__init__(buffer, bases, len(world_ranks))

    def subgroup(self, ranks: list[int], process_group: Any, member: bool) -> Heap | None:
        return TorchHeap(self.nbytes, self.buffer.device, process_group, ranks) if member else None

    def of_process_group(self, ranks: list[int], process_group: Any) -> Heap:
        return TorchHeap(self.nbytes, self.buffer.device, process_group, ranks)

    def finalize(self, in_use: bool = False) -> None:
        self._handle = None


def size_text(nbytes: int) -> str:
    """``3.0 GiB``."""
    for unit, scale in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if nbytes >= scale:
            return f"{nbytes / scale:.1f} {unit}"
    return f"{nbytes} bytes"


def held_text(held: Iterable[tuple[str, int]]) -> str:
    """What is allocated, by name, the largest first; a program's buffers are named ``program.buffer``."""
    sums: dict[str, tuple[int, int]] = {}
    for name, nbytes in held:
        count, total = sums.get(name, (0, 0))
        sums[name] = count + 1, total + nbytes
    listed = sorted(sums.items(), key=lambda item: -item[1][1])
    texts = [
        f"{name or 'tensors without a name'} {size_text(total)}" + (f" (in {count})" if count > 1 else "")
        for name, (count, total) in listed[:_SHOWN]
    ]
    rest = sum(total for _, (_, total) in listed[_SHOWN:])
    return ", ".join(texts + ([f"others {size_text(rest)}"] if rest else [])) or "nothing"
