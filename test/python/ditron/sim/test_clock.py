"""The clock: on a machine of simple numbers, times are what they are computed to be by hand, and critical paths why."""

from __future__ import annotations

import random
import subprocess
import sys
from dataclasses import replace

import paths
import pytest
import torch
from timed_programs import (
    PRODUCT,
    US,
    branch_kernel,
    last_releases_kernel,
    notify_kernel,
    operations,
    predicted,
    products_kernel,
    push_kernel,
    put_kernel,
    simple_machine,
    store_to_peer_kernel,
    two_nodes,
    wait_kernel,
)

import ditron
from ditron import machines, sim
from ditron_compiler.errors import CompileError, DeadlockError, DitronError

# --- products and SMs ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("timing_only", [False, True])
@pytest.mark.parametrize("programs, waves", [(1, 1), (4, 1), (5, 2), (12, 3)])
def test_programs_come_in_waves_of_the_sms(programs, waves, timing_only):
    def main(view):
        x = torch.zeros(32, 32, dtype=torch.bfloat16)
        products_kernel[(programs,)](x, torch.zeros(programs * 1024, dtype=torch.bfloat16), STEPS=1000)

    prediction = predicted(main, 1, simple_machine("hbm=100000", "hbm.per_sm=10000"), timing_only)
    ((_, _, end),) = operations(prediction, "products_kernel")
    store = 2048 / 10000  # ns behind the last product of a program
    assert end == pytest.approx(3 + waves * (PRODUCT + store * US), abs=0.01)


def test_what_is_stored_behind_the_last_product_is_not_hidden():
    def main(view):
        x = torch.zeros(32, 32, dtype=torch.bfloat16)
        products_kernel[(1,)](x, torch.zeros_like(x), STEPS=1000)

    slow = predicted(main, 1, simple_machine("hbm=10"))
    assert operations(slow, "products_kernel")[0][2] == pytest.approx(3 + PRODUCT + 0.2048, abs=0.001)
    filled = predicted(main, 1, simple_machine("sm.fill=2"))
    assert operations(filled, "products_kernel")[0][2] == pytest.approx(3 + 2 + PRODUCT + 0.0205, abs=0.001)


def test_a_small_product_takes_as_long_as_its_operands_pass_shared_memory():
    """Both of 2048 bytes a step are written and read there, at 10 GB/s for each of four SMs."""

    def main(view):
        x = torch.zeros(32, 32, dtype=torch.bfloat16)
        products_kernel[(1,)](x, torch.zeros_like(x), STEPS=1000)

    fed = predicted(main, 1, simple_machine("hbm=100000", "hbm.per_sm=10000", "sm.shared=40"))
    assert operations(fed, "products_kernel")[0][2] == pytest.approx(3 + 1000 * 4 * 2048 / 10 * US, abs=0.01)


def test_a_gpu_keeps_its_full_rate_for_a_while():
    def main(view):
        x = torch.zeros(32, 32, dtype=torch.bfloat16)
        products_kernel[(8,)](x, torch.zeros(8 * 1024, dtype=torch.bfloat16), STEPS=1000)

    machine = simple_machine("hbm=100000", "hbm.per_sm=10000", "sm.dot16_sustained=2", "sm.burst=100").sustained()
    slow = predicted(main, 1, machine, timing_only=True)
    # Two waves of 65.5 us: what is behind the first 100 us takes twice as long.
    assert operations(slow, "products_kernel")[0][2] == pytest.approx(3 + 4 * PRODUCT - 100, abs=0.01)


def test_programs_fit_beside_each_other_by_their_warps():
    def main(view, num_warps):
        signal = view.alloc((1,), torch.int64, name="signal")
        last_releases_kernel[(9,)](signal, num_warps=num_warps)

    predicted(lambda view: main(view, 16), 1)  # four on each of four SMs
    with pytest.raises(DeadlockError, match="signal"):
        predicted(lambda view: main(view, 32), 1)  # two


