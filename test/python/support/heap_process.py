"""One process of a world whose GPUs are fake: ``heap_process.py RANK RANKS FOLDER WHAT``; prints what it found as JSON.

Everything is real but the GPU: torch.distributed over gloo, the sockets between processes, the file descriptors.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time
import warnings

import torch
import torch.distributed as dist
from fake_vmm import FakeCuda, FakeMemory, host_tensor

import ditron
from ditron.distributed import growing_heap, p2p_heap, state
from ditron.distributed.gpu_group import GpuGroup

UNIT = 1 << 20


def start(rank: int, ranks: int, folder: str, cuda: FakeCuda) -> GpuGroup:
    """What ``ditron.init`` does under torchrun."""
    growing_heap.SMALLEST_SEGMENT = UNIT
    torch.cuda.synchronize = torch.cuda.empty_cache = lambda *_: None
    p2p_heap.VirtualMemory = lambda _: FakeMemory(cuda)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=ranks)
    device, world = torch.device("cpu"), list(range(ranks))
    heap = p2p_heap.make_p2p_heap(None, device, dist.group.WORLD, rank, world)
    group = GpuGroup(world, rank, "p2p", device, dist.group.WORLD, heap, ranks)
    state.set_world(group)
    return group


def peer(tensor: torch.Tensor, rank: int, group: GpuGroup) -> torch.Tensor:
    """Another rank's instance, by the addresses in the context that a kernel is given."""
    context = group.context.tolist()
    offset = tensor.data_ptr() - context[8]
    assert 0 <= offset < context[9]
    return host_tensor(context[16 + rank] + offset, tensor.nbytes).view(tensor.dtype)


def sockets() -> int:
    """Open Unix domain sockets; gloo's are others."""
    found = 0
    for fd in os.listdir("/proc/self/fd"):
        if os.path.exists(f"/proc/self/fd/{fd}") or os.path.islink(f"/proc/self/fd/{fd}"):
            if os.readlink(f"/proc/self/fd/{fd}").startswith("socket"):
                with socket.socket(fileno=os.dup(int(fd))) as copy:
                    found += copy.family == socket.AF_UNIX
    return found


def grow(rank: int, ranks: int, folder: str) -> dict:
    """Allocate in the world and in groups, write, and read every rank's memory."""
    cuda = FakeCuda(256 << 20)
    world = start(rank, ranks, folder, cuda)
    wrong, tensors = 0, []
    groups = [world, ditron.new_group([0, 1]), ditron.new_group([1]), ditron.new_group([2, 1])]
    for turn in range(1, 4):
        for number, group in enumerate(groups):
            if group:
                tensor = ditron.symm_zeros(100_000 * turn, dtype=torch.int32, name=f"t{number}", group=group)
                tensor.fill_(1000 * number + 100 * turn + rank)
                tensors.append((group, number, turn, tensor))
    ditron.barrier()
    for group, number, turn, tensor in tensors:
        for index, other in enumerate(group.ranks):
            wrong += peer(tensor, index, group).unique().tolist() != [1000 * number + 100 * turn + other]
    ditron.barrier()
    used, connected = cuda.used, sockets()
    for group, _, _, tensor in tensors:
        ditron.symm_free(tensor, group=group)
    returned = used - cuda.used
    ditron.finalize()
    ditron.finalize()
    return {
        "wrong": wrong,
        "returned": returned,
        "used": cuda.used,
        "reserved": len(cuda.reserved),
        "sockets": [connected, sockets()],
    }


def different(rank: int, ranks: int, folder: str) -> dict:
    """Ranks that ask for different tensors."""
    start(rank, ranks, folder, FakeCuda())
    try:
        ditron.symm_empty(10 + rank // 2, dtype=torch.int32)
    except ditron.DitronError as error:
        ditron.finalize()
        return {"error": str(error)}
    return {}


def leave(rank: int, ranks: int, folder: str) -> dict:
    """Rank 1 ends without a word; the others are told, and end well."""
    world = start(rank, ranks, folder, FakeCuda())
    ditron.barrier()
    if rank == 1:
        os._exit(3)
    try:
        ditron.symm_empty(1000, dtype=torch.int32)
    except ditron.DitronError as error:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            ditron.finalize()
        dist.destroy_process_group()
        return {
            "error": str(error),
            "warned": [str(item.message) for item in caught],
            "closed": world.heap.space.closed,
        }
    return {}


def stuck(rank: int, ranks: int, folder: str) -> dict:
    """Rank 1 ends by an error while the others' GPUs wait for it."""
    world = start(rank, ranks, folder, FakeCuda())
    ditron.barrier()
    if rank == 1:
        raise RuntimeError("the user's error")
    torch.cuda.synchronize = lambda *_: time.sleep(1000)
    errors = []
    for call in (ditron.synchronize, ditron.barrier):
        try:
            call()
        except ditron.DitronError as error:
            errors.append(str(error))
    begin = time.perf_counter()
    with warnings.catch_warnings(record=True):
        warnings.simplefilter("always")
        ditron.finalize()
    dist.destroy_process_group()
    return {"errors": errors, "seconds": time.perf_counter() - begin, "mapped": len(world.heap.space._segments)}


def unfinished(rank: int, ranks: int, folder: str) -> dict:
    """The process ends without ``ditron.finalize``, with tensors and groups alive in globals."""
    world = start(rank, ranks, folder, FakeCuda())
    globals()["kept"] = ditron.symm_zeros(1000, dtype=torch.int32), ditron.new_group([0, 1]), world
    ditron.barrier()
    dist.destroy_process_group()  # gloo's threads are not what is tested
    return {}


def fallback(rank: int, ranks: int, folder: str) -> dict:
    """A GPU without virtual memory management on rank 1: every rank takes torch's heap, rank 0 says why."""
    cuda = FakeCuda()
    cuda.attributes[102] = 0 if rank == 1 else 1
    torch.cuda.synchronize = lambda *_: None
    p2p_heap.TorchHeap = lambda nbytes, *_: f"torch {nbytes}"
    p2p_heap.VirtualMemory = lambda _: FakeMemory(cuda)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=ranks)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        heap = p2p_heap.make_p2p_heap(1 << 20, torch.device("cpu"), dist.group.WORLD, rank, list(range(ranks)))
    dist.destroy_process_group()
    return {"heap": heap, "warned": [str(item.message) for item in caught], "reserved": len(cuda.reserved)}


if __name__ == "__main__":
    os.environ["DITRON_HEAP"] = "vmm"
    _, mine, count, where, what = sys.argv
    print("RESULT", json.dumps(globals()[what](int(mine), int(count), where)), flush=True)
