"""The operators in torch's dispatcher, ``torch.ops.ditron``: schemas, shapes for tracing, and gradients.

A group is given by its name, a string; ``""`` is the current one. Gradients take their group from what was saved with
the forward call, for autograd runs them in threads of its own. They are collective like the forward: if a tensor
requires a gradient on one rank, it must on all of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ditron.kernels.ag_gemm import ag_gemm, ag_gemm_gathered, ag_gemm_multi
from ditron.kernels.all_gather import all_gather, own_part
from ditron.kernels.all_reduce import all_reduce
from ditron.kernels.all_reduce_rms_norm import all_reduce_rms_norm
from ditron.kernels.gemm_ar import gemm_ar
from ditron.kernels.gemm_rs import gemm_rs
from ditron.kernels.gradients import ag_gemm_backward, ag_gemm_multi_backward, gemm_rs_backward
from ditron.kernels.operands import QUANTIZED
from ditron.kernels.reduce_scatter import reduce_scatter
from ditron.kernels.registration import define as _define
from ditron.kernels.registration import num_ranks as _num_ranks
from ditron.kernels.registration import ops
from ditron.kernels.registration import save as _save

# ag_gemm


def _ag_gemm_fake(a: Tensor, b: Tensor, bias: Tensor | None = None, *, group: str = "") -> Tensor:
    torch._check(a.ndim == 2 and b.ndim == 2 and a.shape[1] == b.shape[1], lambda: "ag_gemm: expected b to be [N, K]")
    return a.new_empty(_num_ranks(group) * a.shape[0], b.shape[0])


def _ag_gemm_setup(ctx: Any, inputs: tuple, keyword_only_inputs: dict, output: Tensor) -> None:
    a, b, _ = inputs
    _save(ctx, keyword_only_inputs["group"], a, b)


def _ag_gemm_backward(ctx: Any, grad: Tensor | None) -> tuple:
    """The rows of A that this rank has not are gathered again: kept, they would be num_ranks times the input."""
    if grad is None:
        return None, None, None
    a, b = ctx.saved_tensors
    of_a, of_b, of_bias = (*ctx.needs_input_grad, False)[:3]  # the dispatcher leaves out a bias of None
    grad_bias = grad.sum(0) if of_bias else None
    if of_a and of_b:
        return *ops.ag_gemm_backward(grad, a, b, group=ctx.group), grad_bias
    return (
        ops.gemm_rs(grad, b.t(), group=ctx.group) if of_a else None,
        torch.mm(grad.t(), ops.all_gather(a, group=ctx.group)) if of_b else None,
        grad_bias,
    )


_define(
    "ag_gemm(Tensor a, Tensor b, Tensor? bias=None, *, str group='') -> Tensor",
    ag_gemm,
    _ag_gemm_fake,
    _ag_gemm_backward,
    _ag_gemm_setup,
)


def _ag_gemm_gathered_fake(
    a: Tensor, b: Tensor, bias: Tensor | None = None, *, keep: bool = True, group: str = ""
) -> tuple[Tensor, Tensor]:
    return _ag_gemm_fake(a, b, bias, group=group), a.new_empty(_num_ranks(group) * a.shape[0], a.shape[1])


def _ag_gemm_gathered_setup(ctx: Any, inputs: tuple, keyword_only_inputs: dict, output: tuple) -> None:
    ctx.is_kept = keyword_only_inputs["keep"]
    _save(ctx, keyword_only_inputs["group"], output[1] if ctx.is_kept else inputs[0], inputs[1])


def _ag_gemm_gathered_backward(ctx: Any, grad: Tensor | None, of_gathered: Tensor | None) -> tuple:
    """Without kept rows, as of ``ag_gemm_multi``."""
    of_a, of_b, of_bias = (*ctx.needs_input_grad, False)[:3]
    if not ctx.is_kept and grad is not None and of_a and of_b:
        a, b = ctx.saved_tensors
        grad_a, (grad_b,) = ops.ag_gemm_multi_backward([grad], a, [b], of_gathered, group=ctx.group)
        return grad_a, grad_b, grad.sum(0) if of_bias else None
    if ctx.is_kept and grad is not None:
        gathered, b = ctx.saved_tensors
        grad_a = ops.gemm_rs(grad, b.t(), group=ctx.group) if of_a else None
        grad_b = torch.mm(grad.t(), gathered) if of_b else None
        grad_bias = grad.sum(0) if of_bias else None
    else:
        grad_a, grad_b, grad_bias = _ag_gemm_backward(ctx, grad)
    if of_gathered is not None and of_a:
        of_rows = ops.reduce_scatter(of_gathered, group=ctx.group)
        grad_a = of_rows if grad_a is None else grad_a + of_rows
    return grad_a, grad_b, grad_bias


_define(
    "ag_gemm_gathered(Tensor a, Tensor b, Tensor? bias=None, *, bool keep=True, str group='') -> (Tensor, Tensor)",
    ag_gemm_gathered,
    _ag_gemm_gathered_fake,
    _ag_gemm_gathered_backward,
    _ag_gemm_gathered_setup,
)

# ag_gemm_backward


def _ag_gemm_backward_fake(grad: Tensor, a: Tensor, b: Tensor, *, group: str = "") -> tuple[Tensor, Tensor]:
    torch._check(a.ndim == 2 and b.ndim == 2 and a.shape[1] == b.shape[1], lambda: "ag_gemm_backward: b must be [N, K]")
    expected = _num_ranks(group) * a.shape[0], b.shape[0]
    torch._check(grad.shape == expected, lambda: "ag_gemm_backward: grad must be [num_ranks * rows, N]")
    return a.new_empty(a.shape), b.new_empty(b.shape)


def _ag_gemm_backward_setup(ctx: Any, inputs: tuple, keyword_only_inputs: dict, output: tuple) -> None:
    _save(ctx, keyword_only_inputs["group"], *inputs)


def _ag_gemm_second_backward(ctx: Any, of_a: Tensor | None, of_b: Tensor | None) -> tuple:
    """``grad_a`` is the own rows of the sum of grad @ B, ``grad_b`` is grad.T @ all ranks' A."""
    grad, a, b = ctx.saved_tensors
    of_grad, grad_b, grad_a = None, None, None
    if of_a is not None:
        of_grad, gathered = ops.ag_gemm_gathered(of_a, b, group=ctx.group)
        grad_b = torch.mm(grad.t(), gathered)
    if of_b is not None:
        product = ops.ag_gemm(a, of_b, group=ctx.group)
        of_grad = product if of_grad is None else of_grad + product
        grad_a = ops.gemm_rs(grad, of_b.t(), group=ctx.group)
    return of_grad, grad_a, grad_b


