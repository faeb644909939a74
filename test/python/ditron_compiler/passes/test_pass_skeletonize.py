"""insert-costs and skeletonize: kernels compute what they did, and without data they do the same communication."""

from __future__ import annotations

import collections
import re

import pytest
import torch
import triton.language as tl

import ditron
import ditron.language as dl
from ditron import sim
from ditron.sim import launch


@ditron.jit
def exchange_kernel(counts_ptr, x_ptr, box_ptr, signal_ptr, K, BLOCK: tl.constexpr):
    """As many blocks as an integer tensor says are sent to the next rank, each scaled by a product's trace."""
    peer = (dl.rank() + 1) % dl.num_ranks()
    at = tl.arange(0, BLOCK)
    for block in range(tl.load(counts_ptr)):
        acc = tl.zeros((BLOCK, BLOCK), tl.float32)
        for k in range(K):
            x = tl.load(x_ptr + (k * BLOCK + at)[:, None] * BLOCK + at[None, :])
            acc = tl.dot(x, x, acc)
        total = tl.sum(tl.where(acc > 0, acc, 0.0), 1)
        tl.store(dl.symm_at(box_ptr, peer) + block * BLOCK + at, total)
        dl.notify(signal_ptr + block, peer, 1)
    for block in range(tl.load(counts_ptr + 1)):
        dl.wait(signal_ptr + block, 1, 1)


def exchange():
    ditron.init()
    view = sim.current_world()
    rank, ranks = view.rank, view.world_size
    counts = torch.tensor([rank + 1, (rank - 1) % ranks + 1], dtype=torch.int32)
    box = view.alloc((ranks, 16), torch.float32, name="box")
    signal = view.alloc((ranks,), torch.int64, name="signal")
    exchange_kernel[(1,)](counts, torch.ones(48, 16), box, signal, 3, BLOCK=16)
    return box.sum().item(), signal.tolist()


def communication(timing_only: bool):
    """What is sent, by kind, peer and place, and the results of ranks."""
    world = sim.World(3, machine="h200x4", timing_only=timing_only)
    world.machine.enable_trace(10_000)
    results = world.run(exchange)
    events = collections.Counter(
        (e.kind, e.rank, e.peer, e.what) for e in world.machine.take_trace() if e.kind in ("send", "signal", "data")
    )
    return events, results


def test_the_same_results_with_costs():
    plain = sim.run(exchange, 3)
    _, results = communication(timing_only=False)
    assert results == plain and plain[1][0] == 16 * 768  # of rank 0: one block


def test_the_same_communication_without_data():
    events, results = communication(timing_only=False)
    skeleton, without = communication(timing_only=True)
    assert skeleton == events and events
    assert [signals for _, signals in without] == [signals for _, signals in results]
    assert [total for total, _ in without] == [0.0] * 3  # nothing was stored


@pytest.mark.parametrize("timing_only", [False, True])
def test_it_takes_the_same_time(timing_only):
    def launches():
        return [
            (one.rank, one.started, one.ended)
            for one in sim.predict(exchange, "h200x4", 3, timing_only=timing_only).launches
        ]

    assert (
        launches()
        == launches()
        == [
            (one.rank, one.started, one.ended) for one in sim.predict(exchange, "h200x4", 3, timing_only=False).launches
        ]
    )


def test_no_product_is_computed():
    for timing_only, calls in ((False, {"spend", "dot_f32"}), (True, {"spend"})):
        sim.predict(exchange, "h200x4", 3, timing_only=timing_only)
        mode = "timing" if timing_only else "costs"
        (kernel,) = (
            kernel for key, kernel in launch._kernels.items() if mode in key and kernel.name == "exchange_kernel"
        )
        assert set(re.findall(r"call void @ditron_sim_(spend|dot_f32)", kernel.llvm_ir)) == calls
