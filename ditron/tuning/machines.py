"""The limits of machines, each with its source, and the floors that they set for operators."""

from __future__ import annotations

from dataclasses import dataclass

from ditron.tuning.problem import Problem

__all__ = ["LEAST_FLOOR", "MACHINES", "Floor", "Machine", "calls_in_a_graph", "floor_of", "machine_of"]


@dataclass(frozen=True)
class Machine:
    """One GPU of a machine whose GPUs are connected in pairs.

    Attributes:
        sms: streaming multiprocessors. flops: of matrix products, per second, by dtype. memory: bytes per second.
        link: bytes per second out of one GPU, to all others together. latency: microseconds of the least collective.
    """

    name: str
    sms: int
    flops: dict[str, float]
    memory: float
    link: float
    latency: float
    source: str


MACHINES = {
    "h200": Machine(
        "h200",
        132,
        # cuBLAS alone, M = 8192, 14336 x 8192: 2.51 ms (docs/results/tensor-parallel.md); fp32 as TF32 is not used
        {"bf16": 767e12, "fp16": 767e12, "fp32": 50e12},
        4.8e12,  # NVIDIA's data sheet
        374e9,  # copy engine, 64 MB to all peers on one stream, 4 x H200, NV18, 2026-11-21
        5.0,  # all-reduce of 8 KB in a graph (docs/results/tensor-parallel.md)
        "docs/results/tensor-parallel.md: cuBLAS 70B strong; links of 4 x H200 (NV18), 2026-11-21",
    )
}


#: Microseconds of a floor below which times are not compared with it: it is printed as 0.0.
LEAST_FLOOR = 0.05


@dataclass(frozen=True)
class Floor:
    """Microseconds below which no schedule can be: the larger of a product and of what has to leave a GPU."""

    product: float
    link: float

    @property
    def us(self) -> float:
        return max(self.product, self.link)


def machine_of(name: str) -> Machine | None:
    return MACHINES.get(name)


def floor_of(problem: Problem, machine: Machine) -> Floor:
    """The product at the rate of matrix units, or of memory where that takes longer; the bytes at the link's."""
    product = 0.0
    if problem.is_product:
        M, N, K = problem.M, problem.N, problem.K
        flops = machine.flops.get(problem.dtype, max(machine.flops.values()))
        product = max(2 * M * N * K / flops, (M * K + N * K + M * N) * problem.itemsize / machine.memory)
    return Floor(product * 1e6, problem.sent_bytes / machine.link * 1e6)


def calls_in_a_graph(problem: Problem) -> int:
    """An even number, so that a sample takes a while and parities come out as they went in."""
    us = floor_of(problem, MACHINES["h200"]).us
    return 20 if us < 20 else 10 if us < 100 else 2
