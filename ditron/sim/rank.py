"""A simulated rank, as its host code sees it."""

from __future__ import annotations

import copy
import math
import threading
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ditron.sim.operands import LaunchArguments, LoadedKernel
from ditron.sim.prediction import ProgramCall
from ditron.sim.rendezvous import RankGroup, Rendezvous, require_equal
from ditron.sim.report import host_error
from ditron.sim.state import Allocation, WorldState
from ditron.sim.streams import RankStreams, SimStream
from ditron_compiler.errors import SimulationError
from ditron_compiler.source_location import caller_line

if TYPE_CHECKING:
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

__all__ = ["RankView", "current_world", "enter"]

_WARPS, _STAGES = 4, 3  # of Triton, where a launch names none


class _Current(threading.local):
    rank: RankView | None = None


_current = _Current()


def current_world() -> RankView | None:
    """The simulated rank that calls, or None outside of the simulator."""
    return _current.rank


def enter(rank: RankView) -> None:
    """Make the calling thread a rank's."""
    _current.rank = rank


def _is_plain(tensor: torch.Tensor) -> bool:
    """Whether a tensor is an ordinary one on the CPU, with an address and strides."""
    import torch

    return (
        type(tensor) in (torch.Tensor, torch.nn.Parameter)
        and tensor.device.type == "cpu"
        and tensor.layout == torch.strided
    )


