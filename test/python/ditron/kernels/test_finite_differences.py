"""Gradients of every operator that has them, against differences of what it computes, by operand, on simulated ranks.

Most operators are linear in each operand: there differences are as exact as the dtype, whatever the step.
"""

from functools import partial

import pytest
import torch
from test_moe import drawn, run

import ditron
from ditron import kernels
from ditron.kernels.expert_activation import swiglu_rows

TOKENS, EXPERTS = 12, 4
IDS = {ranks: drawn(ranks, TOKENS, 2, EXPERTS) for ranks in (2, 4)}


def plan(weights=None, **options):
    return kernels.moe_plan(IDS[ditron.num_ranks()][ditron.rank()], weights, num_experts=EXPERTS, **options)


def own(n):
    return n // ditron.num_ranks()


def placed():
    """The rows that routes have: what lies between and behind them has no meaning."""
    route = plan().row_route
    return torch.nonzero(route[: int(plan().num_tiles) * plan().block_m] >= 0)[:, 0]


def of_rows(function, rows):
    return function(rows)[placed()]


def of_rows_only(grad):
    """A gradient without what it has where there are no rows."""
    if len(grad) != plan().max_rows:
        return grad
    rows = torch.zeros_like(grad)
    rows[placed()] = grad[placed()]
    return rows


def rms_norm(x, residual, weight):
    return torch.cat(kernels.all_reduce_rms_norm(x, residual, weight))


