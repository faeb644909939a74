"""Questions about the calling rank, and what its group does together."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ditron.distributed import state
from ditron.distributed.group import Group, NonMember, require_group
from ditron_compiler.errors import DitronError

if TYPE_CHECKING:
    import torch

__all__ = [
    "all_gather_object",
    "barrier",
    "device",
    "is_initialized",
    "local_rank",
    "new_group",
    "num_ranks",
    "rank",
    "synchronize",
    "world",
]


def is_initialized() -> bool:
    """Whether :func:`ditron.init` has been called in this rank."""
    return state.current_group() is not None


def world() -> Group:
    """The group of all ranks."""
    return require_group(state.world(), "ditron.world()")


def rank(group: Group | None = None) -> int:
    """This rank's number in the current group (or ``group``)."""
    return require_group(group, "ditron.rank()").rank


def num_ranks(group: Group | None = None) -> int:
    """How many ranks the current group (or ``group``) has."""
    return require_group(group, "ditron.num_ranks()").num_ranks


def local_rank() -> int:
    """This rank's number among the ranks of its node (under torchrun, the index of its GPU)."""
    return require_group(None, "ditron.local_rank()").local_rank


def device() -> torch.device:
    """Where this rank's tensors live: its GPU, or the CPU on the simulator."""
    return require_group(None, "ditron.device()").device


def new_group(ranks: Sequence[int]) -> Group | NonMember:
    """Make a group of some world ranks, numbered in the order given. Collective over the world.

    In a rank that is no member it returns something false, whose use as a group is an error. Raises DitronError for
    ranks that are repeated or out of range.

        pair = ditron.new_group([0, 1])
        if pair:
            ditron.kernels.all_reduce(x, group=pair)
    """
    require_group(None, "ditron.new_group()")
    everyone = world()
    try:
        ranks = [operator.index(rank) for rank in ranks]
    except TypeError:
        raise DitronError(f"new_group: expected a list of world ranks, got {ranks!r}") from None
    if not ranks or len(set(ranks)) != len(ranks) or not all(0 <= r < everyone.num_ranks for r in ranks):
        raise DitronError(f"new_group: expected distinct world ranks from 0 to {everyone.num_ranks - 1}, got {ranks}")
    return everyone.subgroup(ranks) or NonMember(ranks, everyone.rank)


def barrier(group: Group | None = None) -> None:
    """Wait until every rank of the group has come here and its GPU has finished what was launched before."""
    require_group(group, "ditron.barrier()").barrier()


def synchronize(group: Group | None = None) -> None:
    """Wait for this rank's GPU and raise what its kernels reported to the sanitizer. Not collective.

    Raises :class:`ditron.WaitTimeout` or :class:`ditron.SanitizerError`; see docs/sanitizer.md.
    """
    if group is not None or state.current_group() is not None:
        require_group(group, "ditron.synchronize()").synchronize()


def all_gather_object(value: Any, group: Group | None = None) -> list:
    """Every rank's ``value``, in rank order, on every rank: for tests and for what is small. Collective."""
    return require_group(group, "ditron.all_gather_object()").all_gather_object(value)
