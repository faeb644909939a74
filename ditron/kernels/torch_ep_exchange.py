"""ep_dispatch and ep_combine in torch's dispatcher, where a plan is the list of its tables: each other's gradients."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ditron.kernels.ep_exchange import ep_combine_rows, ep_dispatch_rows, ep_dispatch_rows_1x128
from ditron.kernels.registration import define, num_ranks, ops, save
from ditron.kernels.routing import Plan


def _dispatch_fake(x: Tensor, tables: list[Tensor], *, group: str = "") -> Tensor:
    return x.new_empty(tables[1].shape[0], x.shape[1])


def _setup(ctx: Any, inputs: tuple, keyword_only_inputs: dict, output: Tensor) -> None:
    save(ctx, keyword_only_inputs["group"], inputs[0], *inputs[1])


def _dispatch_backward(ctx: Any, grad: Tensor | None) -> tuple:
    """A token's gradient is the sum of those of its rows, each of which counts once."""
    x, *tables = ctx.saved_tensors
    nothing = [None] * len(tables)
    if grad is None:
        return None, nothing
    counted = [torch.ones_like(tables[0]), *tables[1:]]
    return ops.ep_combine_rows(grad.contiguous(), counted, group=ctx.group)[: len(x)], nothing


define(
    "ep_dispatch_rows(Tensor x, Tensor[] tables, *, str group='') -> Tensor",
    ep_dispatch_rows,
    _dispatch_fake,
    _dispatch_backward,
    _setup,
)
define(
    "ep_dispatch_rows_1x128(Tensor x, Tensor scale_x, Tensor[] tables, *, str group='') -> (Tensor, Tensor)",
    ep_dispatch_rows_1x128,
    lambda x, scale_x, tables, *, group="": tuple(_dispatch_fake(each, tables) for each in (x, scale_x)),
)


def _combine_fake(y: Tensor, tables: list[Tensor], *, group: str = "") -> Tensor:
    return y.new_empty(tables[0].shape[0] // num_ranks(group), y.shape[1])


def _combine_backward(ctx: Any, grad: Tensor | None) -> tuple:
    """A row's gradient is its token's times its weight; that of the weight is the product of row and gradient."""
    y, *tables = ctx.saved_tensors
    of_tables: list[Tensor | None] = [None] * len(tables)
    if grad is None:
        return None, of_tables
    plan = Plan.of(tables)
    rows = ops.ep_dispatch_rows(grad.contiguous(), [table.detach() for table in tables], group=ctx.group)
    index = torch.arange(plan.max_rows, device=y.device)
    is_row = (index < plan.num_tiles * plan.block_m) & (plan.row_route >= 0)  # what lies behind them is not written
    route = torch.where(is_row, plan.row_route, 0).long()
    weight = torch.where(is_row, plan.route_weight.flatten()[route], 0.0)[:, None]
    grad_y = torch.where(is_row[:, None], rows.float() * weight, 0.0).to(y.dtype)
    product = torch.where(is_row[:, None], rows.float() * y.float(), 0.0).sum(1)
    of_routes = product[plan.route_row.clamp(min=0).long()]
    of_tables[0] = torch.where(plan.route_row >= 0, of_routes, 0.0)
    return grad_y, of_tables


define(
    "ep_combine_rows(Tensor y, Tensor[] tables, *, str group='') -> Tensor",
    ep_combine_rows,
    _combine_fake,
    _combine_backward,
    _setup,
)
