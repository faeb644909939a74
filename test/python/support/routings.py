"""Routes of mixtures of experts, by name: what routers do, and what breaks tables."""

from __future__ import annotations

import torch

from ditron.kernels.route_draws import RouteDistribution

__all__ = ["Routing", "routings"]


class Routing:
    """``ids`` [ranks, tokens, top_k] of ``experts`` experts, -1 for none; ``given``: how many tokens each rank has."""

    def __init__(self, ids: torch.Tensor, experts: int, given: list[int] | None = None):
        self.ids, self.experts = ids.int(), experts
        self.given = given or [ids.shape[1]] * len(ids)
        for rank, count in enumerate(self.given):
            self.ids[rank, count:] = -1


def routings(ranks: int, seed: int, tokens: int = 20, block_m: int = 16) -> dict[str, Routing]:
    """All of them, drawn anew for each seed."""
    draw = torch.Generator().manual_seed(seed)
    rand = lambda *shape: torch.rand(*shape, generator=draw)  # noqa: E731
    experts, top_k = 2 * ranks, 2

    def chosen(scores: torch.Tensor, k: int = top_k) -> torch.Tensor:
        return scores.topk(k, 2).indices

    def none(k: int = top_k) -> torch.Tensor:
        return torch.full((ranks, tokens, k), -1)

    uniform = rand(ranks, tokens, experts)
    of_group = torch.arange(experts) // 2
    group = (rand(ranks, tokens, 1) * ranks).long()
    limited = torch.where((of_group - group) % ranks < max(1, ranks // 2), uniform, -1.0)
    hot, one, rows, silent, some = none(), none(), none(1), chosen(uniform), chosen(uniform)
    hot[..., 0] = int(rand(1) * experts)
    own = torch.arange(2) + 2 * int(rand(1) * ranks)  # experts of one rank
    one[:] = own[torch.argsort(rand(ranks, tokens, 2), 2)]
    for expert, count in enumerate((block_m - 1, block_m, block_m + 1)):  # of as many experts as there are
        begin = expert * (block_m + 1)
        rows.view(-1)[begin : begin + count] = expert % experts
    silent[int(rand(1) * ranks)] = -1
    some[rand(ranks, tokens, top_k) < 0.5] = -1
    single = none()
    single[int(rand(1) * ranks), int(rand(1) * tokens)] = torch.randperm(experts, generator=draw)[:top_k]
    counts = [max(1, int(rand(1) * tokens)) for _ in range(ranks)]
    odd = 2 * ranks + 1
    return {
        "uniform": Routing(chosen(uniform), experts),
        "zipf": Routing(RouteDistribution.parse("zipf:1.2").choose(uniform, top_k), experts),
        "groups of ranks": Routing(chosen(limited), experts),
        "one expert": Routing(hot, experts),
        "experts of one rank": Routing(one, experts),
        "a rank without tokens": Routing(silent, experts),
        "nothing anywhere": Routing(none(), experts),
        "one token": Routing(single, experts),
        "some routes are -1": Routing(some, experts),
        "ranks with fewer tokens": Routing(chosen(uniform), experts, counts),
        "whole tiles, one less, one more": Routing(rows, experts),
        "experts that ranks do not divide": Routing(chosen(rand(ranks, tokens, odd)), odd),
        "one expert of a token": Routing(chosen(uniform, 1), experts),
        "all experts of a token": Routing(chosen(uniform, experts), experts),
    }
