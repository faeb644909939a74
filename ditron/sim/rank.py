"""What a rank's script sees of the simulated machine."""

from __future__ import annotations

import copy
import math
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from ditron import _sim
from ditron.sim.rendezvous import Meeting, check_alike
from ditron.sim.report import script_line
from ditron.sim.streams import SimStream
from ditron_compiler.errors import SimulationError

if TYPE_CHECKING:
    import torch

    from ditron.sim.world import World

__all__ = ["Allocation", "RankView", "SimGroup", "SimKernel", "current_world", "enter", "operands", "signed"]


class SimKernel(Protocol):
    """A kernel compiled for the simulator: the address of its entry (``Kernel`` of ``runtime/sim/abi.h``), its name,
    and its location table of ``file:line:col`` strings."""

    address: int
    name: str
    locations: Sequence[str]


@dataclass
class SimGroup:
    """World ranks that are numbered together: rank ``i`` of the group is world rank ``ranks[i]``."""

    ranks: tuple[int, ...]
    meeting: Meeting | None = None


@dataclass
class Allocation:
    """A symmetric tensor, until every rank that holds it has freed it."""

    offset: int
    nbytes: int
    name: str
    group: SimGroup
    freed: set[int] = field(default_factory=set)


class _Current(threading.local):
    view: RankView | None = None


_current = _Current()


def current_world() -> RankView | None:
    """The simulated rank that calls, or None outside of the simulator."""
    return _current.view


def enter(view: RankView) -> None:
    """Make the calling thread a rank's."""
    _current.view = view


def _is_plain(tensor: torch.Tensor) -> bool:
    """Whether a tensor is an ordinary one on the CPU, with an address and strides."""
    import torch

    return (
        type(tensor) in (torch.Tensor, torch.nn.Parameter)
        and tensor.device.type == "cpu"
        and tensor.layout == torch.strided
    )


def operands(
    kernel: SimKernel, slots: Sequence[int], tensors: Sequence[tuple[str, torch.Tensor]]
) -> tuple[list[_sim.Operand], bool]:
    """A launch's tensors, by name, as reports speak of them, and whether the kernel reaches only their allocations."""
    allocations = [_allocation(tensor) for _, tensor in tensors]
    # Arguments and tensors have one order, so of those at one address the first is the first.
    arguments: dict[int, list[int]] = {}
    for number, (kind, slot) in enumerate(zip(getattr(kernel, "arg_types", ()), slots, strict=False)):
        if kind.startswith(("!tt.ptr", "!tt.tensordesc")):
            arguments.setdefault(slot, []).append(number)
    at = Counter(tensor.data_ptr() for _, tensor in tensors)
    found = []
    for (name, tensor), allocation in zip(tensors, allocations, strict=True):
        address = tensor.data_ptr()
        known = len(arguments.get(address, ())) == at[address]
        found.append(
            _sim.Operand(
                name, address, tensor.nbytes, tensor.itemsize, *allocation, arguments[address].pop(0) if known else -1
            )
        )
        at[address] -= known
    bounded = getattr(kernel, "bounded", False) and all(
        not address or any(first <= address <= end for first, end in allocations) for address in arguments
    )
    return found, bounded


def _allocation(tensor: Any) -> tuple[int, int]:
    """First address of what a tensor is a view of, and the one behind its end; a package's own stand-in has none."""
    try:
        storage = tensor.untyped_storage()
        return storage.data_ptr(), storage.data_ptr() + storage.nbytes()
    except (AttributeError, NotImplementedError, RuntimeError):
        return 0, 0


def signed(slots: Sequence[int]) -> list[int]:
    """64-bit slots of a launch as the machine takes them: signed integers of the same bits."""
    return [(slot + 2**63) % 2**64 - 2**63 for slot in slots]