def test_products_fit_by_their_accumulators_and_operands():
    from ditron_compiler.analysis.costs import ProductBytes
    from ditron_compiler.sim_compiler import SimKernel

    kernel = SimKernel("k", 0, (), 0, (), "")
    assert kernel.with_options(8, 3).programs_per_sm == 8
    large = SimKernel("k", 0, (), 0, (), "", product=ProductBytes((128 + 256) * 64 * 2, 128 * 256 * 4))
    assert large.with_options(8, 3).programs_per_sm == 1
    small = SimKernel("k", 0, (), 0, (), "", product=ProductBytes(2 * 64 * 64 * 2, 64 * 64 * 4))
    assert [small.with_options(4, stages).programs_per_sm for stages in (2, 4)] == [7, 3]


# --- copies and links ------------------------------------------------------------------------------------------------


def copies(*copies):
    """(from, to, MB[, stream]) at once, of ranks."""

    def main(view):
        most = max(mb for _, _, mb, *_ in copies) * 1_000_000
        far = view.alloc((len(copies), most), torch.int8, name="far")
        near = torch.zeros(most, dtype=torch.int8)
        for row, (source, peer, mb, *stream) in enumerate(copies):
            if view.rank == source:
                n = mb * 1_000_000
                view.stream(*stream or ["copy"]).rank_copy(near[:n], far[row, :n], peer)
        view.synchronize()

    return main


def test_a_copy_takes_its_setup_and_its_bytes():
    assert operations(predicted(copies((0, 1, 1))), "rank_copy") == [(0, 0, 11)]
    assert operations(predicted(copies((0, 1, 1), (0, 1, 1))), "rank_copy") == [(0, 0, 11), (0, 11, 22)]


def test_a_copy_behind_other_work_of_its_stream_has_a_setup_of_its_own():
    """What a stream that was not idle has fetched already."""
    machine = simple_machine("copy_engine.setup=4", "copy_engine.setup_behind=2")
    assert operations(predicted(copies((0, 1, 1), (0, 1, 1)), machine=machine), "rank_copy") == [
        (0, 0, 14),
        (0, 14, 26),
    ]


def test_a_small_copy_takes_the_least():
    def main(view):
        far = view.alloc((64,), torch.int8, name="far")
        if view.rank == 0:
            view.stream("copy").rank_copy(torch.zeros(64, dtype=torch.int8), far, 1)
        view.synchronize()

    assert operations(predicted(main), "rank_copy") == [(0, 0, 2)]


def test_copies_share_a_link_fairly():
    """Into one rank: half of the rate each, until the shorter one is over."""
    both = operations(predicted(copies((1, 0, 1), (2, 0, 2)), 3), "rank_copy")
    assert both == [(1, 0, 21), (2, 0, 31)]
    apart = operations(predicted(copies((0, 1, 1), (1, 0, 1)), 2), "rank_copy")
    assert apart == [(0, 0, 11), (1, 0, 11)]  # each way for itself
    # Max-min: the third has what the first, which shares with the second, leaves.
    three = operations(predicted(copies((0, 1, 1), (0, 2, 1, "other"), (3, 2, 2)), 4), "rank_copy")
    assert three == [(0, 0, 21), (0, 0, 21), (3, 0, 31)]


def max_min_ends(flows, capacity):
    """When each of (from, to, bytes) ends, if all start at 0: rates computed anew whenever one ends."""
    left, ends, now = [float(size) for _, _, size in flows], [0.0] * len(flows), 0.0
    while any(left):
        rates, free = {}, {}
        for index, (source, target, _) in enumerate(flows):
            if left[index]:
                for resource in (("out", source), ("in", target)):
                    free.setdefault(resource, [capacity, set()])[1].add(index)
        while free:
            fair, (_, users) = min((room / len(users), (resource, users)) for resource, (room, users) in free.items())
            rates |= dict.fromkeys(users, fair)
            for resource, (room, others) in list(free.items()):
                free[resource] = [room - fair * len(others & users), others - users]
                if not free[resource][1]:
                    del free[resource]
        step = min(left[index] / rate for index, rate in rates.items())
        now += step
        for index, rate in rates.items():
            left[index] = max(0.0, left[index] - rate * step) if left[index] / rate > step * (1 + 1e-12) else 0.0
            ends[index] = ends[index] or (0.0 if left[index] else now)
    return ends


