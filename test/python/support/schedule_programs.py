"""The operators' programs with other schedules than their samples have: other steps of the same programs."""

from __future__ import annotations

from typing import Any

from ditron._program.program import Program
from ditron.kernels.ag_gemm import ag_gemm_program
from ditron.kernels.gemm_rs import gemm_rs_program

__all__ = ["SCHEDULE_PROGRAMS"]


def _scheduled(program: Program, schedule: dict[str, Any]) -> Program:
    def sample_args(ranks: int) -> dict[str, Any]:
        return program.sample_args(ranks) | schedule

    return Program(program.fn, program.passes, program.example, sample_args, program.max_nodes)


#: By name.
SCHEDULE_PROGRAMS = {
    "ag_gemm_program, pushers": _scheduled(
        ag_gemm_program, {"pushers": 1, "push_block": 256, "push_warps": 4, "pieces": 2}
    ),
    "gemm_rs_program, two copy streams": _scheduled(gemm_rs_program, {"copy_streams": 2, "pieces": 3}),
    "gemm_rs_program, stores": _scheduled(gemm_rs_program, {"stores": True}),
}
