"""What routes to experts bring to a rank, for floors: of the rank that has most, if they are not uniform."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from ditron.tuning.problem import Problem

__all__ = ["Load", "load_of"]


@dataclass(frozen=True)
class Load:
    """Of one rank.

    Attributes:
        rows: of its experts' products. matrices: how many of its experts some token needs.
        tokens: that it gets from others, or they from it, whichever is more.
    """

    rows: int
    matrices: float
    tokens: int


@lru_cache(maxsize=64)
def load_of(problem: Problem) -> Load:
    """The largest of each over the ranks; what is expected of each rank, if all experts are equally likely."""
    ranks, experts = problem.ranks, problem.experts
    if problem.routing == "uniform":
        chosen = 1 - (1 - problem.top_k / experts) ** (ranks * problem.rows)
        return Load(problem.M, problem.own_experts * chosen, int(problem.needing * problem.rows * (ranks - 1)))
    import torch

    from ditron.kernels.route_draws import RouteDistribution

    is_ep = problem.parallel == "ep"
    first = torch.arange(ranks + 1) * experts // ranks
    owner = torch.repeat_interleave(torch.arange(ranks), first.diff())
    of_expert, got = torch.zeros(experts, dtype=torch.int64), torch.zeros(ranks, dtype=torch.int64)
    given = 0
    for rank in range(ranks):
        ids, _ = RouteDistribution.parse(problem.routing).draw(problem.rows, experts, problem.top_k, rank)
        of_expert += torch.bincount(ids.flatten(), minlength=experts)
        needs = torch.ones(problem.rows, ranks, dtype=torch.bool)
        if is_ep:
            needs = torch.zeros_like(needs).scatter_(1, owner[ids.long()], True)
        needs[:, rank] = False
        got += needs.sum(0)
        given = max(given, int(needs.sum()))
    tokens = max(given, int(got.max()))
    used = of_expert > 0
    if not is_ep:
        return Load(int(of_expert.sum()), int(used.sum()), tokens)
    rows, matrices = (
        torch.zeros(ranks, dtype=torch.int64).index_add_(0, owner, count) for count in (of_expert, used.long())
    )
    return Load(int(rows.max()), int(matrices.max()), tokens)