@pytest.mark.parametrize("seed", range(4))
def test_many_copies_have_max_min_rates(seed):
    """Those of the whole machine, though only who shares a resource with a change is looked at again."""
    rng = random.Random(seed)
    pairs = [rng.sample(range(6), 2) for _ in range(14)]
    asked = [(a, b, rng.randint(1, 8), f"s{number}") for number, (a, b) in enumerate(pairs)]
    machine = replace(simple_machine(), ranks=6)
    got = operations(predicted(copies(*asked), 6, machine), "rank_copy")
    expected = max_min_ends([(a, b, size * 1e6) for a, b, size, _ in asked], 100e3)  # bytes per us
    assert [end for _, _, end in got] == pytest.approx(
        [1 + end for _, end in sorted(zip([a for a, *_ in asked], expected, strict=True))], abs=0.002
    )


def test_what_if():
    assert operations(predicted(copies((0, 1, 1)), machine=simple_machine("link=200")), "rank_copy") == [(0, 0, 6)]


def test_a_copy_between_nodes_goes_through_the_nics():
    times = operations(predicted(copies((0, 2, 1)), 4, two_nodes()), "rank_copy")
    assert times == [(0, 0, 27)]  # 1 MB at 50 GB/s and the latency


# --- signals, puts and stores ----------------------------------------------------------------------------------------


def test_a_notify_takes_a_fence_and_its_way():
    def main(view):
        signal = view.alloc((1,), torch.int64, name="signal")
        (notify_kernel if view.rank == 0 else wait_kernel)[(1,)](*((signal, 1) if view.rank == 0 else (signal,)))

    prediction = predicted(main)
    assert operations(prediction, "notify_kernel") == [(0, 0, 12)]  # its end is a quiet
    assert operations(prediction, "wait_kernel") == [(1, 0, 12)]  # launch, fence, and the way to the peer
    assert [(step.kind, step.rank, round(step.us, 3)) for step in prediction.critical_path()] == [
        ("launch", 0, 3),
        ("fence", 0, 5),
        ("signal", 0, 4),
    ]


@pytest.mark.parametrize("timing_only", [False, True])
def test_stores_to_a_peer_take_a_part_of_the_link(timing_only):
    """An SM stores 25 GB/s; four of them what the link has for stores, 50."""

    def main(view, programs):
        x = view.alloc((4 << 14,), torch.bfloat16, name="x")
        if view.rank == 0:
            store_to_peer_kernel[(programs,)](x, 1, N=1 << 14)

    for programs, rate in ((1, 25), (4, 50)):
        prediction = predicted(lambda view: main(view, programs), timing_only=timing_only)  # noqa: B023
        bytes_ = programs * 2 * (1 << 14)
        assert operations(prediction, "store")[0][2] == pytest.approx(3 + bytes_ / rate * US, abs=0.001)


@pytest.mark.parametrize(
    "programs, fence, us",
    [
        (1, True, 3 + 1.311 + 5 + 4),  # a fence waits for what was stored, and takes its time behind
        (4, True, 3 + 2.621 + 5 + 4),
        (8, True, 3 + 5.243 + 5 + 4),  # for what the other program of the SM stores, too
        (8, False, 3 + 2.621 + 4),  # which comes behind
    ],
)
def test_stores_of_an_sm_follow_each_other_and_a_fence_waits_for_them(programs, fence, us):
    def main(view):
        x = view.alloc((8 << 14,), torch.bfloat16, name="x")
        signal = view.alloc((8,), torch.int64, name="signal")
        if view.rank == 0:
            push_kernel[(programs,)](x, signal, 1, N=1 << 14, FENCE=fence)
        else:
            wait_kernel[(1,)](signal)

    prediction = predicted(main)
    assert operations(prediction, "wait_kernel")[0][2] == pytest.approx(us, abs=0.002)


def test_a_put_lands_with_its_signal():
    def main(view):
        signal = view.alloc((1,), torch.int64, name="signal")
        x = view.alloc((50_000,), torch.bfloat16, name="x")
        if view.rank == 0:
            x.fill_(1)
            put_kernel[(1,)](x, signal, 1, 100_000)
        else:
            wait_kernel[(1,)](signal)
            assert (x == 1).all()

    prediction = predicted(main)
    assert operations(prediction, "put_kernel") == [(0, 0, 11)]  # its end is a quiet
    assert operations(prediction, "wait_kernel") == [(1, 0, 11)]  # launch, 100 kB at 25 GB/s, and the way


