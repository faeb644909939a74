"""The host programs of ditron.kernels but those of experts, each called three times, with other data each time."""

from __future__ import annotations

import functools
import importlib
from typing import Any

import torch
from subject import NODES, Call, Subject, data, error, operator

from ditron import kernels
from ditron.kernels.scales import dequantized

__all__ = ["operators"]

_TILES = dict(algorithm="overlapped", block=(16, 16, 16), programs=3)


def ag_gemm(call: int, rank: int, ranks: int, **how: Any) -> float:
    a, b = data(ranks, 40, 16, seed=call), data(ranks, 32, 16, seed=call + 10)
    exact = a.reshape(-1, 16).float() @ b[rank].float().T
    return error(kernels.ag_gemm(a[rank], b[rank], **(how or {"pieces": 2} | _TILES)), exact)


def gemm_rs(call: int, rank: int, ranks: int, **how: Any) -> float:
    a, b = data(ranks, ranks * 40, 16, seed=call), data(ranks, 32, 16, seed=call + 10)
    exact = sum(a[r].float() @ b[r].float().T for r in range(ranks)).chunk(ranks)[rank]
    return error(kernels.gemm_rs(a[rank], b[rank], **(how or {"pieces": 2} | _TILES)), exact)


def ag_gemm_backward(call: int, rank: int, ranks: int) -> float:
    a, b = data(ranks, 10, 16, seed=call), data(ranks, 32, 16, seed=call + 10)
    grad = data(ranks, ranks * 10, 32, seed=call + 20)
    of_a, of_b = kernels.ag_gemm_backward(grad[rank], a[rank], b[rank], block=64)
    exact = sum(grad[r].float() @ b[r].float() for r in range(ranks)).chunk(ranks)[rank]
    return max(error(of_a, exact), error(of_b, grad[rank].float().T @ a.reshape(-1, 16).float()))


def gemm_rs_backward(call: int, rank: int, ranks: int) -> float:
    a, b = data(ranks, ranks * 40, 16, seed=call), data(ranks, 32, 16, seed=call + 10)
    grad = data(ranks, 40, 32, seed=call + 20)
    of_a, of_b = kernels.gemm_rs_backward(grad[rank], a[rank], b[rank], pieces=2, **_TILES)
    whole = grad.reshape(-1, 32).float()
    return max(error(of_a, whole @ b[rank].float()), error(of_b, whole.T @ a[rank].float()))


def gemm_ar(call: int, rank: int, ranks: int) -> float:
    a, b = data(ranks, 5, 16, seed=call), data(ranks, 40, 16, seed=call + 10)
    exact = sum(a[r].float() @ b[r].float().T for r in range(ranks))
    return error(kernels.gemm_ar(a[rank], b[rank], algorithm="fused", block=(16, 16)), exact)


def ag_gemm_slices(call: int, rank: int, ranks: int, **how: Any) -> float:
    a, b = data(ranks, 40, 80, seed=call), data(ranks, 32, 80, seed=call + 10)
    tiles = dict(block=(16, 16, 16), slice_k=(16, 32), pushers=2, programs=3, push_block=256)
    gathered = torch.empty(ranks * 40, 80, dtype=a.dtype)
    got = kernels.ag_gemm(a[rank], b[rank], gathered=gathered, algorithm="k_slices", **tiles, **how)
    return max(error(gathered, a.reshape(-1, 80).float()), error(got, a.reshape(-1, 80).float() @ b[rank].float().T))


def ag_gemm_small(call: int, rank: int, ranks: int) -> float:
    a, b = data(ranks, 3, 48, seed=call), data(40, 48, seed=call + 10)
    got = kernels.ag_gemm(a[rank], b, algorithm="split_k", block=(16, 16), split=2)
    return error(got, a.reshape(-1, 48).float() @ b.float().T)


def gemm_ar_row(call: int, rank: int, ranks: int) -> float:
    a, b = data(ranks, 1, 16, seed=call), data(ranks, 40, 16, seed=call + 10)
    exact = sum(a[r].float() @ b[r].float().T for r in range(ranks))
    return error(kernels.gemm_ar(a[rank], b[rank], algorithm="fused", block=(16, 16)), exact)


def quantized(what: str, call: int, rank: int, ranks: int) -> float:
    rows = 40 if what == "ag_gemm" else 40 * ranks
    a = data(ranks, rows, 32, seed=call).to(torch.float8_e4m3fn)
    b = data(ranks, 32, 32, seed=call + 10).to(torch.float8_e4m3fn)
    scale_a = torch.rand(ranks, rows, 1, generator=torch.Generator().manual_seed(call + 20)) + 0.5
    scale_b = torch.linspace(0.5, 1.5, 32)[:, None]
    whole = [(dequantized(a[r], scale_a[r], "row"), dequantized(b[r], scale_b, "row").T) for r in range(ranks)]
    exact = torch.cat([x for x, _ in whole]) @ whole[rank][1]
    if what == "gemm_rs":
        exact = sum(x @ y for x, y in whole).chunk(ranks)[rank]
    how = _TILES | {"block": (16, 16, 32)}
    got = getattr(kernels, what)(a[rank], b[rank], scale_a=scale_a[rank], scale_b=scale_b, pieces=2, **how)
    return error(got, exact)


