"""Where a program runs: ranks, groups, symmetric tensors and barriers, on GPUs and on the simulator alike.

A script calls :func:`init` and is then one rank of a world:

* under ``torchrun`` on a machine with GPUs, rank ``i`` is a process with a GPU of its own;
* under ``ditron run --sim N`` (or after ``ditron.init(sim=N)``), rank ``i`` is a simulated one, on the CPU.

The same script does both, unchanged: it makes its tensors on :func:`device`, its symmetric ones by :func:`symm_empty`,
and launches kernels, which run in a :class:`Group` and number their ranks in it.
"""

from __future__ import annotations

import operator
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ditron.distributed.context import Slot, barrier_area_bytes, pack
from ditron.distributed.packets import PacketMemory
from ditron_compiler import knobs
from ditron_compiler.analysis.packet_layout import place_bytes
from ditron_compiler.errors import DitronError, NodesError

if TYPE_CHECKING:
    import torch

__all__ = [
    "Group",
    "all_gather_object",
    "barrier",
    "current_group",
    "device",
    "finalize",
    "init",
    "is_initialized",
    "local_rank",
    "new_group",
    "num_ranks",
    "rank",
    "symm_empty",
    "symm_free",
    "symm_packets",
    "symm_zeros",
    "world",
]

TRANSPORTS = ("p2p", "nvshmem", "rocshmem")


class Group:
    """Ranks that run kernels together; a kernel's ``dl.rank()`` is its rank in the group it was launched in.

    Attributes:
        rank: this process's rank in the group; num_ranks: how many there are.
        ranks: world rank of each group rank.
        transport: ``"p2p"``, ``"nvshmem"``, ``"rocshmem"`` or ``"sim"``.
        device: where this rank's tensors live.
        context: int64 tensor that kernels find their peers by (GPUs only, see :mod:`ditron.distributed.context`).
        sanitize: 0; 1 in checked mode on GPUs; 2 when the host also waits for each launch.

    As a context manager it becomes the current group, in which kernels are launched and tensors allocated:

        with ditron.new_group([0, 1]):
            kernel[grid](...)
    """

    def __init__(self, ranks: Sequence[int], world_rank: int, transport: str, device: torch.device):
        self.ranks = list(ranks)
        self.num_ranks = len(self.ranks)
        self.rank = self.ranks.index(world_rank)
        self.transport = transport
        self.device = device
        self.context: torch.Tensor | None = None
        self.packets: dict[int, PacketMemory] = {}  # of symm_packets, by address

    is_sim = False
    sanitize = 0

    def __enter__(self) -> Group:
        _state.stack.append(self)
        return self

    def __exit__(self, *exc: object) -> None:
        _state.stack.pop()

    def __repr__(self) -> str:
        return f"Group(rank {self.rank} of {self.num_ranks}, {self.transport}, world ranks {self.ranks})"

    # What a machine provides; each is collective over the group but `free`.
    def allocate(self, shape: tuple[int, ...], dtype: torch.dtype, name: str) -> torch.Tensor:
        raise NotImplementedError

    def free(self, tensor: torch.Tensor) -> None:
        raise NotImplementedError

    def barrier(self) -> None:
        raise NotImplementedError

    def all_gather_object(self, value: Any) -> list:
        raise NotImplementedError

    def subgroup(self, ranks: Sequence[int]) -> Group | None:
        raise NotImplementedError

    def finalize(self) -> None:
        """Give back what the group holds."""


