"""What is mutated: every shipped kernel and program, with what runs it and says whether the result is right."""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

import ditron

__all__ = ["GROUPS", "Subject", "subjects"]

_ROOT = Path(__file__).resolve().parents[2]
#: (ranks, ranks per node) that the checker looks at, and that the simulator runs.
GROUPS = ((2, None), (3, None), (4, 2))
ONE_NODE = ((2, None), (3, None))
NODES = ((2, 1), (4, 2))


@dataclass(frozen=True)
class Subject:
    """``run()`` on each rank returns the largest error; what is above ``tolerance`` is wrong. ``program``: what it
    calls, when the checker is to look at that."""

    name: str
    run: Callable[[], float]
    tolerance: float = 0.0
    groups: tuple[tuple[int, int | None], ...] = GROUPS
    program: Any = None


def subjects() -> dict[str, Subject]:
    """By name. Importing the examples takes a moment."""
    for folder in ("examples", "test/python/support", "test/python/ditron/sim", "test/python/ditron_compiler/passes"):
        path = str(_ROOT / folder)
        if path not in sys.path:
            sys.path.insert(0, path)
    found = [*_examples(), *_programs(), *_operators(), *_clean_kernels(), *_patterns()]
    return {subject.name: subject for subject in found}


def _examples() -> list[Subject]:
    tile = dict(block=(16, 16, 16))

    def example(
        module: str, tolerance: float, *args: int, name: str = "", groups: tuple = GROUPS, **config: object
    ) -> Subject:
        check = importlib.import_module(module).check

        def run() -> float:
            ditron.init()
            return check(*args, **config)

        return Subject(name or module, run, tolerance, groups)

    one_node = ((2, None), (3, None))
    return [
        example("ag_gemm_in_kernel", 8e-3, 20, 16, 16, num_push=2, push_rows=8, **tile),
        example("gemm_rs", 1.5e-2, 20, 16, 16, **tile),
        example("all_gather", 0.0, 600, chunk=256),
        example("put_signal", 0.0, 1500),
        example("ring", 1e-5, 400),
        example("ll_all_gather", 0.0, 600, name="ll_all_gather, ll", groups=one_node, protocol="ll"),
        example("ll_all_gather", 0.0, 600, name="ll_all_gather, simple", groups=one_node, protocol="simple"),
    ]


def _programs() -> list[Subject]:
    def program(module: str, name: str, tolerance: float, **facts: str) -> Subject:
        example = importlib.import_module(module)
        check = importlib.import_module(facts.pop("check", module)).check
        how = {key: getattr(example, value) for key, value in facts.items()}

        def run() -> float:
            ditron.init()
            return check(20, 16, 16, block=(16, 16, 16), **how)

        return Subject(module, run, tolerance, ((2, None), (3, None)), getattr(example, name))

    def library() -> Subject:
        """One whose kernels are a library's."""
        example = importlib.import_module("library_program")

        def run() -> float:
            ditron.init()
            return example.check()

        return Subject("library_program", run, 1e-6, ((2, None), (3, None)), example.gather_and_multiply)

    return [
        program("ag_gemm", "ag_gemm", 8e-3),
        program("ag_gemm_ring", "ag_gemm_ring", 8e-3, check="ag_gemm", multiply="ring_gemm"),
        program("gemm_rs_chunks", "gemm_rs", 1.5e-2, make="GemmReduceScatterChunks"),
        library(),
        *_after_passes(),
    ]


