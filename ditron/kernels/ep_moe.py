"""A mixture-of-experts layer, from tokens and their experts to the weighted sums."""

from __future__ import annotations

from typing import Any

import torch

from ditron.distributed.torch_groups import AnyGroup, group_name, group_named
from ditron.kernels.ag_moe import ag_moe
from ditron.kernels.ep_exchange import ep_combine, ep_dispatch
from ditron.kernels.expert_activation import swiglu_rows
from ditron.kernels.grouped_mm import grouped_mm
from ditron.kernels.moe_plan import moe_plan
from ditron.kernels.moe_rs import moe_rs
from ditron.kernels.operands import require_tensor
from ditron_compiler.errors import DitronError

__all__ = ["ep_moe"]


def ep_moe(
    x: torch.Tensor,
    topk_ids: torch.Tensor,
    topk_weights: torch.Tensor | None,
    w13: torch.Tensor,
    w2: torch.Tensor,
    *,
    num_experts: int,
    activation: str = "swiglu",
    parallel: str = "ep",
    max_tokens: int | None = None,
    expert_map: torch.Tensor | None = None,
    capacity: int | None = None,
    rank_capacity: int | None = None,
    on_overflow: str = "error",
    renormalize: bool = False,
    dropped: torch.Tensor | None = None,
    group: AnyGroup = None,
) -> torch.Tensor:
    """A mixture-of-experts layer: each token's sum, by weight, of what its experts make of it.

    Args:
        x: ``[tokens, H]``, this rank's tokens, as many as every rank's without ``max_tokens``. bfloat16 or float16, as
            the weights are.
        topk_ids: ``[tokens, top_k]``, integers, the experts of each; distinct for a token, -1 for none.
        topk_weights: ``[tokens, top_k]`` float32, bfloat16 or float16; None for ones.
        w13: ``[experts, 2 * I, H]``, the first matrices of this rank's experts: I rows of the gate, then I of
            what it multiplies, as vLLM's ``w13_weight``.
        w2: ``[experts, H, I]``, the second ones.
        num_experts: of all ranks together.
        activation: ``"swiglu"``, SiLU of the gate times the other.
        parallel: ``"ep"``: this rank has some of the experts; ``"tp"``: a part of each, I being this rank's.
        max_tokens, expert_map, capacity, rank_capacity, on_overflow, renormalize, dropped: as of :func:`moe_plan`.
        group: the ranks; default the current group.

    Returns ``[tokens, H]``. It is :func:`moe_plan`, :func:`ag_moe`, SwiGLU and :func:`moe_rs`; over several nodes
    :func:`ep_dispatch`, :func:`grouped_mm`, SwiGLU, :func:`grouped_mm` and :func:`ep_combine`. The host waits for
    nothing. It has gradients, of all but ``topk_ids``, for which the rows of both products are kept. Collective over
    the group. Raises DitronError for tensors that do not fit.

        y = ditron.kernels.ep_moe(x, topk_ids, topk_weights, w13, w2, num_experts=128)
    """
    if activation != "swiglu":
        raise DitronError(f"ep_moe: unknown activation {activation!r}: expected 'swiglu'")
    require_tensor("ep_moe", "w13", w13)
    require_tensor("ep_moe", "w2", w2)
    if w13.ndim != 3 or w2.ndim != 3 or w13.shape[1] != 2 * w2.shape[2] or w13.shape[0] != w2.shape[0]:
        raise DitronError(
            f"ep_moe: w13 is {tuple(w13.shape)} and w2 {tuple(w2.shape)}: expected [experts, 2 * I, H] and "
            "[experts, H, I]"
        )
    options: dict[str, Any] = {
        "num_experts": num_experts,
        "parallel": parallel,
        "max_tokens": max_tokens,
        "expert_map": expert_map,
    }
    options |= {"capacity": capacity, "rank_capacity": rank_capacity, "on_overflow": on_overflow}
    options |= {"renormalize": renormalize, "dropped": dropped}
    plan = moe_plan(topk_ids, topk_weights, group=group, **options)
    if _is_over_nodes(group_name(group)):
        x = torch.nn.functional.pad(x, (0, 0, 0, len(plan.errors) - x.shape[0]))  # places are by how many there may be
        rows = grouped_mm(ep_dispatch(x, plan, group=group), w13, plan, group=group)
        rows = grouped_mm(swiglu_rows(rows, plan.tables, group=group), w2, plan, group=group)
        return ep_combine(rows, plan, group=group)[: topk_ids.shape[0]]
    # Not ag_moe(activation=), which has not been measured with many tokens yet.
    hidden = swiglu_rows(ag_moe(x, w13, plan, group=group), plan.tables, group=group)
    return moe_rs(hidden, w2, plan, group=group)[: x.shape[0]]


def _is_over_nodes(group: str) -> bool:
    return len(group_named(group).nodes) > 1


_is_over_nodes._dynamo_marked_constant = True  # type: ignore[attr-defined] # torch.compile calls it when it compiles
