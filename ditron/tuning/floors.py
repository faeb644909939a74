"""The least time that a machine's rates allow an operator: its numbers are those of :mod:`ditron.machines`."""

from __future__ import annotations

import functools
from dataclasses import dataclass

from ditron import machines
from ditron.machines import Machine
from ditron.tuning.load import load_of
from ditron.tuning.problem import Problem

__all__ = ["LEAST_FLOOR", "Floor", "calls_in_a_graph", "floor_of", "machine_of", "nodes_of"]

#: Microseconds of a floor below which times are not compared with it: it is printed as 0.0.
LEAST_FLOOR = 0.05


@dataclass(frozen=True)
class Floor:
    """Microseconds below which no schedule can be: the larger of a product and of what has to leave a GPU.

    Attributes:
        bound: the resource that this is of.
    """

    product: float
    link: float
    bound: str = ""

    @property
    def us(self) -> float:
        return max(self.product, self.link)


@functools.cache
def machine_of(gpu: str, ranks: int) -> Machine | None:
    """The machine of a GPU as tables name it (``"h200"``), the smallest with so many ranks; None without a file."""
    return machines.of_gpu(gpu, ranks)


def nodes_of(problem: Problem, machine: Machine | None) -> int:
    """On how many nodes of the machine the ranks are; one where the machine is not known."""
    return -(-problem.ranks // machine.ranks) if machine is not None else 1


def floor_of(problem: Problem, machine: Machine) -> Floor:
    """The product at the rate of tensor cores, or of memory where that takes longer; the bytes at the link's.

    Between nodes, each NIC has to bring what one rank gives to another from every other node, and all that a rank gets
    comes by its links and its NIC. Of experts, for the rank with most rows, and the one that moves most.
    """
    tensor_cores, memory = _product_levels(problem, machine) if problem.is_product else (0.0, 0.0)
    product = max(tensor_cores, memory)
    link, by = 0.0, "link"
    if problem.ranks > 1:
        sent = load_of(problem).tokens * problem.bytes_of_token if problem.experts else problem.sent_bytes
        part = sent / (problem.ranks - 1)
        nodes = nodes_of(problem, machine)
        rate = machine["link.rate"] + (machine["nic.rate"] if nodes > 1 else 0.0)
        link = sent / (rate * 1e3)
        if "link.pair" in machine.numbers and min(problem.ranks, machine.ranks) > 1:
            link = max(link, part / (machine["link.pair"] * 1e3))
        if nodes > 1:
            nic = part * (nodes - 1) / (machine["nic.rate"] * 1e3)
            link, by = (nic, "NIC") if nic > link else (link, by)
    if product >= link:
        by = "memory" if memory > tensor_cores else "tensor cores"
    return Floor(product, link, by)


def _product_levels(problem: Problem, machine: Machine) -> tuple[float, float]:
    """Of a product: by tensor cores, and by what its operands and result are to the memory.

    Of experts, the matrices that some token needs are read.
    """
    operations = machine[f"sm.dot{8 * problem.itemsize}"] * 1e6  # a us
    M, N, K, matrices = problem.M, problem.N, problem.K, 1.0
    if problem.experts:
        load = load_of(problem)
        M, matrices = load.rows, load.matrices
    weights, rows = N * K, M * (N + K)
    if problem.operator == "ep_moe":  # and the second product, of half the columns
        weights, rows = weights + N * K // 2, rows + M * (N // 2 + K)
    moved = (matrices * weights + rows) * problem.itemsize
    return 2 * M * weights / operations, moved / (machine["hbm.rate"] * 1e3)


def calls_in_a_graph(problem: Problem) -> int:
    """An even number, so that a sample takes a while and parities come out as they went in."""
    us = floor_of(problem, machines.load("h200x8")).us  # of any number of ranks: it has NICs
    return 20 if us < 20 else 10 if us < 100 else 2
