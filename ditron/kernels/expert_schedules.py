"""Which schedules the products of a mixture of experts use where the caller names none, and what is looked up."""

from __future__ import annotations

from typing import Any

import torch

from ditron.distributed.group import Group
from ditron.kernels.routing import Plan
from ditron.tuning.lookup import tuned
from ditron.tuning.problem import Options, Problem
from ditron_compiler.errors import DitronError

__all__ = ["block_of_experts", "block_rows", "check_tile_rows", "tiles_for", "tuned_for_plan"]

#: Rows in a tile up to which the weights are the left operand.
FEW_ROWS = 32


def block_rows(average: int) -> int:
    """Rows in a tile, by how many an expert has on average (docs/results/moe.md)."""
    return 16 if average <= 8 else 32 if average <= 24 else 64 if average <= 96 else 128


def tiles_for(block_m: int, small: bool) -> dict[str, Any]:
    """The schedule of a grouped product by the rows in a tile (docs/results/moe.md)."""
    if small:
        return {"block": (block_m, 32, 32), "programs": 3, "num_warps": 4, "swap_ab": block_m <= FEW_ROWS}
    if block_m <= FEW_ROWS:
        tiles = {"block": (block_m, 128, 128), "num_warps": 4, "stages": 5, "group_m": 16}
    else:
        tiles = {"block": (block_m, 256, 64), "num_warps": 4 if block_m == 64 else 8, "stages": 4, "group_m": 8}
    return tiles | {"programs": 132, "swap_ab": block_m <= FEW_ROWS}


def block_of_experts(problem: Problem) -> Options:
    """What :func:`tiles_for` says of a tile, as a rule names it."""
    tiles = tiles_for(block_rows(problem.rows_of_expert), small=False)
    return {"block": tiles["block"], "group_m": tiles["group_m"]}


def tuned_for_plan(
    what: str,
    group: Group,
    plan: Plan,
    num_experts: int,
    algorithm: str | None,
    schedule: Options,
    w: torch.Tensor,
) -> tuple[str | None, Options]:
    """As :func:`ditron.tuning.lookup.tuned`, for a product with the experts' matrices ``w`` [experts, N, K].

    What was measured with tiles of other rows than the plan's is not taken.
    """
    if not num_experts:
        return algorithm, schedule
    tokens, top_k = len(plan.route_row) // group.num_ranks, plan.route_row.shape[1]
    parallel = "tp" if plan.experts == num_experts and group.num_ranks > 1 else "ep"
    sizes = (tokens, w.shape[1], w.shape[2], num_experts, top_k, parallel)
    chosen, options = tuned(what, group, algorithm, schedule, w.dtype, *sizes)
    if "block" in options and options["block"][0] != plan.block_m:
        return algorithm, schedule
    return chosen, options


def check_tile_rows(what: str, plan: Plan, schedule: Options) -> None:
    """Raise DitronError for a tile that a caller has named and that has other rows than the plan's."""
    rows = schedule["block"][0] if "block" in schedule else plan.block_m
    if rows != plan.block_m:
        raise DitronError(
            f"{what}: block={schedule['block']} has {rows} rows, and a tile of the plan {plan.block_m}: make it with "
            f"moe_plan(block_m={rows})"
        )
