"""AG+GEMM over one, two and four nodes: what is predicted beside the speed-ups over cuBLAS + NCCL of DITRON's paper.

``benchmark/predicted.py --paper``. Of a cell of one or two nodes no number was fitted. Those of four nodes are also
given with a rate and a latency of NICs that were fitted to them, and say so.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator

import torch
from measuring import MLPS

import ditron
from ditron import machines, sim
from ditron.machines import Machine

__all__ = ["paper"]

#: Tables 9 (strong scaling: M = 32768) and 11 (weak: M = 8192 a node), H800: speed-ups by nodes.
STRONG = {
    "7B": {1: 1.31, 2: 1.11, 4: 0.63}, "8B": {1: 1.35, 2: 1.12, 4: 0.61}, "32B": {1: 1.59, 2: 1.32, 4: 0.65},
    "36B": {1: 1.64, 2: 1.32, 4: 0.64}, "70B": {1: 1.67, 2: 1.36, 4: 0.77}, "72B": {1: 1.67, 2: 1.39, 4: 1.03},
    "175B": {1: 1.46, 2: 1.68, 4: 1.00}, "405B": {1: 1.44, 2: 1.76, 4: 1.02},
}  # fmt: skip
WEAK = {
    "7B": {1: 1.30, 2: 0.98}, "8B": {1: 1.30, 2: 1.02}, "32B": {1: 1.53, 2: 1.14}, "36B": {1: 1.57, 2: 1.15},
    "70B": {1: 1.61, 2: 1.25}, "72B": {1: 1.66, 2: 1.29}, "175B": {1: 1.43, 2: 1.58}, "405B": {1: 1.34, 2: 1.63},
}  # fmt: skip
#: Table 10 (weak scaling on H20), filled in after it had been predicted.
WEAK_H20 = {
    "7B": {1: 1.23, 2: 1.50, 4: 0.80}, "8B": {1: 1.19, 2: 1.50, 4: 0.86}, "32B": {1: 1.06, 2: 1.22, 4: 0.89},
    "36B": {1: 1.05, 2: 1.26, 4: 0.89}, "70B": {1: 1.10, 2: 1.29, 4: 0.93}, "72B": {1: 1.01, 2: 1.18, 4: 1.36},
    "175B": {1: 1.05, 2: 1.23, 4: 1.09}, "405B": {1: 1.05, 2: 1.19, 4: 1.08},
}  # fmt: skip
#: Of NCCL within a node, GB/s: the paper's 151 GB/s on H800; an H20 has the links of an H200, which reaches 278.
NCCL = {"h800": 151, "h20": 278}
#: Of NCCL's ring, us: its tuner's numbers for the protocol Simple (base, a hop by NVLink, a hop between nodes).
BASE, NVLINK_HOP, NETWORK_HOP = 8.4, 3.4, 14.0
#: Part of cuBLAS' rate that stock Triton reaches, assumed: 660 of 720 TFLOP/s.
TRITON = 660 / 720
#: Fitted to the cells of four nodes on H800.
FITTED = ["nic.rate=18.5", "nic.latency=60"]


def cublas_and_nccl(machine: Machine, rows: int, N: int, K: int, nccl: float) -> float:
    """us of the product by waves of 128 x 256 tiles, behind an all-gather by a ring through all nodes.

    A ring's rate is that of NVLink, or of all NICs of a node where that is less.
    """
    waves = math.ceil(math.ceil(rows / 128) * math.ceil(N / 256) / machine["sm.count"])
    product = waves * machine["sm.count"] * 2 * 128 * 256 * K / (machine["sm.dot16"] * 1e6)
    ranks, nodes = machine.size, machine.nodes
    rate = min(nccl, machine.ranks * machine["nic.rate"]) if nodes > 1 else nccl
    latency = BASE + NVLINK_HOP * (ranks - nodes) + NETWORK_HOP * (nodes - 1)
    return product + latency + (ranks - 1) / ranks * rows * K * 2 / (rate * 1e3)


def ag_gemm(machine: Machine, rows: int, N: int, K: int, pieces: int) -> float:
    """us of the second call, on the slowest rank."""

    def main() -> None:
        ditron.init()
        a, b = (torch.empty(*s, dtype=torch.bfloat16) for s in ((rows // ditron.num_ranks(), K), (N, K)))
        for _ in range(2):
            ditron.kernels.ag_gemm(a, b, algorithm="overlapped", pieces=pieces)

    return max(call.us for call in sim.predict(main, machine, heap_bytes=8 << 30).calls[-1])


def _speedups(gpu: str, nodes: int, rows: int, changes: list[str]) -> Iterator[tuple[str, list[float]]]:
    """Of each model, with two pieces and with one."""
    machine = machines.load(f"{gpu}x8" if nodes == 1 else f"{gpu}x8x{nodes}")
    ours = machine.with_changes([f"sm.dot16={TRITON * machine['sm.dot16']:.0f}", *changes])
    print(f"\n{ours}\n\n| M | nodes | shape | paper | pieces=2 | error | pieces=1 | error |")
    print("|---|---|---|---|---|---|---|---|")
    for name, (N, K) in MLPS.items():
        columns = (
            -(-N // machine.size // 8) * 8
        )  # TMA reaches rows of a multiple of 16 bytes: 72B on 32 ranks is padded
        theirs = cublas_and_nccl(machine, rows, N // machine.size, K, NCCL[gpu])
        yield name, [theirs / ag_gemm(ours, rows, columns, K, pieces) for pieces in (2, 1)]


def paper(gpu: str) -> None:
    """Print the tables of one to four nodes, and how far off they are."""
    strong, weak = (STRONG, WEAK) if gpu == "h800" else ({}, WEAK_H20)
    runs = [(strong, nodes, 32768, []) for nodes in (1, 2) if strong]
    runs += [(weak, nodes, 8192 * nodes, []) for nodes in (1, 2)]
    runs += [(strong or weak, 4, 32768, changes) for changes in ([], FITTED) if gpu == "h800" or not changes]
    errors: dict[str, list[list[float]]] = {}
    for table, nodes, rows, changes in runs:
        kind = "four nodes, fitted" if changes else "four nodes" if nodes == 4 else "one and two nodes"
        for name, speedups in _speedups(gpu, nodes, rows, changes):
            given = table[name].get(nodes)
            cells = [rows, nodes, name, "" if given is None else f"{given:.2f}"]
            for speedup in speedups:
                cells += [f"{speedup:.2f}", "" if given is None else f"{100 * (speedup / given - 1):+.0f} %"]
            print("|", " | ".join(map(str, cells)), "|", flush=True)
            if given is not None:
                errors.setdefault(kind, []).append([abs(one / given - 1) for one in (*speedups, max(speedups))])
    for kind, found in errors.items():
        for which, each in zip(("pieces=2", "pieces=1", "the faster"), zip(*found, strict=True), strict=True):
            within = sum(error <= 0.2 for error in each)
            print(
                f"\n{kind}, {which}: error at most {100 * max(each):.0f} %, median "
                f"{100 * statistics.median(each):.0f} %; {within} of {len(each)} cells at most 20 %."
            )