def all_to_all_v(x):
    ranks = ditron.num_ranks()
    return kernels.all_to_all_v(x, torch.full((ranks,), 8 // ranks), max_rows=8)[0]


# Operands by shape, given the number of ranks, of which functions make some by themselves; and what is computed of them.
FP32 = {
    "ag_gemm": (lambda n: [(4, 8), (6, 8), (6,)], kernels.ag_gemm),
    "ag_gemm_multi": (
        lambda n: [(4, 8), (6, 8), (3, 8)],
        lambda a, b, c: torch.cat(kernels.ag_gemm_multi(a, [b, c])[0], 1),
    ),
    "gemm_rs": (lambda n: [(4 * n, 8), (6, 8)], kernels.gemm_rs),
    "all_gather": (lambda n: [(3, 5)], kernels.all_gather),
    "reduce_scatter": (lambda n: [(4, 5)], kernels.reduce_scatter),
    "all_to_all": (lambda n: [(4, 5)], kernels.all_to_all),
    "all_to_all_v": (lambda n: [(8, 5)], all_to_all_v),
    "gemm_a2a": (lambda n: [(4, 8), (4 * n, 8)], kernels.gemm_a2a),
    "a2a_gemm": (lambda n: [(4 * n, 8), (6, 8 * n)], kernels.a2a_gemm),
    "own_part": (lambda n: [(4, 5)], kernels.own_part),
    "ep_dispatch": (lambda n: [(TOKENS, 8)], lambda x: of_rows(lambda x: kernels.ep_dispatch(x, plan()), x)),
    "ep_combine": (
        lambda n: [(plan().max_rows, 8), (TOKENS, 2)],
        lambda y, weights: kernels.ep_combine(y, plan(weights)),
    ),
}
FP16 = {
    "ag_moe": (
        lambda n: [(TOKENS, 16), (own(EXPERTS), 24, 16)],
        lambda x, w: of_rows(lambda x: kernels.ag_moe(x, w, plan()), x),
    ),
    "grouped_mm": (
        lambda n: [(plan().max_rows, 16), (own(EXPERTS), 24, 16)],
        lambda x, w: of_rows(lambda x: kernels.grouped_mm(x, w, plan()), x),
    ),
    "moe_rs": (
        lambda n: [(plan().max_rows, 16), (own(EXPERTS), 24, 16), (TOKENS, 2)],
        lambda rows, w, weights: kernels.moe_rs(rows, w, plan(weights)),
    ),
}
# What every rank has the same of, with the same gradient.
REPLICATED = {
    "gemm_ar": (torch.float32, lambda n: [(4, 8), (6, 8)], kernels.gemm_ar),
    "all_reduce": (torch.float32, lambda n: [(3, 5)], kernels.all_reduce),
    "all_gather": (torch.float32, lambda n: [(3, 5)], partial(kernels.all_gather, gradient="replicate")),
    "moe_ar": (
        torch.float16,
        lambda n: [(plan().max_rows, 16), (own(EXPERTS), 24, 16), (TOKENS, 2)],
        lambda rows, w, weights: kernels.moe_ar(rows, w, plan(weights)),
    ),
}
PARTIAL = {
    "gemm_ar": (torch.float32, REPLICATED["gemm_ar"][1], partial(kernels.gemm_ar, gradient="partial")),
    "all_reduce": (torch.float32, REPLICATED["all_reduce"][1], partial(kernels.all_reduce, gradient="partial")),
    "moe_ar": (
        torch.float16,
        REPLICATED["moe_ar"][1],
        lambda rows, w, weights: kernels.moe_ar(rows, w, plan(weights), gradient="partial"),
    ),
}
CURVED = {
    "all_reduce_rms_norm": (torch.float32, lambda n: [(3, 8), (3, 8), (8,)], rms_norm),
    "swiglu_rows": (
        torch.float32,
        lambda n: [(plan().max_rows, 24)],
        lambda x: of_rows(lambda x: swiglu_rows(x, plan().tables), x),
    ),
    "ep_moe": (
        torch.float16,
        lambda n: [(TOKENS, 16), (TOKENS, 2), (own(EXPERTS), 2 * 16, 16), (own(EXPERTS), 16, 16)],
        lambda x, weights, w13, w2: kernels.ep_moe(
            x, IDS[ditron.num_ranks()][ditron.rank()], weights, w13, w2, num_experts=EXPERTS
        ),
    ),
}


# Operands that are the same on every rank, with the same gradient.
SHARED = {kernels.own_part: (0,), rms_norm: (1, 2)}


def compare(shapes, function, dtype, ranks, *, same=False, step=1.0, tolerance=1e-2, **world):
    """``same``: every rank has one loss, of one result, else each a part of the loss."""
    shared = SHARED.get(function, ())

    def main():
        rank = ditron.rank()
        of_rank, of_all = (torch.Generator().manual_seed(seed) for seed in (rank, 50))
        operands, directions = [], []
        for number, shape in enumerate(shapes(ranks)):
            drawn = torch.randn(2, *shape, generator=of_all if number in shared else of_rank) / 2
            drawn = drawn.to(torch.float32 if shape == (TOKENS, 2) else dtype)
            operands.append(drawn[0].clone())
            directions.append(drawn[1])
        for each in operands:
            each.requires_grad_()
        result = function(*operands)
        seed = torch.Generator().manual_seed(99 if same else 100 + rank)
        factors = torch.randn(result.shape, generator=seed).to(result.dtype)
        result.backward(factors)
        found = []
        for number, (x, v) in enumerate(zip(operands, directions, strict=True)):
            slope = (of_rows_only(x.grad).double() * v).sum()
            if rank > 0 and number in shared:
                slope = 0.0
            with torch.no_grad():
                ahead, behind = (
                    function(*operands[:number], x + sign * step * v, *operands[number + 1 :]) for sign in (1, -1)
                )
            terms = (ahead.double() - behind.double()) / (2 * step) * factors
            if same and rank > 0:
                terms = torch.zeros(())
            found.append((float(slope), float(terms.sum()), float(terms.square().sum())))
        return found

    for number, of_ranks in enumerate(zip(*run(main, ranks=ranks, **world), strict=True)):
        slope, difference, square = map(sum, zip(*of_ranks, strict=True))
        assert square > 0 and abs(slope - difference) <= tolerance * square**0.5, (number, slope, difference, square)


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("name", [*FP32, *FP16])
def test_linear(name, ranks):
    compare(*(FP32 | FP16)[name], torch.float32 if name in FP32 else torch.float16, ranks)


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("name", REPLICATED)
def test_replicated(name, ranks):
    dtype, shapes, function = REPLICATED[name]
    compare(shapes, function, dtype, ranks, same=True)


@pytest.mark.parametrize("name", PARTIAL)
def test_partial(name):
    dtype, shapes, function = PARTIAL[name]
    compare(shapes, function, dtype, 2)


@pytest.mark.parametrize("name", CURVED)
def test_curved(name):
    dtype, shapes, function = CURVED[name]
    compare(shapes, function, dtype, 2, same=name == "all_reduce_rms_norm", step=0.05, tolerance=4e-2)


@pytest.mark.parametrize("name", ["ep_dispatch", "ep_combine", "reduce_scatter"])
def test_over_nodes(name):
    compare(*FP32[name], torch.float32, 4, ranks_per_node=2)
