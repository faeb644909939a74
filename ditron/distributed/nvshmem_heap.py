"""Symmetric memory of NVSHMEM."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ditron.distributed.heap import FixedHeap, Heap
from ditron_compiler.errors import DitronError

if TYPE_CHECKING:
    import torch

__all__ = ["NvshmemHeap"]

_nonmember_heaps: list[Heap] = []  # of groups that this rank is no member of: NVSHMEM allocates on every rank


class NvshmemHeap(FixedHeap):
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
        self._device = device

    def subgroup(self, ranks: list[int], process_group: Any, member: bool) -> Heap | None:
        heap = NvshmemHeap(self.nbytes, self._device, ranks)
        if member:
            return heap
        _nonmember_heaps.append(heap)
        return None

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

    def finalize(self, in_use: bool = False) -> None:
        import nvshmem.core as shmem

        shmem.free_tensor(self._tensor)
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
