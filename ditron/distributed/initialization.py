"""``ditron.init`` and ``ditron.finalize``: how a process, or a simulated rank, becomes a rank of the world."""

from __future__ import annotations

import os
import sys
import sysconfig
from typing import NoReturn

from ditron.distributed import state
from ditron.distributed.gpu_group import GpuGroup
from ditron.distributed.group import Group
from ditron.distributed.heap import Heap
from ditron.distributed.nvshmem_heap import NvshmemHeap
from ditron.distributed.p2p_heap import make_p2p_heap
from ditron.distributed.simulated_group import SimulatedGroup
from ditron_compiler import knobs
from ditron_compiler.errors import DitronError, NodesError
from ditron_compiler.source_location import caller

__all__ = ["ImportedScriptError", "finalize", "init"]

TRANSPORTS = ("p2p", "nvshmem", "rocshmem")


class ImportedScriptError(DitronError):
    """A file that is imported for what it defines calls :func:`init`."""


def init(
    sim: int | None = None,
    *,
    ranks_per_node: int | None = None,
    transport: str | None = None,
    heap_bytes: int | None = None,
    seed: int | None = None,
    sanitize: bool | int | None = None,
    max_nodes: int | None = None,
) -> Group:
    """Make this process (or simulated rank) a rank of the world and return the world group.

    Args:
        sim: run the calling script on that many simulated ranks. Ignored when the script already runs under
            ``ditron run --sim`` or ``torchrun``, so a script may name its favourite number and still run on GPUs.
        ranks_per_node: ranks of one node. Default: all on the simulator; ``LOCAL_WORLD_SIZE`` under torchrun.
        transport: ``"p2p"`` (one node, nothing extra to install) or ``"nvshmem"`` / ``"rocshmem"``.
            Default: the environment variable ``DITRON_TRANSPORT``, else ``"p2p"``.
        heap_bytes: symmetric memory that is mapped at once and kept, in bytes (default: 64 MiB); more is mapped as
            needed. Where it cannot grow (``DITRON_HEAP=torch``, NVSHMEM), all that a rank has in each group (default:
            ``DITRON_SYMMETRIC_SIZE``, else 1 GiB).
        seed: of the simulator's schedule (default 0).
        sanitize: run kernels on GPUs with the sanitizer (docs/sanitizer.md; the simulator always checks): True, or
            2 to wait for each launch too. Default: ``DITRON_SANITIZE``, else off.
        max_nodes: how many nodes the script is for: 1 when it stores by ``symm_at`` to every rank. ``ditron check``
            checks no more.

    Raises DitronError when there is neither a simulator nor a GPU to run on, saying how to get one; NodesError on more
    than ``max_nodes`` nodes.

        import ditron
        ditron.init()
        print(ditron.rank(), "of", ditron.num_ranks())
    """
    if state.is_importing():
        raise ImportedScriptError(f"{caller()}: ditron.init() is called when the file is imported")
    from ditron.sim.rank import current_world

    simulated, existing = current_world(), state.current_group()
    # A thread of the simulator is a rank of its own, also in a process whose world is on GPUs.
    if existing is not None and (simulated is None or existing.is_sim):
        return existing
    if simulated is not None:
        _check_nodes(simulated.world_size, simulated.ranks_per_node, max_nodes)
        group: Group = SimulatedGroup(range(simulated.world_size), simulated, simulated.world_group)
    elif _under_torchrun():
        sanitize = int(knobs.sanitize.get() if sanitize is None else sanitize)
        group = _gpu_world(transport, heap_bytes, ranks_per_node, sanitize, max_nodes)
    elif sim is not None:
        _run_script(sim, ranks_per_node, seed)
    else:
        raise DitronError(
            "ditron.init() found no ranks: start the script by 'torchrun --nproc-per-node N SCRIPT' on a "
            "machine with GPUs, or by 'ditron run --sim N SCRIPT' (or ditron.init(sim=N)) anywhere"
        )
    state.set_world(group)
    return group


