"""The all-to-alls and Ulysses' products in torch's dispatcher, as torch_library.py has the other operators."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ditron.kernels.a2a_gemm import a2a_gemm
from ditron.kernels.all_to_all import all_to_all
from ditron.kernels.all_to_all_v import all_to_all_v
from ditron.kernels.gemm_a2a import gemm_a2a
from ditron.kernels.registration import define, num_ranks, ops, save

# all_to_all


def _all_to_all_fake(x: Tensor, *, group: str = "") -> Tensor:
    torch._check(x.shape[0] % num_ranks(group) == 0, lambda: "all_to_all: expected a multiple of num_ranks rows")
    return x.new_empty(x.shape)


def _all_to_all_setup(ctx: Any, inputs: tuple, keyword_only_inputs: dict, output: Tensor) -> None:
    save(ctx, keyword_only_inputs["group"])


def _all_to_all_backward(ctx: Any, grad: Tensor | None) -> Tensor | None:
    return None if grad is None else ops.all_to_all(grad, group=ctx.group)


define(
    "all_to_all(Tensor x, *, str group='') -> Tensor",
    all_to_all,
    _all_to_all_fake,
    _all_to_all_backward,
    _all_to_all_setup,
)

# all_to_all_v


def _all_to_all_v_fake(x: Tensor, splits: Tensor, *, max_rows: int, group: str = "") -> tuple[Tensor, Tensor, Tensor]:
    ranks = num_ranks(group)
    return x.new_empty(max_rows, *x.shape[1:]), splits.new_empty(ranks), splits.new_empty(ranks + 1)


def _all_to_all_v_setup(ctx: Any, inputs: tuple, keyword_only_inputs: dict, output: tuple) -> None:
    ctx.rows = inputs[0].shape[0]
    ctx.mark_non_differentiable(*output[1:])
    save(ctx, keyword_only_inputs["group"], inputs[1], output[2])


def _all_to_all_v_backward(ctx: Any, grad: Tensor | None, *_: Any) -> tuple:
    """Rows go back to where they came from; those that were not sent have a gradient of zero."""
    if grad is None:
        return None, None
    splits, offsets = ctx.saved_tensors
    back, kept, begins = ops.all_to_all_v(grad, offsets.diff(), max_rows=ctx.rows, group=ctx.group)
    ends = splits.cumsum(0)
    row = torch.arange(ctx.rows, device=grad.device)
    owner = torch.searchsorted(ends, row, right=True).clamp(max=len(splits) - 1)
    within = row - (ends - splits)[owner]
    has_place = ((within < kept[owner]) & (row < ends[-1])).view(-1, *[1] * (grad.ndim - 1))
    source = (begins[owner] + within).clamp(max=ctx.rows - 1)
    return torch.where(has_place, back[source], 0), None


define(
    "all_to_all_v(Tensor x, Tensor splits, *, int max_rows, str group='') -> (Tensor, Tensor, Tensor)",
    all_to_all_v,
    _all_to_all_v_fake,
    _all_to_all_v_backward,
    _all_to_all_v_setup,
)

# gemm_a2a and a2a_gemm: the gradient of one's activation is the other


def _by_rank(x: Tensor, dim: int, ranks: int) -> Tensor:
    """``x`` [..., ranks * n, ..., columns] as ``[ranks, rows, columns]``, rows of all dimensions but the last."""
    parts = x.unflatten(dim, (ranks, x.shape[dim] // ranks)).movedim(dim, 0)
    return parts.reshape(ranks, -1, x.shape[-1])


def _gemm_setup(ctx: Any, inputs: tuple, keyword_only_inputs: dict, output: Tensor) -> None:
    x, w, *_ = inputs
    dims = (keyword_only_inputs[name] % x.ndim for name in ("scatter_dim", "gather_dim"))
    ctx.scatter_dim, ctx.gather_dim = dims
    save(ctx, keyword_only_inputs["group"], x, w)


def _gemm_a2a_fake(
    x: Tensor, w: Tensor, bias: Tensor | None = None, *, scatter_dim: int = -1, gather_dim: int = 0, group: str = ""
) -> Tensor:
    torch._check(w.ndim == 2 and x.shape[-1] == w.shape[1], lambda: "gemm_a2a: expected w to be [N, K]")
    shape, ranks = [*x.shape[:-1], w.shape[0] // num_ranks(group)], num_ranks(group)
    shape[gather_dim] = shape[gather_dim] * ranks
    return x.new_empty(shape)


def _gemm_a2a_backward(ctx: Any, grad: Tensor | None) -> tuple:
    if grad is None:
        return None, None, None
    x, w = ctx.saved_tensors
    of_x, of_w, of_bias = (*ctx.needs_input_grad, False)[:3]  # the dispatcher leaves out a bias of None
    grad_x = grad_w = grad_bias = None
    if of_x:
        dims = {"scatter_dim": ctx.gather_dim, "gather_dim": ctx.scatter_dim}
        grad_x = ops.a2a_gemm(grad, w.t(), **dims, group=ctx.group)
    if of_w or of_bias:  # of all columns of this rank's rows: [ranks, rows, N / ranks]
        ranks = num_ranks(ctx.group)
        parts = _by_rank(grad, ctx.gather_dim, ranks)
        parts = ops.all_to_all(parts.flatten(0, 1), group=ctx.group).view(parts.shape)
        grad_w = torch.matmul(parts.transpose(1, 2), x.reshape(-1, x.shape[-1])).flatten(0, 1) if of_w else None
        grad_bias = parts.sum(1).flatten() if of_bias else None
    return grad_x, grad_w, grad_bias


define(
    "gemm_a2a(Tensor x, Tensor w, Tensor? bias=None, *, int scatter_dim=-1, int gather_dim=0, str group='') -> Tensor",
    gemm_a2a,
    _gemm_a2a_fake,
    _gemm_a2a_backward,
    _gemm_setup,
)


def _a2a_gemm_fake(
    x: Tensor, w: Tensor, bias: Tensor | None = None, *, scatter_dim: int = 0, gather_dim: int = -1, group: str = ""
) -> Tensor:
    ranks = num_ranks(group)
    torch._check(w.ndim == 2 and ranks * x.shape[-1] == w.shape[1], lambda: "a2a_gemm: expected w to be [N, K]")
    shape = [*x.shape[:-1], w.shape[0]]
    shape[scatter_dim] = shape[scatter_dim] // ranks
    return x.new_empty(shape)


def _a2a_gemm_backward(ctx: Any, grad: Tensor | None) -> tuple:
    if grad is None:
        return None, None, None
    x, w = ctx.saved_tensors
    of_x, of_w, of_bias = (*ctx.needs_input_grad, False)[:3]
    grad_x = grad_w = None
    rows = grad.reshape(-1, grad.shape[-1])
    if of_x:
        dims = {"scatter_dim": ctx.gather_dim, "gather_dim": ctx.scatter_dim}
        grad_x = ops.gemm_a2a(grad, w.t(), **dims, group=ctx.group)
    if of_w:
        parts = _by_rank(x, ctx.scatter_dim, num_ranks(ctx.group))
        parts = ops.all_to_all(parts.flatten(0, 1), group=ctx.group).view(parts.shape)
        grad_w = torch.matmul(rows.t(), parts).transpose(0, 1).flatten(1)
    return grad_x, grad_w, rows.sum(0) if of_bias else None


define(
    "a2a_gemm(Tensor x, Tensor w, Tensor? bias=None, *, int scatter_dim=0, int gather_dim=-1, str group='') -> Tensor",
    a2a_gemm,
    _a2a_gemm_fake,
    _a2a_gemm_backward,
    _gemm_setup,
)
