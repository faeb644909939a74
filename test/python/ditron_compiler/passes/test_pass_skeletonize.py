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
from ditron_compiler.errors import CompileError


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
    return box, signal.tolist()


def communication(timing_only: bool):
    """What is sent, by kind, peer and place, and the results of ranks."""
    world = sim.World(3, machine="h200x4", timing_only=timing_only)
    world.machine.enable_trace(10_000)
    results = [(box.sum().item(), signals) for box, signals in world.run(exchange)]
    events = collections.Counter(
        (e.kind, e.rank, e.peer, e.what) for e in world.machine.take_trace() if e.kind in ("send", "signal", "data")
    )
    return events, results


def test_the_same_results_with_costs():
    plain = [(box.sum().item(), signals) for box, signals in sim.run(exchange, 3)]
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
        (kernel,) = (
            kernel
            for key, kernel in launch._kernels.items()
            if kernel.name == "exchange_kernel" and "costs" in key and ("timing only" in key) == timing_only
        )
        assert set(re.findall(r"call void @ditron_sim_(spend|dot_f32)", kernel.llvm_ir)) == calls


@ditron.jit
def rescale_kernel(x_ptr, count_ptr, steps, P: tl.constexpr, UNIFORM: tl.constexpr, BLOCK: tl.constexpr):
    """In each step a product where the tile's sum is positive, as it is in one step of four."""
    at = tl.arange(0, BLOCK)
    rows = at[:, None] * BLOCK + at[None, :]
    taken = 0
    for step in range(steps):
        x = tl.load(x_ptr + rows) - (step % 4 > 0)
        if dl.expect(tl.sum(x) > 0, P, uniform=UNIFORM):
            tl.store(x_ptr + (1 + tl.program_id(0)) * BLOCK * BLOCK + rows, tl.dot(x, x))
            taken += 1
    tl.store(count_ptr + tl.program_id(0), taken)


def rescale(programs: int, steps: int, P: float, uniform: bool = False, launches: int = 1):
    def main():
        ditron.init()
        counts = torch.zeros(launches, programs, dtype=torch.int32)
        x = torch.full((1 + programs, 64, 64), 0.5)
        for count in counts:
            rescale_kernel[(programs,)](x, count, steps, P, uniform, BLOCK=64)
        return counts

    return main


def taken(main, ranks: int = 1, **world):
    return torch.stack(sim.World(ranks, machine="h200x4", timing_only=True, **world).run(main))


def test_a_condition_is_itself_with_data():
    counts = sim.World(1, machine="h200x4").run(rescale(2, 8, P=0.9))[0]
    assert counts.tolist() == [[2, 2]] == sim.run(rescale(2, 8, P=0.9), 1)[0].tolist()


def test_branches_are_taken_as_often_as_is_expected():
    for probability in (0, 0.1, 0.75, 1):
        counts = taken(rescale(20, 200, probability))
        deviation = (4000 * probability * (1 - probability)) ** 0.5
        assert abs(counts.sum().item() - 4000 * probability) <= 4 * deviation


def test_time_follows_how_often_a_branch_is_taken():
    def time(probability: float, **mode) -> float:
        (launch,) = sim.predict(rescale(1, 2000, probability), "h200x4", 1, **mode).launches
        return launch.ended - launch.started

    never, often, always = time(0), time(0.25), time(1)
    assert always > 1.5 * never  # the branch takes much of the time
    # With data it is taken in 500 of 2000 steps; as many are drawn, with a deviation of 19.4.
    with_data = time(0.25, timing_only=False)
    assert abs(often - with_data) <= 4 * 19.4 / 500 * (with_data - never)


def test_draws_are_of_the_seed_the_program_and_how_often_it_has_come():
    counts = taken(rescale(4, 50, 0.5, launches=2), ranks=2)  # rank, launch, program
    assert torch.equal(counts, taken(rescale(4, 50, 0.5, launches=2), ranks=2))
    assert not torch.equal(counts, taken(rescale(4, 50, 0.5, launches=2), ranks=2, seed=1))
    assert not torch.equal(counts[0], counts[1]) and not torch.equal(counts[:, 0], counts[:, 1])
    assert len(counts[0, 0].unique()) > 1


def test_a_uniform_condition_is_the_same_everywhere():
    counts = taken(rescale(4, 50, 0.5, uniform=True, launches=2), ranks=2)
    assert (counts == counts[:1, :, :1]).all()
    assert counts[0, 0, 0] != counts[0, 1, 0]  # and another one in the next launch


@ditron.jit
def converge_kernel(residual_ptr, box_ptr, signal_ptr, BLOCK: tl.constexpr):
    """Neighbours exchange halos until the residual, which all ranks know, is small."""
    rank, ranks = dl.rank(), dl.num_ranks()
    at, epoch = tl.arange(0, BLOCK), 0
    residual = tl.load(residual_ptr)
    while dl.expect(residual > 1, 0.8, uniform=True):
        epoch += 1
        tl.store(dl.symm_at(box_ptr, (rank + 1) % ranks) + at, residual + at)
        dl.notify(signal_ptr, (rank + 1) % ranks, epoch)
        token = dl.wait(signal_ptr, 1, epoch)
        residual = residual / 2 + 0 * tl.max(tl.load(dl.consume_token(box_ptr, token) + at))


def test_ranks_leave_a_loop_together():
    def main():
        ditron.init()
        view = sim.current_world()
        box = view.alloc((2, 16), torch.float32, name="box")
        signal = view.alloc((1,), torch.int64, name="signal")
        converge_kernel[(1,)](torch.tensor([100.0]), box, signal, BLOCK=16)
        view.barrier()
        return signal.item()

    assert sim.World(3, machine="h200x4", races=False).run(main) == [7] * 3
    rounds = [sim.World(3, machine="h200x4", timing_only=True, seed=seed).run(main) for seed in range(40)]
    assert all(len(set(one)) == 1 for one in rounds)
    # 1 / (1 - 0.8) - 1 turns on average, of deviation 4.47.
    assert abs(sum(one[0] for one in rounds) / 40 - 4) <= 4 * 4.47 / 40**0.5


def test_the_error_of_a_branch_names_its_line():
    @ditron.jit
    def kernel(x_ptr, signal_ptr):
        if tl.load(x_ptr) > 0:
            return
        dl.notify(signal_ptr, 0, 1)

    def main():
        ditron.init()
        kernel[(1,)](torch.ones(1), sim.current_world().alloc((1,), torch.int64, name="signal"))

    with pytest.raises(CompileError, match=r"test_pass_skeletonize.py:\d+:\d+: .*dl\.expect\(condition, probability\)"):
        sim.World(1, machine="h200x4", timing_only=True).run(main)