def _operators() -> list[Subject]:
    """The host programs of ditron.kernels: called three times, with other data each time."""
    from scaled_programs import SCALED_PROGRAMS
    from schedule_programs import SCHEDULE_PROGRAMS

    from ditron import kernels

    def error(got: torch.Tensor, exact: torch.Tensor) -> float:
        return ((got.float() - exact).abs().max() / exact.abs().max()).item()

    def data(*shape: int, seed: int) -> torch.Tensor:
        return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).bfloat16()

    tiles = dict(algorithm="overlapped", block=(16, 16, 16), programs=3)

    def ag_gemm(call: int, rank: int, ranks: int, **how: Any) -> float:
        a, b = data(ranks, 40, 16, seed=call), data(ranks, 32, 16, seed=call + 10)
        exact = a.reshape(-1, 16).float() @ b[rank].float().T
        return error(kernels.ag_gemm(a[rank], b[rank], **(how or {"pieces": 2} | tiles)), exact)

    def gemm_rs(call: int, rank: int, ranks: int, **how: Any) -> float:
        a, b = data(ranks, ranks * 40, 16, seed=call), data(ranks, 32, 16, seed=call + 10)
        exact = sum(a[r].float() @ b[r].float().T for r in range(ranks)).chunk(ranks)[rank]
        return error(kernels.gemm_rs(a[rank], b[rank], **(how or {"pieces": 2} | tiles)), exact)

    def ag_gemm_backward(call: int, rank: int, ranks: int) -> float:
        a, b = data(ranks, 10, 16, seed=call), data(ranks, 32, 16, seed=call + 10)
        grad = data(ranks, ranks * 10, 32, seed=call + 20)
        of_a, of_b = kernels.ag_gemm_backward(grad[rank], a[rank], b[rank], block=64)
        exact = sum(grad[r].float() @ b[r].float() for r in range(ranks)).chunk(ranks)[rank]
        return max(error(of_a, exact), error(of_b, grad[rank].float().T @ a.reshape(-1, 16).float()))

    def gemm_rs_backward(call: int, rank: int, ranks: int) -> float:
        a, b = data(ranks, ranks * 40, 16, seed=call), data(ranks, 32, 16, seed=call + 10)
        grad = data(ranks, 40, 32, seed=call + 20)
        of_a, of_b = kernels.gemm_rs_backward(grad[rank], a[rank], b[rank], pieces=2, **tiles)
        whole = grad.reshape(-1, 32).float()
        return max(error(of_a, whole @ b[rank].float()), error(of_b, whole.T @ a[rank].float()))

    def gemm_ar(call: int, rank: int, ranks: int) -> float:
        a, b = data(ranks, 5, 16, seed=call), data(ranks, 40, 16, seed=call + 10)
        exact = sum(a[r].float() @ b[r].float().T for r in range(ranks))
        return error(kernels.gemm_ar(a[rank], b[rank], algorithm="fused", block=(16, 16)), exact)

    def ag_gemm_small(call: int, rank: int, ranks: int) -> float:
        a, b = data(ranks, 3, 48, seed=call), data(40, 48, seed=call + 10)
        got = kernels.ag_gemm(a[rank], b, algorithm="split_k", block=(16, 16), split=2)
        return error(got, a.reshape(-1, 48).float() @ b.float().T)

    def gemm_ar_row(call: int, rank: int, ranks: int) -> float:
        a, b = data(ranks, 1, 16, seed=call), data(ranks, 40, 16, seed=call + 10)
        exact = sum(a[r].float() @ b[r].float().T for r in range(ranks))
        return error(kernels.gemm_ar(a[rank], b[rank], algorithm="fused", block=(16, 16)), exact)

    def quantized(operator: str, call: int, rank: int, ranks: int) -> float:
        from ditron.kernels.scales import dequantized

        rows = 40 if operator == "ag_gemm" else 40 * ranks
        a = data(ranks, rows, 32, seed=call).to(torch.float8_e4m3fn)
        b = data(ranks, 32, 32, seed=call + 10).to(torch.float8_e4m3fn)
        scale_a = torch.rand(ranks, rows, 1, generator=torch.Generator().manual_seed(call + 20)) + 0.5
        scale_b = torch.linspace(0.5, 1.5, 32)[:, None]
        whole = [(dequantized(a[r], scale_a[r], "row"), dequantized(b[r], scale_b, "row").T) for r in range(ranks)]
        exact = torch.cat([x for x, _ in whole]) @ whole[rank][1]
        if operator == "gemm_rs":
            exact = sum(x @ y for x, y in whole).chunk(ranks)[rank]
        how = tiles | {"block": (16, 16, 32)}
        got = getattr(kernels, operator)(a[rank], b[rank], scale_a=scale_a[rank], scale_b=scale_b, pieces=2, **how)
        return error(got, exact)

    def moved(operator: str, algorithm: str, **schedule: int) -> Callable[[int, int, int], float]:
        def run(call: int, rank: int, ranks: int) -> float:
            x = data(ranks, ranks, 40, seed=call)
            exact = {
                "all_gather": lambda: x.float().reshape(-1, 40),
                "reduce_scatter": lambda: x.float().sum(0).chunk(ranks)[rank],
                "all_reduce": lambda: x.float().sum(0),
            }[operator]()
            return error(getattr(kernels, operator)(x[rank], algorithm=algorithm, **schedule), exact)

        return run

    def rows_and_sums(call: int, rank: int, ranks: int) -> float:
        x, weights = data(ranks, 20, 16, seed=call), torch.ones(20, 2)
        ids = torch.rand(ranks, 20, ranks, generator=torch.Generator().manual_seed(call)).topk(2).indices
        ids[call % ranks, 16:] = -1
        plan = kernels.moe_plan(ids[rank], weights, num_experts=ranks)
        rows = kernels.ep_dispatch(x[rank], plan)
        placed = torch.nonzero(plan.row_route[: int(plan.num_tiles) * plan.block_m] >= 0)[:, 0]
        expected = x.view(-1, 16)[plan.row_route[placed].long() // 2]
        sums = kernels.ep_combine(rows, plan)
        return max(
            error(rows[placed], expected.float()),
            error(sums, x[rank].float() * (ids[rank] >= 0).sum(1, keepdim=True)),
            float((plan.route_row[rank * 20 : rank * 20 + 20] >= 0).sum() != (ids[rank] == rank).sum()),
        )

    def subject(name: str, program: str, calls: Callable[[int, int, int], float], groups: tuple = ONE_NODE) -> Subject:
        module = importlib.import_module(f"ditron.kernels.{name.partition(',')[0]}")

        def run() -> float:
            ditron.init()
            return max(calls(call, ditron.rank(), ditron.num_ranks()) for call in range(3))

        checked = (SCALED_PROGRAMS | SCHEDULE_PROGRAMS).get(program) or getattr(module, program)
        return Subject(f"kernels.{name}", run, 1.5e-2, groups, checked)

    return [
        subject("ag_gemm", "ag_gemm_program", ag_gemm),
        subject("ag_gemm_nodes", "ag_gemm_nodes_program", ag_gemm, ((4, 2),)),
        subject("ag_gemm_small", "ag_gemm_small_program", ag_gemm_small),
        subject("gemm_rs", "gemm_rs_program", gemm_rs),
        subject("gemm_rs_nodes", "gemm_rs_nodes_program", gemm_rs, ((4, 2),)),
        subject(
            "ag_gemm, pushers",
            "ag_gemm_program, pushers",
            functools.partial(ag_gemm, pieces=2, **tiles, pushers=1, push_block=128, push_warps=4),
        ),
        subject(
            "gemm_rs, two copy streams",
            "gemm_rs_program, two copy streams",
            functools.partial(gemm_rs, pieces=2, **tiles, copy_streams=2),
        ),
        subject(
            "gemm_rs, stores", "gemm_rs_program, stores", functools.partial(gemm_rs, pieces=2, **tiles, stores=True)
        ),
        subject("rank_products, ag_gemm", "ag_gemm_by_rank_program", functools.partial(ag_gemm, algorithm="by_rank")),
        subject("rank_products, gemm_rs", "gemm_rs_by_rank_program", functools.partial(gemm_rs, algorithm="by_rank")),
        subject("gradients, column", "column_gradients_program", ag_gemm_backward),
        subject("gradients, row", "row_gradients_program", gemm_rs_backward),
        subject("gemm_ar_small", "gemm_ar_small_program", gemm_ar),
        subject("gemm_ar_small, row", "gemm_ar_row_program", gemm_ar_row),
        subject("ag_gemm, fp8", "ag_gemm_program, row and row", functools.partial(quantized, "ag_gemm")),
        subject("gemm_rs, fp8", "gemm_rs_program, row and row", functools.partial(quantized, "gemm_rs")),
        subject("all_gather, copied", "all_gather_program", moved("all_gather", "copied")),
        subject("all_gather, stored", "stored_gather_program", moved("all_gather", "stored", block=64)),
        subject("all_gather, ll", "ll_gather_program", moved("all_gather", "ll", block=64)),
        subject("reduce_scatter, copied", "reduce_scatter_program", moved("reduce_scatter", "copied", block=64)),
        subject("reduce_scatter, stored", "stored_scatter_program", moved("reduce_scatter", "stored", block=64)),
        subject("reduce_scatter, ll", "ll_scatter_program", moved("reduce_scatter", "ll", block=64)),
        subject("all_reduce, ll", "ll_program", moved("all_reduce", "ll", block=64)),
        subject("all_reduce, one_shot", "one_shot_program", moved("all_reduce", "one_shot", block=64)),
        subject("all_reduce, two_shot", "two_shot_program", moved("all_reduce", "two_shot", block=16, programs=2)),
        subject(
            "all_reduce, two_shot_ll128", "two_shot_ll128_program", moved("all_reduce", "two_shot_ll128", block=16)
        ),
        subject("plan_nodes", "moe_plan_nodes_program", rows_and_sums, NODES),
        subject("ep_nodes, dispatch", "ep_dispatch_nodes_program", rows_and_sums, NODES),
        subject("ep_nodes, combine", "ep_combine_nodes_program", rows_and_sums, NODES),
    ]


def _after_passes() -> list[Subject]:
    """Programs as the passes leave them: an all-gather that was decomposed, with streams assigned."""
    tests = importlib.import_module("test_pass_assign_streams")

    def program(name: str, variant: str) -> Subject:
        made = tests.PROGRAMS[name, variant]
        made.sample_args = lambda ranks: {"a": "f32[5]", "out": f"f32[{5 * ranks}]"}

        def run() -> float:
            return 0.0 if all(tests.run_rank(name, variant)) else 1.0

        return Subject(f"{name}, {variant}", run, 0.0, ((2, None), (3, None)), made)

    return [program("gather_and_scale", "two"), program("gather_and_scale", "ring"), program("scale_and_send", "two")]


def _clean_kernels() -> list[Subject]:
    kernels = importlib.import_module("test_clean_kernels")

    def clean(kernel: object, grid: int) -> Subject:
        def run() -> float:
            kernels.on_rank(kernel, grid)
            return 0.0

        return Subject(kernel.__name__, run, groups=((2, None),))

    return [clean(kernel, grid) for kernel, grid in kernels.KERNELS.items()]


def _patterns() -> list[Subject]:
    """Protocols that people write by hand: with fixed counts, and with tables, queues, resets and epochs."""
    modules = ("check_patterns", "data_patterns", "exchange_patterns", "reset_patterns")
    patterns = {
        name: pattern for module in modules for name, pattern in importlib.import_module(module).PATTERNS.items()
    }

    def pattern(name: str) -> Subject:
        def run() -> float:
            try:
                patterns[name].run("")
            except AssertionError:
                return 1.0
            return 0.0

        return Subject(name, run, groups=((2, None), (3, None)))

    return [pattern(name) for name in patterns]