def moved(what: str, algorithm: str, **schedule: int) -> Call:
    def run(call: int, rank: int, ranks: int) -> float:
        x = data(ranks, ranks, 40, seed=call)
        exact = {
            "all_gather": lambda: x.float().reshape(-1, 40),
            "reduce_scatter": lambda: x.float().sum(0).chunk(ranks)[rank],
            "all_reduce": lambda: x.float().sum(0),
            "all_to_all": lambda: x[:, rank].float(),
        }[what]()
        return error(getattr(kernels, what)(x[rank], algorithm=algorithm, **schedule), exact)

    return run


def rows_moved(algorithm: str, call: int, rank: int, ranks: int) -> float:
    x = data(ranks, 12, 16, seed=call)
    splits = torch.randint(0, 12 // ranks + 1, (ranks, ranks), generator=torch.Generator().manual_seed(call))
    begins = splits.cumsum(1) - splits
    exact = torch.cat([x[s, begins[s, rank] : begins[s, rank] + splits[s, rank]] for s in range(ranks)]).float()
    how = {"algorithm": algorithm, "block": 32, "programs": 2}
    got, counts, _ = kernels.all_to_all_v(x[rank], splits[rank], max_rows=12 * ranks, **how)
    is_right = counts.tolist() == splits[:, rank].tolist() and torch.equal(got[: len(exact)].float(), exact)
    return 0.0 if is_right else 1.0


def gemm_a2a(call: int, rank: int, ranks: int, **how: Any) -> float:
    a, b = data(ranks, 40, 16, seed=call), data(ranks * 32, 16, seed=call + 10)
    exact = a.reshape(-1, 16).float() @ b[rank * 32 : (rank + 1) * 32].float().T
    return error(kernels.gemm_a2a(a[rank], b, pieces=2, **_TILES, **how), exact)


def a2a_gemm(call: int, rank: int, ranks: int, **how: Any) -> float:
    a, b = data(ranks, ranks * 40, 16, seed=call), data(32, ranks * 16, seed=call + 10)
    mine = torch.cat([each.chunk(ranks)[rank] for each in a], 1)
    return error(kernels.a2a_gemm(a[rank], b, pieces=2, **_TILES, **how), mine.float() @ b.float().T)


def normalized(program: str, call: int, rank: int, ranks: int) -> float:
    """Fewer rows than ranks, and more."""
    module, rows = importlib.import_module("ditron.kernels.all_reduce_rms_norm"), (2, 7, 5)[call]
    x, residual, weight = data(ranks, rows, 40, seed=call), data(rows, 40, seed=call + 10), data(40, seed=call + 20)
    out, total = torch.empty_like(residual), torch.empty_like(residual)
    how = {
        "all_reduce_rms_norm_program": {"block": 64},
        "ll_rms_norm_program": {"block": 16, "parts": 3, "num_ranks": ranks},
        "two_shot_ll_rms_norm_program": {"block": 16, "parts": -(-40 // (16 * ranks)), "num_ranks": ranks},
        "two_shot_rms_norm_program": {"block": 16, "parts": 3, "num_warps": 1},
    }[program]
    getattr(module, program)(x[rank].clone(), residual, weight, out, total, 8, 1e-5, **how)
    exact = x.float().sum(0) + residual.float()
    normal = torch.nn.functional.rms_norm(exact, (40,), weight.float(), 1e-5)
    return max(error(total, exact), error(out, normal))


def operators() -> list[Subject]:
    """Every program with the schedules that have other steps."""
    return [
        operator("ag_gemm", "ag_gemm_program", ag_gemm),
        operator(
            "ag_gemm, halves",
            "ag_gemm_program",
            functools.partial(ag_gemm, pieces=2, algorithm="overlapped", block=(16, 32, 16), programs=5),
        ),
        operator("ag_gemm_nodes", "ag_gemm_nodes_program", ag_gemm, ((4, 2),)),
        operator("ag_gemm_small", "ag_gemm_small_program", ag_gemm_small),
        operator("ag_gemm_slices", "ag_gemm_slices_program", ag_gemm_slices),
        operator(
            "ag_gemm_slices, by peer",
            "ag_gemm_slices_program, by peer",
            functools.partial(ag_gemm_slices, by_peer=True, in_flight=1),
        ),
        operator("gemm_rs", "gemm_rs_program", gemm_rs),
        operator(
            "gemm_rs, halves",
            "gemm_rs_program",
            functools.partial(gemm_rs, pieces=2, algorithm="overlapped", block=(16, 32, 16), programs=2),
        ),
        operator("gemm_rs_nodes", "gemm_rs_nodes_program", gemm_rs, ((4, 2),)),
        operator(
            "ag_gemm, pushers",
            "ag_gemm_program, pushers",
            functools.partial(ag_gemm, pieces=2, **_TILES, pushers=1, push_block=128, push_warps=4),
        ),
        operator(
            "gemm_rs, two copy streams",
            "gemm_rs_program, two copy streams",
            functools.partial(gemm_rs, pieces=2, **_TILES, copy_streams=2),
        ),
        operator(
            "gemm_rs, stores", "gemm_rs_program, stores", functools.partial(gemm_rs, pieces=2, **_TILES, stores=True)
        ),
        operator("rank_products, ag_gemm", "ag_gemm_by_rank_program", functools.partial(ag_gemm, algorithm="by_rank")),
        operator("rank_products, gemm_rs", "gemm_rs_by_rank_program", functools.partial(gemm_rs, algorithm="by_rank")),
        operator("gradients, column", "column_gradients_program", ag_gemm_backward),
        operator("gradients, row", "row_gradients_program", gemm_rs_backward),
        operator("gemm_ar_small", "gemm_ar_small_program", gemm_ar),
        operator("gemm_ar_small, row", "gemm_ar_row_program", gemm_ar_row),
        operator("ag_gemm, fp8", "ag_gemm_program, row and row", functools.partial(quantized, "ag_gemm")),
        operator("gemm_rs, fp8", "gemm_rs_program, row and row", functools.partial(quantized, "gemm_rs")),
        operator("all_gather, copied", "all_gather_program", moved("all_gather", "copied")),
        operator("all_gather, stored", "stored_gather_program", moved("all_gather", "stored", block=64)),
        operator("all_gather, ll", "ll_gather_program", moved("all_gather", "ll", block=256)),
        operator("reduce_scatter, copied", "reduce_scatter_program", moved("reduce_scatter", "copied", block=64)),
        operator("reduce_scatter, stored", "stored_scatter_program", moved("reduce_scatter", "stored", block=64)),
        operator("reduce_scatter, ll", "ll_scatter_program", moved("reduce_scatter", "ll", block=256)),
        operator("all_reduce, ll", "ll_program", moved("all_reduce", "ll", block=256)),
        operator("all_reduce, one_shot", "one_shot_program", moved("all_reduce", "one_shot", block=64)),
        operator("all_reduce, two_shot", "two_shot_program", moved("all_reduce", "two_shot", block=16, programs=2)),
        operator("all_gather, ll128", "ll128_gather_program", moved("all_gather", "ll128", block=60)),
        operator("all_to_all, ll128", "ll128_all_to_all_program", moved("all_to_all", "ll128", block=60)),
        operator("all_gather, put", "put_gather_program", moved("all_gather", "put", block=64), NODES),
        operator("reduce_scatter, put", "put_scatter_program", moved("reduce_scatter", "put", block=64), NODES),
        operator("all_to_all, stored", "stored_all_to_all_program", moved("all_to_all", "stored", block=64)),
        operator("all_to_all, ll", "ll_all_to_all_program", moved("all_to_all", "ll", block=256)),
        operator("all_to_all_v, stored", "stored_all_to_all_v_program", functools.partial(rows_moved, "stored")),
        operator("all_to_all_v, ll", "ll_all_to_all_v_program", functools.partial(rows_moved, "ll")),
        operator("gemm_a2a", "gemm_a2a_program", gemm_a2a),
        operator(
            "gemm_a2a, two copy streams",
            "gemm_a2a_program, two copy streams",
            functools.partial(gemm_a2a, copy_streams=2),
        ),
        operator("a2a_gemm", "a2a_gemm_program", a2a_gemm),
        operator(
            "a2a_gemm, two copy streams",
            "a2a_gemm_program, two copy streams",
            functools.partial(a2a_gemm, copy_streams=2),
        ),
        operator(
            "a2a_gemm, pushers",
            "a2a_gemm_program, pushers",
            functools.partial(a2a_gemm, pushers=2, push_block=128, push_warps=4),
        ),
        *(
            operator(f"all_reduce_rms_norm, {name}", program, functools.partial(normalized, program))
            for name, program in (
                ("stored", "all_reduce_rms_norm_program"),
                ("ll", "ll_rms_norm_program"),
                ("two_shot_ll", "two_shot_ll_rms_norm_program"),
                ("two_shot", "two_shot_rms_norm_program"),
            )
        ),
        operator("all_reduce, two_shot_ll", "two_shot_ll_program", moved("all_reduce", "two_shot_ll", block=256)),
    ]
