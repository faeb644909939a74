"""One address range per rank, into which physical memory is mapped as needed, at the same offset on every rank."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from ditron.distributed.local_sockets import GroupSockets
from ditron.distributed.ranges import Ranges
from ditron.distributed.virtual_memory import OUT_OF_MEMORY, CudaError, VirtualMemory

__all__ = ["AddressSpace", "NoMemory"]


class NoMemory(Exception):
    """Memory cannot be had on every rank; ``failures`` says why, by world rank. Raised on every rank alike."""

    def __init__(self, failures: dict[int, str]):
        super().__init__("; ".join(f"rank {rank}: {text}" for rank, text in failures.items()))
        self.failures = failures


@dataclass(frozen=True)
class _Segment:
    nbytes: int
    ranks: Sequence[int]  # world ranks whose memory is mapped here
    owner: int  # the group's number


class AddressSpace:
    """The addresses of the world's symmetric memory in this process: ``bases[r] + offset`` is rank ``r``'s memory.

    The bases never change. A segment belongs to one group: its ranks agree on an offset that is free on all of them,
    and map each other's memory there; other ranks may use the offset for groups of theirs.

    Args:
        memory: of this process's GPU. rank, num_ranks: of the world. nbytes: of each rank's range.
        empty_cache: gives unused memory of torch's allocator back to the GPU.
    """

    def __init__(
        self,
        memory: VirtualMemory,
        rank: int,
        num_ranks: int,
        nbytes: int,
        empty_cache: Callable[[], None] = lambda: None,
    ):
        self.memory, self.rank, self.nbytes, self._empty_cache = memory, rank, nbytes, empty_cache
        self.granularity = memory.granularity
        self._span = memory.reserve(num_ranks * nbytes)
        self.bases = [self._span + peer * nbytes for peer in range(num_ranks)]
        self.held: dict[int, tuple[str, int]] = {}  # name and bytes of what is allocated, in all groups of this rank
        self.closed = False
        self._unmapped = Ranges([(0, nbytes)])
        self._segments: dict[int, _Segment] = {}

    @property
    def mapped(self) -> int:
        """Bytes of this rank's memory that are mapped."""
        return sum(segment.nbytes for segment in self._segments.values())

    def owned_by(self, owner: int) -> list[int]:
        """The offsets of a group's segments."""
        return [offset for offset, segment in self._segments.items() if segment.owner == owner]

    def map(self, peers: GroupSockets, owner: int, nbytes: int) -> int:
        """Map ``nbytes`` (a multiple of the granularity) of every rank of the group; returns the offset. Collective.

        Raises NoMemory.
        """
        handle, failure = None, ""
        descriptors: list[int] = []
        failures: dict[int, str] = {}
        try:
            try:
                handle = self._create(nbytes)
                descriptors.append(self.memory.export(handle))
            except CudaError as error:
                failure = self._text(error)
            room = [[start, end] for start, end in self._unmapped.all if end - start >= nbytes]
            answers = peers.all_gather("growing", [failure, room], descriptors[0] if descriptors else None)
            given = dict(zip(peers.ranks, (descriptor for _, descriptor in answers), strict=True))
            descriptors += [fd for rank, fd in given.items() if rank != self.rank and fd is not None]
            for rank, ((text, _), _) in zip(peers.ranks, answers, strict=True):
                if text:
                    failures[rank] = text
            offset = Ranges.common(Ranges(free) for (_, free), _ in answers).first_fit(nbytes)
            if offset is None and not failures:
                failures = dict.fromkeys(peers.ranks, f"its {self.nbytes} addresses are used up")
            if offset is not None and handle is not None and not failures:
                failure = self._map_all(offset, nbytes, handle, given)
                if not failure:
                    self._unmapped.remove(offset, offset + nbytes)
                    self._segments[offset] = _Segment(nbytes, tuple(peers.ranks), owner)
                outcomes = peers.values("mapping", failure)
                failures = {rank: text for rank, text in zip(peers.ranks, outcomes, strict=True) if text}
                if failures and not failure:
                    self.unmap(offset)
        finally:
            for descriptor in descriptors:
                os.close(descriptor)
            if handle is not None:
                self.memory.release(handle)  # what is mapped stays
        if failures or offset is None:
            raise NoMemory(failures)
        return offset

    def unmap(self, offset: int) -> None:
        """Undo :meth:`map` here. The GPUs have finished what uses the segment; it is free once all ranks did this."""
        segment = self._segments.pop(offset)
        for rank in segment.ranks:
            self.memory.unmap(self.bases[rank] + offset, segment.nbytes)
        for start in [start for start in self.held if offset <= start < offset + segment.nbytes]:
            del self.held[start]
        self._unmapped.add(offset, offset + segment.nbytes)

    def close(self, in_use: bool = False) -> None:
        """Unmap everything and give the addresses back, also when the GPU has failed. May be called again.

        What the GPU still uses cannot be unmapped: then it is left to the end of the process.
        """
        if self.closed:
            return
        self.closed = True
        if in_use:
            return
        for offset in list(self._segments):
            with suppress(CudaError):
                self.unmap(offset)
        with suppress(CudaError):
            self.memory.unreserve(self._span, len(self.bases) * self.nbytes)

    def _create(self, nbytes: int) -> int:
        try:
            return self.memory.create(nbytes)
        except CudaError as error:
            if error.code != OUT_OF_MEMORY:
                raise
            self._empty_cache()
            return self.memory.create(nbytes)

    def _map_all(self, offset: int, nbytes: int, own: int, given: dict[int, int | None]) -> str:
        """Map the ranks' memory; returns what failed."""
        done: list[int] = []
        try:
            for rank, descriptor in given.items():
                if descriptor is None:
                    raise OSError(f"rank {rank}'s file descriptor did not arrive (too many open files?)")
                handle = own if rank == self.rank else self.memory.import_(descriptor)
                try:
                    self.memory.map(self.bases[rank] + offset, nbytes, handle)
                finally:
                    if rank != self.rank:
                        self.memory.release(handle)  # what is mapped stays
                done.append(rank)
        except (CudaError, OSError) as error:
            for rank in done:
                self.memory.unmap(self.bases[rank] + offset, nbytes)
            return self._text(error)
        return ""

    def _text(self, error: Exception) -> str:
        if not isinstance(error, CudaError) or error.code != OUT_OF_MEMORY:
            return str(error)
        try:
            free, total = self.memory.info()
        except CudaError:
            return str(error)
        return f"{error}, with {free >> 20} MiB of {total >> 20} MiB free"
