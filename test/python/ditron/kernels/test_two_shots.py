"""Sums in two shots: all_reduce(algorithm="two_shot_ll"), and all_reduce_rms_norm of many rows, by words and packets."""

import importlib
import itertools

import numerics
import pytest
import torch
from simulated import data, run, run_numbered

import ditron
from ditron import kernels
from ditron.distributed.group import Group
from ditron.kernels.all_reduce import BLOCKS, all_reduce_rule, by_size, two_shot_ll_program
from ditron.kernels.schedules import block_for, check_schedule
from ditron.tuning.problem import Problem
from ditron.tuning.registry import candidates_of

norm = importlib.import_module("ditron.kernels.all_reduce_rms_norm")  # the package's attribute is the function
MACHINES = [dict(races=True), dict(weak=True, races=False), dict(races=True, graphs=True)]
SIZES = (1, 3, 1000, 241, 7, 4001, 1000, 961, 1024)  # of which many share memory, and some have no more than ranks


def sum_in_rank_order(parts):
    """In fp32, rounded once."""
    total = torch.zeros(parts.shape[1:])
    for part in parts:
        total += part.float()
    return total.to(parts.dtype)


def assert_same_on_all(results):
    for theirs in results[1:]:
        assert all(torch.equal(x, y) for x, y in zip(results[0], theirs, strict=True))


@pytest.mark.parametrize("machine", MACHINES, ids=["races", "weak", "graphs"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 8])
def test_all_reduce(ranks, dtype, machine):
    """Calls of many sizes, one behind the other: more and fewer blocks than ranks, whole ones and not."""

    def main(rank):
        results = []
        for call, n in enumerate(SIZES):
            x = data(ranks, n, seed=call, dtype=dtype)
            schedule = {"block": 512} if call % 2 else {}
            got = kernels.all_reduce(x[rank].clone(), algorithm="two_shot_ll", **schedule)
            assert torch.equal(got, sum_in_rank_order(x)), (call, n)
            results.append(got)
        return results

    assert_same_on_all(run_numbered(main, ranks, **machine))


def test_a_product_before_it():
    """``gemm_ar`` takes the algorithms of ``all_reduce``; sums of whole numbers are exact."""
    a, b = (
        torch.randint(-3, 4, shape, generator=torch.Generator().manual_seed(1)) for shape in ((3, 9, 8), (3, 40, 8))
    )

    def main():
        mine = (matrices[ditron.rank()].bfloat16() for matrices in (a, b))
        got = kernels.gemm_ar(*mine, algorithm="two_shot_ll", block=256)
        assert torch.equal(got.long(), torch.einsum("rmk,rnk->mn", a, b))

    run(main, ranks=3)