def test_a_put_between_nodes_is_posted():
    def main(view):
        signal = view.alloc((1,), torch.int64, name="signal")
        x = view.alloc((50_000,), torch.bfloat16, name="x")
        if view.rank == 0:
            put_kernel[(1,)](x, signal, 2, 100_000)
        elif view.rank == 2:
            wait_kernel[(1,)](signal)

    prediction = predicted(main, 4, two_nodes())
    assert operations(prediction, "wait_kernel") == [(2, 0, 13)]  # launch, post, 2 us at 50 GB/s, and the way


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.int16])
def test_floats_that_are_put_are_not_moved_in_timing_only_mode(dtype):
    def main(view):
        signal = view.alloc((1,), torch.int64, name="signal")
        x = view.alloc((50_000,), dtype, name="x")
        x.fill_(1 if view.rank == 0 else 0)
        if view.rank == 0:
            put_kernel[(1,)](x, signal, 2, 100_000)
        elif view.rank == 2:
            wait_kernel[(1,)](signal)
            assert (x == (1 if dtype == torch.int16 else 0)).all()

    prediction = predicted(main, 4, two_nodes(), timing_only=True)
    assert operations(prediction, "wait_kernel") == [(2, 0, 13)]  # as whole


def test_streams_wait_for_signals_and_events():
    def main(view):
        signal = view.alloc((1,), torch.int64, name="signal")
        far = view.alloc((1_000_000,), torch.int8, name="far")
        if view.rank == 0:
            copy = view.stream("copy")
            copy.rank_copy(torch.zeros(1_000_000, dtype=torch.int8), far, 1)
            copy.signal_write(signal, 1, peer=1)
        else:
            view.stream().signal_wait(signal, 1)
            with view.stream():
                wait_kernel[(1,)](signal)
        view.synchronize()

    slower = predicted(main, machine=simple_machine("latency.stream=6"))  # of which its way takes 4
    assert operations(slower, "signal_write") == [(0, 11, 17)]
    assert operations(slower, "signal_wait") == [(1, 0, 23)]
    prediction = predicted(main)
    assert operations(prediction, "signal_write") == [(0, 11, 15)]
    assert operations(prediction, "signal_wait") == [(1, 0, 15)]
    assert operations(prediction, "wait_kernel") == [(1, 18, 18)]
    assert [step.kind for step in prediction.critical_path()] == ["copy setup", "copy", "signal", "launch"]


# --- a whole operator ------------------------------------------------------------------------------------------------


def ag_gemm(rows=64, N=96, K=64, calls=2, **schedule):
    schedule = {"block": (32, 32, 32), "pieces": 2, "group_m": 2, "programs": 4} | schedule

    def main(view):
        a = torch.ones(rows, K, dtype=torch.bfloat16)
        b = torch.ones(N, K, dtype=torch.bfloat16)
        for _ in range(calls):
            c = ditron.kernels.ag_gemm(a, b, algorithm="overlapped", **schedule)
        return c

    return main


def test_timing_only_predicts_what_the_whole_run_does():
    whole, only = (predicted(ag_gemm(), 4, timing_only=timing_only) for timing_only in (False, True))
    assert [[round(one.us, 6) for one in call] for call in whole.calls] == [
        [round(one.us, 6) for one in call] for call in only.calls
    ]
    assert [step.kind for step in whole.critical_path()] == [step.kind for step in only.critical_path()]


def test_an_operator_on_two_nodes():
    """A shard comes to a node once, by NIC; whoever sends it on is on the critical path."""
    machine = two_nodes().with_changes(["nic=0.01"])
    whole, only = (predicted(ag_gemm(), 4, machine, timing_only=timing_only) for timing_only in (False, True))
    assert [round(call.us, 6) for call in whole.calls[-1]] == [round(call.us, 6) for call in only.calls[-1]]
    ((put,),) = {tuple(step.us for step in one.critical_path() if step.kind == "put") for one in (whole, only)}
    # The second of two pieces is posted 1 us behind the first, with which it shares the NIC, and takes 7 us on its way.
    assert put == pytest.approx(64 * 64 * 2 / 0.01 * US - 1 + 7)
    assert "copy" in {step.kind for step in only.critical_path()}


def test_values_and_races_are_looked_for_in_the_same_run():
    def on_rank():
        ditron.init()
        return ag_gemm()(sim.current_world())

    assert all((c == 64).all() for c in sim.run(on_rank, 4, machine=simple_machine(), races=True))