def _run_script(ranks: int, ranks_per_node: int | None, seed: int | None) -> NoReturn:
    """Run the calling script on simulated ranks, as ``ditron run`` does, and exit with its code."""
    script = getattr(sys.modules["__main__"], "__file__", None)
    if script is None:
        raise DitronError(
            "ditron.init(sim=N) runs the calling script once per rank, and there is no script here "
            "(an interactive session?): put the code in a function and call "
            "ditron.sim.run(function, ranks=N)"
        )
    if _is_installed(script):
        raise DitronError(
            f"ditron.init(sim={ranks}) runs the calling script once per rank, and that is {script}, which is installed "
            "and not yours (a test runner?): put the code in a function and call ditron.sim.run(function, "
            f"ranks={ranks})"
        )
    if ranks < 1 or (ranks_per_node is not None and (ranks_per_node < 1 or ranks % ranks_per_node)):
        raise DitronError(
            f"ditron.init(sim={ranks}, ranks_per_node={ranks_per_node}): expected at least 1 rank, and ranks_per_node "
            "to divide them"
        )
    from ditron.script_errors import reported
    from ditron.sim.script_run import ScriptRun

    run = ScriptRun(script, sys.argv[1:], ranks, ranks_per_node)
    sys.exit(reported(lambda: run(seed), [script]))


def _is_installed(script: str) -> bool:
    """Whether a script belongs to Python or a package, as pytest's does."""
    path = os.path.realpath(script)
    places = {sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib", "scripts")}
    return any(path.startswith(os.path.realpath(place) + os.sep) for place in places)


def _under_torchrun() -> bool:
    import torch.distributed as dist

    return dist.is_available() and (dist.is_initialized() or knobs.under_torchrun())


def _check_nodes(ranks: int, ranks_per_node: int, max_nodes: int | None) -> None:
    if max_nodes is not None and ranks > max_nodes * ranks_per_node:
        raise NodesError(
            f"ditron.init(max_nodes={max_nodes}): the world has {ranks} ranks on nodes of "
            f"{ranks_per_node}: start the script on fewer"
        )


def _gpu_world(
    transport: str | None, heap_bytes: int | None, ranks_per_node: int | None, sanitize: int, max_nodes: int | None
) -> GpuGroup:
    import torch
    import torch.distributed as dist

    if not torch.cuda.is_available():
        raise DitronError(
            "ditron.init() under torchrun found no GPU: run the script by 'ditron run --sim N SCRIPT' on "
            "a machine without one"
        )
    transport = transport or knobs.transport.get() or "p2p"
    if transport not in TRANSPORTS:
        raise DitronError(f"unknown transport {transport!r}: expected one of {', '.join(TRANSPORTS)}")
    if transport == "rocshmem":
        raise DitronError(
            "transport 'rocshmem' compiles (ditron compile --transport rocshmem) but has no host runtime "
            "here yet: rocSHMEM publishes no Python bindings; use 'p2p' on one node"
        )
    ranks_per_node = ranks_per_node or knobs.local_world_size.get()
    device = torch.device("cuda", knobs.local_rank.get())
    torch.cuda.set_device(device)
    if not dist.is_initialized():
        dist.init_process_group("cpu:gloo,cuda:nccl", device_id=device)
    world_rank, world_size = dist.get_rank(), dist.get_world_size()
    _check_nodes(world_size, ranks_per_node, max_nodes)
    if transport == "p2p" and world_size > ranks_per_node:
        raise DitronError(
            f"transport 'p2p' reaches the GPUs of one node, and the world has {world_size} ranks on "
            f"nodes of {ranks_per_node}: use transport 'nvshmem'"
        )
    ranks = list(range(world_size))
    if transport == "p2p":
        heap: Heap = make_p2p_heap(heap_bytes, device, dist.group.WORLD, world_rank, ranks)
    else:
        NvshmemHeap.initialize(device, world_rank, world_size)
        heap = NvshmemHeap(heap_bytes or knobs.symmetric_size.get(), device, ranks)
    return GpuGroup(ranks, world_rank, transport, device, dist.group.WORLD, heap, ranks_per_node, sanitize)


def finalize() -> None:
    """Leave the world: collective, gives symmetric memory back. Tensors of :func:`symm_empty` are dead after it."""
    group = state.clear()
    if group is not None:
        group.finalize()