@pytest.mark.parametrize("machine", MACHINES, ids=["races", "weak", "graphs"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 8])
@pytest.mark.parametrize("protocol", ["words", "packets"])
def test_all_reduce_rms_norm(protocol, ranks, dtype, machine):
    """Fewer rows than ranks, and more, in the same memory."""
    eps = 1e-3

    def main():
        rank, results = ditron.rank(), []
        for call, (rows, N) in enumerate([(1, 40), (7, 40), (3, 40), (7, 40), (9, 300), (5, 7), (64, 8), (33, 8)]):
            x, residual, weight = data(ranks, rows, N, seed=call), data(rows, N, seed=9), data(N, seed=8)
            x, residual, weight = x.to(dtype), residual.to(dtype), weight.to(dtype)
            out, total = torch.empty_like(residual), torch.empty_like(residual)
            tensors = x[rank].clone(), residual, weight, out, total
            if protocol == "words":
                how = {"num_ranks": ranks, "block": 256, "parts": -(-N // (256 * ranks))}
                norm.two_shot_ll_rms_norm_program(*tensors, 64, eps, **how)
            else:
                norm.two_shot_rms_norm_program(*tensors, 64, eps, block=1 << (N - 1).bit_length())
            exact = (sum_in_rank_order(x.float()) + residual.float()).to(dtype)
            assert torch.equal(total, exact), (rows, N)
            expected = torch.nn.functional.rms_norm(total.double(), (N,), weight.double(), eps)
            numerics.assert_error_within(out, expected, numerics.gamma(N + 8) * expected.abs())
            results += [out, total]
        return results

    assert_same_on_all(run(main, ranks=ranks, **machine))


@pytest.mark.parametrize("ranks, words, takes", [(2, 0, "ll"), (3, 0, "two_shot"), (3, 1 << 20, "two_shot_ll")])
def test_rows_are_divided_where_the_rule_says_so(ranks, words, takes, monkeypatch):
    monkeypatch.setattr(norm, "TWO_SHOT_SAVED_BYTES", 0)
    monkeypatch.setattr(norm, "TWO_SHOT_LL_BYTES", words)
    programs, run_step = set(), norm.run_step
    monkeypatch.setattr(
        norm, "run_step", lambda program, *a, **how: (programs.add(program), run_step(program, *a, **how))
    )
    x, residual, weight = data(ranks, 3, 40, seed=1), data(3, 40, seed=2), data(40, seed=3)

    def main():
        out, total = kernels.all_reduce_rms_norm(x[ditron.rank()].clone(), residual, weight)
        assert torch.equal(total, (sum_in_rank_order(x.float()) + residual.float()).bfloat16())
        expected = torch.nn.functional.rms_norm(total.double(), (40,), weight.double(), 1e-6)
        numerics.assert_error_within(out, expected, numerics.gamma(48) * expected.abs())

    run(main, ranks=ranks)
    assert programs == {getattr(norm, f"{takes}_rms_norm_program")}


@pytest.mark.parametrize("machine", MACHINES, ids=["races", "weak", "graphs"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("ranks", [1, 2, 3, 8])
def test_rows_of_several_programs(ranks, dtype, machine):
    """Which tell each other their sums of squares, in memory that other numbers of parts have used."""

    def main():
        rank, results = ditron.rank(), []
        shapes = [
            (1, 600, 256, "ll"),
            (7, 1100, 256, "two_shot_ll"),
            (3, 300, 256, "ll"),
            (9, 2100, 256, "two_shot_ll"),
        ]
        shapes += [(5, 7, 256, "ll"), (7, 40, 16, "two_shot"), (3, 40, 20, "two_shot"), (9, 300, 60, "two_shot")]
        shapes += [(2, 1111, 512, "ll"), (33, 7, 4, "two_shot"), (2, 4100, 512, "two_shot_ll")]
        for call, (rows, N, block, algorithm) in enumerate(shapes):
            x, residual, weight = data(ranks, rows, N, seed=call), data(rows, N, seed=9), data(N, seed=8)
            x, residual, weight = x.to(dtype), residual.to(dtype), weight.to(dtype)
            out, total = torch.empty_like(residual), torch.empty_like(residual)
            columns = block * (ranks if algorithm == "two_shot_ll" else 1)
            how = {"block": block, "parts": -(-N // columns)}
            how |= {"num_warps": 1 + call % 2} if algorithm == "two_shot" else {"num_ranks": ranks}
            program = getattr(norm, f"{algorithm}_rms_norm_program")
            program(x[rank].clone(), residual, weight, out, total, 64, 1e-3, **how)
            assert torch.equal(total, (sum_in_rank_order(x.float()) + residual.float()).to(dtype)), (rows, N)
            expected = torch.nn.functional.rms_norm(total.double(), (N,), weight.double(), 1e-3)
            numerics.assert_error_within(out, expected, numerics.gamma(N + 8) * expected.abs())
            results += [out, total]
        return results

    assert_same_on_all(run(main, ranks=ranks, **machine))


@pytest.mark.parametrize(
    "ranks, rows, parts", [(2, 1, 23), (2, 12, 23), (3, 1, 23), (3, 48, 23), (3, 88, 8), (4, 64, 6), (4, 300, 6)]
)
def test_parts_of_rows(ranks, rows, parts, monkeypatch):
    """In one shot a program has 256 columns, in two 256 of each rank, and 960 by packets."""
    given = []
    monkeypatch.setattr(norm, "run_step", lambda program, *tensors, **how: given.append(how.get("parts", 1)))
    x = torch.zeros(rows, 5760, dtype=torch.bfloat16)
    run(lambda: kernels.all_reduce_rms_norm(x, x, x[0]), ranks=ranks)
    assert given == [parts] * ranks


KB, MB, GB = 1 << 10, 1 << 20, 1 << 30


@pytest.mark.parametrize(
    "nbytes, ranks, expected",
    [
        (32 * KB, 4, "ll"),
        (256 * KB, 4, "ll"),
        (256 * KB + 4, 4, "two_shot_ll"),
        (GB, 4, "two_shot_ll"),
        (GB + 2, 4, "two_shot"),
        (72 * KB, 8, "ll"),
        (74 * KB, 8, "two_shot_ll"),
        (576 * KB, 3, "ll"),
        (580 * KB, 3, "two_shot_ll"),
        (512 * KB, 2, "ll"),
        (GB, 2, "ll"),
        (GB + 2, 2, "two_shot"),
        (MB, 1, "ll"),
    ],
)
def test_the_rule(nbytes, ranks, expected):
    """The call's and the explained one, and the same tensors without NVLink."""
    sent = nbytes * (ranks - 1)
    assert by_size(sent, ranks, has_nvlink=True) == expected
    problem = Problem("all_reduce", "bf16", ranks, nbytes // 2)
    assert all_reduce_rule(problem).options == {"algorithm": expected, "block": BLOCKS[expected]}
    if nbytes > 128 * KB and ranks > 1:
        assert by_size(sent, ranks, has_nvlink=False) == ("one_shot" if sent <= 2 * MB else "two_shot")


@pytest.mark.parametrize(
    "nbytes, ranks, has_nvlink, expected",
    [
        (64 * KB, 4, True, "ll_rms_norm_program"),
        (426 * KB, 4, True, "ll_rms_norm_program"),
        (427 * KB, 4, True, "two_shot_ll_rms_norm_program"),
        (MB, 4, True, "two_shot_ll_rms_norm_program"),
        (MB + 2, 4, True, "two_shot_rms_norm_program"),
        (8 * MB, 4, True, "two_shot_rms_norm_program"),
        (8 * MB + 2, 4, True, None),
        (8 * MB, 2, True, "ll_rms_norm_program"),
        (8 * MB + 2, 2, True, None),
        (128 * KB, 4, False, "ll_rms_norm_program"),
        (512 * KB, 4, False, "all_reduce_rms_norm_program"),
        (MB, 4, False, None),
    ],
)
def test_the_rule_of_all_reduce_rms_norm(nbytes, ranks, has_nvlink, expected):
    found = norm.by_size(nbytes * (ranks - 1), ranks, has_nvlink)
    assert (found and found.fn.__name__) == expected


def test_candidates_can_be_called():
    """From 128 KB of more than two ranks on, with what is a schedule of the program."""
    offered = {}
    for ranks, size in itertools.product((2, 4, 8), (64 * KB, 128 * KB, MB, 128 * MB)):
        found = [
            c for c in candidates_of(Problem("all_reduce", "bf16", ranks, size // 2)) if "two_shot_ll" in c.values()
        ]
        offered[ranks, size] = [{k: v for k, v in c.items() if k != "algorithm"} for c in found]
        for schedule in offered[ranks, size]:
            check_schedule("all_reduce", block_for(Group, "two_shot_ll") | schedule, two_shot_ll_program)
    assert {key for key, schedules in offered.items() if schedules} == set(
        itertools.product((4, 8), (128 * KB, MB, 128 * MB))
    )
    assert offered[4, MB] == [{"block": 256}]
