"""GEMM + AllReduce: every rank gets the sum over ranks of A times the transpose of B."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist

from ditron.distributed.torch_groups import AnyGroup
from ditron.kernels.all_gather import all_gather
from ditron.kernels.all_reduce import all_reduce, all_reduce_candidates
from ditron.kernels.dispatch import SCALING, torch_operator
from ditron.kernels.gemm_ar_small import (
    fused_candidates,
    fused_schedule,
    gemm_ar_small_program,
    is_schedule_of_fused,
    protocols_for,
)
from ditron.kernels.gemm_rs import gemm_rs
from ditron.kernels.nccl import run_by_nccl
from ditron.kernels.operands import aligned, in_group, matrices, result, weight_layout
from ditron.kernels.repeated import repeatable, run_step
from ditron.kernels.scales import scaled_product, scales_of
from ditron.kernels.schedules import (
    check_tile_rows,
    fits_tile_kernel,
    overlaps,
    product_rule,
    sent_bytes,
)
from ditron.tuning.lookup import tuned
from ditron.tuning.problem import Options, Problem
from ditron.tuning.registry import Rule, tunable
from ditron_compiler.errors import DitronError

__all__ = ["gemm_ar"]

#: Up to so many rows, the kernel that computes the product exchanges its tiles; where each rank sends them to all of
#: more than two, up to so many bytes, and where each adds a part, up to so many rows (docs/results/tuning.md).
FUSED_ROWS, FUSED_BYTES, TWO_SHOT_ROWS = 64, 1 << 20, 128


def is_fused(ranks: int, rows: int, nbytes: int) -> bool:
    """Whether one kernel computes and exchanges ``rows`` where nothing is measured: in one shot, ``nbytes``."""
    if "two_shot_ll" in protocols_for(rows, ranks):
        return rows <= TWO_SHOT_ROWS
    return bool(protocols_for(rows, ranks)) and rows <= FUSED_ROWS and (ranks == 2 or nbytes <= FUSED_BYTES)


def gemm_ar_rule(problem: Problem) -> Rule:
    sent = problem.rows * problem.N * problem.itemsize * (problem.ranks - 1)
    if is_fused(problem.ranks, problem.rows, sent) and next(fused_candidates(problem), None):
        return Rule(
            {"algorithm": "fused"},
            f"one kernel takes up to {FUSED_ROWS} rows that TMA can address, of more than two ranks "
            f"{FUSED_BYTES >> 10} KB that each sends, or in two shots up to {TWO_SHOT_ROWS} rows",
        )
    return product_rule(problem, 4)


def gemm_ar_node_rule(problem: Problem) -> Rule | None:
    """What is scattered and gathered; of the others, none runs on several nodes."""
    rule = gemm_ar_rule(problem)
    runs = rule.options == {"algorithm": "overlapped"} and problem.rows % problem.ranks == 0 and problem.itemsize > 1
    return rule if runs else None


@tunable(
    "gemm_ar",
    rule=gemm_ar_rule,
    named_only=("nccl",),
    on_nodes=gemm_ar_node_rule,
    node_algorithms=("overlapped", "nccl"),
)
def gemm_ar_candidates(problem: Problem) -> Iterator[Options]:
    """Schedules of :func:`gemm_ar`: those of the all-reduce behind the product, or both under it."""
    yield from fused_candidates(problem)
    if problem.rows >= 512:
        yield {"algorithm": "overlapped"}
    yield {"algorithm": "sequential"}
    summed = Problem("all_reduce", problem.dtype, problem.ranks, problem.rows * problem.N)
    if summed.sent_bytes <= 32 << 20:
        yield from all_reduce_candidates(summed)


@torch_operator("a", "b", "gradient", *SCALING)
@repeatable
def gemm_ar(
    a: torch.Tensor,
    b: torch.Tensor,
    *,
    scale_a: torch.Tensor | None = None,
    scale_b: torch.Tensor | None = None,
    out_dtype: torch.dtype | None = None,
    use_fast_accum: bool = False,
    out: torch.Tensor | None = None,
    gradient: str = "replicate",
    group: AnyGroup = None,
    algorithm: str | None = None,
    **schedule: Any,
) -> torch.Tensor:
    """The sum over ranks of A times the transpose of B: a row-parallel linear layer without sequence parallelism.

    Args:
        a: ``[M, K]``, row-major, the same shape on every rank. b: ``[N, K]``, row-major or the transpose of a row-major
            ``[K, N]``. bfloat16, float16 or float32; sums over ranks are in fp32. Or quantized, with ``scale_a``,
            ``scale_b``, ``out_dtype`` and ``use_fast_accum`` as of :func:`gemm_rs`.
        out: ``[M, N]``, written if given. group: the ranks; default the current group. One node.
        gradient: of the result. ``"replicate"``: every rank computes the same from it and has the same gradient, which
            is taken as it is (Megatron's g). ``"partial"``: each rank has a part of it, and they are added.
        algorithm: ``"fused"`` for one kernel, which takes few rows, ``"overlapped"`` for a :func:`gemm_rs` and an
            all-gather, ``"sequential"`` for a product and an all-reduce, instead of what was measured to be fastest or
            is chosen by size; or an algorithm of :func:`all_reduce` behind the product. schedule: of that all-reduce,
            of :func:`gemm_ar_small_program`, or of :func:`gemm_ar_row_program` for one row of a row-major ``[N, K]``.

    Returns ``[M, N]``, bitwise the same on every rank. Collective over the group. Raises DitronError for tensors that
    do not fit.

        y = ditron.kernels.gemm_ar(x, weight)
    """
    with in_group(group, "gemm_ar") as group:
        matrices("gemm_ar", group, quantized=True, a=a, b=b)
        (M, K), N = a.shape, b.shape[0]
        if b.shape[1] != K:
            raise DitronError(f"gemm_ar: a is [{M}, {K}] and b is [{N}, {b.shape[1]}]: expected b to be [N, {K}]")
        scales, dtype = scales_of("gemm_ar", group, a, b, scale_a, scale_b, out_dtype, use_fast_accum)
        out = result("gemm_ar", (M, N), a, out, dtype, a=a, b=b)
        a = aligned(a)  # what is chosen must not depend on how a rank has aligned its own
        scaling = dict(scale_a=scale_a, scale_b=scale_b, out_dtype=out_dtype, use_fast_accum=use_fast_accum)

        def product(out: torch.Tensor | None = None) -> torch.Tensor:
            if scales is None:
                return torch.matmul(a, b.t(), out=out)
            return scaled_product(a, aligned(b), scales, dtype, out)

        if scales is None:
            is_named = algorithm is not None or bool(schedule)
            algorithm, schedule = tuned("gemm_ar", group, algorithm, schedule, a.dtype, M, N, K)
            if M == 1 and algorithm == "fused" and not is_named:
                schedule = {}  # a table's is that of 2 to 8 rows, which another kernel takes
        if algorithm in ("fused", "overlapped"):
            a = aligned(a)
        if algorithm == "nccl":
            summed = product(out)
            sent = 2 * sent_bytes(group, summed) / group.num_ranks
            run_by_nccl("gemm_ar", group, sent, summed, lambda by: dist.all_reduce(summed, group=by))
            return out
        is_chosen = is_schedule_of_fused(schedule)
        if not is_chosen and "block" not in schedule:  # which would be a collective's
            is_chosen = is_fused(group.num_ranks, M, sent_bytes(group, out))
        if algorithm == "fused" or algorithm is None and is_chosen:
            weight, b_is_kn = weight_layout(b)
            if scales is None and fits_tile_kernel(group, a, weight):
                program, chosen = fused_schedule(M, b_is_kn, group, schedule)
                if program is gemm_ar_small_program:
                    check_tile_rows("gemm_ar", chosen["rows"], M)
                run_step(program, a, weight, out, **chosen)
                return out
            if algorithm == "fused":
                raise DitronError(
                    "gemm_ar: algorithm='fused' takes bfloat16 or float16 matrices with rows of a multiple of 16 "
                    "bytes, on GPUs from Hopper on: leave algorithm= out"
                )
        # The sum is scattered under the product, and gathered, where hiding it pays.
        part = out[: M // group.num_ranks]
        how = algorithm if algorithm in (None, "overlapped") else "sequential"
        if algorithm is None and schedule:  # of the all-reduce behind the product
            how = "sequential"
        operands = (a, part) if scales is None else (a, b, part)
        nbytes = sent_bytes(group, part)
        if M % group.num_ranks == 0 and overlaps("gemm_ar", group, how, nbytes, *operands, scales=scales):
            if schedule:
                named = ", ".join(f"{name}=" for name in schedule)
                raise DitronError(
                    f"gemm_ar: algorithm='overlapped' has no schedule: leave {named} out, or name 'sequential'"
                )
            return all_gather(gemm_rs(a, b, algorithm=algorithm, **scaling), out=out)
        if algorithm in ("overlapped", "sequential"):
            algorithm = None
        return all_reduce(product(), out=out, algorithm=algorithm, **schedule)
