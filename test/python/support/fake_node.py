"""Ranks of one node as threads, each with a fake GPU: symmetric memory that grows, without GPUs and torch.distributed."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import torch
from fake_vmm import FakeCuda, FakeMemory, host_tensor

from ditron.distributed.address_space import AddressSpace
from ditron.distributed.growing_heap import GrowingHeap
from ditron.distributed.local_sockets import GroupSockets, LocalSockets

SECONDS = 20.0  # that a rank waits for another


@dataclass
class Rank:
    """One rank: its fake driver, and the world's heap."""

    rank: int
    cuda: FakeCuda
    sockets: LocalSockets
    heap: GrowingHeap

    def allocate(self, count: int, name: str = "", heap: GrowingHeap | None = None) -> torch.Tensor:
        return (heap or self.heap).allocate((count,), torch.int32, name)

    def peer(self, tensor: torch.Tensor, rank: int, heap: GrowingHeap | None = None) -> torch.Tensor:
        """Another rank's instance of a tensor, by the addresses that a kernel would use."""
        heap = heap or self.heap
        address = tensor.data_ptr() - heap.base + heap.peer_bases[rank]
        return host_tensor(address, tensor.nbytes).view(tensor.dtype)

    def meet(self) -> None:
        """Wait for all ranks."""
        self.heap.peers.values("meet", None)


def all_gathers(ranks: int) -> list[Callable[[Any], list]]:
    """One ``all_gather`` per thread."""
    barrier, values = threading.Barrier(ranks, timeout=SECONDS), [None] * ranks

    def of(rank: int) -> Callable[[Any], list]:
        def all_gather(value: Any) -> list:
            values[rank] = value
            barrier.wait()
            gathered = list(values)
            barrier.wait()
            return gathered

        return all_gather

    return [of(rank) for rank in range(ranks)]


def on_node(
    body: Callable[[Rank], Any],
    ranks: int,
    total: int = 64 << 20,
    initial: int = 0,
    prepare: Callable = lambda *_: None,
) -> list:
    """``body`` on every rank; what each returned, or the error it raised. ``prepare(rank, cuda)`` is called first."""
    gathers = all_gathers(ranks)

    def run(rank: int) -> Any:
        cuda = FakeCuda(total)
        prepare(rank, cuda)
        sockets = LocalSockets.connect(rank, gathers[rank], SECONDS)
        sockets.seconds = SECONDS
        space = AddressSpace(FakeMemory(cuda), rank, ranks, 16 * total)
        try:
            peers = GroupSockets(sockets, range(ranks), "the world")
            heap = GrowingHeap(space, torch.device("cpu"), peers, initial=initial)
            return body(Rank(rank, cuda, sockets, heap))
        except Exception as error:
            return error
        finally:
            space.close()
            sockets.close()

    with ThreadPoolExecutor(ranks) as threads:
        return list(threads.map(run, range(ranks)))
