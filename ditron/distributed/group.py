"""What a group of ranks offers, on GPUs and on the simulator alike."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, NoReturn

from ditron.distributed import state
from ditron.distributed.packets import PacketMemory, require
from ditron_compiler.analysis.packet_layout import PacketArgument
from ditron_compiler.errors import DitronError

if TYPE_CHECKING:
    import torch

    from ditron_compiler.frontend.targets import Target

__all__ = ["Group", "require_group"]


class Group:
    """Ranks that run kernels together; a kernel's ``dl.rank()`` is its rank in the group it was launched in.

    Attributes:
        rank: this process's rank in the group; num_ranks: how many there are.
        name: the same on every rank; what operators in a graph of torch's carry.
        ranks: world rank of each group rank. ranks_per_node: of the world.
        transport: ``"p2p"``, ``"nvshmem"``, ``"rocshmem"`` or ``"sim"``.
        device: where this rank's tensors live. sms: streaming multiprocessors there. has_tma: whether it copies tiles.
            has_nvlink: whether NVLink reaches the others of the node.
        sanitize: 0; 1 with the GPU sanitizer; 2 when the host also waits for each launch.
        is_sim: whether its ranks are simulated. backend: ``"cuda"`` or ``"sim"``, which executes its host programs.
        small_shapes: whether shapes are as small as those of tests, which take small tiles.
        is_captured: whether operations are recorded for the protocol checker instead of run.

    As a context manager it becomes the current group, in which kernels are launched and tensors allocated:

        with ditron.new_group([0, 1]):
            kernel[grid](...)
    """

    is_sim = False
    small_shapes = False
    is_captured = False
    backend = ""
    sanitize = 0
    sms = 8  # few programs on the simulator
    has_tma = True
    has_nvlink = True

    def __init__(
        self, ranks: Sequence[int], world_rank: int, transport: str, device: torch.device, ranks_per_node: int
    ):
        self.ranks = list(ranks)
        self.num_ranks = len(self.ranks)
        self.rank = self.ranks.index(world_rank)
        self.ranks_per_node = ranks_per_node
        self.transport = transport
        self.device = device
        self.name = state.register(self)
        self.packets: dict[int, PacketMemory] = {}  # of symm_packets, by address
        self.choices: Any = None  # of ditron.tuning, from the first operator on
        self.repeated: dict[Any, Any] = {}  # of ditron.kernels.repeated: what calls of operators run again
        self.recorded: dict[Any, int] = {}  # there, too: how often calls were recorded in vain

    def __enter__(self) -> Group:
        state.enter(self)
        return self

    def __exit__(self, *exc: object) -> None:
        state.leave()

    def __deepcopy__(self, memo: dict) -> Group:
        return self  # a copy of a module is a module of the same group

    def __reduce__(self) -> tuple:
        return _unpickled, (self.name,)

    def __repr__(self) -> str:
        return f"Group(rank {self.rank} of {self.num_ranks}, {self.transport}, world ranks {self.ranks})"

    @property
    def nodes(self) -> list[int]:
        """The nodes of the world that the group has ranks on."""
        return sorted({rank // self.ranks_per_node for rank in self.ranks})

    @property
    def local_rank(self) -> int:
        """This rank's number among the world's ranks of its node."""
        return self.ranks[self.rank] % self.ranks_per_node

    # Memory and synchronization; collective over the group but `free` and `synchronize`.

    def allocate(self, shape: tuple[int, ...], dtype: torch.dtype, name: str) -> torch.Tensor:
        """A symmetric tensor; its contents are undefined."""
        raise NotImplementedError

    def free(self, tensor: torch.Tensor) -> None:
        """Give back what :meth:`allocate` returned."""
        raise NotImplementedError

    def barrier(self) -> None:
        """Wait until every rank has come here and its device has finished."""
        raise NotImplementedError

    def synchronize(self) -> None:
        """Wait for this rank's device; raises what the sanitizer reported."""
        raise NotImplementedError

    def all_gather_object(self, value: Any) -> list:
        """Every rank's ``value``, in rank order."""
        raise NotImplementedError

    def small_values(self, what: str, value: Any) -> list:
        """As :meth:`all_gather_object`, for what JSON can say in less than 100 kB; ``what`` the call is for."""
        return self.all_gather_object(value)

    def subgroup(self, ranks: Sequence[int]) -> Group | None:
        """The group of these world ranks; None when this rank is no member. Collective over the world."""
        raise NotImplementedError

    def of_process_group(self, process_group: Any) -> Group:
        """The group of a process group of torch, the same each time; self is the world. Collective over its ranks."""
        raise DitronError(
            "the simulator has no process groups of torch: pass a ditron.Group, made by ditron.new_group, or None"
        )

    def finalize(self) -> None:
        """Leave the world: release what the world group holds. Collective."""

    # Kernels and host programs.

    def target(self) -> Target:
        """What host programs and their kernels are compiled for."""
        raise NotImplementedError

    def launch(self, kernel: Any, grid: Any, args: tuple, kwargs: dict, warmup: bool) -> Any:
        """Launch a ``ditron.jit`` kernel on this rank, or with ``warmup`` only compile it; returns the compiled one."""
        raise NotImplementedError

    def within_operator(self) -> AbstractContextManager:
        """Around the kernel of an operator of torch's: it puts back what torch turns off there."""
        return nullcontext()

    def before_launch(self) -> None:
        """Raise when a kernel has reported an error: what comes after it would compute with what never arrived."""

    def after_launch(self) -> None:
        """Wait for the launch where ``sanitize`` is 2."""

    def benchmark(self, call: Callable[[], Any], quantiles: Sequence[float], warmup: int, repeat: int) -> list[float]:
        """Milliseconds of ``call`` on the slowest rank, per quantile; 0 where nothing can be timed. Collective."""
        raise NotImplementedError

    def require_packets(
        self,
        arguments: Sequence[PacketArgument],
        addresses: Sequence[int],
        grid: Sequence[int],
        kernel: str,
        pipeline: str | None,
    ) -> None:
        """Raise DitronError unless what a launch passes for packet arguments is packet memory of this group."""
        require(arguments, addresses, grid, self, kernel, pipeline)

    def require_same(self, what: str, values: Mapping[str, Any]) -> None:
        """Raise DitronError where another rank has called the collective ``what`` with other ``values``, by name, as
        shapes of its tensors; nothing where a rank does not see the others' calls.
        """

    def record_allocation(self, name: str, tensor: torch.Tensor, zeroed: bool) -> None:
        """Tell the protocol checker of a tensor that a host program allocated; nothing where none records."""


