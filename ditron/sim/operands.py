"""A launch as the native machine takes it: slots, and what is known of the tensors that they point to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from ditron import _sim
from ditron.sim.rendezvous import RankGroup
from ditron_compiler.errors import SimulationError

if TYPE_CHECKING:
    import torch

__all__ = ["LaunchArguments", "LoadedKernel", "operands", "signed"]


class LoadedKernel(Protocol):
    """A kernel compiled for the simulator: the address of its entry (``Kernel`` of ``runtime/sim/abi/abi.h``), its
    name, and its location table of ``file:line:col`` strings.

    Others of :class:`ditron_compiler.lowering.sim.SimKernel` may be missing, as of kernels that are written in C.
    """

    address: int
    name: str
    locations: Sequence[str]


class LaunchArguments(NamedTuple):
    """The last arguments of the machine's ``submit`` and of its streams' ``launch``."""

    address: int
    name: str
    locations: list[str]
    grid: list[int]
    slots: list[int]
    operands: list[_sim.Operand]
    independent: bool
    bounded: bool
    plain: bool
    programs_per_sm: int

    @classmethod
    def of(
        cls,
        kernel: LoadedKernel,
        grid: Sequence[int],
        slots: Sequence[int],
        tensors: Sequence[tuple[str, torch.Tensor]],
    ) -> LaunchArguments:
        """Raises SimulationError for a grid that cannot be launched."""
        extents = [int(extent) for extent in grid] + [1] * (3 - len(grid))
        if len(extents) != 3 or not all(0 <= extent < 2**31 for extent in extents):
            raise SimulationError(f"launch of {kernel.name}: expected a grid of one to three extents, got {list(grid)}")
        known, bounded = operands(kernel, slots, tensors)
        return cls(
            kernel.address,
            kernel.name,
            list(kernel.locations),
            extents,
            signed(slots),
            known,
            getattr(kernel, "independent", False),
            bounded,
            getattr(kernel, "plain", False),
            getattr(kernel, "programs_per_sm", 1),
        )

    @staticmethod
    def require_member(kernel: LoadedKernel, rank: int, group: RankGroup) -> None:
        """Raises SimulationError for a rank that launches in a group that it is not in."""
        if rank not in group.ranks:
            raise SimulationError(
                f"launch of {kernel.name}: rank {rank} is not in the group of ranks {list(group.ranks)}"
            )


def operands(
    kernel: LoadedKernel, slots: Sequence[int], tensors: Sequence[tuple[str, torch.Tensor]]
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