_define(
    "ag_gemm_backward(Tensor grad, Tensor a, Tensor b, *, str group='') -> (Tensor, Tensor)",
    ag_gemm_backward,
    _ag_gemm_backward_fake,
    _ag_gemm_second_backward,
    _ag_gemm_backward_setup,
)

# ag_gemm_multi


def _ag_gemm_multi_fake(
    a: Tensor, bs: list[Tensor], biases: list[Tensor], *, group: str = ""
) -> tuple[list[Tensor], Tensor]:
    return [_ag_gemm_fake(a, b, group=group) for b in bs], a.new_empty(_num_ranks(group) * a.shape[0], a.shape[1])


def _ag_gemm_multi_setup(ctx: Any, inputs: tuple, keyword_only_inputs: dict, output: tuple) -> None:
    a, bs, biases = inputs
    ctx.has_biases = bool(biases)
    _save(ctx, keyword_only_inputs["group"], a, *bs)


def _ag_gemm_multi_backward(ctx: Any, grads: list[Tensor | None], of_gathered: Tensor | None) -> tuple:
    a, *bs = ctx.saved_tensors
    rows = _num_ranks(ctx.group) * a.shape[0]
    # a product that nobody has used has a gradient of zeros
    given = [a.new_zeros(rows, b.shape[0]) if g is None else g for g, b in zip(grads, bs, strict=True)]
    grad_biases = [g.sum(0) for g in given] if ctx.has_biases else []
    of_a, of_bs = ctx.needs_input_grad[0], any(ctx.needs_input_grad[1])
    if of_a and of_bs:
        return *ops.ag_gemm_multi_backward(given, a, bs, of_gathered, group=ctx.group), grad_biases
    grad_a, grad_bs = None, [None] * len(bs)
    if of_a:  # the weights are frozen
        partial = sum(
            (torch.mm(g, b) for g, b in zip(given, bs, strict=True)), 0 if of_gathered is None else of_gathered
        )
        grad_a = ops.reduce_scatter(partial, group=ctx.group)
    if of_bs:
        gathered = ops.all_gather(a, group=ctx.group)
        grad_bs = [torch.mm(g.t(), gathered) for g in given]
    return grad_a, grad_bs, grad_biases


