"""Symmetric memory on GPUs: one heap per group and rank, laid out alike on every rank.

A heap is one allocation of a SHMEM provider, cut up here. Because every rank of a group allocates the same sizes in the
same order (checked, see :func:`ditron.symm_empty`), an object lies at the same offset on every rank: that is what lets
``symm_at`` translate a pointer with one subtraction and one addition.
"""

from __future__ import annotations

import bisect
from typing import TYPE_CHECKING, Any

from ditron.distributed.context import barrier_area_bytes
from ditron_compiler.errors import DitronError

if TYPE_CHECKING:
    import torch

__all__ = ["ALIGNMENT", "Heap", "NvshmemHeap", "P2PHeap", "RangeAllocator"]

# What cudaMalloc gives, and more than any vector access or TMA descriptor asks for.
ALIGNMENT = 256


def _round_up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple


class RangeAllocator:
    """First fit over ``[start, end)``, deterministic, so that ranks that ask alike are answered alike.

    >>> ranges = RangeAllocator(0, 1024)
    >>> a, b = ranges.allocate(100), ranges.allocate(100)
    >>> ranges.free(a)
    >>> (a, b, ranges.allocate(10))
    (0, 256, 0)
    """

    def __init__(self, start: int, end: int):
        self._free: list[tuple[int, int]] = [(_round_up(start, ALIGNMENT), end)]
        self._used: dict[int, int] = {}

    @property
    def largest(self) -> int:
        """Bytes of the largest free range."""
        return max((end - start for start, end in self._free), default=0)

    def allocate(self, nbytes: int) -> int:
        """Offset of ``nbytes`` fresh bytes, aligned to :data:`ALIGNMENT`. Raises MemoryError when none are left."""
        size = max(_round_up(nbytes, ALIGNMENT), ALIGNMENT)
        for index, (start, end) in enumerate(self._free):
            if end - start >= size:
                self._free[index : index + 1] = [(start + size, end)] if end - start > size else []
                self._used[start] = size
                return start
        raise MemoryError(
            f"{nbytes} bytes asked of a symmetric heap whose largest free range is {self.largest}: "
            "raise DITRON_SYMMETRIC_SIZE or ditron.init(heap_bytes=...)"
        )

    def free(self, offset: int) -> None:
        """Give back what :meth:`allocate` gave. Raises KeyError for an offset that is not in use."""
        start, end = offset, offset + self._used.pop(offset)
        at = bisect.bisect(self._free, (start, end))
        if at < len(self._free) and self._free[at][0] == end:
            end = self._free.pop(at)[1]
        if at and self._free[at - 1][1] == start:
            at -= 1
            start = self._free.pop(at)[0]
        self._free.insert(at, (start, end))


