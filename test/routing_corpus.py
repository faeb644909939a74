"""Run every kind of routing through the operators of mixtures of experts, on simulated ranks, with many schedules.

    python test/routing_corpus.py --ranks 1 2 4 8 --seeds 100        # make routing-corpus; hours on two cores

A seed draws the routes, and the order in which ranks run and puts arrive. Each operator is compared with plain torch in
fp64. What no route leads to is NaN: it may reach no result. Prints a line for each number of ranks; exit code 1 if one
seed fails, with what to repeat.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parent / "python" / "support"))

from routings import Routing, routings  # noqa: E402

import ditron  # noqa: E402
import ditron.sim  # noqa: E402
from ditron import kernels  # noqa: E402
from ditron.kernels.expert_activation import swiglu_rows  # noqa: E402

H, INNER = 16, 16


def near(got: torch.Tensor, exact: torch.Tensor) -> bool:
    return bool(got.isfinite().all()) and bool((got.double() - exact).norm() <= 1.5e-2 * exact.norm() + 1e-6)


def check(rank: int, name: str, routing: Routing, x: torch.Tensor, w13: torch.Tensor, w2: torch.Tensor) -> None:
    """One routing, on one rank: rows there and back, both products, the layer as one call."""
    ids, experts = routing.ids, routing.experts
    (ranks, tokens, top_k), given = ids.shape, routing.given[rank]
    first, behind = rank * experts // ranks, (rank + 1) * experts // ranks
    weights = torch.linspace(0.5, 1.5, ranks * tokens * top_k).view(ids.shape)
    mine = ids[rank, :given].contiguous(), weights[rank, :given].contiguous()
    plan = kernels.moe_plan(*mine, num_experts=experts, max_tokens=tokens)
    count = int(plan.num_tiles) * plan.block_m
    placed = torch.nonzero(plan.row_route[:count] >= 0)[:, 0]
    route = plan.row_route[placed].long()
    here = (ids >= first) & (ids < behind)
    assert sorted(route.tolist()) == torch.nonzero(here.view(-1))[:, 0].tolist(), name

    of_expert = [torch.full((plan.experts, *w.shape[1:]), torch.nan, dtype=w.dtype) for w in (w13, w2)]
    for made, whole in zip(of_expert, (w13, w2), strict=True):
        made[: behind - first] = whole[first:behind]
    expert, token = ids.view(-1)[route].long(), x.view(-1, H)[route // top_k].double()
    gate, up = torch.einsum("rk,rnk->rn", token, w13.double()[expert]).chunk(2, 1)
    exact = torch.nn.functional.silu(gate) * up

    padded = x[rank].clone()
    padded[given:] = torch.nan
    rows = kernels.ep_dispatch(padded, plan, out=torch.full((plan.max_rows, H), torch.nan).bfloat16())
    assert torch.equal(rows[placed].double(), token), name
    product = kernels.ag_moe(
        x[rank, :given].contiguous(), of_expert[0], plan, out=torch.full_like(rows.repeat(1, 2 * INNER // H), torch.nan)
    )
    same = kernels.grouped_mm(rows, of_expert[0], plan)
    assert near(product[placed], torch.cat([gate, up], 1)) and torch.equal(product[placed], same[placed]), name
    hidden = swiglu_rows(product, plan.tables)
    assert near(hidden[placed], exact), name

    holes = torch.full_like(hidden, torch.nan)
    holes[placed] = hidden[placed]
    summed = kernels.moe_rs(holes, of_expert[1], plan)
    sent = kernels.grouped_mm(torch.where(torch.isnan(holes), 0, holes), of_expert[1], plan)
    back = torch.full_like(sent, torch.nan)
    back[placed] = sent[placed]
    combined = kernels.ep_combine(back, plan)
    layer = kernels.ep_moe(x[rank, :given], *mine, *of_expert, num_experts=experts, max_tokens=tokens)
    gate, up = torch.einsum("th,enh->ten", x[rank].double(), w13.double()).chunk(2, 2)
    of_experts = torch.einsum("tei,ehi->teh", torch.nn.functional.silu(gate) * up, w2.double())
    chosen = of_experts[torch.arange(tokens)[:, None], ids[rank].long().clamp(min=0)]
    expected = (chosen * (weights[rank] * (ids[rank] >= 0))[..., None].double()).sum(1)
    for what, got in (("moe_rs", summed), ("ep_combine", combined), ("ep_moe", layer)):
        assert near(got[:given], expected[:given]), (name, what)


def run(ranks: int, seed: int, per_node: int | None = None) -> int:
    """All routings of a seed, one after another in one world; how many."""
    corpus = routings(ranks, seed)
    most = max(routing.experts for routing in corpus.values())
    draw = torch.Generator().manual_seed(seed)
    x = torch.randn(ranks, 20, H, generator=draw).bfloat16()
    w13 = (torch.randn(most, 2 * INNER, H, generator=draw) / 4).bfloat16()
    w2 = (torch.randn(most, H, INNER, generator=draw) / 4).bfloat16()

    def main() -> None:
        ditron.init()
        for name, routing in corpus.items():
            check(ditron.rank(), name, routing, x, w13[: routing.experts], w2[: routing.experts])

    ditron.sim.run(main, ranks=ranks, ranks_per_node=per_node, seed=seed)
    return len(corpus)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, nargs="*", default=[1, 2, 4, 8])
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--first-seed", type=int, default=0)
    args = parser.parse_args()
    failed = 0
    for ranks in args.ranks:
        begin, count = time.perf_counter(), 0
        for seed in range(args.first_seed, args.first_seed + args.seeds):
            try:
                count += run(ranks, seed)
            except Exception as error:
                failed += 1
                print(f"FAIL: --ranks {ranks} --first-seed {seed} --seeds 1: {error!r}", flush=True)
        seconds = time.perf_counter() - begin
        print(f"{ranks} ranks, {args.seeds} seeds: {count} routings in {seconds:.0f} s", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
