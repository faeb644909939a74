"""The heap of the world under transport ``p2p``: it grows, or is torch's of a fixed size."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

from ditron.distributed.address_space import AddressSpace, NoMemory
from ditron.distributed.growing_heap import GrowingHeap
from ditron.distributed.heap import Heap, TorchHeap
from ditron.distributed.local_sockets import GroupSockets, LocalSockets
from ditron.distributed.virtual_memory import CudaError, VirtualMemory
from ditron_compiler import knobs
from ditron_compiler.errors import DitronError

if TYPE_CHECKING:
    import torch

__all__ = ["make_p2p_heap"]

_TIMES_MEMORY = 4  # addresses per byte of the GPU: room for segments that lie apart


class _Unavailable(Exception):
    """Why memory cannot be mapped as needed; raised on every rank alike."""


def make_p2p_heap(
    heap_bytes: int | None, device: torch.device, process_group: Any, rank: int, world_ranks: list[int]
) -> Heap:
    """The world's heap, of the kind that ``DITRON_HEAP`` names. Collective."""
    fixed = heap_bytes or knobs.symmetric_size.get()
    if knobs.heap.get() == "vmm":
        initial = fixed if heap_bytes or knobs.symmetric_size.is_set else 0
        try:
            return _growing(initial, device, process_group, rank, world_ranks)
        except _Unavailable as reason:
            if rank == 0:
                warnings.warn(
                    f"symmetric memory does not grow here, because {reason}: each group has {fixed} bytes of torch's "
                    "symmetric memory (DITRON_SYMMETRIC_SIZE, ditron.init(heap_bytes=...))",
                    RuntimeWarning,
                    stacklevel=4,
                )
    return TorchHeap(fixed, device, process_group, world_ranks)


def _growing(initial: int, device: torch.device, process_group: Any, rank: int, world_ranks: list[int]) -> GrowingHeap:
    import torch
    import torch.distributed as dist

    def all_gather(value: Any) -> list:
        gathered: list[Any] = [None] * len(world_ranks)
        dist.all_gather_object(gathered, value, group=process_group)
        return gathered

    def agree(reason: str, value: Any = None) -> list:
        answers = all_gather((reason, value))
        reasons = [f"rank {peer}: {text}" for peer, (text, _) in enumerate(answers) if text]
        if reasons:
            raise _Unavailable("; ".join(reasons))
        return [given for _, given in answers]

    torch.cuda.synchronize(device)  # makes the GPU's context the current one
    memory, reason, total = None, "", 0
    try:
        memory = VirtualMemory(device.index)
        reason, (_, total) = memory.missing, memory.info()
    except (DitronError, CudaError) as error:
        reason = str(error)
    smallest = min(agree(reason, total))
    assert memory is not None
    space = None
    try:
        nbytes = 1 << (_TIMES_MEMORY * smallest - 1).bit_length()
        space = AddressSpace(memory, rank, len(world_ranks), nbytes, torch.cuda.empty_cache)
    except CudaError as error:
        reason = str(error)
    try:
        agree(reason)
        assert space is not None
        sockets = LocalSockets.connect(rank, all_gather)
    except (_Unavailable, OSError) as error:
        if space is not None:
            space.close()
        raise _Unavailable(str(error)) from None
    try:
        return GrowingHeap(space, device, GroupSockets(sockets, world_ranks, "the world"), initial=initial)
    except NoMemory as error:
        space.close()
        sockets.close()
        raise _Unavailable(str(error)) from None
