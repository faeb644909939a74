"""Which schedules the products of a mixture of experts use where the caller names none, and what is looked up."""

from __future__ import annotations

from typing import Any

import torch

from ditron.distributed.group import Group
from ditron.kernels.operands import SCALE_BLOCK
from ditron.kernels.routing import Plan
from ditron.kernels.tiles import MAX_REGISTERS
from ditron.tuning.lookup import tuned
from ditron.tuning.problem import Options, Problem
from ditron_compiler.errors import DitronError

__all__ = [
    "LEAST_ROWS_OF_GROUP",
    "block_of_experts",
    "block_rows",
    "check_tile",
    "groups_of_stages",
    "other_blocks",
    "programs_at_once",
    "tiles_for",
    "tuned_for_plan",
]

#: Rows in a tile up to which the weights are the left operand.
FEW_ROWS = 32

#: Rows that an expert has, on average, in a group of stages, by how ranks divide experts: with fewer, the product takes
#: longer because its matrix is read once more for each group than it would wait for tokens
#: (docs/results/moe-experiments.md).
ROWS_OF_GROUP = {"ep": 512, "tp": 256}

#: With more rows on average most experts have a second tile of 64: wider ones gather rows half as often.
GATHERED_ONCE = 48

#: The least that the tuner tries, and that a call has which takes what it measured.
LEAST_ROWS_OF_GROUP = 256


def groups_of_stages(ranks: int, average: int, parallel: str) -> int:
    """Into how many groups a plan divides tiles by stage, by how many rows an expert has on average."""
    return min(ranks, max(1, average // ROWS_OF_GROUP[parallel]))


def block_rows(average: int, scaled: bool = False) -> int:
    """Rows in a tile, by how many an expert has on average, ``scaled`` if of fp8 (docs/results/moe.md)."""
    if scaled:  # up to 64: two or three programs of few registers, of which one computes while another scales
        return 16 if average <= 48 else 64 if average <= 256 else 128
    return 16 if average <= 8 else 32 if average <= 24 else 64 if average <= 96 else 128


def tiles_for(block_m: int, small: bool, scaled: bool = False, gathered: int = 0) -> dict[str, Any]:
    """The schedule of a grouped product by the rows in a tile, ``scaled`` if of fp8, and, of one that gathers them, by
    how many an expert has on average, ``gathered`` (docs/results/moe.md).
    """
    if small:
        return {"block": (block_m, 32, 32), "programs": 3, "num_warps": 4, "swap_ab": block_m <= FEW_ROWS}
    if scaled:
        tiles = {"block": (block_m, 128, 128), "num_warps": 4, "stages": 5 if block_m == 32 else 4, "group_m": 16}
        if block_m >= 128:
            tiles |= {"num_warps": 8, "stages": 3, "group_m": 8, "maxnreg": MAX_REGISTERS}
    elif block_m <= FEW_ROWS:
        tiles = {"block": (block_m, 128, 128), "num_warps": 4, "stages": 5, "group_m": 16}
    elif block_m == 64 and gathered <= GATHERED_ONCE:
        tiles = {"block": (64, 128, 128), "num_warps": 4, "stages": 4, "group_m": 16}
    else:
        tiles = {"block": (block_m, 256, 64), "num_warps": 4 if block_m == 64 else 8, "stages": 4, "group_m": 8}
    return tiles | {"programs": 132, "swap_ab": block_m <= FEW_ROWS}


def programs_at_once(group: Group, block_m: int, scaled: bool, given: Options) -> int:
    """How many programs of a grouped product run at one time, with what a caller has ``given`` of the schedule."""
    if not scaled or given.keys() & {"block", "num_warps", "stages", "maxnreg"}:
        return group.sms
    return {16: 3, 32: 2, 64: 2}.get(block_m, 1) * group.sms


def block_of_experts(problem: Problem) -> Options:
    """What :func:`tiles_for` says of a tile, as a rule names it."""
    average = problem.rows_of_expert
    tiles = tiles_for(block_rows(average), small=False, gathered=average if problem.operator == "ag_moe" else 0)
    return {"block": tiles["block"], "group_m": tiles["group_m"]}


def other_blocks(tiles: Options) -> list[tuple[int, int, int]]:
    """The tiles of as many rows as :func:`block_of_experts` says that the tuner tries beside that one."""
    rows = tiles["block"][0]
    blocks = [(rows, 128, 64), (rows, 64, 128) if rows <= FEW_ROWS else (rows, 256, 64)]
    blocks += [(rows, 128, 128)] if rows == 64 else []
    return [block for block in blocks if block != tiles["block"]]


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

    What was measured with tiles of other rows than the plan's is not taken. Nothing is measured of fp8.
    """
    if not num_experts or w.dtype == torch.float8_e4m3fn:
        return algorithm, schedule
    tokens, top_k = len(plan.route_row) // group.num_ranks, plan.route_row.shape[1]
    parallel = "tp" if plan.experts == num_experts and group.num_ranks > 1 else "ep"
    sizes = (tokens, w.shape[1], w.shape[2], num_experts, top_k, parallel)
    chosen, options = tuned(what, group, algorithm, schedule, w.dtype, *sizes)
    if "block" in options and options["block"][0] != plan.block_m:
        return algorithm, schedule
    return chosen, options


def check_tile(what: str, plan: Plan, schedule: Options, scaled: bool) -> None:
    """Raise DitronError for a tile that a caller has named and that has other rows than the plan's, or two scales."""
    if "block" not in schedule:
        return
    rows, *extents = schedule["block"]
    if scaled and any(SCALE_BLOCK % extent for extent in extents):
        raise DitronError(
            f"{what}: with scales, block must divide {SCALE_BLOCK} along N and K, got {schedule['block']}"
        )
    if rows != plan.block_m:
        raise DitronError(
            f"{what}: block={schedule['block']} has {rows} rows, and a tile of the plan {plan.block_m}: make it with "
            f"moe_plan(block_m={rows})"
        )
