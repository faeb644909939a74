"""Operators of a mixture of experts in torch's dispatcher, as torch_library.py has the other operators.

A plan is the list of its tables there.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ditron.distributed.torch_groups import group_named
from ditron.kernels.ag_moe import ag_moe_rows
from ditron.kernels.capacity import limit_routes
from ditron.kernels.expert_activation import quantize_1x128, swiglu_rows, swiglu_rows_1x128, swiglu_rows_backward
from ditron.kernels.grouped_mm import grouped_mm_rows
from ditron.kernels.moe_ar import moe_ar_rows
from ditron.kernels.moe_gradients import ag_moe_rows_backward, grouped_mm_rows_backward
from ditron.kernels.moe_plan import moe_plan_tables, plan_shape
from ditron.kernels.moe_rs import moe_rs_rows
from ditron.kernels.moe_rs_gradients import moe_rs_rows_backward
from ditron.kernels.registration import define, num_ranks, ops, save
from ditron.kernels.routing import empty_plan, max_rows

# moe_plan_tables


def _plan_fake(
    topk_ids: Tensor,
    topk_weights: Tensor | None = None,
    expert_map: Tensor | None = None,
    *,
    num_experts: int,
    parallel: str = "ep",
    max_tokens: int | None = None,
    block_m: int | None = None,
    stage_groups: int | None = None,
    capacity: int | None = None,
    rank_capacity: int | None = None,
    group: str = "",
) -> list[Tensor]:
    found = group_named(group)
    of_tiles = {"block_m": block_m, "stage_groups": stage_groups}
    tokens, experts, block_m, groups = plan_shape(
        found, topk_ids, num_experts, parallel, max_tokens=max_tokens, **of_tiles
    )
    total, top_k = found.num_ranks * tokens, topk_ids.shape[1]
    rows = max_rows(total, top_k, experts, block_m, capacity, rank_capacity)
    weights = topk_ids.new_empty((total, top_k), dtype=torch.float32)
    return empty_plan(weights, tokens, experts, block_m, groups, rows).tables


def _plan_setup(ctx: Any, inputs: tuple, keyword_only_inputs: dict, output: list[Tensor]) -> None:
    weights = inputs[1]
    ctx.weights = None if weights is None else (weights.shape[0], weights.dtype)
    ctx.mark_non_differentiable(*(table for table in output if table.dtype == torch.int32))
    save(ctx, keyword_only_inputs["group"])


def _plan_backward(ctx: Any, grads: list[Tensor | None]) -> tuple:
    """A token's weights are in every rank's tables."""
    of_weights, mine = grads[0], None
    if of_weights is not None and ctx.weights is not None:
        tokens, dtype = ctx.weights
        mine = ops.reduce_scatter(of_weights.contiguous(), group=ctx.group)[:tokens].to(dtype)
    return (None, mine, None)[: len(ctx.needs_input_grad)]  # the dispatcher leaves out what is None at the end


define(
    "moe_plan_tables(Tensor topk_ids, Tensor? topk_weights=None, Tensor? expert_map=None, *, int num_experts, "
    "str parallel='ep', int? max_tokens=None, int? block_m=None, int? stage_groups=None, int? capacity=None, "
    "int? rank_capacity=None, str group='') -> Tensor[]",
    moe_plan_tables,
    _plan_fake,
    _plan_backward,
    _plan_setup,
)

# limit_routes


def _limit_fake(
    topk_ids: Tensor,
    expert_map: Tensor | None = None,
    *,
    num_experts: int,
    parallel: str = "ep",
    max_tokens: int | None = None,
    capacity: int | None = None,
    rank_capacity: int | None = None,
    raises: bool = True,
    group: str = "",
) -> tuple[Tensor, Tensor]:
    return topk_ids.new_empty(topk_ids.shape), topk_ids.new_empty(topk_ids.shape[0], dtype=torch.int32)


define(
    "limit_routes(Tensor topk_ids, Tensor? expert_map=None, *, int num_experts, str parallel='ep', "
    "int? max_tokens=None, int? capacity=None, int? rank_capacity=None, bool raises=True, str group='') -> "
    "(Tensor, Tensor)",
    limit_routes,
    _limit_fake,
)

# ag_moe_rows


def _ag_moe_fake(x: Tensor, w: Tensor, tables: list[Tensor], *, num_experts: int = 0, group: str = "") -> Tensor:
    torch._check(x.ndim == 2 and w.ndim == 3 and x.shape[1] == w.shape[2], lambda: "ag_moe: expected w [experts, N, K]")
    return x.new_empty(tables[1].shape[0], w.shape[1])


def _ag_moe_setup(ctx: Any, inputs: tuple, keyword_only_inputs: dict, output: Tensor) -> None:
    x, w, tables = inputs
    save(ctx, keyword_only_inputs["group"], x, w, *tables)


def _ag_moe_backward(ctx: Any, grad: Tensor | None) -> tuple:
    x, w, *tables = ctx.saved_tensors
    of_x, of_w = ctx.needs_input_grad[:2]
    nothing = [None] * len(tables)
    if grad is None:
        return None, None, nothing
    grad_x, grad_w = ops.ag_moe_rows_backward(grad, x, w, tables, of_x=of_x, of_w=of_w, group=ctx.group)
    return grad_x if of_x else None, grad_w if of_w else None, nothing


define(
    "ag_moe_rows(Tensor x, Tensor w, Tensor[] tables, *, int num_experts=0, str group='') -> Tensor",
    ag_moe_rows,
    _ag_moe_fake,
    _ag_moe_backward,
    _ag_moe_setup,
)


def _ag_moe_backward_fake(
    grad: Tensor,
    x: Tensor,
    w: Tensor,
    tables: list[Tensor],
    *,
    of_x: bool = True,
    of_w: bool = True,
    group: str = "",
) -> tuple[Tensor, Tensor]:
    return x.new_empty(x.shape if of_x else (0,)), w.new_empty(w.shape if of_w else (0,))


define(
    "ag_moe_rows_backward(Tensor grad, Tensor x, Tensor w, Tensor[] tables, *, bool of_x=True, bool of_w=True, "
    "str group='') -> (Tensor, Tensor)",
    ag_moe_rows_backward,
    _ag_moe_backward_fake,
)

# grouped_mm_rows


def _grouped_mm_fake(rows: Tensor, w: Tensor, tables: list[Tensor], *, group: str = "") -> Tensor:
    return rows.new_empty(rows.shape[0], w.shape[1])


def _grouped_mm_setup(ctx: Any, inputs: tuple, keyword_only_inputs: dict, output: Tensor) -> None:
    rows, w, tables = inputs
    save(ctx, keyword_only_inputs["group"], rows, w, *tables)


def _grouped_mm_backward(ctx: Any, grad: Tensor | None) -> tuple:
    rows, w, *tables = ctx.saved_tensors
    of_rows, of_w = ctx.needs_input_grad[:2]
    nothing = [None] * len(tables)
    if grad is None:
        return None, None, nothing
    grads = ops.grouped_mm_rows_backward(grad, rows, w, tables, of_rows=of_rows, of_w=of_w, group=ctx.group)
    return grads[0] if of_rows else None, grads[1] if of_w else None, nothing


define(
    "grouped_mm_rows(Tensor rows, Tensor w, Tensor[] tables, *, str group='') -> Tensor",
    grouped_mm_rows,
    _grouped_mm_fake,
    _grouped_mm_backward,
    _grouped_mm_setup,
)


def _grouped_mm_backward_fake(
    grad: Tensor,
    rows: Tensor,
    w: Tensor,
    tables: list[Tensor],
    *,
    of_rows: bool = True,
    of_w: bool = True,
    group: str = "",
) -> tuple[Tensor, Tensor]:
    return rows.new_empty(rows.shape if of_rows else (0,)), w.new_empty(w.shape if of_w else (0,))


define(
    "grouped_mm_rows_backward(Tensor grad, Tensor rows, Tensor w, Tensor[] tables, *, bool of_rows=True, "
    "bool of_w=True, str group='') -> (Tensor, Tensor)",
    grouped_mm_rows_backward,
    _grouped_mm_backward_fake,
)

# swiglu_rows


def _swiglu_fake(rows: Tensor, tables: list[Tensor], *, group: str = "") -> Tensor:
    return rows.new_empty(rows.shape[0], rows.shape[1] // 2)


def _swiglu_setup(ctx: Any, inputs: tuple, keyword_only_inputs: dict, output: Tensor) -> None:
    rows, tables = inputs
    save(ctx, keyword_only_inputs["group"], rows, *tables)


def _swiglu_backward(ctx: Any, grad: Tensor | None) -> tuple:
    rows, *tables = ctx.saved_tensors
    of_rows = None if grad is None else ops.swiglu_rows_backward(grad, rows, tables, group=ctx.group)
    return of_rows, [None] * len(tables)


define(
    "swiglu_rows(Tensor rows, Tensor[] tables, *, str group='') -> Tensor",
    swiglu_rows,
    _swiglu_fake,
    _swiglu_backward,
    _swiglu_setup,
)


def _swiglu_backward_fake(grad: Tensor, rows: Tensor, tables: list[Tensor], *, group: str = "") -> Tensor:
    return rows.new_empty(rows.shape)


define(
    "swiglu_rows_backward(Tensor grad, Tensor rows, Tensor[] tables, *, str group='') -> Tensor",
    swiglu_rows_backward,
    _swiglu_backward_fake,
)

# moe_rs_rows


def _moe_rs_fake(rows: Tensor, w: Tensor, tables: list[Tensor], *, num_experts: int = 0, group: str = "") -> Tensor:
    torch._check(
        rows.ndim == 2 and w.ndim == 3 and rows.shape[1] == w.shape[2], lambda: "moe_rs: expected w [experts, H, K]"
    )
    return rows.new_empty(tables[0].shape[0] // num_ranks(group), w.shape[1])


def _moe_rs_setup(ctx: Any, inputs: tuple, keyword_only_inputs: dict, output: Tensor) -> None:
    rows, w, tables = inputs
    save(ctx, keyword_only_inputs["group"], rows, w, *tables)


def _moe_rs_backward(ctx: Any, grad: Tensor | None) -> tuple:
    rows, w, *tables = ctx.saved_tensors
    others = [None] * (len(tables) - 1)
    if grad is None:
        return None, None, [None, *others]
    grad_rows, grad_w, grad_weights = ops.moe_rs_rows_backward(grad, rows, w, tables, group=ctx.group)
    of_rows, of_w = ctx.needs_input_grad[:2]
    return grad_rows if of_rows else None, grad_w if of_w else None, [grad_weights, *others]


define(
    "moe_rs_rows(Tensor rows, Tensor w, Tensor[] tables, *, int num_experts=0, str group='') -> Tensor",
    moe_rs_rows,
    _moe_rs_fake,
    _moe_rs_backward,
    _moe_rs_setup,
)


# moe_ar_rows


def _moe_ar_fake(
    rows: Tensor, w: Tensor, tables: list[Tensor], *, gradient: str = "replicate", group: str = ""
) -> Tensor:
    torch._check(
        rows.ndim == 2 and w.ndim == 3 and rows.shape[1] == w.shape[2], lambda: "moe_ar: expected w [experts, H, K]"
    )
    return rows.new_empty(tables[0].shape[0], w.shape[1])


def _moe_ar_setup(ctx: Any, inputs: tuple, keyword_only_inputs: dict, output: Tensor) -> None:
    _moe_rs_setup(ctx, inputs, keyword_only_inputs, output)
    ctx.gradient = keyword_only_inputs["gradient"]


def _moe_ar_backward(ctx: Any, grad: Tensor | None) -> tuple:
    rows, w, *tables = ctx.saved_tensors
    others = [None] * (len(tables) - 1)
    if grad is None:
        return None, None, [None, *others]
    if ctx.gradient == "partial":
        grad = ops.all_reduce(grad.contiguous(), group=ctx.group)
    grad_rows, grad_w, grad_weights = ops.moe_rs_rows_backward(grad, rows, w, tables, of_all=True, group=ctx.group)
    of_rows, of_w = ctx.needs_input_grad[:2]
    return grad_rows if of_rows else None, grad_w if of_w else None, [grad_weights, *others]


define(
    "moe_ar_rows(Tensor rows, Tensor w, Tensor[] tables, *, str gradient='replicate', str group='') -> Tensor",
    moe_ar_rows,
    _moe_ar_fake,
    _moe_ar_backward,
    _moe_ar_setup,
)

# moe_rs_rows_backward


def _moe_rs_backward_fake(
    grad: Tensor, rows: Tensor, w: Tensor, tables: list[Tensor], *, of_all: bool = False, group: str = ""
) -> tuple[Tensor, Tensor, Tensor]:
    return rows.new_empty(rows.shape), w.new_empty(w.shape), tables[0].new_empty(tables[0].shape)


define(
    "moe_rs_rows_backward(Tensor grad, Tensor rows, Tensor w, Tensor[] tables, *, bool of_all=False, str group='') -> "
    "(Tensor, Tensor, Tensor)",
    moe_rs_rows_backward,
    _moe_rs_backward_fake,
)


# Of quantized tensors: without gradients


def _scaled_fake(of: Any) -> Any:
    def fake(a: Tensor, w: Tensor, tables: list[Tensor], **options: Any) -> Tensor:
        scales = [name for name in options if name.startswith("scale_")]
        product = of(a, w, tables, **{name: value for name, value in options.items() if name not in scales})
        return product.to(torch.bfloat16)

    return fake


for _name, _a, _options, _function, _fake in (
    ("ag_moe", "x", "int num_experts=0, ", ag_moe_rows, _ag_moe_fake),
    ("moe_rs", "rows", "int num_experts=0, ", moe_rs_rows, _moe_rs_fake),
    ("moe_ar", "rows", "str gradient='replicate', ", moe_ar_rows, _moe_ar_fake),
    ("grouped_mm", "rows", "", grouped_mm_rows, _grouped_mm_fake),
):
    define(
        f"{_name}_rows_scaled(Tensor {_a}, Tensor w, Tensor[] tables, *, {_options}Tensor? scale_{_a}=None, "
        "Tensor? scale_w=None, str group='') -> Tensor",
        _function,
        _scaled_fake(_fake),
    )


def _quantized_like(x: Tensor, columns: int) -> tuple[Tensor, Tensor]:
    values = x.new_empty(x.shape[0], columns, dtype=torch.float8_e4m3fn)
    return values, x.new_empty(x.shape[0], columns // 128, dtype=torch.float32)


define(
    "quantize_1x128(Tensor x, *, str group='') -> (Tensor, Tensor)",
    quantize_1x128,
    lambda x, *, group="": _quantized_like(x, x.shape[1]),
)
define(
    "swiglu_rows_1x128(Tensor rows, Tensor[] tables, *, str group='') -> (Tensor, Tensor)",
    swiglu_rows_1x128,
    lambda rows, tables, *, group="": _quantized_like(rows, rows.shape[1] // 2),
)
