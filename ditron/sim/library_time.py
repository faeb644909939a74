"""What steps of libraries take on a machine: torch's products, which cuBLAS computes, and NCCL's collectives."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from ditron.sim import missing_data

if TYPE_CHECKING:
    from ditron.machines import Machine
    from ditron.sim.rank import RankView

__all__ = ["LibraryMode", "collective_us", "product_us"]

#: Rows and columns of tiles that cuBLAS chooses from, and the depth of a step.
_TILES, _DEPTH = ((128, 256), (128, 192), (128, 128), (64, 256), (64, 128), (64, 64)), 64
_aten = torch.ops.aten
#: Products, by where the left and the right operand are among the arguments.
_PRODUCTS = {_aten.mm: (0, 1), _aten.addmm: (1, 2), _aten.bmm: (0, 1), _aten.baddbmm: (1, 2), _aten._scaled_mm: (0, 1)}


def product_us(machine: Machine, batch: int, M: int, N: int, K: int, itemsize: int) -> float:
    """A product of cuBLAS: rounds of tiles over the SMs, or what memory takes for it; of few tiles, divided along K.

    A tile's operands come at the rate of an SM; two tiles of the same columns, which are a cluster, share those of the
    columns. Tiles that are divided leave sums in fp32, which pass memory twice and are added by a second kernel.
    """
    sms, fill = int(machine["sm.count"]), machine["sm.fill"]
    memory, of_sm = machine["hbm.rate"] * 1e3, machine["hbm.per_sm"] * 1e3  # bytes in a us
    rate = machine[f"sm.dot{8 * itemsize}"] * 1e6 / sms  # operations of an SM in a us
    read = batch * (M * K + N * K + M * N) * itemsize / memory + fill
    steps = math.ceil(K / _DEPTH)
    times = []
    for rows, columns in _TILES:
        tiles = batch * math.ceil(M / rows) * math.ceil(N / columns)
        shared = min(2, math.ceil(M / rows))
        step = max(2 * rows * columns * _DEPTH / rate, (rows + columns / shared) * _DEPTH * itemsize / of_sm)
        for parts in range(1, max(1, min(sms // tiles, steps // 4)) + 1):
            computed = math.ceil(tiles * parts / sms) * (math.ceil(steps / parts) * step + fill)
            added = machine["latency.launch"] + 2 * parts * batch * M * N * 4 / memory if parts > 1 else 0.0
            times.append(max(_sustained(machine, computed), read) + added)
    return machine["latency.launch"] + min(times)


def _sustained(machine: Machine, us: float) -> float:
    """As long as ``us`` of products take, behind whose first ones a GPU that is not at rest lowers its clocks."""
    if not machine.is_sustained:
        return us
    fast = min(us, machine["sm.burst"])
    return fast + (us - fast) * machine["sm.dot16"] / machine["sm.dot16_sustained"]


def collective_us(machine: Machine, sent: float, ranks: int) -> float:
    """A collective of NCCL in which each rank sends so many bytes: by its packets, or at the rate of large ones."""
    rate = machine["link.rate"] * 1e3
    large = machine["nccl.latency"] + sent / (rate * machine["nccl.share"])
    small = machine["nccl.packet_latency"] + sent / (rate * machine["nccl.packet_share"])
    us = min(small, large)
    nodes = -(-ranks // machine.ranks)
    if nodes > 1:  # what a node gives to the others leaves it by all of its NICs
        through = sent * machine.ranks * (nodes - 1) / max(ranks - 1, 1) / (machine.ranks * machine["nic.rate"] * 1e3)
        us = max(us, through) + (nodes - 1) * machine["nic.latency"]
    return us


class LibraryMode(TorchDispatchMode):
    """Within it products of torch are steps of cuBLAS: ``spend`` gets a name and us of each. Timing-only computes none.

    Other operations of torch are run, and take no time. SimulationError where host code reads what timing-only mode has
    not computed.
    """

    sees_into_operators = True  # ditron.kernels need not be called through torch for it

    def __init__(self, rank: RankView, spend: Callable[[str, float], None]):
        super().__init__()
        self._rank, self._spend = rank, spend

    def __torch_dispatch__(self, function: Any, types: Any, args: tuple = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        operands = _PRODUCTS.get(getattr(function, "overloadpacket", None))
        if operands is None or args[operands[0]].is_meta:
            return missing_data.call(function, args, kwargs) if self._rank.timing_only else function(*args, **kwargs)
        a, b = (args[number] for number in operands)
        *batch, M, K = a.shape
        N = b.shape[-1]
        us = product_us(self._rank.machine, math.prod(batch), M, N, K, a.itemsize)
        self._spend(f"product of {M} x {N} x {K}", us)
        if not self._rank.timing_only:
            return function(*args, **kwargs)
        out = kwargs.get("out")
        dtype = kwargs.get("out_dtype") or a.dtype
        out = torch.empty(*batch, M, N, dtype=dtype) if out is None else out
        missing_data.not_computed([out])
        return out