class Heap:
    """What the heaps of all providers share: ``buffer`` (uint8), ``peer_bases`` and the ranges in use."""

    buffer: torch.Tensor
    peer_bases: list[int]
    team = 0  # of the provider; 0 where it has no teams

    def __init__(self, buffer: torch.Tensor, peer_bases: list[int], num_ranks: int):
        self.buffer = buffer
        self.peer_bases = peer_bases
        # The in-kernel barriers' counters lie at offset 0, before anything a user allocates.
        area = barrier_area_bytes(num_ranks)
        buffer[:area].zero_()
        self._ranges = RangeAllocator(area, buffer.numel())

    @property
    def base(self) -> int:
        return self.buffer.data_ptr()

    def allocate(self, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        """A tensor of ``shape`` and ``dtype`` in the heap. Contents are undefined."""
        count = 1
        for extent in shape:
            count *= extent
        nbytes = count * dtype.itemsize
        offset = self._ranges.allocate(nbytes)
        return self.buffer[offset : offset + nbytes].view(dtype).view(shape)

    def free(self, tensor: torch.Tensor) -> None:
        offset = tensor.data_ptr() - self.base
        try:
            self._ranges.free(offset)
        except KeyError:
            raise DitronError(
                f"symm_free: expected a tensor that symm_empty returned, got one at offset {offset} of "
                "the symmetric heap, which is no allocation (freed twice, or a view?)"
            ) from None

    def on_module_loaded(self, module: int) -> None:
        """Called with the driver's handle of each module that was loaded."""
        raise NotImplementedError

    def finalize(self) -> None:
        """Return the memory. Collective."""
        raise NotImplementedError


class P2PHeap(Heap):
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

    def on_module_loaded(self, module: int) -> None:
        """Nothing to do: p2p kernels reach peers through their context alone."""

    def finalize(self) -> None:
        """Return the memory."""
        self._handle = None


class NvshmemHeap(Heap):
    """Memory of NVSHMEM through nvshmem4py: scale-out, and one node too.

    Collective over the world, as nvshmem_malloc is: every rank makes every group's heap, whether it is a member or not.
    """

    def __init__(self, nbytes: int, device: torch.device, world_ranks: list[int]):
        import nvshmem.core as shmem

        self.team = _nvshmem_team(world_ranks)
        self._tensor = shmem.bytetensor((nbytes,), dtype=_uint8())
        # 0 where the peer's memory cannot be reached by loads and stores, i.e. on another node.
        bases = [_nvshmem_ptr(self._tensor.data_ptr(), rank) for rank in world_ranks]
        super().__init__(self._tensor, bases, len(world_ranks))

    @staticmethod
    def initialize(device: torch.device, rank: int, world_size: int) -> None:
        """Start NVSHMEM from the torch process group: rank 0's unique id goes to all through a broadcast."""
        import torch.distributed as dist

        try:
            import nvshmem.core as shmem
            from cuda.core import Device
        except ImportError as error:
            raise DitronError(
                "transport 'nvshmem' needs nvshmem4py: pip install 'ditron[nvshmem-cu13]' "
                f"(or nvshmem-cu12), or use transport 'p2p' on one node ({error})"
            ) from error
        _let_bootstrap_find_loopback()
        cuda_device = Device(device.index)
        cuda_device.set_current()
        uid = shmem.get_unique_id(empty=rank != 0)
        box = [uid._data.tobytes() if rank == 0 else None]
        dist.broadcast_object_list(box, src=0)
        if rank != 0:
            import numpy

            assert box[0] is not None
            uid._data[:] = numpy.frombuffer(box[0], dtype=uid._data.dtype).reshape(uid._data.shape)
        shmem.init(device=cuda_device, uid=uid, rank=rank, nranks=world_size, initializer_method="uid")

    def on_module_loaded(self, module: int) -> None:
        """NVSHMEM's device state is a variable of each loaded module, filled by this call."""
        from nvshmem import bindings

        bindings.cumodule_init(module)

    def finalize(self) -> None:
        import nvshmem.core as shmem

        shmem.free_tensor(self._tensor)

    @staticmethod
    def shut_down() -> None:
        import nvshmem.core as shmem

        shmem.finalize()


def _uint8() -> torch.dtype:
    import torch

    return torch.uint8


def _nvshmem_team(world_ranks: list[int]) -> int:
    """Handle of the NVSHMEM team of these PEs; collective over the world."""
    import ctypes

    from nvshmem import bindings

    team_world = 0
    num_pes = bindings.n_pes()
    if world_ranks == list(range(num_pes)):
        return team_world
    start = world_ranks[0]
    stride = world_ranks[1] - start if len(world_ranks) > 1 else 1
    if stride < 1 or world_ranks != list(range(start, start + stride * len(world_ranks), stride)):
        raise DitronError(
            "new_group: NVSHMEM teams are strided (start, start + k, start + 2 k, ...), got ranks "
            f"{world_ranks}: use such ranks, or transport 'p2p'"
        )
    team = ctypes.c_int32(-1)
    bindings.team_split_strided(team_world, start, stride, len(world_ranks), 0, 0, ctypes.addressof(team))
    return team.value


def _nvshmem_ptr(address: int, pe: int) -> int:
    from nvshmem import bindings

    return int(bindings.ptr(address, pe) or 0)


def _let_bootstrap_find_loopback() -> None:
    """NVSHMEM's socket bootstrap skips ``lo``; on a machine with no other interface it must be named."""
    import os
    import socket

    names = [name for _, name in socket.if_nameindex()]
    if names == ["lo"]:
        os.environ.setdefault("NVSHMEM_BOOTSTRAP_UID_SOCK_IFNAME", "lo")