_define(
    "ag_gemm_multi(Tensor a, Tensor[] bs, Tensor[] biases, *, str group='') -> (Tensor[], Tensor)",
    ag_gemm_multi,
    _ag_gemm_multi_fake,
    _ag_gemm_multi_backward,
    _ag_gemm_multi_setup,
)


def _ag_gemm_multi_backward_fake(
    grads: list[Tensor], a: Tensor, bs: list[Tensor], of_gathered: Tensor | None = None, *, group: str = ""
) -> tuple[Tensor, list[Tensor]]:
    return a.new_empty(a.shape), [b.new_empty(b.shape) for b in bs]


def _ag_gemm_multi_backward_setup(ctx: Any, inputs: tuple, keyword_only_inputs: dict, output: tuple) -> None:
    grads, a, bs, *_ = inputs
    ctx.products = len(grads)
    _save(ctx, keyword_only_inputs["group"], a, *grads, *bs)


def _ag_gemm_multi_second_backward(ctx: Any, of_a: Tensor | None, of_bs: list[Tensor | None]) -> tuple:
    """As :func:`_ag_gemm_second_backward`, of each product; the gradient of the gathered rows is scattered as it is."""
    a, *saved = ctx.saved_tensors
    grads, bs = saved[: ctx.products], saved[ctx.products :]
    of_grads, grad_a, grad_bs = [], torch.zeros_like(a), []
    of_gathered = ops.all_gather(torch.zeros_like(a) if of_a is None else of_a, group=ctx.group)
    for grad, b, of_b in zip(grads, bs, of_bs or [None] * len(bs), strict=True):
        of_grad = torch.mm(of_gathered, b.t())
        grad_bs.append(torch.mm(grad.t(), of_gathered))
        if of_b is not None:
            of_grad = of_grad + ops.ag_gemm(a, of_b, group=ctx.group)
            grad_a = grad_a + ops.gemm_rs(grad, of_b.t(), group=ctx.group)
        of_grads.append(of_grad)
    return (of_grads, grad_a, grad_bs, of_gathered)[: len(ctx.needs_input_grad)]  # one of None may be left out


_define(
    "ag_gemm_multi_backward(Tensor[] grads, Tensor a, Tensor[] bs, Tensor? of_gathered=None, *, str group='')"
    " -> (Tensor, Tensor[])",
    ag_gemm_multi_backward,
    _ag_gemm_multi_backward_fake,
    _ag_gemm_multi_second_backward,
    _ag_gemm_multi_backward_setup,
)

# gemm_rs