class RankView:
    """One rank of a simulated world. Calls marked collective must be made by every rank of the group.

    Attributes:
        rank, world_size, ranks_per_node: of the world; node, local_rank: which node, and the rank's place on it.
        world_group: the group of all ranks.
        current_stream: where the script's launches go; None: it waits for each.
    """

    def __init__(self, world: World, rank: int):
        self._world = world
        self.rank = rank
        self.world_size = world.size
        self.ranks_per_node = world.ranks_per_node
        self.node = rank // world.ranks_per_node
        self.local_rank = rank % world.ranks_per_node
        self.world_group = world.world_group
        self.current_stream: SimStream | None = None
        self._streams: dict[tuple[str, int], SimStream] = {}

    @property
    def recording(self) -> bool:
        """Whether kernels are compiled to tell the machine of every access: to find races, or for weak memory."""
        return self._world.races or self._world.weak

    def compile(self, module: Any) -> SimKernel:
        """The kernel of a mixed module (or of its text), for what this machine has to be told."""
        from ditron_compiler.lowering.sim import compile_module

        return compile_module(module, races=self.recording)

    def alloc(
        self,
        shape: Sequence[int],
        dtype: torch.dtype,
        *,
        name: str = "",
        group: SimGroup | None = None,
        undefined: bool = False,
    ) -> torch.Tensor:
        """A CPU tensor of zeros in symmetric memory, at the same offset on every rank of the group. Collective.

        ``name`` is what reports call it. ``undefined``: reading it before it is written is a mistake.
        Raises SimulationError when the ranks ask for different tensors or the heap is full.
        """
        import torch

        asked = (tuple(int(extent) for extent in shape), dtype, name)
        nbytes = math.prod(asked[0]) * dtype.itemsize

        def finish(all_asked: list) -> Allocation:
            check_alike(
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
        allocation = self._meet(group, "alloc", asked, finish)
        flat = torch.from_dlpack(self._world.machine.view(self.rank, allocation.offset, nbytes))
        return flat.view(dtype).view(asked[0])

    def stream(self, name: str = "", index: int = 0) -> SimStream:
        """This rank's stream of that name and index, always the same; without a name the main one."""
        if (name, index) not in self._streams:
            self._streams[name, index] = SimStream(self, name, index)
        return self._streams[name, index]

    def synchronize(self, stream: SimStream | None = None) -> None:
        """Let the script wait until what was enqueued on a stream (default: on each of this rank's) is over.

        Raises what the machine finds wrong meanwhile, DeadlockError when nothing can go on.
        """
        self._world.require_alive()
        for one in list(self._streams.values()) if stream is None else [stream]:
            if number := one._native.synchronize():
                host = self._world.launches[number] = self._world.host(self.rank)
                host.pause(f"synchronize() at {script_line()}")
        for one in self._streams.values():
            one.release()

    def may_race(self, tensor: torch.Tensor) -> bool:
        """Whether others may use a tensor: it is symmetric, or not all streams are known to be synchronised."""
        if all(stream.settled for stream in self._streams.values()):
            return self.is_symmetric(tensor)
        return _is_plain(tensor)

    def is_symmetric(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor lies in this rank's symmetric memory."""
        if not _is_plain(tensor):
            return False
        base = self._world.heap_bases[self.rank]
        return base <= tensor.data_ptr() < base + self._world.heap_bytes

    def script_access(self, address: int, nbytes: int, writes: bool, line: str) -> list:
        """Tell the machine what the script does; the reports of what is wrong with it."""
        return self._world.machine.script_access(self.rank, address, nbytes, writes, line)

    def free(self, tensor: torch.Tensor) -> None:
        """Give a tensor of :meth:`alloc` back. Its memory is used again once every rank has freed it.

        Waits for what is on this rank's streams.
        """
        self.synchronize()
        base = self._world.machine.address(self.rank, 0)
        allocation = self._world.allocations.get(tensor.data_ptr() - base)
        if allocation is None or self.rank in allocation.freed:
            raise self.script_error(
                f"rank {self.rank} frees a tensor that it does not hold in symmetric memory: pass "
                "the tensor that alloc returned, once",
                script_line(),
                "freed",
            )
        allocation.freed.add(self.rank)
        if len(allocation.freed) == len(allocation.group.ranks):
            for rank in range(self.world_size):
                self._world.machine.quiet(rank)  # nothing may arrive in memory that is someone else's by then
            self._world.machine.release(allocation.offset)
            del self._world.allocations[allocation.offset]

    def script_error(self, message: str, line: str, kind: str = "") -> SimulationError:
        """What to raise for a mistake of this rank's script."""
        error = SimulationError(f"{line}: {message}")
        error.kind, error.location, error.rank = kind, line, self.rank
        return error

    def barrier(self, group: SimGroup | None = None) -> None:
        """Wait for every rank of the group; their streams are done, and what they have sent has arrived. Collective."""
        group = group or self.world_group
        self.synchronize()

        def finish(_: list) -> None:
            for rank in group.ranks:
                self._world.machine.quiet(rank)

        self._meet(group, "barrier", None, finish)

    def all_gather_object(self, value: Any, group: SimGroup | None = None) -> list:
        """Every rank's ``value`` in group order; copies, as they would be elsewhere. Collective."""
        # Copied on the way in, because its owner goes on first, and on the way out, because all receive the same.
        return copy.deepcopy(self._meet(group or self.world_group, "all_gather_object", copy.deepcopy(value), list))

    def new_group(self, ranks: Sequence[int]) -> SimGroup:
        """The group of these world ranks, numbered in this order. Collective over the world."""
        ranks = tuple(ranks)
        if not ranks or len(set(ranks)) != len(ranks) or not all(0 <= r < self.world_size for r in ranks):
            raise SimulationError(
                f"new_group: expected distinct ranks from 0 to {self.world_size - 1}, got {list(ranks)}"
            )

        def finish(all_ranks: list) -> SimGroup:
            check_alike(
                "new_group",
                self.world_group.ranks,
                all_ranks,
                lambda one: f"ranks {list(one)}",
                "every rank of the world makes every group, also the groups it is not in",
            )
            return self._world.groups.setdefault(ranks, SimGroup(ranks))

        return self._meet(self.world_group, "new_group", ranks, finish)

    def launch(
        self,
        kernel: SimKernel,
        grid: Sequence[int],
        slots: Sequence[int],
        *,
        group: SimGroup | None = None,
        tensors: Sequence[tuple[str, torch.Tensor]] = (),
    ) -> None:
        """Run ``grid`` programs of a kernel on this rank, in the group, and return when all have ended.

        ``slots`` are the arguments as 64-bit integers: addresses, sign-extended integers, the bits of floats.
        ``tensors`` are the names and values of arguments, for reports.
        Within ``with stream:`` it is enqueued there instead; else it runs after what is on the main stream.
        Raises SimulationError for what a program does wrong, DeadlockError when nothing can go on.
        """
        group = group or self.world_group
        if self.current_stream is not None or ("", 0) in self._streams:
            stream = self.current_stream or self.stream()
            stream.launch(kernel, grid, slots, group=group, tensors=tensors)
            if self.current_stream is None:
                self.synchronize(stream)
            return
        extents, arguments, known, bounded = self.launch_arguments(kernel, grid, slots, group, tensors)
        self._world.require_alive()
        launch = self._world.machine.submit(
            self.rank,
            list(group.ranks),
            kernel.address,
            kernel.name,
            list(kernel.locations),
            extents,
            arguments,
            known,
            getattr(kernel, "independent", False),
            bounded,
            getattr(kernel, "plain", False),
        )
        host = self._world.host(self.rank)
        self._world.launches[launch] = host
        host.pause(f"launch of {kernel.name}")

    def launch_arguments(
        self,
        kernel: SimKernel,
        grid: Sequence[int],
        slots: Sequence[int],
        group: SimGroup,
        tensors: Sequence[tuple[str, torch.Tensor]],
    ) -> tuple[list[int], list[int], list, bool]:
        """A launch as the machine takes it: the grid, the slots as signed integers, and of :func:`operands`."""
        extents = [int(extent) for extent in grid] + [1] * (3 - len(grid))
        if len(extents) != 3 or not all(0 <= extent < 2**31 for extent in extents):
            raise SimulationError(f"launch of {kernel.name}: expected a grid of one to three extents, got {list(grid)}")
        if self.rank not in group.ranks:
            raise SimulationError(
                f"launch of {kernel.name}: rank {self.rank} is not in the group of ranks {list(group.ranks)}"
            )
        return extents, signed(slots), *operands(kernel, slots, tensors)

    def _meet(self, group: SimGroup, kind: str, payload: Any, finish: Callable[[list], Any]) -> Any:
        self._world.require_alive()
        if self.rank not in group.ranks:
            raise SimulationError(f"{kind}: rank {self.rank} is not in the group of ranks {list(group.ranks)}")
        meeting = group.meeting = group.meeting or Meeting(group.ranks, kind)
        meeting.join(self.rank, kind, payload)
        host = self._world.host(self.rank)
        self._world.machine.record_script(self.rank, True, f"{kind}()")
        if not meeting.complete():
            host.pause(f"{kind}() at {script_line()}")
            self._world.machine.record_script(self.rank, False, "")
            return meeting.result
        group.meeting = None
        meeting.conclude(finish)
        self._world.machine.meet(list(group.ranks), kind == "barrier")
        for rank in group.ranks:
            self._world.host(rank).unblock()
        host.pause()
        self._world.machine.record_script(self.rank, False, "")
        return meeting.result
