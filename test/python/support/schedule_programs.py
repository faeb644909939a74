"""The operators' programs with other schedules than their samples have: other steps of the same programs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ditron._program.program import Program
from ditron.kernels.a2a_gemm import a2a_gemm_program
from ditron.kernels.ag_gemm import ag_gemm_program
from ditron.kernels.ag_gemm_slices import ag_gemm_slices_program
from ditron.kernels.ag_gemm_small import ag_gemm_small_program
from ditron.kernels.ep_exchange import ep_dispatch_program
from ditron.kernels.gemm_a2a import gemm_a2a_program
from ditron.kernels.gemm_rs import gemm_rs_program
from ditron.kernels.moe_rs import moe_rs_program
from ditron.kernels.plan_programs import moe_plan_program, sample_of

__all__ = ["SCHEDULE_PROGRAMS"]


def _scheduled(program: Program, schedule: dict[str, Any]) -> Program:
    def sample_args(ranks: int) -> dict[str, Any]:
        return program.sample_args(ranks) | schedule

    return _sampled(program, sample_args)


def _sampled(program: Program, sample_args: Callable[..., dict[str, Any]]) -> Program:
    return Program(program.fn, program.passes, program.example, sample_args, program.max_nodes)


def _dispatch(floats: bool, scaled: bool) -> Program:
    """``ep_dispatch_program``, whose sample draws both."""

    def sample_args(ranks: int, generator: torch.Generator, rank: int) -> dict[str, Any]:
        sample = ep_dispatch_program.sample_args(ranks, generator, rank) | {"floats": floats, "scales": 2 * scaled}
        rows = sample["rows"].split("[")[1].split(",")[0]
        scales = {"scale_x": "f32[4, 2]", "scale_rows": f"f32[{rows}, 2]"}
        return sample | (scales if scaled else dict.fromkeys(scales))

    return _sampled(ep_dispatch_program, sample_args)


def _tables(at_once: bool) -> Program:
    def sample_args(ranks: int, generator: torch.Generator) -> dict[str, Any]:
        return sample_of(ranks, generator, at_once) | {"at_once": at_once, "slice_tokens": 4}

    return _sampled(moe_plan_program, sample_args)


def _sums(to_all: bool) -> Program:
    """``moe_rs_program``, whose sample draws whether sums are for all ranks."""

    def sample_args(ranks: int, generator: torch.Generator, rank: int) -> dict[str, Any]:
        sample = moe_rs_program.sample_args(ranks, generator, rank)
        columns = sample["y"].partition(", ")[2]
        out = f"bf16[{2 * ranks if to_all else 2}, {columns}"
        return sample | {"to_all": to_all, "out": out}

    return _sampled(moe_rs_program, sample_args)


#: By name.
SCHEDULE_PROGRAMS = {
    "a2a_gemm_program, pushers": _scheduled(a2a_gemm_program, {"pushers": 4, "push_block": 256, "push_warps": 4}),
    "a2a_gemm_program, two copy streams": _scheduled(a2a_gemm_program, {"copy_streams": 2, "pieces": 3}),
    "ag_gemm_program, pushers": _scheduled(
        ag_gemm_program, {"pushers": 1, "push_block": 256, "push_warps": 4, "pieces": 2}
    ),
    "ag_gemm_slices_program, by peer": _scheduled(ag_gemm_slices_program, {"by_peer": True, "in_flight": 1}),
    "ag_gemm_small_program, rows left": _scheduled(ag_gemm_small_program, {"rows_left": True}),
    "gemm_a2a_program, two copy streams": _scheduled(gemm_a2a_program, {"copy_streams": 2, "pieces": 3}),
    "gemm_rs_program, two copy streams": _scheduled(gemm_rs_program, {"copy_streams": 2, "pieces": 3}),
    "gemm_rs_program, stores": _scheduled(gemm_rs_program, {"stores": True}),
    "ep_dispatch_program, with scales": _dispatch(floats=True, scaled=True),
    "ep_dispatch_program, flagged words": _dispatch(floats=False, scaled=False),
    "moe_plan_program, at once": _tables(True),
    "moe_plan_program, segments": _tables(False),
    "moe_rs_program, own tokens": _sums(to_all=False),
    "moe_rs_program, to all": _sums(to_all=True),
}