def _gemm_rs_fake(a: Tensor, b: Tensor, *, group: str = "") -> Tensor:
    torch._check(a.ndim == 2 and b.ndim == 2 and a.shape[1] == b.shape[1], lambda: "gemm_rs: expected b to be [N, K]")
    ranks = _num_ranks(group)
    torch._check(a.shape[0] % ranks == 0, lambda: "gemm_rs: expected a to have a multiple of num_ranks rows")
    return a.new_empty(a.shape[0] // ranks, b.shape[0])


def _gemm_setup(ctx: Any, inputs: tuple, keyword_only_inputs: dict, output: Tensor) -> None:
    _save(ctx, keyword_only_inputs["group"], *inputs)
    ctx.gradient = keyword_only_inputs.get("gradient")


def _gemm_rs_backward(ctx: Any, grad: Tensor | None) -> tuple:
    """The gradient's rows that are gathered for A's gradient are those that B's needs."""
    a, b = ctx.saved_tensors
    of_a, of_b = ctx.needs_input_grad[:2]
    if grad is None:
        return None, None
    if of_a and of_b:
        return ops.gemm_rs_backward(grad, a, b, group=ctx.group)
    if of_a:
        return ops.ag_gemm(grad, b.t(), group=ctx.group), None
    return None, torch.mm(ops.all_gather(grad, group=ctx.group).t(), a)


_define(
    "gemm_rs(Tensor a, Tensor b, *, str group='') -> Tensor", gemm_rs, _gemm_rs_fake, _gemm_rs_backward, _gemm_setup
)

# gemm_rs_backward


def _gemm_rs_backward_fake(grad: Tensor, a: Tensor, b: Tensor, *, group: str = "") -> tuple[Tensor, Tensor]:
    torch._check(a.ndim == 2 and b.shape == (grad.shape[1], a.shape[1]), lambda: "gemm_rs_backward: b must be [N, K]")
    rows = _num_ranks(group) * grad.shape[0]
    torch._check(a.shape[0] == rows, lambda: "gemm_rs_backward: a must be [num_ranks * rows, K]")
    return a.new_empty(a.shape), b.new_empty(b.shape)


def _gemm_rs_second_backward(ctx: Any, of_a: Tensor | None, of_b: Tensor | None) -> tuple:
    """``grad_a`` is all ranks' grad @ B, ``grad_b`` is all ranks' grad transposed @ A."""
    grad, a, b = ctx.saved_tensors
    of_grad, grad_a, grad_b = None, None, None
    if of_a is not None:
        of_grad = ops.gemm_rs(of_a, b, group=ctx.group)
        grad_b = torch.mm(ops.all_gather(grad, group=ctx.group).t(), of_a)
    if of_b is not None:
        summand = ops.gemm_rs(a, of_b, group=ctx.group)
        of_grad = summand if of_grad is None else of_grad + summand
        grad_a = ops.ag_gemm(grad, of_b.t(), group=ctx.group)
    return of_grad, grad_a, grad_b


_define(
    "gemm_rs_backward(Tensor grad, Tensor a, Tensor b, *, str group='') -> (Tensor, Tensor)",
    gemm_rs_backward,
    _gemm_rs_backward_fake,
    _gemm_rs_second_backward,
    _ag_gemm_backward_setup,
)

# gemm_ar


def _gemm_ar_fake(a: Tensor, b: Tensor, *, gradient: str = "replicate", group: str = "") -> Tensor:
    torch._check(a.ndim == 2 and b.ndim == 2 and a.shape[1] == b.shape[1], lambda: "gemm_ar: expected b to be [N, K]")
    return a.new_empty(a.shape[0], b.shape[0])


def _gemm_ar_backward(ctx: Any, grad: Tensor | None) -> tuple:
    a, b = ctx.saved_tensors
    of_a, of_b = ctx.needs_input_grad[:2]
    if grad is None:
        return None, None
    if ctx.gradient == "partial":
        grad = ops.all_reduce(grad, group=ctx.group)
    return torch.mm(grad, b) if of_a else None, torch.mm(grad.t(), a) if of_b else None


_define(
    "gemm_ar(Tensor a, Tensor b, *, str gradient='replicate', str group='') -> Tensor",
    gemm_ar,
    _gemm_ar_fake,
    _gemm_ar_backward,
    _gemm_setup,
)

# Products of quantized operands


def _scaled_fake(of: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def fake(
        *matrices: Tensor,
        scale_a: Tensor | None = None,
        scale_b: Tensor | None = None,
        out_dtype: torch.dtype | None = None,
        use_fast_accum: bool = False,
        **options: Any,
    ) -> Tensor:
        product = of(*matrices, **options)
        return product.to(out_dtype or (torch.bfloat16 if product.dtype in QUANTIZED else product.dtype))

    return fake


for _schema, _function, _fake in (
    ("ag_gemm_scaled(Tensor a, Tensor b, Tensor? bias=None, *, ", ag_gemm, _ag_gemm_fake),
    ("gemm_rs_scaled(Tensor a, Tensor b, *, ", gemm_rs, _gemm_rs_fake),
    ("gemm_ar_scaled(Tensor a, Tensor b, *, str gradient='replicate', ", gemm_ar, _gemm_ar_fake),
):
    _define(
        _schema + "Tensor? scale_a=None, Tensor? scale_b=None, ScalarType? out_dtype=None, bool use_fast_accum=False, "
        "str group='') -> Tensor",
        _function,
        _scaled_fake(_fake),
    )

# Collectives


def _collective_setup(ctx: Any, inputs: tuple, keyword_only_inputs: dict, output: Tensor) -> None:
    _save(ctx, keyword_only_inputs["group"])
    ctx.gradient = keyword_only_inputs.get("gradient")


def _all_gather_fake(x: Tensor, *, gradient: str = "partial", group: str = "") -> Tensor:
    return x.new_empty(_num_ranks(group) * x.shape[0], *x.shape[1:])


def _all_gather_backward(ctx: Any, grad: Tensor | None) -> Tensor | None:
    if grad is None:
        return None
    backward = ops.reduce_scatter if ctx.gradient == "partial" else ops.own_part
    return backward(grad, group=ctx.group)


_define(
    "all_gather(Tensor x, *, str gradient='partial', str group='') -> Tensor",
    all_gather,
    _all_gather_fake,
    _all_gather_backward,
    _collective_setup,
)


def _part_fake(x: Tensor, *, group: str = "") -> Tensor:
    ranks = _num_ranks(group)
    torch._check(x.shape[0] % ranks == 0, lambda: "expected a multiple of num_ranks rows")
    return x.new_empty(x.shape[0] // ranks, *x.shape[1:])


def _part_backward(ctx: Any, grad: Tensor | None) -> Tensor | None:
    return None if grad is None else ops.all_gather(grad, group=ctx.group)


_define(
    "reduce_scatter(Tensor x, *, str group='') -> Tensor", reduce_scatter, _part_fake, _part_backward, _collective_setup
)
_define("own_part(Tensor x, *, str group='') -> Tensor", own_part, _part_fake, _part_backward, _collective_setup)


def _all_reduce_fake(x: Tensor, *, gradient: str = "replicate", group: str = "") -> Tensor:
    return x.new_empty(x.shape)


def _all_reduce_backward(ctx: Any, grad: Tensor | None) -> Tensor | None:
    return ops.all_reduce(grad, group=ctx.group) if grad is not None and ctx.gradient == "partial" else grad


_define(
    "all_reduce(Tensor x, *, str gradient='replicate', str group='') -> Tensor",
    all_reduce,
    _all_reduce_fake,
    _all_reduce_backward,
    _collective_setup,
)


# all_reduce_rms_norm


def _rms_norm_fake(
    x: Tensor, residual: Tensor, weight: Tensor, eps: float = 1e-6, *, group: str = ""
) -> tuple[Tensor, Tensor]:
    return x.new_empty(x.shape), x.new_empty(x.shape)


def _rms_norm_setup(ctx: Any, inputs: tuple, keyword_only_inputs: dict, output: tuple) -> None:
    ctx.eps = inputs[3]
    _save(ctx, keyword_only_inputs["group"], output[1], inputs[2])


def _rms_norm_backward(ctx: Any, grad_out: Tensor | None, grad_total: Tensor | None) -> tuple:
    """Both results are the same on every rank, and so are their gradients, as of ``all_reduce``."""
    total, weight = ctx.saved_tensors
    if grad_out is None:
        return grad_total, grad_total, None, None
    rows, grad = total.float(), grad_out.float()
    scale = torch.rsqrt(rows.square().mean(-1, keepdim=True) + ctx.eps)
    normal, of_normal = rows * scale, grad * weight.float()
    of_rows = scale * (of_normal - normal * (of_normal * normal).mean(-1, keepdim=True))
    if grad_total is not None:
        of_rows = of_rows + grad_total.float()
    of_rows = of_rows.to(total.dtype)
    return of_rows, of_rows, (grad * normal).flatten(0, -2).sum(0).to(weight.dtype), None


_define(
    "all_reduce_rms_norm(Tensor x, Tensor residual, Tensor weight, float eps=1e-06, *, str group='')"
    " -> (Tensor, Tensor)",
    all_reduce_rms_norm,
    _rms_norm_fake,
    _rms_norm_backward,
    _rms_norm_setup,
)
