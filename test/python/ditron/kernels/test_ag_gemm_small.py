"""AG+GEMM of few rows, whose programs divide K: on simulated ranks against torch in fp64, and its schedules on GPUs."""

import numerics
import pytest
import torch
from fake_cuda import gpu_group
from simulated import data, run, weight

import ditron
from ditron import kernels
from ditron.kernels.ag_gemm_small import split_k_candidates, split_k_schedule
from ditron.tuning.problem import Problem
from ditron_compiler.errors import DitronError


@pytest.mark.parametrize("layout", ["nk", "kn"])
@pytest.mark.parametrize("split", [1, 2, 5])
@pytest.mark.parametrize("rows, N, K, rows_left", [(1, 8, 8, False), (5, 40, 72, True), (20, 136, 264, False)])
@pytest.mark.parametrize("ranks", [1, 3])
def test_ag_gemm_that_divides_k(ranks, rows, N, K, rows_left, split, layout):
    a, b, bias = data(ranks, rows, K, seed=1), data(ranks, N, K, seed=2), data(N, seed=3)

    def main():
        rank = ditron.rank()
        for call in range(3):
            turned = a.roll(call, 0)
            gathered = torch.empty(ranks * rows, K, dtype=a.dtype) if call else None
            schedule = {"algorithm": "split_k", "split": split, "rows_left": rows_left}
            got = kernels.ag_gemm(turned[rank], weight(b[rank], layout), bias, gathered=gathered, **schedule)
            numerics.assert_product(got, turned.reshape(-1, K), b[rank].T, bias)
            assert gathered is None or torch.equal(gathered, turned.reshape(-1, K))

    run(main, ranks=ranks)


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda x: kernels.ag_gemm(x.float(), x.float(), algorithm="split_k"), "'split_k' takes up to 128 rows in all"),
        (
            lambda x: kernels.ag_gemm(x[:1].expand(65, -1).contiguous(), x, algorithm="split_k"),
            "'split_k' takes up to 128 rows in all",
        ),
        (lambda x: kernels.ag_gemm(x, x, algorithm="split_k", pieces=2), "unknown argument 'pieces': a schedule has"),
        (lambda x: kernels.ag_gemm(x, x, algorithm="split_k", num_warps=3), "num_warps must be a power of two, got 3"),
        (lambda x: kernels.ag_gemm(x, x, algorithm="split_k", rows=24), "rows, .* a power of two from 16 on .* got 24"),
        (
            lambda x: kernels.ag_gemm(x, x, algorithm="split_k", stages=3, a_ahead=3),
            "a_ahead must be less than stages, which is 3, got 3",
        ),
        (lambda x: kernels.ag_gemm(x, x, algorithm="split_k", stages=1), "stages .* must be 2 or more, got 1"),
        (
            lambda x: kernels.ag_gemm(x, x, algorithm="split_k", stages=8, block=(128, 256)),
            "8 tiles of 128 x 256 of the weight and 2 of 16 rows do not fit the 227 KB of shared memory",
        ),
        (lambda x: kernels.ag_gemm(x, x, algorithm="split_k", split=16), "less than the 16 rows of a tile, got 16"),
    ],
)
def test_bad_arguments(call, message):
    x = data(8, 8, seed=1)

    def main():
        with pytest.raises(DitronError, match=message):
            call(x)

    run(main, ranks=2)


@pytest.mark.parametrize(
    "rows, N, b_is_kn, given, expected",
    [
        (64, 3584, False, {}, (True, (32, 256), 1)),
        (33, 1792, False, {}, (True, (32, 256), 2)),
        (64, 4225, False, {}, (False, (64, 128), 1)),  # more tiles of 32 columns than SMs
        (64, 3584, True, {}, (False, (64, 128), 2)),
        (64, 3584, False, {"block": (64, 128)}, (False, (64, 128), 2)),
        (32, 3584, False, {}, (False, (64, 256), 2)),
    ],
)
def test_which_operand_has_the_rows(rows, N, b_is_kn, given, expected):
    a = torch.empty(rows, 8192, dtype=torch.bfloat16)
    found = split_k_schedule(gpu_group(1), rows, N, a, b_is_kn, given)
    assert (found["rows_left"], found["block"], found["split"]) == expected


def test_few_rows_are_gathered_as_words_or_packets():
    a = torch.empty(16, 8192, dtype=torch.bfloat16)
    found = split_k_schedule(gpu_group(2), 32, 3584, a, False, {})
    assert (found["protocol"], found["gather_block"]) == ("ll", 1024)
    found = split_k_schedule(gpu_group(2), 32, 3584, a, False, {"protocol": "ll128"})
    assert (found["protocol"], found["gather_block"]) == ("ll128", 960)


@pytest.mark.parametrize("ranks", [2, 4, 8])
@pytest.mark.parametrize("N", [64, 576, 1024, 1280, 3584, 8192])
def test_schedules_of_few_rows_are_of_all_rows_of_their_problem(N, ranks):
    """What is measured for the most rows of a table's entry is taken for fewer; none is refused, and all fit an SM."""
    a, group = torch.empty(16, 8192, dtype=torch.bfloat16), gpu_group(ranks)
    for bucket in (8, 16, 32):
        problem = Problem("ag_gemm", "bf16", ranks, bucket, N, 8192)
        for candidate in split_k_candidates(problem):
            given = {name: value for name, value in candidate.items() if name != "algorithm"}
            for rows in range(1, bucket + 1):
                found = split_k_schedule(group, ranks * rows, N, a, False, given)
                assert 1 <= found["a_ahead"] < found["stages"] and found["rows"] >= ranks * rows
    for rows in (1, 16, 17, 32, 33, 64, 65, 128):
        for given in ({}, {"stages": 6}, {"stages": 4}, {"is_early": False}, {"block": (64, 128)}):
            split_k_schedule(group, rows, N, a, False, given)


@pytest.mark.parametrize(
    "rows, given, message",
    [
        (
            16,
            {"split": 2, "num_warps": 8},
            "a tile of 16 rows and 64 columns is too small for 256 threads to exchange parts",
        ),
        (16, {"a_ahead": 4, "stages": 6}, "6 tiles of 64 x 256 of the weight and 5 of 16 rows do not fit"),
        (128, {"split": 100}, "split must be at most the 66 SMs of the GPU, got 100"),
    ],
)
def test_schedules_that_a_gpu_cannot_run(rows, given, message):
    group = gpu_group(2)
    group.sms = 66
    with pytest.raises(DitronError, match=message):
        split_k_schedule(group, rows, 3584, torch.empty(rows // 2, 8192, dtype=torch.bfloat16), False, given)
