"""What the ranks of an operator should gather or reduce, whatever the operator does: by the volumes of its product."""

from __future__ import annotations

from ditron.cost_model import Chain, chain, what_to_gather
from ditron.machines import Machine
from ditron.tuning.problem import Problem
from ditron_compiler.errors import DitronError

__all__ = ["chain_of", "what_moves"]


def chain_of(problem: Problem) -> tuple[Chain, dict[str, str | None]]:
    """The product of all ranks, and along which loop each operand and the result lie in shards."""
    columns = problem.N * (problem.ranks if problem.operator == "ag_gemm" else 1)
    depth = problem.K * (1 if problem.operator == "ag_gemm" else problem.ranks)
    itemsize = {"A": problem.itemsize, "B": problem.itemsize, "C": max(problem.itemsize, 2)}  # quantized: bf16
    product = chain("mk,kn->mn", itemsize=itemsize, m=problem.M, k=depth, n=columns)
    if problem.operator == "ag_gemm":
        return product, {"A": "m", "B": "n", "C": "n"}
    return product, {"A": "k", "B": "k", "C": None if problem.operator == "gemm_ar" else "m"}


def what_moves(problem: Problem, machine: Machine) -> str:
    """A line for people; empty where there is no product, or one of experts, or its loops have no equal shards."""
    if not problem.is_product or problem.experts:
        return ""
    try:
        return what_to_gather(chain_of(problem)[0], machine, problem.ranks, chain_of(problem)[1])
    except DitronError:
        return ""
