"""The operators under many schedules of the simulator: ``SEEDS=100 pytest`` of this file runs a hundred."""

import os

import pytest
import torch

import ditron.sim
from ditron import kernels

FP8 = torch.float8_e4m3fn
SEEDS = int(os.environ.get("SEEDS", "4"))
ROWS, N, K = 40, 32, 16
TILES = dict(algorithm="overlapped", block=(16, 16, 16), programs=3, pieces=2)
TILES_FP8 = TILES | {"block": (16, 16, 32)}
TWO = {"programs": 2}
HALVES, QUARTERS = TILES | {"block": (16, 32, 32), "programs": 4}, TILES | {"block": (16, 256, 16), "programs": 4}


def data(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape))).bfloat16()


def calls(ranks):
    """By operator: a call of this rank."""
    a, whole, b = data(ranks, ROWS, K), data(ranks, ranks * ROWS, K), data(ranks, N, K)
    square = data(ranks, K, N)
    gradient = data(ranks, ranks * ROWS, N)
    x, y, w, ones = a.to(FP8), whole.to(FP8), b.to(FP8), torch.ones(ranks * ROWS, 1)
    wide, wide_b, blocks = data(ranks, ROWS, 256).to(FP8), data(ranks, N, 256).to(FP8), torch.tensor([[0.5, 2.0]])
    of_a, of_b = torch.arange(1.0, ROWS + 1), torch.arange(1.0, N + 1)
    return {
        "ag_gemm, fp8 rows": lambda r: kernels.ag_gemm(x[r], w[r], scale_a=of_a + r, scale_b=of_b, **TILES_FP8),
        "ag_gemm, fp8 blocks": lambda r: kernels.ag_gemm(
            wide[r], wide_b[r], scale_a=of_a[:, None] * blocks, scale_b=blocks, **TILES_FP8
        ),
        "gemm_rs, fp8 rows": lambda r: kernels.gemm_rs(y[r], w[r], scale_a=ones, scale_b=of_b + r, **TILES_FP8),
        "ag_gemm": lambda r: kernels.ag_gemm(a[r], b[r], **TILES),
        "ag_gemm, halves in the last round": lambda r: kernels.ag_gemm(a[r], b[r], **HALVES),
        "ag_gemm, quarters in the last round": lambda r: kernels.ag_gemm(a[r], b[r], **QUARTERS),
        "ag_gemm, fp8 rows, halves in the last round": lambda r: kernels.ag_gemm(
            x[r], w[r], scale_a=of_a + r, scale_b=of_b, **HALVES
        ),
        "ag_gemm, fp8 blocks, halves in the last round": lambda r: kernels.ag_gemm(
            wide[r], wide_b[r], scale_a=of_a[:, None] * blocks, scale_b=blocks, **HALVES
        ),
        "ag_gemm, split_k": lambda r: kernels.ag_gemm(a[r], b[r], algorithm="split_k", block=(16, 16)),
        "ag_gemm, pushers": lambda r: kernels.ag_gemm(a[r], b[r], **TILES, pushers=2, push_block=64, push_warps=4),
        "ag_gemm, pushers, fp8 rows": lambda r: kernels.ag_gemm(
            x[r], w[r], scale_a=of_a + r, scale_b=of_b, **TILES_FP8, pushers=1, push_block=128, push_warps=4
        ),
        "gemm_rs": lambda r: kernels.gemm_rs(whole[r], b[r], **TILES),
        "gemm_rs, halves in the last round": lambda r: kernels.gemm_rs(whole[r], b[r], **HALVES | TWO),
        "gemm_rs, stores, halves in the last round": lambda r: kernels.gemm_rs(
            whole[r], b[r], **HALVES | TWO, stores=True
        ),
        "gemm_rs, fp8 rows, halves in the last round": lambda r: kernels.gemm_rs(
            y[r], w[r], scale_a=ones, scale_b=of_b + r, **HALVES | TWO
        ),
        "gemm_rs, two copy streams": lambda r: kernels.gemm_rs(whole[r], b[r], **TILES | {"pieces": 3}, copy_streams=2),
        "gemm_rs, stores": lambda r: kernels.gemm_rs(whole[r], b[r], **TILES, stores=True),
        "gemm_rs, stores, fp8 rows": lambda r: kernels.gemm_rs(
            y[r], w[r], scale_a=ones, scale_b=of_b + r, **TILES_FP8, stores=True
        ),
        "ag_gemm_backward": lambda r: torch.cat(
            [t.flatten() for t in kernels.ag_gemm_backward(gradient[r], a[r], b[r], algorithm="overlapped", block=64)]
        ),
        "gemm_rs_backward": lambda r: torch.cat(
            [t.flatten() for t in kernels.gemm_rs_backward(a[r], data(ranks, ranks * ROWS, N)[r], square[r], **TILES)]
        ),
        "gemm_ar, fused": lambda r: kernels.gemm_ar(a[r], b[r], algorithm="fused"),
        "gemm_ar, fused, in two shots": lambda r: kernels.gemm_ar(
            a[r], b[r], algorithm="fused", protocol="ll" if ranks & (ranks - 1) else "two_shot_ll"
        ),
        "gemm_ar, fused, one row": lambda r: kernels.gemm_ar(a[r, :1].clone(), b[r], algorithm="fused"),
        "gemm_ar, overlapped": lambda r: kernels.gemm_ar(whole[r], b[r], algorithm="overlapped"),
        "all_gather, copied": lambda r: kernels.all_gather(a[r], algorithm="copied"),
        "all_gather, stored": lambda r: kernels.all_gather(a[r], algorithm="stored", block=256),
        "all_gather, ll": lambda r: kernels.all_gather(a[r], algorithm="ll", block=256),
        "reduce_scatter, copied": lambda r: kernels.reduce_scatter(whole[r], algorithm="copied"),
        "reduce_scatter, stored": lambda r: kernels.reduce_scatter(whole[r], algorithm="stored", block=256),
        "reduce_scatter, ll": lambda r: kernels.reduce_scatter(whole[r], algorithm="ll", block=256),
        "all_reduce, ll": lambda r: kernels.all_reduce(a[r], algorithm="ll", block=256),
        "all_reduce, one_shot": lambda r: kernels.all_reduce(a[r], algorithm="one_shot", block=256),
        "all_reduce, two_shot": lambda r: kernels.all_reduce(a[r], algorithm="two_shot", block=64, programs=2),
        "all_reduce, two_shot_ll": lambda r: kernels.all_reduce(a[r], algorithm="two_shot_ll", block=256),
        "all_reduce_rms_norm": lambda r: kernels.all_reduce_rms_norm(a[r, :5], whole[0, :5], b[0, 0])[0],
    }


@pytest.mark.parametrize(
    "machine",
    [dict(races=True, weak=False), dict(races=False, weak=True), dict(races=True, graphs=True)],
    ids=["races", "weak", "graphs"],
)
@pytest.mark.parametrize("operator", calls(1))
def test_every_schedule_gives_the_same_bits(operator, machine):
    """No race, no deadlock, and results that do not depend on who comes first; three calls, so that memory is reused."""
    ranks = 3

    def main():
        ditron.init()
        call = calls(ranks)[operator]
        return [call(ditron.rank()) for _ in range(3)]

    first = None
    for seed in range(SEEDS):
        results = ditron.sim.run(main, ranks=ranks, seed=seed, **machine)
        first = first or results
        for ours, theirs in zip(results, first, strict=True):
            assert all(torch.equal(x, y) for x, y in zip(ours, theirs, strict=True)), f"seed {seed}"
        assert all(torch.equal(x, rank[0]) for rank in results for x in rank), f"seed {seed}: a call differs"
