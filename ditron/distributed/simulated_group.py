"""A group of simulated ranks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from ditron.distributed.group import Group
from ditron_compiler.errors import DitronError

if TYPE_CHECKING:
    import torch

    from ditron_compiler.frontend.targets import Target

__all__ = ["SimulatedGroup"]


class SimulatedGroup(Group):
    """Simulated ranks; ``world`` is this rank's view of the simulator, ``handle`` the simulator's own group."""

    is_sim = True
    backend = "sim"

    def __init__(self, ranks: Sequence[int], world: Any, handle: Any):
        import torch

        super().__init__(ranks, world.rank, "sim", torch.device("cpu"), world.ranks_per_node)
        self.world, self.handle = world, handle
        self.is_captured = hasattr(world, "allocated")
        self.small_shapes = not getattr(world, "timing_only", False)
        self.sms = getattr(world, "sms", None) or Group.sms

    def allocate(self, shape: tuple[int, ...], dtype: torch.dtype, name: str) -> torch.Tensor:
        return self.world.alloc(shape, dtype, name=name, group=self.handle, undefined=True)

    def free(self, tensor: torch.Tensor) -> None:
        self.world.free(tensor)

    def barrier(self) -> None:
        self.world.barrier(group=self.handle)

    def synchronize(self) -> None:
        pass  # a launch returns when it is over

    def all_gather_object(self, value: Any) -> list:
        return self.world.all_gather_object(value, group=self.handle)

    def subgroup(self, ranks: Sequence[int]) -> Group | None:
        handle = self.world.new_group(list(ranks))
        return SimulatedGroup(ranks, self.world, handle) if self.ranks[self.rank] in ranks else None

    def target(self) -> Target:
        from ditron_compiler.frontend.targets import SIM_TARGET

        return SIM_TARGET

    def launch(self, kernel: Any, grid: Any, args: tuple, kwargs: dict, warmup: bool) -> Any:
        from ditron.sim.launch import launch

        return launch(kernel, self, grid, args, kwargs, warmup)

    def within_operator(self) -> AbstractContextManager:
        from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

        mode = self.world.host_mode
        return nullcontext() if mode is None or mode in _get_current_dispatch_mode_stack() else mode

    def benchmark(self, call: Callable[[], Any], quantiles: Sequence[float], warmup: int, repeat: int) -> list[float]:
        return [0.0] * len(quantiles)  # time on the simulator says nothing about a GPU

    def require_same(self, what: str, values: Mapping[str, Any]) -> None:
        if self.is_captured:
            return
        call = tuple(self.ranks), what, tuple(values)
        rank, theirs = self.world.compared_with_other_ranks(call, len(self.ranks), (self.rank, values))
        for name, value in values.items():
            if theirs[name] != value:
                raise DitronError(
                    f"{what}: {name} is {value} on rank {self.rank} and {theirs[name]} on rank {rank} of the group: it "
                    "must be the same on every rank"
                )

    def record_allocation(self, name: str, tensor: torch.Tensor, zeroed: bool) -> None:
        if self.is_captured:
            self.world.allocated(name, tensor, zeroed)