class RankView:
    """One rank of a simulated world. Calls marked collective must be made by every rank of the group.

    Attributes:
        rank, world_size, ranks_per_node: of the world; node, local_rank: which node, and the rank's place on it.
        world_group: the group of all ranks.
        streams: of this rank.
        timing_only: whether floating-point data is neither computed nor moved. sms: of a world with a machine.
    """

    def __init__(self, world: WorldState, rank: int):
        self._world = world
        self.rank = rank
        self.world_size = world.size
        self.ranks_per_node = world.ranks_per_node
        self.node = rank // world.ranks_per_node
        self.local_rank = rank % world.ranks_per_node
        self.world_group = world.world_group
        self.streams = RankStreams(world, rank)
        self.timing_only = world.timing_only
        self.sms = None if world.timing is None else int(world.timing["sm.count"])
        self.host_mode: TorchDispatchMode | None = None  # which records what host code accesses

    @property
    def records_accesses(self) -> bool:
        """Whether kernels report every access to the machine: for race detection, or for weak memory."""
        return self._world.races or self._world.weak

    def compared_with_other_ranks(self, what: Hashable, ranks: int, value: Any) -> Any:
        """What the first of ``ranks`` ranks gave when it called this for ``what`` as often as this rank has."""
        calls, values = self._world.calls_by_rank, self._world.compared
        calls[self.rank, what] += 1
        number = calls[self.rank, what]
        first, seen = values.pop((what, number), (value, 0))
        if seen + 1 < ranks:
            values[what, number] = first, seen + 1
        return first

    @property
    def compile_mode(self) -> str:
        """What a kernel is compiled to, as a part of the keys of caches."""
        modes = {
            "records accesses": self.records_accesses,
            "timing only": self.timing_only,
            self._costs(_WARPS, _STAGES): self._world.timing is not None,
        }
        return ", ".join(mode for mode, used in modes.items() if used)

    def _costs(self, num_warps: int, num_stages: int) -> str:
        """The pass by which kernels tell the machine what they spend; empty without a clock."""
        machine = self._world.timing
        if machine is None:
            return ""
        options = {
            "operations-per-kb": 1024e3 * machine["sm.dot16"] / machine["sm.shared"],
            "load-ns": 1e3 * machine["latency.load"],
            "load-ns-per-kb": 1024 / machine["hbm.per_sm"],
            "num-warps": num_warps,
            "num-stages": num_stages,
        }
        return f"insert-costs{{{' '.join(f'{name}={round(value)}' for name, value in options.items())}}}"

    @contextmanager
    def timed(self, name: str) -> Iterator[None]:
        """Within it a program of that name is called: with a clock, it is recorded how long that takes."""
        start = self._world.machine.now
        yield
        if self._world.timing is not None:
            self._world.program_calls.append(ProgramCall(self.rank, name, start, self._world.machine.now))

    def routing(self) -> str:
        """The distribution of routes that the world was made with; uniform without one."""
        self._world.routes_drawn = True
        return "uniform" if self._world.routing is None else self._world.routing

    @property
    def machine(self) -> Any:
        """The machine of a world with a clock."""
        return self._world.timing

    def library_step(self, name: str, us: float) -> None:
        """With a clock: a library's step of that name, enqueued on the main stream; returns when it is over."""
        with self.timed(name):
            stream = self.stream()
            stream.call(lambda: self._world.spend_on_library(name, us), name=name)
            self.synchronize(stream)

    def library_collective(self, name: str, sent: float, out: torch.Tensor, group: RankGroup) -> None:
        """With a clock: a collective of NCCL into ``out``, in which each rank of the group sends so many bytes.

        Timing-only: nothing is moved. Collective.
        """
        from ditron.sim.library_time import collective_us

        stream = self.stream()
        stream.barrier(group)
        # The barrier's own time is a part of it.
        self._world.not_computed(out)
        us = collective_us(self.machine, sent, len(group.ranks)) - self.machine["latency.barrier"]
        self.library_step(name, max(us, 1e-3))

    def compile(self, module: Any, options: Mapping[str, Any]) -> LoadedKernel:
        """The kernel of a mixed module (or of its text), which is launched with these options of Triton's."""
        from ditron_compiler.sim_compiler import compile_module

        num_warps, num_stages = options.get("num_warps", _WARPS), options.get("num_stages", _STAGES)
        kernel = compile_module(
            module, races=self.records_accesses, costs=self._costs(num_warps, num_stages), timing_only=self.timing_only
        )
        return kernel if self._world.timing is None else kernel.with_options(num_warps, num_stages)

    def alloc(
        self,
        shape: Sequence[int],
        dtype: torch.dtype,
        *,
        name: str = "",
        group: RankGroup | None = None,
        undefined: bool = False,
    ) -> torch.Tensor:
        """A CPU tensor of zeros in symmetric memory, at the same offset on every rank of the group. Collective.

        ``name`` is what reports call it. ``undefined``: reading it before it is written is a mistake.
        Raises SimulationError when the ranks ask for different tensors or the heap is full.
        """
        import torch

        asked = (tuple(int(extent) for extent in shape), dtype, name)
        nbytes = math.prod(asked[0]) * dtype.itemsize

        def allocate(all_asked: list) -> Allocation:
            require_equal(
                "symmetric allocation",
                group.ranks,
                all_asked,
                lambda one: f"{one[0]} {one[1]}" + (f" named {one[2]!r}" if one[2] else ""),
                "symmetric memory is symmetric: allocate the largest on all ranks",
            )
            label = name or f"symmetric{len(self._world.allocations)}"
            try:
                offset = self._world.machine.allocate(
                    nbytes, label, str(dtype), dtype.itemsize, list(asked[0]), list(group.ranks), undefined
                )
            except RuntimeError as error:
                raise SimulationError(str(error)) from None
            allocation = Allocation(offset, nbytes, label, group)
            self._world.allocations[offset] = allocation
            return allocation

        group = group or self.world_group
        allocation = self._collective(group, "alloc", asked, allocate)
        flat = torch.from_dlpack(self._world.machine.view(self.rank, allocation.offset, nbytes))
        return flat.view(dtype).view(asked[0])

    def stream(self, name: str = "", index: int = 0) -> SimStream:
        """This rank's stream of that name and index, always the same; without a name the main one."""
        return self.streams.get(name, index)

    def synchronize(self, stream: SimStream | None = None) -> None:
        """Block host code until what was enqueued on a stream (default: on each of this rank's) is over.

        Raises what the machine finds wrong meanwhile, DeadlockError when nothing can make progress.
        """
        self.streams.synchronize(stream)

    def may_race(self, tensor: torch.Tensor) -> bool:
        """Whether others may use a tensor: it is symmetric, or host code does not know that all streams, and transfers
        without quiet, are done."""
        known = self.streams.are_synchronized and not self._world.machine.has_local_transfers(self.rank)
        return self.is_symmetric(tensor) if known else _is_plain(tensor)

    def is_symmetric(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor lies in this rank's symmetric memory."""
        if not _is_plain(tensor):
            return False
        base = self._world.heap_bases[self.rank]
        return base <= tensor.data_ptr() < base + self._world.heap_capacity

    def host_access(self, address: int, nbytes: int, writes: bool, line: str) -> list:
        """Report an access of host code to the machine; returns what is wrong with it."""
        return self._world.machine.host_access(self.rank, address, nbytes, writes, line)

    def free(self, tensor: torch.Tensor) -> None:
        """Free a tensor of :meth:`alloc`. Its memory is used again once every rank has freed it.

        Waits for what is on this rank's streams.
        """
        self.synchronize()
        base = self._world.machine.address(self.rank, 0)
        allocation = self._world.allocations.get(tensor.data_ptr() - base)
        if allocation is None or self.rank in allocation.freed:
            raise host_error(
                f"rank {self.rank} frees a tensor that it does not hold in symmetric memory: pass "
                "the tensor that alloc returned, once",
                caller_line(),
                self.rank,
                "freed",
            )
        allocation.freed.add(self.rank)
        if len(allocation.freed) == len(allocation.group.ranks):
            for rank in range(self.world_size):
                self._world.machine.quiet(rank)  # nothing may arrive in memory that is someone else's by then
            self._world.machine.release(allocation.offset)
            del self._world.allocations[allocation.offset]

    def barrier(self, group: RankGroup | None = None) -> None:
        """Wait for every rank of the group; their streams are done, and what they have sent has arrived. Collective."""
        group = group or self.world_group
        self.synchronize()

        def complete(_: list) -> None:
            for rank in group.ranks:
                self._world.machine.quiet(rank)

        self._collective(group, "barrier", None, complete)

    def all_gather_object(self, value: Any, group: RankGroup | None = None) -> list:
        """Every rank's ``value`` in group order; copies, as they would be elsewhere. Collective."""
        # Copied before, because its owner continues first, and after, because all receive the same.
        return copy.deepcopy(
            self._collective(group or self.world_group, "all_gather_object", copy.deepcopy(value), list)
        )

    def new_group(self, ranks: Sequence[int]) -> RankGroup:
        """The group of these world ranks, numbered in this order. Collective over the world."""
        ranks = tuple(ranks)
        if not ranks or len(set(ranks)) != len(ranks) or not all(0 <= r < self.world_size for r in ranks):
            raise SimulationError(
                f"new_group: expected distinct ranks from 0 to {self.world_size - 1}, got {list(ranks)}"
            )

        def make(all_ranks: list) -> RankGroup:
            require_equal(
                "new_group",
                self.world_group.ranks,
                all_ranks,
                lambda one: f"ranks {list(one)}",
                "every rank of the world makes every group, also the groups it is not in",
            )
            return self._world.groups.setdefault(ranks, RankGroup(ranks))

        return self._collective(self.world_group, "new_group", ranks, make)

    def launch(
        self,
        kernel: LoadedKernel,
        grid: Sequence[int],
        slots: Sequence[int],
        *,
        group: RankGroup | None = None,
        tensors: Sequence[tuple[str, torch.Tensor]] = (),
    ) -> None:
        """Run ``grid`` programs of a kernel on this rank, in the group, and return when all have ended.

        ``slots`` are the arguments as 64-bit integers: addresses, sign-extended integers, the bits of floats.
        ``tensors`` are the names and values of arguments, for reports.
        Within ``with stream:`` it is enqueued there instead; else it runs after what is on the main stream.
        Raises SimulationError for what a program does wrong, DeadlockError when nothing can make progress.
        """
        group = group or self.world_group
        if self.streams.current is not None or self.streams.has_main:
            stream = self.streams.current or self.streams.get()
            stream.launch(kernel, grid, slots, group=group, tensors=tensors)
            if self.streams.current is None:
                self.synchronize(stream)
            return
        LaunchArguments.require_member(kernel, self.rank, group)
        arguments = LaunchArguments.of(kernel, grid, slots, tensors)
        self._world.require_alive()
        self._world.given_to_kernel(tensors, caller_line())
        launch = self._world.machine.submit(self.rank, list(group.ranks), *arguments)
        host = self._world.host(self.rank)
        self._world.launches[launch] = host
        host.pause(f"launch of {kernel.name}")

    def _collective(self, group: RankGroup, kind: str, payload: Any, compute: Callable[[list], Any]) -> Any:
        """Arrive at a collective call with ``payload``; its result, which the last rank computes."""
        self._world.require_alive()
        if self.rank not in group.ranks:
            raise SimulationError(f"{kind}: rank {self.rank} is not in the group of ranks {list(group.ranks)}")
        rendezvous = group.rendezvous = group.rendezvous or Rendezvous(group.ranks, kind)
        rendezvous.arrive(self.rank, kind, payload)
        host = self._world.host(self.rank)
        self._world.machine.trace_host(self.rank, True, f"{kind}()")
        if not rendezvous.is_complete():
            host.pause(f"{kind}() at {caller_line()}")
            self._world.machine.trace_host(self.rank, False, "")
            return rendezvous.result
        group.rendezvous = None
        rendezvous.finish(compute)
        self._world.machine.host_barrier(list(group.ranks), kind == "barrier")
        for rank in group.ranks:
            self._world.host(rank).unblock()
        host.pause()
        self._world.machine.trace_host(self.rank, False, "")
        return rendezvous.result
