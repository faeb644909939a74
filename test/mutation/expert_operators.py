"""The host programs of experts in ditron.kernels, each called three times, with other routes each time."""

from __future__ import annotations

import functools

import torch
from subject import NODES, Subject, data, error, operator, right

from ditron import kernels
from ditron.kernels.routing import tables_on_host

__all__ = ["expert_operators"]


def rows_and_sums(call: int, rank: int, ranks: int, *, dtype: torch.dtype = torch.bfloat16) -> float:
    x, weights = data(ranks, 20, 16, seed=call).mul(8).to(dtype), torch.ones(20, 2)
    scale = data(ranks, 20, 2, seed=call + 10).float()
    ids = torch.rand(ranks, 20, ranks, generator=torch.Generator().manual_seed(call)).topk(2).indices
    ids[call % ranks, 16:] = -1
    plan = kernels.moe_plan(ids[rank], weights, num_experts=ranks)
    rows, scale_rows = kernels.ep_dispatch(x[rank], plan, scale_x=scale[rank])
    placed = torch.nonzero(plan.row_route[: int(plan.num_tiles) * plan.block_m] >= 0)[:, 0]
    token = plan.row_route[placed].long() // 2
    sums = kernels.ep_combine(rows.bfloat16(), plan)
    return max(
        error(rows[placed], x.view(-1, 16)[token].float()),
        error(scale_rows[placed], scale.view(-1, 2)[token]),
        error(sums, x[rank].float() * (ids[rank] >= 0).sum(1, keepdim=True)),
        float((plan.route_row[rank * 20 : rank * 20 + 20] >= 0).sum() != (ids[rank] == rank).sum()),
    )


def drawn(call: int, ranks: int, tokens: int) -> torch.Tensor:
    """Two experts of every rank's tokens, of two on each rank; some tokens have none."""
    scores = torch.rand(ranks, tokens, 2 * ranks, generator=torch.Generator().manual_seed(call))
    ids = scores.topk(2).indices.int()
    ids[call % ranks, tokens - 4 :] = -1
    return ids


def tables(at_once: bool, call: int, rank: int, ranks: int) -> float:
    tokens = 6 if at_once else 24
    ids = drawn(call, ranks, tokens)
    weights = torch.rand(ranks, tokens, 2, generator=torch.Generator().manual_seed(call + 10))
    got = kernels.moe_plan(ids[rank], weights[rank], num_experts=2 * ranks, block_m=16, stage_groups=2, at_once=at_once)
    want = tables_on_host(ids, rank, 2 * rank, 2, 16, 2, weights, 2 * ranks)
    count = int(want.num_tiles)
    is_right = (
        int(got.num_tiles) == count
        and torch.equal(got.tiles[:count], want.tiles)
        and torch.equal(got.tiles_by_expert[:count], want.tiles_by_expert)
        and torch.equal(got.row_route[: 16 * count], want.row_route)
        and torch.equal(got.row_slot[: 16 * count], want.row_slot)
        and torch.equal(got.route_row, want.route_row)
        and torch.equal(got.route_weight, want.route_weight)
        and torch.equal(got.token_ranks, want.token_ranks)
    )
    return 0.0 if is_right else 1.0


def ag_moe(algorithm: str, call: int, rank: int, ranks: int) -> float:
    x, w = data(ranks, 20, 32, seed=call), data(ranks, 2, 48, 32, seed=call + 10)
    ids = drawn(call, ranks, 20)
    plan = kernels.moe_plan(ids[rank], num_experts=2 * ranks, block_m=16)
    rows = kernels.ag_moe(x[rank], w[rank], plan, algorithm=algorithm)
    placed = torch.nonzero(plan.row_route[: int(plan.num_tiles) * 16] >= 0)[:, 0]
    route = plan.row_route[placed].long()
    of_route = w[rank].float()[ids.view(-1)[route].long() - 2 * rank]
    return error(rows[placed], torch.einsum("rk,rnk->rn", x.view(-1, 32)[route // 2].float(), of_route))


def sums_of_experts(what: str, how: dict[str, object], call: int, rank: int, ranks: int) -> float:
    from test_moe_rs import Problem

    problem = Problem(ranks, 12, 2, 2 * ranks, "ep", K=32, H=48)
    problem.groups = ranks if how.get("algorithm") == "by_stage" else None
    return right(lambda: problem.check(drawn(call, ranks, 12), (what,), **how))


def expert_operators() -> list[Subject]:
    """Every program with the schedules that have other steps."""
    sums = functools.partial(functools.partial, sums_of_experts)
    return [
        operator("plan_programs, at once", "moe_plan_program, at once", functools.partial(tables, True)),
        operator("plan_programs, segments", "moe_plan_program, segments", functools.partial(tables, False)),
        operator("ag_moe, copied", "ag_moe_program", functools.partial(ag_moe, "copied")),
        operator("ag_moe, stored", "ag_moe_stored_program", functools.partial(ag_moe, "stored")),
        operator("moe_rs", "moe_rs_program, own tokens", sums("moe_rs", {"algorithm": "after"})),
        operator("moe_rs, to all", "moe_rs_program, to all", sums("moe_ar", {"algorithm": "after"})),
        operator("moe_rs_stages", "moe_rs_by_stage_program", sums("moe_rs", {"algorithm": "by_stage"})),
        operator("ep_exchange, dispatch", "ep_dispatch_program, with scales", rows_and_sums),
        operator(
            "ep_exchange, dispatch of flagged words",
            "ep_dispatch_program, flagged words",
            functools.partial(rows_and_sums, dtype=torch.int8),
        ),
        operator("ep_exchange, combine", "ep_combine_program", rows_and_sums),
        operator("plan_nodes", "moe_plan_nodes_program", rows_and_sums, NODES),
        operator("ep_nodes, dispatch", "ep_dispatch_nodes_program", rows_and_sums, NODES),
        operator("ep_nodes, combine", "ep_combine_nodes_program", rows_and_sums, NODES),
    ]