@pytest.mark.parametrize("nodes", [1, 2])
@pytest.mark.parametrize("path", sorted(paths.EXAMPLES.glob("*.py")), ids=lambda path: path.stem)
def test_examples_compute_what_they_do_without_a_clock(path, nodes, capsys):
    """By their own checks, races looked for."""
    machine = replace(two_nodes(), ranks=4 // nodes, nodes=nodes)

    def run(**clock):
        try:
            return sim.run_script(path, [], 4, 4 // nodes, 0, **clock), None
        except DitronError as error:  # of an example for one node
            return None, type(error)

    if path.stem != "demo":
        assert run(machine=machine) == run()


def test_the_critical_path_is_as_long_as_the_call():
    prediction = predicted(ag_gemm(), 4, timing_only=True)
    for number, call in enumerate(prediction.calls):
        slowest = max(call, key=lambda one: one.end)
        assert sum(step.us for step in prediction.critical_path(number)) == pytest.approx(slowest.us, rel=1e-6)
    kinds = {step.kind for step in prediction.critical_path()}
    assert {"compute", "copy"} <= kinds


def test_a_run_repeats_and_seeds_change_nothing_on_a_node():
    texts = {str(predicted(ag_gemm(), 4, timing_only=True, seed=seed)) for seed in (0, 0, 1, 2)}
    assert len(texts) == 1


def test_faster_links_and_sms_are_never_slower():
    times = {
        change: max(one.us for one in predicted(ag_gemm(), 4, simple_machine(change), True).calls[-1])
        for change in ("sm.count=4", "link=200", "sm.dot16=8", "copy_engine.setup=0", "latency.peer=0")
    }
    assert all(times[change] <= times["sm.count=4"] for change in times), times
    assert times["sm.dot16=8"] < times["sm.count=4"]


def test_the_text():
    text = str(predicted(ag_gemm(), 4, timing_only=True))
    assert text.startswith("predicted for h200x4 (4 x H200, NVLink), with sm.count=4")
    assert "timing only, 4 ranks" in text and "program ag_gemm_program, call 2:" in text
    assert "ag_gemm_kernel (4 programs);" in text and "critical path of the last call, first to last:" in text
    assert "uncalibrated" in str(predicted(copies((0, 1, 1)), machine=machines.load("h800x8")))


def test_many_ranks_take_seconds_and_little_memory():
    """Promised: 64 ranks at most 15 s, 128 at most 60 s and 4 GB (docs/results/clock.md)."""
    script = paths.ROOT / "benchmark" / "clock_scale.py"
    line = subprocess.run(
        [sys.executable, script, "h800x8x8", "256"], capture_output=True, text=True, check=True
    ).stdout
    ranks, *_, cpu_seconds, gigabytes = (float(cell) for cell in line.strip(" |\n").split("|"))
    assert ranks == 64 and cpu_seconds < 15 and gigabytes < 2, line  # 1.05 GB where it compiles the kernels too


# --- what is wrong ---------------------------------------------------------------------------------------------------


def test_a_deadlock_is_found():
    def main(view):
        wait_kernel[(1,)](view.alloc((1,), torch.int64, name="signal"))

    with pytest.raises(DeadlockError, match="signal"):
        predicted(main)


def test_what_the_machine_does_not_have():
    with pytest.raises(DitronError, match="h200x4 has 4 ranks, and 5 were asked for"):
        sim.predict(lambda: None, "h200x4", 5)
    with pytest.raises(DitronError, match="h800x8x2 has more nodes"):
        sim.predict(lambda: None, "h800x8", 16)
    with pytest.raises(DitronError, match="a node of the machine h800x8x2 has 8 ranks, and 4 were asked for"):
        sim.predict(lambda: None, "h800x8x2", 16, ranks_per_node=4)
    with pytest.raises(ValueError, match="timing_only=True needs a machine"):
        sim.run(lambda: None, timing_only=True)


def test_a_branch_on_data_is_refused_at_its_line():
    def main(view):
        branch_kernel[(1,)](torch.zeros(1), view.alloc((1,), torch.int64, name="signal"))

    predicted(main, 1)
    with pytest.raises(CompileError, match="depends on floating-point data.*without --timing-only") as caught:
        predicted(main, 1, timing_only=True)
    assert caught.value.file.endswith("timed_programs.py")
