"""The operators' programs with quantized operands: other arguments of the same programs."""

from __future__ import annotations

from typing import Any

import torch

from ditron._program.program import Program
from ditron.kernels.ag_gemm import ag_gemm_program
from ditron.kernels.ag_moe import ag_moe_program, ag_moe_stored_program
from ditron.kernels.gemm_rs import gemm_rs_program
from ditron.kernels.moe_rs import moe_rs_program

__all__ = ["SCALED_PROGRAMS"]

_FP8 = "f8E4M3FN"


def _scaled(program: Program, kind_a: str, kind_b: str) -> Program:
    """``program`` with matrices of fp8 in its ``sample_args``, K of which are one block, and scales of these kinds."""

    def sample_args(ranks: int) -> dict[str, Any]:
        plain = program.sample_args(ranks)
        matrices = {name: plain[name].replace("bf16", _FP8) for name in ("a", "b", "gathered_out") if name in plain}
        rows = 40 * (1 if program is ag_gemm_program else ranks)
        columns = plain["b"].split("[")[1].split(",")[0]
        scales = {
            "scale_a": f"f32[{1 if kind_a == 'tensor' else rows}]",
            "scale_b": f"f32[{columns if kind_b == 'row' else 1}]",
        }
        return plain | matrices | scales | {"scale_a_kind": kind_a, "scale_b_kind": kind_b}

    return Program(program.fn, program.passes, program.example, sample_args, program.max_nodes)


def _of_experts(program: Program) -> Program:
    """``program`` with tokens or rows, and experts' matrices, of fp8 in its ``sample_args``, K of two blocks."""

    def sample_args(ranks: int, generator: torch.Generator, rank: int) -> dict[str, Any]:
        plain = program.sample_args(ranks, generator, *[rank] if program is moe_rs_program else [])
        name = "rows" if program is moe_rs_program else "x"
        matrices = {which: plain[which].replace("bf16", _FP8).replace(" 32]", " 256]") for which in (name, "w")}
        rows = int(plain[name].split("[")[1].split(",")[0])
        scales = {
            f"scale_{name}": f"f32[{rows}, 2]",
            "scale_w": "f32[2, 2]",
        }  # of two experts with a block of rows each
        of_stored = {"capacity": 64 * 256} if program is ag_moe_stored_program else {}
        return plain | matrices | scales | of_stored

    return Program(program.fn, program.passes, program.example, sample_args, program.max_nodes)


#: By name.
SCALED_PROGRAMS = {
    f"{program.__name__}, {kind_a} and {kind_b}": _scaled(program, kind_a, kind_b)
    for program in (ag_gemm_program, gemm_rs_program)
    for kind_a, kind_b in (("row", "row"), ("tensor", "tensor"), ("row", "tensor"), ("block", "block"))
}
SCALED_PROGRAMS |= {
    f"{program.__name__}, blocks": _of_experts(program)
    for program in (ag_moe_program, ag_moe_stored_program, moe_rs_program)
}
