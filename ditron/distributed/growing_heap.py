"""Symmetric memory that grows by itself: a group's part of the world's address space."""

from __future__ import annotations

import gc
import weakref
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ditron.distributed.address_space import AddressSpace, NoMemory
from ditron.distributed.context import barrier_area_bytes
from ditron.distributed.heap import Heap, held_text, size_text
from ditron.distributed.local_sockets import GroupSockets
from ditron.distributed.ranges import RangeAllocator, round_up
from ditron_compiler.errors import DitronError

if TYPE_CHECKING:
    import torch

__all__ = ["SMALLEST_SEGMENT", "GrowingHeap"]

SMALLEST_SEGMENT = 64 << 20
_LARGEST_STEP = 1 << 30  # ahead of what is asked for; a tensor may be larger
_COLLECT = 8  # groups
_WORLD = 0  # the world's number among the groups


class _Lease:
    """Lives as long as a group's heap or one of its tensors does."""


@dataclass
class _Subgroup:
    """What every rank of the world knows of a group."""

    ranks: list[int]
    barrier_offset: int
    process_group: Any  # torch's, where this rank is a member


class GrowingHeap(Heap):
    """A heap that maps memory as it is asked for, and returns a segment when nothing is in it any more.

    ``base`` and ``peer_bases`` are those of the address space, and stay. The barriers' counters of a group that
    is made collectively over the world lie in the world's memory.

    Args:
        space: of the world. device: of the tensors. peers: the group's ranks. number: of the group.
        barrier_offset: None for the world, which allocates its counters itself.
        initial: bytes that are mapped at once, and kept.

    Collective over the group. Raises :class:`NoMemory` on every rank when ``initial`` bytes cannot be mapped on one.
    """

    peers: GroupSockets

    def __init__(
        self,
        space: AddressSpace,
        device: torch.device,
        peers: GroupSockets,
        number: int = _WORLD,
        barrier_offset: int | None = None,
        initial: int = 0,
    ):
        super().__init__()
        self.space, self.device, self.peers, self._number = space, device, peers, number
        self.held = space.held
        self.base = space.bases[space.rank]
        self.peer_bases = [space.bases[rank] for rank in peers.ranks]
        self._lease = _Lease()
        self._ranges = RangeAllocator()
        self._segments: dict[int, tuple[int, bool]] = {}  # bytes, and whether it is kept, by offset
        self._area = barrier_area_bytes(len(peers.ranks))
        self._subgroups: dict[int, _Subgroup] = {}  # of the world
        self._dropped: list[int] = []  # numbers of groups whose lease has ended here
        self._last_number, self._last_own = number, _WORLD
        if barrier_offset is None:
            self._map(max(initial, self._area) if initial else SMALLEST_SEGMENT, keep=True)
            barrier_offset = self._allocate(self._area, "")
        self.barrier_offset = barrier_offset
        self._bytes(barrier_offset, self._area).zero_()

    @property
    def nbytes(self) -> int:
        ends = [offset + nbytes for offset, (nbytes, _) in self._segments.items()]
        return max(ends, default=self.barrier_offset + self._area)

    def _allocate(self, nbytes: int, name: str) -> int:
        if self.space.closed:
            raise DitronError("symm_empty: after ditron.finalize()")
        offset = self._ranges.allocate(nbytes)
        if offset is None:
            self._grow(nbytes, name)
            offset = self._ranges.allocate(nbytes)
            assert offset is not None
        return offset

    def _grow(self, nbytes: int, name: str) -> None:
        """Map a segment for ``nbytes``, with room for more unless memory is short. Every rank does the same."""
        if self._number == _WORLD:
            self._return_dropped()
        mapped = sum(size for size, _ in self._segments.values())
        ahead = max(SMALLEST_SEGMENT, min(1 << (mapped // 4).bit_length() - 1 if mapped >= 4 else 0, _LARGEST_STEP))
        for size in dict.fromkeys((max(nbytes, ahead), nbytes)):
            try:
                return self._map(size)
            except NoMemory as error:
                failure = error
        raise MemoryError(
            f"symm_empty: no memory for {name or 'a tensor'} ({size_text(nbytes)}): {failure}. Symmetric memory has "
            f"{size_text(self.space.mapped)} on rank {self.space.rank}, and holds {held_text(self.held.values())}. "
            "Give back what is not needed: program.free(), ditron.symm_free(tensor), and tensors of torch"
        ) from None

    def _map(self, nbytes: int, keep: bool = False) -> None:
        size = round_up(nbytes, self.space.granularity)
        offset = self.space.map(self.peers, self._number, size)
        self._segments[offset] = size, keep
        self._ranges.extend(offset, offset + size)

    def free(self, tensor: torch.Tensor) -> None:
        """Give it back; segments without tensors are unmapped. Collective, after a barrier."""
        if self.space.closed:
            raise DitronError("symm_free: after ditron.finalize(), which has freed everything")
        offset = tensor.data_ptr() - self.base
        offsets = self.peers.values("symm_free()", offset)
        if offsets != [offset] * len(offsets):
            raise DitronError(
                f"symm_free: expected every rank to free the same tensor, got offsets {offsets}: free in the same order"
            )
        super().free(tensor)
        if self._return_unused():
            self.peers.values("returning memory", None)  # it is free when no rank maps it

    def _free(self, offset: int) -> None:
        self._ranges.free(offset)

    def _return_unused(self) -> bool:
        """Unmap the segments in which nothing is allocated; returns whether there were any."""
        unused = [
            (offset, size)
            for offset, (size, keep) in self._segments.items()
            if not keep and self._ranges.is_free(offset, offset + size)
        ]
        for offset, size in unused:
            self._ranges.shrink(offset, offset + size)
            del self._segments[offset]
            self.space.unmap(offset)
        return bool(unused)

    def _bytes(self, offset: int, nbytes: int) -> torch.Tensor:
        return self.space.memory.tensor(self.base + offset, nbytes, self.device, self._lease)

    def subgroup(self, ranks: list[int], process_group: Any, member: bool) -> Heap | None:
        if len(self._subgroups) > _COLLECT:
            gc.collect()  # some may be held by reference cycles only
        self._return_dropped()
        offset = self._allocate(barrier_area_bytes(len(ranks)), "")
        self._last_number = number = self._last_number + 1
        self._subgroups[number] = _Subgroup(ranks, offset, process_group if member else None)
        if not member:
            return None
        peers = GroupSockets(self.peers.sockets, ranks, f"group {number} of ranks {ranks}")
        heap = GrowingHeap(self.space, self.device, peers, number, offset)
        weakref.finalize(heap._lease, self._dropped.append, number).atexit = False
        return heap

    def of_process_group(self, ranks: list[int], process_group: Any) -> Heap:
        """Its counters lie in its own memory, as the world knows nothing of it. It is kept until :meth:`finalize`."""
        peers = GroupSockets(self.peers.sockets, ranks, f"the process group {process_group.group_name}")
        self._last_own -= 1  # a number in this process only
        try:
            return GrowingHeap(self.space, self.device, peers, self._last_own)
        except NoMemory as error:
            raise MemoryError(f"no symmetric memory for the process group of ranks {ranks}: {error}") from None

    def _return_dropped(self) -> None:
        """Return the memory of groups that no member holds any more. Collective over the world."""
        if not self._subgroups:
            return
        if mine := sorted(self._dropped):
            self.space.memory.synchronize()
        dropped = self.peers.values("new_group()", mine)
        for number, group in list(self._subgroups.items()):
            if not all(number in dropped[rank] for rank in group.ranks):
                continue
            for offset in self.space.owned_by(number):
                self.space.unmap(offset)
            self._ranges.free(group.barrier_offset)
            del self._subgroups[number]
            if number in self._dropped:
                self._dropped.remove(number)
                _destroy(group.process_group)
        self._return_unused()

    def finalize(self, in_use: bool = False) -> None:
        """Unmap the memory of all groups, and leave. May be called again, and when the GPU has failed."""
        self.space.close(in_use)
        self.peers.sockets.close()


def _destroy(process_group: Any) -> None:
    import torch.distributed as dist

    with suppress(ValueError, AssertionError):  # the user has destroyed it
        dist.destroy_process_group(process_group)