def _unpickled(name: str) -> Group:
    group = state.group_named(name)
    if group is None:
        raise DitronError(
            f"cannot load what was saved with the group named {name!r}, of these world ranks: there is none here. Call "
            "ditron.init() with as many ranks, and ditron.new_group() as the program that saved it did, then load it"
        )
    return group


class NonMember:
    """What ``ditron.new_group`` gives a rank that is no member of the group: false, and an error where it is used.

    It is not None, which is the current group where an operator takes one.
    """

    def __init__(self, ranks: Sequence[int], rank: int):
        self._ranks, self._rank = list(ranks), rank

    def __bool__(self) -> bool:
        return False

    def error(self, what: str) -> DitronError:
        """The error for ``what`` was done with it."""
        return DitronError(
            f"{what}: rank {self._rank} of the world is no member of the group of world ranks {self._ranks}: only "
            "members use a group, so test it first: if group: ..."
        )

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        raise self.error(f"group.{name}")

    def __enter__(self) -> NoReturn:
        raise self.error("with group:")

    def __exit__(self, *exc: object) -> None:
        raise AssertionError("it cannot be entered")

    def __repr__(self) -> str:
        return f"<no member of the group of world ranks {self._ranks}>"


def require_group(group: Group | NonMember | None, what: str) -> Group:
    """``group``, or the current one. Raises DitronError when there is none, or this rank is no member; ``what`` was
    called.
    """
    if isinstance(group, NonMember):
        raise group.error(what)
    if not isinstance(group, Group | None):
        raise DitronError(
            f"{what}: expected a ditron.Group as group, got {group!r}: ditron.as_group() makes one of torch's"
        )
    group = group or state.current_group()
    if group is None:
        raise DitronError(
            f"{what} before ditron.init(): call ditron.init() first, under torchrun on GPUs, or as "
            "ditron.init(sim=4) / ditron run --sim 4 SCRIPT on the simulator"
        )
    return group
