"""A mixture-of-experts layer, from tokens and their experts to the weighted sums."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from ditron.distributed.torch_groups import AnyGroup, group_name, group_named
from ditron.kernels.ag_moe import ag_moe
from ditron.kernels.dispatch import may_repeat
from ditron.kernels.ep_exchange import ep_combine, ep_dispatch
from ditron.kernels.expert_activation import quantize_1x128, swiglu_rows_1x128
from ditron.kernels.expert_schedules import LEAST_ROWS_OF_GROUP, block_rows, groups_of_stages
from ditron.kernels.grouped_mm import grouped_mm
from ditron.kernels.moe_plan import moe_plan
from ditron.kernels.moe_rs import moe_rs
from ditron.kernels.operands import SCALE_BLOCK, in_group, require_tensor
from ditron.kernels.padding import padded
from ditron.kernels.repeated import repeatable_where_plain
from ditron.kernels.routing import Plan
from ditron.tuning.lookup import tuned
from ditron.tuning.problem import Options, Problem
from ditron.tuning.registry import Rule, tunable
from ditron_compiler.errors import DitronError

__all__ = ["ep_moe"]


#: From this intermediate size on, products of dispatched rows, which are in order, gain more than dispatch takes
#: (docs/results/moe.md).
WIDE_EXPERTS = 8192


def _by_size(ranks: int, parallel: str, average: int, inner: int) -> tuple[str, int]:
    """The algorithm, and the rows of a tile, by how many rows an expert has on average and its ``inner`` columns:
    tokens are dispatched where the first product, whose tiles are in one group of stages, would wait for all of them,
    and where experts are wide.
    """
    block_m = block_rows(average)
    hides = groups_of_stages(ranks, average, parallel) > 1 and inner < WIDE_EXPERTS
    if ranks == 1 or parallel != "ep" or hides:
        return "gathered", block_m
    return "dispatched", min(block_m, 64) if average <= 128 else block_m  # a second one of 128 is mostly padding


def _rule(problem: Problem) -> Rule:
    inner = problem.N // 2
    algorithm, block_m = _by_size(problem.ranks, problem.parallel, problem.rows_of_expert, inner)
    why = f"an expert has {problem.rows_of_expert} rows on average, "
    if algorithm == "gathered":
        why += "and tokens are gathered under the first product"
    elif inner >= WIDE_EXPERTS:
        why += f"and {inner} columns, whose products are faster of rows in order"
    else:
        why += "too few to read its matrix again for each group of ranks' tokens"
    return Rule({"algorithm": algorithm, "block_m": block_m}, why)


def _node_rule(problem: Problem) -> Rule:
    options = {"algorithm": "dispatched", "block_m": block_rows(problem.rows_of_expert)}
    return Rule(options, "in a group on several nodes a token goes only to the ranks that have one of its experts")


@tunable("ep_moe", rule=_rule, on_nodes=_node_rule, node_algorithms=("dispatched",))
def ep_moe_candidates(problem: Problem) -> Iterator[Options]:
    """Schedules of :func:`ep_moe`; those of its products are of :func:`ag_moe` and :func:`moe_rs`."""
    average = problem.rows_of_expert
    block_m = block_rows(average)
    for algorithm in ("gathered", "dispatched"):
        # Tiles of fewer than 64 rows that are half as many are 2.5 % faster at best with uniform routes, as the tuner's
        # are, and a fifth slower where most tokens choose one expert (docs/results/moe.md).
        for rows in (block_m, block_m // 2, block_m * 2):
            if min(block_m, 64) <= rows <= 128:
                yield {"algorithm": algorithm, "block_m": rows}
    usual = groups_of_stages(problem.ranks, average, problem.parallel)
    for groups in range(1, problem.ranks + 1):
        if groups != usual and (groups == 1 or average // groups >= LEAST_ROWS_OF_GROUP):
            yield {"algorithm": "gathered", "block_m": block_m, "stage_groups": groups}


@repeatable_where_plain
def ep_moe(
    x: torch.Tensor,
    topk_ids: torch.Tensor,
    topk_weights: torch.Tensor | None,
    w13: torch.Tensor,
    w2: torch.Tensor,
    *,
    num_experts: int,
    scale_w13: torch.Tensor | None = None,
    scale_w2: torch.Tensor | None = None,
    activation: str = "swiglu",
    parallel: str = "ep",
    max_tokens: int | None = None,
    expert_map: torch.Tensor | None = None,
    capacity: int | None = None,
    rank_capacity: int | None = None,
    on_overflow: str = "error",
    renormalize: bool = False,
    dropped: torch.Tensor | None = None,
    block_m: int | None = None,
    stage_groups: int | None = None,
    group: AnyGroup = None,
    algorithm: str | None = None,
) -> torch.Tensor:
    """A mixture-of-experts layer: each token's sum, by weight, of what its experts make of it.

    Args:
        x: ``[tokens, H]``, this rank's tokens, as many as every rank's without ``max_tokens``. bfloat16 or float16, as
            the weights are; bfloat16 beside quantized ones.
        topk_ids: ``[tokens, top_k]``, integers, the experts of each; distinct for a token, -1 for none.
        topk_weights: ``[tokens, top_k]`` float32, bfloat16 or float16; None for ones.
        w13: ``[experts, 2 * I, H]``, the first matrices of this rank's experts: I rows of the gate, then I of
            what it multiplies, as vLLM's ``w13_weight``.
        w2: ``[experts, H, I]``, the second ones.
        num_experts: of all ranks together.
        scale_w13, scale_w2: of weights of float8_e4m3fn, as DeepSeek-V3's: ``[experts, 2 * I / 128, H / 128]`` and
            ``[experts, H / 128, I / 128]`` float32, rows rounded up, for 128 x 128 elements each. Tokens, and what
            SwiGLU makes of rows, are quantized by 1 x 128 (:func:`quantize_1x128`); H and I are multiples of 128.
        activation: ``"swiglu"``, SiLU of the gate times the other.
        parallel: ``"ep"``: this rank has some of the experts; ``"tp"``: a part of each, I being this rank's.
        max_tokens, expert_map, capacity, rank_capacity, on_overflow, renormalize, dropped, block_m, stage_groups: as of
            :func:`moe_plan`; ``stage_groups`` other than 1 are of gathered tokens: products of dispatched ones begin
            when all are there.
        group: the ranks; default the current group.
        algorithm: ``"gathered"``: :func:`ag_moe` with SwiGLU and :func:`moe_rs`; ``"dispatched"``: :func:`ep_dispatch`,
            :func:`grouped_mm` with SwiGLU, :func:`grouped_mm` and :func:`ep_combine`, the only one over several nodes.
            Default what was measured to be fastest, or dispatched where ranks divide the experts and these have fewer
            than 1024 rows on average, or I is 8192 or more, or gathered; gathered where gradients are recorded, for
            which dispatched rows, ``[plan.max_rows, H]``, would be kept, and compiled by torch.

    Returns ``[tokens, H]``. The host waits for nothing. It has gradients, of all but ``topk_ids``, for which the rows
    of both products are kept; with quantized weights none. Collective over the group. Raises DitronError for tensors
    that do not fit.

        y = ditron.kernels.ep_moe(x, topk_ids, topk_weights, w13, w2, num_experts=128)
    """
    if activation != "swiglu":
        raise DitronError(f"ep_moe: unknown activation {activation!r}: expected 'swiglu'")
    require_tensor("ep_moe", "x", x)
    require_tensor("ep_moe", "topk_ids", topk_ids)
    require_tensor("ep_moe", "w13", w13)
    require_tensor("ep_moe", "w2", w2)
    if w13.ndim != 3 or w2.ndim != 3 or w13.shape[1] != 2 * w2.shape[2] or w13.shape[0] != w2.shape[0]:
        raise DitronError(
            f"ep_moe: w13 is {tuple(w13.shape)} and w2 {tuple(w2.shape)}: expected [experts, 2 * I, H] and "
            "[experts, H, I]"
        )
    if x.ndim != 2 or topk_ids.ndim != 2 or x.shape[0] != topk_ids.shape[0]:
        raise DitronError(
            f"ep_moe: x is {tuple(x.shape)} and topk_ids {tuple(topk_ids.shape)}: expected [tokens, H] and "
            "[tokens, top_k]"
        )
    is_quantized = torch.float8_e4m3fn in (w13.dtype, w2.dtype)
    if is_quantized:
        _check_quantized(x, topk_weights, w13, w2, scale_w13, scale_w2)
    elif scale_w13 is not None or scale_w2 is not None:
        raise DitronError(f"ep_moe: scale_w13= and scale_w2= are for weights of float8_e4m3fn, got {w13.dtype}")
    elif x.dtype not in (torch.bfloat16, torch.float16) or not x.dtype == w13.dtype == w2.dtype:
        raise DitronError(
            f"ep_moe: x is of {x.dtype}, w13 of {w13.dtype} and w2 of {w2.dtype}: expected bfloat16 or float16 of all, "
            "or weights of float8_e4m3fn with scales"
        )
    is_over_nodes = _is_over_nodes(group_name(group))
    if algorithm not in (None, "gathered", "dispatched"):
        raise DitronError(f"ep_moe: unknown algorithm {algorithm!r}: expected 'gathered' or 'dispatched'")
    if algorithm == "gathered" and is_over_nodes:
        raise DitronError("ep_moe: algorithm='gathered' is of one node, and this group is on several: 'dispatched'")
    if algorithm is None and not is_over_nodes and stage_groups is not None and stage_groups != 1:
        algorithm = "gathered"
    if algorithm is None and not is_over_nodes and _records_gradients(x, topk_weights, w13, w2):
        algorithm = "gathered"
    if not torch.compiler.is_compiling():
        tokens = x.shape[0] if max_tokens is None else max_tokens
        sizes = (tokens, w13.shape[1], w13.shape[2], num_experts, topk_ids.shape[-1], parallel)
        with in_group(group, "ep_moe") as found:
            average = found.num_ranks * tokens * topk_ids.shape[-1] // max(num_experts, 1)
            if is_quantized and not found.small_shapes:
                block_m = block_m or block_rows(average, scaled=True)
                algorithm = algorithm or _by_size(found.num_ranks, parallel, average, w2.shape[2])[0]
            elif not is_quantized and not is_over_nodes:
                named = {"block_m": block_m, "stage_groups": stage_groups}
                given = {name: value for name, value in named.items() if value is not None}
                algorithm, chosen = tuned("ep_moe", found, algorithm, given, x.dtype, *sizes)
                block_m = chosen.get("block_m")
                if stage_groups is None and "stage_groups" in chosen:  # measured with the most tokens of a bucket
                    stage_groups = min(chosen["stage_groups"], max(1, average // LEAST_ROWS_OF_GROUP))
                if algorithm is None and not found.small_shapes:
                    algorithm, rows = _by_size(found.num_ranks, parallel, average, w2.shape[2])
                    block_m = block_m or rows
    dispatched = is_over_nodes or algorithm == "dispatched"
    if dispatched and stage_groups is None:
        stage_groups = 1
    options: dict[str, Any] = {
        "num_experts": num_experts,
        "parallel": parallel,
        "max_tokens": max_tokens,
        "expert_map": expert_map,
        "block_m": block_m,
        "stage_groups": stage_groups,
    }
    options |= {"capacity": capacity, "rank_capacity": rank_capacity, "on_overflow": on_overflow}
    options |= {"renormalize": renormalize, "dropped": dropped}
    plan = moe_plan(topk_ids, topk_weights, group=group, **options)
    if dispatched and (missing := len(plan.errors) - x.shape[0]):  # places are by how many there may be
        as_step = may_repeat((x, plan.route_weight))
        x = padded(x, len(plan.errors)) if as_step else torch.nn.functional.pad(x, (0, 0, 0, missing))
    products = _quantized_products if is_quantized else _products
    scales = (scale_w13, scale_w2) if is_quantized else ()
    return products(x, w13, w2, plan, *scales, dispatched=dispatched, group=group)[: topk_ids.shape[0]]


def _products(
    x: torch.Tensor, w13: torch.Tensor, w2: torch.Tensor, plan: Plan, *, dispatched: bool, group: AnyGroup
) -> torch.Tensor:
    if dispatched:
        hidden = grouped_mm(ep_dispatch(x, plan, group=group), w13, plan, activation="swiglu", group=group)
        return ep_combine(grouped_mm(hidden, w2, plan, group=group), plan, group=group)
    return moe_rs(ag_moe(x, w13, plan, activation="swiglu", group=group), w2, plan, group=group)


def _quantized_products(
    x: torch.Tensor,
    w13: torch.Tensor,
    w2: torch.Tensor,
    plan: Plan,
    scale_w13: torch.Tensor,
    scale_w2: torch.Tensor,
    *,
    dispatched: bool,
    group: AnyGroup,
) -> torch.Tensor:
    x, scale_x = quantize_1x128(x, group=group)
    if dispatched:
        rows, scale_rows = ep_dispatch(x, plan, scale_x=scale_x, group=group)
        rows = grouped_mm(rows, w13, plan, scale_rows=scale_rows, scale_w=scale_w13, group=group)
    else:
        rows = ag_moe(x, w13, plan, scale_x=scale_x, scale_w=scale_w13, group=group)
    hidden, scale_hidden = swiglu_rows_1x128(rows, plan.tables, group=group)
    if dispatched:
        rows = grouped_mm(hidden, w2, plan, scale_rows=scale_hidden, scale_w=scale_w2, group=group)
        return ep_combine(rows, plan, group=group)
    return moe_rs(hidden, w2, plan, scale_rows=scale_hidden, scale_w=scale_w2, group=group)


def _check_quantized(
    x: torch.Tensor,
    topk_weights: torch.Tensor | None,
    w13: torch.Tensor,
    w2: torch.Tensor,
    scale_w13: torch.Tensor | None,
    scale_w2: torch.Tensor | None,
) -> None:
    """Raise DitronError for what a layer with quantized experts cannot take; shapes of scales its products check."""
    if w13.dtype != w2.dtype:
        raise DitronError(f"ep_moe: w13 is {w13.dtype} and w2 {w2.dtype}: expected both of float8_e4m3fn, or neither")
    for name, scale in (("scale_w13", scale_w13), ("scale_w2", scale_w2)):
        if scale is None:
            raise DitronError(
                f"ep_moe: {name}= is missing: w{name[7:]} is of float8_e4m3fn, which needs the scales that it was "
                "quantized by (quantize_128x128 returns both)"
            )
    if x.dtype != torch.bfloat16:
        raise DitronError(f"ep_moe: x must be bfloat16 beside weights of float8_e4m3fn, got {x.dtype}")
    if x.shape[-1] % SCALE_BLOCK or w2.shape[2] % SCALE_BLOCK:
        raise DitronError(
            f"ep_moe: with weights of float8_e4m3fn H and I must be multiples of {SCALE_BLOCK}, got {x.shape[-1]} and "
            f"{w2.shape[2]}"
        )
    if _records_gradients(x, topk_weights, w13, w2):
        raise DitronError(
            "ep_moe: with quantized weights there are no gradients, and one of its tensors requires one: call it under "
            "torch.no_grad()"
        )


def _records_gradients(*tensors: torch.Tensor | None) -> bool:
    """Whether a gradient of one of them is asked for: dispatched rows would be kept for it, of gathered ones tokens."""
    return torch.is_grad_enabled() and any(tensor is not None and tensor.requires_grad for tensor in tensors)


def _is_over_nodes(group: str) -> bool:
    return len(group_named(group).nodes) > 1


_is_over_nodes._dynamo_marked_constant = True  # type: ignore[attr-defined] # torch.compile calls it when it compiles
