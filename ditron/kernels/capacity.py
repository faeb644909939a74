"""How many routes experts and ranks take: which of all ranks' are dropped, the same everywhere, and how it is said."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any

import torch

from ditron.distributed.group import Group
from ditron.distributed.torch_groups import AnyGroup
from ditron.kernels.all_gather import all_gather
from ditron.kernels.dispatch import torch_operator
from ditron.kernels.operands import in_group
from ditron_compiler.errors import DitronError
from ditron_compiler.source_location import caller

__all__ = ["check_capacity", "checked_routes", "limit_routes", "places_of", "renormalized"]


@dataclass(frozen=True)
class _Overflow:
    """A count of dropped routes on its way to the host, and whose call they are of."""

    count: torch.Tensor
    arrived: Any  # an event
    where: str

    def raise_if_any(self) -> None:
        if count := int(self.count):
            raise DitronError(
                f"{self.where}: moe_plan: {count} routes of this rank's tokens are beyond capacity= or rank_capacity=, "
                "and were dropped: make it larger, or say on_overflow='drop'"
            )


#: By group: counts that the host has not looked at.
_pending: dict[str, deque[_Overflow]] = {}


def check_capacity(capacity: int | None, rank_capacity: int | None, on_overflow: str) -> None:
    """Raise DitronError for what are no limits."""
    for name, value in (("capacity", capacity), ("rank_capacity", rank_capacity)):
        if value is not None and (type(value) is not int or value < 1):
            raise DitronError(f"moe_plan: {name} must be a number of routes from 1, got {value!r}")
    if on_overflow not in ("error", "drop"):
        raise DitronError(f"moe_plan: unknown on_overflow {on_overflow!r}: expected 'error' or 'drop'")


def places_of(keys: torch.Tensor, number: int) -> torch.Tensor:
    """Of each of ``keys`` [n], 0 to ``number``, how many equal ones are before it."""
    ordered, order = keys.sort(stable=True)
    first = torch.searchsorted(ordered, torch.arange(number + 1, device=keys.device))
    places = torch.empty_like(order)
    places[order] = torch.arange(len(keys), device=keys.device) - first[ordered]
    return places


def renormalized(weights: torch.Tensor, given: torch.Tensor, kept: torch.Tensor) -> torch.Tensor:
    """``weights`` [tokens, top_k] by which the routes that are ``kept`` add up to what those ``given`` did."""
    exact = weights.to(torch.promote_types(weights.dtype, torch.float32))
    of_given = (exact * (given >= 0)).sum(1, keepdim=True)
    of_kept = (exact * (kept >= 0)).sum(1, keepdim=True)
    factor = torch.where(of_kept > 0, of_given / torch.where(of_kept > 0, of_kept, 1.0), 1.0)
    return (exact * factor).to(weights.dtype)


@torch_operator("num_experts", "parallel", "max_tokens", "capacity", "rank_capacity", "raises")
def limit_routes(
    topk_ids: torch.Tensor,
    expert_map: torch.Tensor | None = None,
    *,
    num_experts: int,
    parallel: str = "ep",
    max_tokens: int | None = None,
    capacity: int | None = None,
    rank_capacity: int | None = None,
    raises: bool = True,
    group: AnyGroup = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """``topk_ids`` without the routes that experts or ranks do not take, and how many were dropped of each token.

    An expert takes the first ``capacity`` routes of all ranks' tokens, in the order of ranks and tokens; a rank the
    first ``rank_capacity`` of those. Routes to experts that do not exist, or to one twice, are left as they are. With
    ``raises`` the host raises in its first call after the number has come to it, on the simulator at once.
    """
    with in_group(group, "moe_plan") as group:
        given, top_k = topk_ids.shape
        missing = 0 if max_tokens is None else max_tokens - given
        expert, _, _ = checked_routes(topk_ids.long(), expert_map, num_experts)
        padded = torch.nn.functional.pad(expert.to(torch.int16), (0, 0, 0, missing), value=-1)
        everyone = all_gather(padded.contiguous().view(torch.int8), group=group).view(torch.int16).view(-1).long()
        kept = everyone >= 0
        if capacity is not None:
            kept &= places_of(torch.where(kept, everyone, num_experts), num_experts) < capacity
        if rank_capacity is not None:
            owner = torch.zeros_like(everyone)
            if parallel == "ep":  # rank r has experts from r * num_experts // ranks on
                owner = ((everyone + 1) * group.num_ranks - 1) // num_experts
            kept &= places_of(torch.where(kept, owner, group.num_ranks), group.num_ranks) < rank_capacity
        mine = kept.view(group.num_ranks, -1, top_k)[group.rank, :given]
        is_dropped = (expert >= 0) & ~mine
        dropped = is_dropped.sum(1, dtype=torch.int32)
        if raises:
            _watch(group, dropped)
        return topk_ids.masked_fill(is_dropped, -1), dropped


def checked_routes(
    ids: torch.Tensor, expert_map: torch.Tensor | None, num_experts: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Numbers of experts, -1 for what goes nowhere; which routes are to none that exists, and which repeat one of their
    token: as ``check_experts`` of routing_kernels.py.
    """
    known = num_experts if expert_map is None else len(expert_map)
    wrong = (ids < -1) | (ids >= known)
    expert = torch.where(wrong, -1, ids)
    if expert_map is not None:
        expert = torch.where(expert >= 0, expert_map[expert.clamp(min=0)].long(), -1)
        unknown = (expert < -1) | (expert >= num_experts)
        expert = torch.where(unknown, -1, expert)
        wrong |= unknown
    is_same = (expert[:, :, None] == expert[:, None, :]).tril(-1).any(2) & (expert >= 0)
    return torch.where(is_same, -1, expert), wrong, is_same


def _watch(group: Group, dropped: torch.Tensor) -> None:
    """Look at the numbers that have come to the host since, and send this one; raises DitronError for what is one."""
    where = str(caller())
    if dropped.device.type != "cuda":
        return _Overflow(dropped.sum(), None, where).raise_if_any()
    if torch.cuda.is_current_stream_capturing():
        raise DitronError(
            "moe_plan: a CUDA graph cannot raise: say on_overflow='drop' and look at what dropped= counts"
        )
    look(group)
    count = torch.empty((), dtype=torch.int64, pin_memory=True)
    count.copy_(dropped.sum(), non_blocking=True)
    arrived = torch.cuda.Event()
    arrived.record()
    _pending.setdefault(group.name, deque()).append(_Overflow(count, arrived, where))


def look(group: Group) -> None:
    """Raise DitronError for a number that has come to the host and is not 0; wait for none."""
    pending = _pending.get(group.name, deque())
    while pending and pending[0].arrived.query():
        pending.popleft().raise_if_any()