class GpuGroup(Group):
    """A group of processes with a GPU each."""

    def __init__(
        self,
        ranks: Sequence[int],
        world_rank: int,
        transport: str,
        device: torch.device,
        process_group,
        heap,
        ranks_per_node: int,
        sanitize: int = 0,
    ):
        import torch

        super().__init__(ranks, world_rank, transport, device)
        self.process_group = process_group
        self.heap = heap
        self.ranks_per_node = ranks_per_node
        node = world_rank // ranks_per_node
        local = [r for r in self.ranks if r // ranks_per_node == node]
        fixed = {
            Slot.RANK: self.rank,
            Slot.NUM_RANKS: self.num_ranks,
            Slot.LOCAL_RANK: local.index(world_rank),
            Slot.NUM_LOCAL_RANKS: len(local),
            Slot.NODE: sorted({r // ranks_per_node for r in self.ranks}).index(node),
            Slot.WORLD_RANK: world_rank,
            Slot.WORLD_SIZE: _world_size(),
            Slot.TEAM: heap.team,
            Slot.HEAP_BASE: heap.base,
            Slot.HEAP_BYTES: heap.buffer.numel(),
            Slot.BARRIER_OFFSET: 0,
        }
        self.sanitize = sanitize
        if sanitize:
            from ditron.sanitizer.report import RECORDS, WORDS, Monitor

            buffer = torch.zeros(RECORDS * WORDS, dtype=torch.int64, pin_memory=True)
            self.monitor = Monitor(
                buffer, self.ranks, self.rank, heap.base, heap.buffer.numel(), barrier_area_bytes(self.num_ranks)
            )
            fixed |= {Slot.REPORT: buffer.data_ptr(), Slot.LIMIT_NS: int(knobs.sanitize_seconds.get() * 1e9)}
        self.context = torch.tensor(pack(fixed, heap.peer_bases, self.ranks), dtype=torch.int64, device=device)
        self.barrier()

    def allocate(self, shape: tuple[int, ...], dtype: torch.dtype, name: str) -> torch.Tensor:
        asked = self.all_gather_object((tuple(shape), dtype))
        if any(other != asked[self.rank] for other in asked):
            lines = [f"rank {r} asked for {tuple(s)} {d}" for r, (s, d) in enumerate(asked)]
            raise DitronError(
                f"symm_empty: expected every rank of the group to ask for the same tensor: "
                f"{'; '.join(lines)}: symmetric memory is symmetric, allocate the largest on all ranks"
            )
        tensor = self.heap.allocate(shape, dtype)
        if self.sanitize:
            self.monitor.remember(tensor, name)
        return tensor

    def free(self, tensor: torch.Tensor) -> None:
        self.heap.free(tensor)
        if self.sanitize:
            self.monitor.forget(tensor)

    def barrier(self) -> None:
        import torch
        import torch.distributed as dist

        if self.sanitize:
            from ditron.sanitizer import report as checked

            return checked.meet(self)
        torch.cuda.synchronize(self.device)
        dist.barrier(self.process_group, device_ids=[self.device.index])
        torch.cuda.synchronize(self.device)

    def all_gather_object(self, value: Any) -> list:
        import torch.distributed as dist

        gathered = [None] * self.num_ranks
        dist.all_gather_object(gathered, value, group=self.process_group)
        return gathered

    def subgroup(self, ranks: Sequence[int]) -> Group | None:
        import torch.distributed as dist

        process_group = dist.new_group(list(ranks))
        world_rank = self.ranks[self.rank]
        member = world_rank in ranks
        if self.transport == "p2p":
            if not member:
                return None
            from ditron.distributed.heap import P2PHeap

            heap = P2PHeap(self.heap.buffer.numel(), self.device, process_group, list(ranks))
        else:
            from ditron.distributed.heap import NvshmemHeap

            heap = NvshmemHeap(self.heap.buffer.numel(), self.device, list(ranks))
            if not member:
                _state.kept.append(heap)
                return None
        return GpuGroup(
            ranks, world_rank, self.transport, self.device, process_group, heap, self.ranks_per_node, self.sanitize
        )

    def on_module_loaded(self, kernel: Any) -> None:
        """Called once per kernel after its code was loaded; ``kernel.module`` is the driver's module handle."""
        self.heap.on_module_loaded(kernel.module)

    def finalize(self) -> None:
        self.barrier()
        self.heap.finalize()


class SimGroup(Group):
    """A group of simulated ranks; ``world`` is the rank's view of the machine (:mod:`ditron.sim`)."""

    is_sim = True

    def __init__(self, ranks: Sequence[int], sim_world, handle):
        import torch

        super().__init__(ranks, sim_world.rank, "sim", torch.device("cpu"))
        self.world = sim_world
        self.handle = handle

    def allocate(self, shape: tuple[int, ...], dtype: torch.dtype, name: str) -> torch.Tensor:
        return self.world.alloc(shape, dtype, name=name, group=self.handle, undefined=True)

    def free(self, tensor: torch.Tensor) -> None:
        self.world.free(tensor)

    def barrier(self) -> None:
        self.world.barrier(group=self.handle)

    def all_gather_object(self, value: Any) -> list:
        return self.world.all_gather_object(value, group=self.handle)

    def subgroup(self, ranks: Sequence[int]) -> Group | None:
        handle = self.world.new_group(list(ranks))
        return SimGroup(ranks, self.world, handle) if self.ranks[self.rank] in ranks else None


class _State(threading.local):
    """Per thread, because the simulator's ranks are threads of one process; on GPUs there is one thread that counts."""

    def __init__(self):
        self.stack: list[Group] = []
        self.kept: list = []
        self.importing = False


_state = _State()
_gpu_world: GpuGroup | None = None


def _world_size() -> int:
    import torch.distributed as dist

    return dist.get_world_size()


def current_group() -> Group | None:
    """The group that kernels launched by this thread run in; None before :func:`init`."""
    stack = _state.stack
    if stack:
        return stack[-1]
    return _gpu_world


def _group(group: Group | None, what: str) -> Group:
    group = group or current_group()
    if group is None:
        raise DitronError(
            f"{what} before ditron.init(): call ditron.init() first, under torchrun on GPUs, or as "
            "ditron.init(sim=4) / ditron run --sim 4 SCRIPT on the simulator"
        )
    return group


def is_initialized() -> bool:
    """Whether :func:`init` has been called in this rank."""
    return current_group() is not None


class ImportedScriptError(DitronError):
    """A file that is only looked at calls :func:`init` when it is imported."""


@contextmanager
def importing() -> Iterator[None]:
    """Within it a file is imported to look at what it defines, and :func:`init` raises ImportedScriptError."""
    _state.importing = True
    try:
        yield
    finally:
        _state.importing = False


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
        heap_bytes: symmetric memory per rank in bytes. Default: ``DITRON_SYMMETRIC_SIZE``, else 1 GiB.
        seed: of the simulator's schedule (default 0).
        sanitize: checked mode on GPUs (docs/checked-mode.md; the simulator always checks): True, or 2 to wait for each
            launch too. Default: ``DITRON_SANITIZE``, else off.
        max_nodes: how many nodes the script is for: 1 when it stores by ``symm_at`` to every rank. ``ditron check``
            looks at no more.

    Raises DitronError when there is neither a simulator nor a GPU to run on, saying how to get one; NodesError on more
    than ``max_nodes`` nodes.

        import ditron
        ditron.init()
        print(ditron.rank(), "of", ditron.num_ranks())
    """
    if _state.importing:
        from ditron._program.trace.tracer import place_of_caller

        raise ImportedScriptError(f"{place_of_caller()}: ditron.init() is called when the file is imported")
    from ditron import sim as simulator

    simulated = simulator.current_world()
    existing = current_group()
    # A simulated rank is one also in a process with a GPU group, whose programs the checker records that way.
    if existing is not None and (simulated is None or existing.is_sim):
        return existing
    if simulated is not None:
        _check_nodes(simulated.world_size, simulated.ranks_per_node, max_nodes)
        group = SimGroup(range(simulated.world_size), simulated, simulated.world_group)
        _state.stack.append(group)
        return group
    if _under_torchrun():
        return _init_gpu(
            transport,
            heap_bytes,
            ranks_per_node,
            int(knobs.sanitize.get() if sanitize is None else sanitize),
            max_nodes,
        )
    if sim is not None:
        script = getattr(sys.modules["__main__"], "__file__", None)
        if script is None:
            raise DitronError(
                "ditron.init(sim=N) runs the calling script once per rank, and there is no script here "
                "(an interactive session?): put the code in a function and call "
                "ditron.sim.run(function, ranks=N)"
            )
        from ditron.cli import main as command

        nodes = [] if ranks_per_node is None else ["--ranks-per-node", str(ranks_per_node)]
        seeds = [] if seed is None else ["--seed", str(seed)]
        sys.exit(command(["run", "--sim", str(sim), *nodes, *seeds, script, *sys.argv[1:]]))
    raise DitronError(
        "ditron.init() found no ranks: start the script by 'torchrun --nproc-per-node N SCRIPT' on a "
        "machine with GPUs, or by 'ditron run --sim N SCRIPT' (or ditron.init(sim=N)) anywhere"
    )


def _under_torchrun() -> bool:
    import torch.distributed as dist

    return dist.is_available() and (dist.is_initialized() or knobs.under_torchrun())


def _check_nodes(ranks: int, ranks_per_node: int, max_nodes: int | None) -> None:
    if max_nodes is not None and ranks > max_nodes * ranks_per_node:
        raise NodesError(
            f"ditron.init(max_nodes={max_nodes}): the world has {ranks} ranks on nodes of "
            f"{ranks_per_node}: start the script on fewer"
        )


def _init_gpu(
    transport: str | None, heap_bytes: int | None, ranks_per_node: int | None, sanitize: int, max_nodes: int | None
) -> GpuGroup:
    import torch
    import torch.distributed as dist

    global _gpu_world

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
    nbytes = heap_bytes or knobs.symmetric_size.get()
    from ditron.distributed.heap import NvshmemHeap, P2PHeap

    ranks = list(range(world_size))
    if transport == "p2p":
        heap = P2PHeap(nbytes, device, dist.group.WORLD, ranks)
    else:
        NvshmemHeap.initialize(device, world_rank, world_size)
        heap = NvshmemHeap(nbytes, device, ranks)
    _gpu_world = GpuGroup(ranks, world_rank, transport, device, dist.group.WORLD, heap, ranks_per_node, sanitize)
    return _gpu_world


def finalize() -> None:
    """Leave the world: collective, gives symmetric memory back. Tensors of :func:`symm_empty` are dead after it."""
    global _gpu_world
    group = current_group()
    _state.stack.clear()
    if group is None or group.is_sim:
        return
    group, _gpu_world = _gpu_world, None
    group.finalize()
    if group.transport == "nvshmem":
        from ditron.distributed.heap import NvshmemHeap

        NvshmemHeap.shut_down()
    import torch.distributed as dist

    dist.destroy_process_group()


def world() -> Group:
    """The group of all ranks."""
    return _state.stack[0] if _state.stack and _state.stack[0].is_sim else _group(_gpu_world, "ditron.world()")


def rank(group: Group | None = None) -> int:
    """This rank's number in the current group (or ``group``)."""
    return _group(group, "ditron.rank()").rank


def num_ranks(group: Group | None = None) -> int:
    """How many ranks the current group (or ``group``) has."""
    return _group(group, "ditron.num_ranks()").num_ranks


def local_rank() -> int:
    """This rank's number among the ranks of its node (of the GPU's index under torchrun)."""
    group = _group(None, "ditron.local_rank()")
    return group.world.rank % group.world.ranks_per_node if group.is_sim else group.device.index


def device() -> torch.device:
    """Where this rank's tensors live: its GPU, or the CPU on the simulator."""
    return _group(None, "ditron.device()").device


def new_group(ranks: Sequence[int]) -> Group | None:
    """Make a group of some world ranks, numbered in the order given. Collective over the world.

    Returns None in a rank that is no member. Raises DitronError for ranks that are repeated or out of range.
    """
    parent = _group(None, "ditron.new_group()")
    ranks = list(ranks)
    if not ranks or len(set(ranks)) != len(ranks) or not all(0 <= r < world().num_ranks for r in ranks):
        raise DitronError(f"new_group: expected distinct world ranks from 0 to {world().num_ranks - 1}, got {ranks}")
    return (world() if parent is not world() else parent).subgroup(ranks)


def symm_empty(
    *shape: int | Sequence[int], dtype: torch.dtype, name: str = "", group: Group | None = None
) -> torch.Tensor:
    """A symmetric tensor: every rank of the group gets one, at the same place of its heap. Collective over the group.

    Args:
        shape: extents, as separate integers or one sequence. dtype: of the elements. Contents are undefined.
        name: what reports of the simulator call it, e.g. ``signals[3]``.

    Raises DitronError when the ranks do not ask for the same shape and dtype, MemoryError when the heap is full.

        workspace = ditron.symm_empty(1024, 512, dtype=torch.bfloat16)
    """
    return _group(group, "ditron.symm_empty()").allocate(_extents(shape), _dtype(dtype), name)


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

    if nbytes < 0:
        raise DitronError(f"symm_packets: expected nbytes of 0 or more, got {nbytes}: the size of the largest message")
    place = place_bytes(nbytes)
    tensor = symm_zeros(*_extents(shape), place // 8, dtype=torch.int64, name=name, group=group)
    _group(group, "ditron.symm_packets()").packets[tensor.data_ptr()] = PacketMemory(tensor.nbytes, place)
    return tensor


def symm_free(tensor: torch.Tensor, group: Group | None = None) -> None:
    """Give a symmetric tensor back, on every rank in the same order. Waits until no rank uses it."""
    barrier(group)
    group = _group(group, "ditron.symm_free()")
    group.free(tensor)
    group.packets.pop(tensor.data_ptr(), None)


def barrier(group: Group | None = None) -> None:
    """Wait until every rank of the group has come here and its GPU has finished what was launched before."""
    _group(group, "ditron.barrier()").barrier()


def all_gather_object(value: Any, group: Group | None = None) -> list:
    """Every rank's ``value``, in rank order, on every rank: for tests and for what is small."""
    return _group(group, "ditron.all_gather_object()").all_gather_object(value)
