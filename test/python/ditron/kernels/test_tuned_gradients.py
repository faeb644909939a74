"""Forward and backward of the operators whatever a table says of them: it names any algorithm of an operator."""

import numerics
import pytest
import torch

import ditron
import ditron.sim
from ditron import kernels
from ditron.tuning import lookup
from ditron.tuning.problem import Problem
from ditron.tuning.registry import candidates_of
from ditron.tuning.tables import Entry, Measured, Table, versions

RANKS, ROWS, N, K = 2, 8, 64, 48

#: All that tables may name, of products of any size.
ALGORITHMS = {
    operator: sorted(
        {
            options["algorithm"]
            for rows in (1 << k for k in range(3, 16))
            for options in candidates_of(Problem(operator, "bf16", RANKS, rows, 8192, 4096))
        }
    )
    for operator in ("ag_gemm", "gemm_rs")
}


def data(*shape, seed):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).bfloat16()


def use(monkeypatch, *entries, ranks=RANKS):
    """Simulated ranks look at a table of such entries: an operator, its N and K, and candidates, fastest first."""
    made = Table("h200", ranks, versions())
    for operator, n, k, *candidates in entries:
        problem = Problem(operator, "bf16", ranks, ROWS, n, k)
        made.add(Entry(problem, [Measured(options, float(place)) for place, options in enumerate(candidates, 1)]))
    monkeypatch.setattr(lookup, "tables_of", lambda *_: made)
    monkeypatch.setattr(lookup._Settings, "simulator", "h200")


def assert_product(got, x, y):
    exact, size = x.double() @ y.double(), x.double().abs() @ y.double().abs()
    numerics.assert_error_within(got, exact, numerics.gamma(x.shape[1]) * size + exact.abs() * 2**-8)


def choices():
    """What the group has chosen, by operator and N."""
    return {(key[0], key[3]): choice for key, choice in ditron.init().choices.made.items()}


@pytest.mark.parametrize("operator, algorithm", [(o, name) for o in ALGORITHMS for name in ALGORITHMS[o]])
def test_backward_of_what_a_table_names(monkeypatch, operator, algorithm):
    """The products of the backward are of ag_gemm and gemm_rs with N and K exchanged."""
    only, named = {"algorithm": algorithm}, [name for name in ALGORITHMS if algorithm in ALGORITHMS[name]]
    use(monkeypatch, *((name, *sizes, only) for name in named for sizes in ((N, K), (K, N))))
    wide, narrow = data(RANKS, RANKS * ROWS, K, seed=1), data(RANKS, ROWS, K, seed=2)
    weights = data(RANKS, N, K, seed=3)

    def main():
        group = ditron.init()
        rows = wide if operator == "gemm_rs" else narrow
        x, w = (tensor[group.rank].clone().requires_grad_() for tensor in (rows, weights))
        y = getattr(kernels, operator)(x, w)
        grads = data(RANKS, *y.shape, seed=4)
        y.backward(grads[group.rank])
        if operator == "gemm_rs":
            assert_product(x.grad, grads.flatten(0, 1), weights[group.rank])
            assert_product(w.grad, grads.flatten(0, 1).t(), wide[group.rank])
        else:
            assert_product(w.grad, grads[group.rank].t(), narrow.flatten(0, 1))

    ditron.sim.run(main, ranks=RANKS)


@pytest.mark.parametrize("faster", ["by_rank", "split_k", "nccl"])
def test_the_backward_of_gemm_rs_takes_the_best_that_it_has(monkeypatch, faster):
    best, pieces = {"algorithm": faster}, {"algorithm": "overlapped", "pieces": 1}
    use(monkeypatch, ("ag_gemm", K, N, best, pieces, {"algorithm": "sequential"}))
    grads, wide, weights = data(RANKS, ROWS, N, seed=1), data(RANKS, RANKS * ROWS, K, seed=2), data(RANKS, N, K, seed=3)

    def main():
        rank = ditron.init().rank
        of_a, of_b = kernels.gemm_rs_backward(grads[rank], wide[rank], weights[rank])
        assert_product(of_a, grads.flatten(0, 1), weights[rank])
        assert_product(of_b, grads.flatten(0, 1).t(), wide[rank])
        return choices()["ag_gemm", K]

    assert ditron.sim.run(main, ranks=RANKS) == [("overlapped", {"pieces": 1})] * RANKS


@pytest.mark.parametrize("algorithm", [None, "overlapped"])
def test_the_backward_of_gemm_rs_takes_no_argument_that_it_lacks(monkeypatch, algorithm):
    """Of more than two ranks a table of ag_gemm names programs that push rows; the backward has none."""
    pushed = {"algorithm": "overlapped", "block": (16, 32, 32), "pieces": 1, "pushers": 2}
    copied = {"algorithm": "overlapped", "block": (16, 32, 32), "pieces": 1}
    ranks = 3
    use(monkeypatch, ("ag_gemm", K, N, pushed, copied), ranks=ranks)
    grads, wide, weights = data(ranks, ROWS, N, seed=1), data(ranks, ranks * ROWS, K, seed=2), data(ranks, N, K, seed=3)

    def main():
        rank = ditron.init().rank
        of_a, _ = kernels.gemm_rs_backward(grads[rank], wide[rank], weights[rank], algorithm=algorithm)
        assert_product(of_a, grads.flatten(0, 1), weights[rank])
        return choices()["ag_gemm", K]

    assert ditron.sim.run(main, ranks=ranks) == [("overlapped", {"block": (16, 32, 32), "pieces": 1})] * ranks


def test_an_algorithm_that_the_caller_names_is_not_replaced(monkeypatch):
    use(monkeypatch, ("ag_gemm", K, N, {"algorithm": "by_rank"}, {"algorithm": "overlapped"}))

    def main():
        rank = ditron.init().rank
        operands = data(ROWS, N, seed=1), data(RANKS * ROWS, K, seed=2), data(N, K, seed=3)
        with pytest.raises(ditron.DitronError, match="unknown algorithm 'by_rank': expected 'overlapped' or 'sequen"):
            kernels.gemm_rs_backward(*operands, algorithm="by_rank")
        return rank

    ditron.sim.run(main, ranks=RANKS)
