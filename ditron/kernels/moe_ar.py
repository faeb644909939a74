"""The second product of a mixture of experts with the sums of all ranks' tokens on every rank."""

from __future__ import annotations

from typing import Any

import torch

from ditron.distributed.torch_groups import AnyGroup
from ditron.kernels.all_gather import all_gather
from ditron.kernels.dispatch import check_gradient, torch_operator
from ditron.kernels.moe_rs import product_and_sums, sum_operands
from ditron.kernels.operands import in_group, result
from ditron.kernels.repeated import repeatable, scratch
from ditron.kernels.routing import Plan
from ditron_compiler.errors import DitronError

__all__ = ["moe_ar", "moe_ar_rows"]

#: Up to so many bytes that a rank sends, moe_ar sends every rank's sums to all.
ONE_SHOT_BYTES = 8 << 20


def moe_ar(
    rows: torch.Tensor,
    w: torch.Tensor,
    plan: Plan,
    *,
    scale_rows: torch.Tensor | None = None,
    scale_w: torch.Tensor | None = None,
    out: torch.Tensor | None = None,
    gradient: str = "replicate",
    group: AnyGroup = None,
    algorithm: str | None = None,
    **schedule: Any,
) -> torch.Tensor:
    """As :func:`moe_rs`, of all ranks' tokens, the same on every rank.

    Args:
        rows, w, plan, scale_rows, scale_w, out, group, algorithm, schedule: as of :func:`moe_rs`.
        gradient: of the result. ``"replicate"``: every rank computes the same from it and has the same gradient.
            ``"partial"``: each rank has a part of it, and they are added.

    Returns ``[tokens of all ranks, H]``. Few tokens travel once, from every rank to every other one; more are added by
    their owner first, and gathered.

        y = ditron.kernels.moe_ar(hidden, w2, plan)  # [num_ranks * tokens, H]
    """
    if not isinstance(plan, Plan):
        raise DitronError(f"moe_ar: plan must be a Plan, got {type(plan).__name__}: make one with moe_plan")
    check_gradient("moe_ar", gradient)
    options = {"gradient": gradient, "scale_rows": scale_rows, "scale_w": scale_w, "algorithm": algorithm, **schedule}
    return moe_ar_rows(rows, w, plan.tables, out=out, group=group, **options)


@torch_operator("gradient", "scale_rows", "scale_w")
@repeatable
def moe_ar_rows(
    rows: torch.Tensor,
    w: torch.Tensor,
    tables: list[torch.Tensor],
    *,
    scale_rows: torch.Tensor | None = None,
    scale_w: torch.Tensor | None = None,
    out: torch.Tensor | None = None,
    gradient: str = "replicate",
    group: AnyGroup = None,
    algorithm: str | None = None,
    **schedule: Any,
) -> torch.Tensor:
    """:func:`moe_ar` with the tables of a plan."""
    plan = Plan.of(tables)
    scales = scale_rows, scale_w
    with in_group(group, "moe_ar") as group:
        tokens = sum_operands("moe_ar", group, rows, w, plan, scales, algorithm, schedule)
        dtype = rows.dtype if scale_rows is None else torch.bfloat16
        out = result("moe_ar", (group.num_ranks * tokens, w.shape[1]), rows, out, dtype, rows=rows, w=w)
        if out.nbytes * (group.num_ranks - 1) <= ONE_SHOT_BYTES:
            return product_and_sums("moe_ar", group, rows, w, plan, scales, out, algorithm, schedule, to_all=True)
        mine = scratch((tokens, w.shape[1]), rows, dtype)
        return all_gather(
            product_and_sums("moe_ar", group, rows, w, plan, scales, mine, algorithm, schedule, to_all=False), out=out
        )
