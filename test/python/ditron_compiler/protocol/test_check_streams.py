"""The protocol checker on what a host does with streams: copy engines, events, signals of streams, places on SMs."""

from __future__ import annotations

import pytest
import torch
import triton.language as tl

import ditron
import ditron.language as dl
from ditron.protocol.api import check_function
from ditron.sim.rank import current_world

N = 64


@ditron.jit
def spin_then_read(data, flag, out, epoch, N: tl.constexpr):
    token = dl.wait(flag, 1, epoch)
    at = tl.program_id(0) * N + tl.arange(0, N)
    tl.store(out + at, tl.load(dl.consume_token(data, token) + at))


@ditron.jit
def read(data, out, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(out + at, tl.load(data + at))


def buffers():
    ditron.init()
    inbox = ditron.symm_empty(2, 4 * N, dtype=torch.float32, name="inbox")
    flags = ditron.symm_zeros(4, dtype=torch.int64, name="flags")
    view = current_world()
    return view, inbox, flags, torch.ones(4 * N), torch.empty(4 * N), (ditron.rank() + 1) % ditron.num_ranks()


def kinds(host, ranks=2, resident=132):
    report = check_function(host, [(ranks, None)], resident=resident)
    return [finding.kind for finding in report.findings], report


def test_a_copy_of_a_matrix_onto_itself_that_transposes():
    """The bytes are the same, and in another order; without that each is written where it was read."""

    def host(transposes):
        ditron.init()
        x, stream = torch.ones(8, 8), current_world().stream()
        stream.copy(x.t() if transposes else x, x)

    assert kinds(lambda: host(True))[0] == ["overlap"]
    assert not kinds(lambda: host(False))[0]


def push(calls=3, *, fork=True, halves=2, signal=True, own=False, wait="stream", join=True, launch_first=False):
    """Ranks push a row to the right, each call; what may be left out is a mistake."""

    def host():
        view, inbox, flags, mine, out, right = buffers()
        main, copy = view.stream(), view.stream("copy")
        for view.call in range(1, calls + 1):
            epoch = view.call
            half = inbox[epoch % halves]
            if fork:
                copy.wait_event(main.record())
            if launch_first:
                with main:
                    spin_then_read[(4,)](half, flags[0:1], out, epoch, N=N)
            if own:
                copy.copy(mine, half)
                copy.signal_write(flags[0:1], epoch)
            else:
                copy.rank_copy(mine, half, right)
                if signal:
                    copy.signal_write(flags[0:1], epoch, peer=right)
            if wait == "stream":
                main.signal_wait(flags[0:1], epoch)
                with main:
                    read[(1,)](half, out, N=N)
            elif not launch_first:
                with main:
                    spin_then_read[(4,)](half, flags[0:1], out, epoch, N=N)
            if join:
                main.wait_event(copy.record())

    return host


@pytest.mark.parametrize("facts", [{}, {"wait": "kernel"}, {"own": True, "ranks": 1}])
def test_right_program_is_clean(facts):
    facts = dict(facts)
    found, report = kinds(push(**{k: v for k, v in facts.items() if k != "ranks"}), facts.get("ranks", 2))
    assert found == [] and report.notes == [], str(report)


@pytest.mark.parametrize(("facts", "kind", "says"), [
    ({"signal": False}, "never-signalled", "flags[0] of rank 0 >= 1, and nobody signals it"),
    ({"halves": 1}, "reuse", "its reader is not known to be done"),
    ({"fork": False, "join": False, "calls": 3}, "reuse", "its reader is not known to be done"),
])  # fmt: skip
def test_mistake_is_found(facts, kind, says):
    found, report = kinds(push(**facts))
    assert kind in found and says in str(report), str(report)


def test_kernel_without_a_wait():
    def host():
        view, inbox, flags, mine, out, right = buffers()
        copy = view.stream("copy")
        copy.rank_copy(mine, inbox[0], right)
        copy.signal_write(flags[0:1], 1, peer=right)
        read[(1,)](inbox[0], out, N=N)

    found, report = kinds(host)
    assert found == ["unordered"] and "a signal of the writer" in str(report), str(report)


def test_copy_within_the_gpu_behind_programs_that_spin():
    """The kernel waits for a copy that is itself a kernel: once the grid fills the GPU the copy never starts."""
    found, report = kinds(push(own=True, wait="kernel", launch_first=True), ranks=1)
    assert found == ["starved"], str(report)
    assert "a copy, which is a kernel, cannot start" in str(report) and "let a copy engine do it" in str(report)


def test_copy_engine_needs_no_place():
    found, report = kinds(push(wait="kernel", launch_first=True), ranks=2, resident=4)
    assert found == [], str(report)


def test_signals_of_streams_wait_for_each_other():
    def host():
        view, _, flags, _, _, right = buffers()
        view.stream().signal_wait(flags[0:1], 1)
        view.stream().signal_write(flags[0:1], 1, peer=right)

    found, report = kinds(host)
    assert found == ["cycle"] and "a signal that is not reached" in str(report), str(report)


def test_stream_barrier_orders():
    def host(barrier):
        view, inbox, _, mine, out, right = buffers()
        main = view.stream()
        for _ in range(2):
            main.rank_copy(mine, inbox[0], right)
            if barrier:
                main.barrier()
            with main:
                read[(1,)](inbox[0], out, N=N)
            if barrier:
                main.barrier()

    assert kinds(lambda: host(True))[0] == []
    assert "unordered" in kinds(lambda: host(False))[0]


def test_signal_of_two_call_sites():
    """The second kernel's wait is satisfied by the first's signal."""

    def host():
        view, inbox, flags, mine, out, right = buffers()
        one, two = view.stream("one"), view.stream("two")
        one.rank_copy(mine, inbox[0], right)
        one.signal_write(flags[0:1], 1, peer=right)
        two.rank_copy(mine, inbox[1], right)
        two.signal_write(flags[0:1], 1, peer=right)
        main = view.stream()
        main.signal_wait(flags[0:1], 1)
        with main:
            read[(1,)](inbox[1], out, N=N)

    found, report = kinds(host)
    assert found == ["shared"], str(report)
    assert "also ends by the signal of another call site" in str(report)


def test_caller_overwrites_what_a_stream_still_reads():
    def host(join):
        view, inbox, flags, mine, _, right = buffers()
        copy = view.stream("copy")
        copy.rank_copy(mine, inbox[0], right)
        if join:
            view.synchronize()
        view.touch("mine", mine, writes=True)

    assert kinds(lambda: host(True))[0] == []
    assert kinds(lambda: host(False))[0] == ["reuse"]


@ditron.jit(pipeline="as-written")
def shift(data, GET: tl.constexpr, DISTANCE: tl.constexpr, N: tl.constexpr):
    if GET:
        dl.getmem(data, data + DISTANCE, N * 4, dl.rank())  # get
    else:
        dl.putmem(data + DISTANCE, data, N * 4, dl.rank())  # put


@pytest.mark.parametrize(("distance", "found"), [(N // 2, True), (-N // 2, True), (N, False), (0, False)])
@pytest.mark.parametrize("what", ["put", "get", "copy", "rank_copy"])
def test_copies_onto_what_they_read(what, distance, found):
    """The same place is fine, and one beside it."""

    def host():
        view, inbox, *_ = buffers()
        row = inbox[0]
        row.zero_()
        source, target = row[N : 2 * N], row[N + distance : 2 * N + distance]
        if what == "copy":
            view.stream().copy(source, target)
        elif what == "rank_copy":
            view.stream().rank_copy(source, target, ditron.rank())
        elif what == "put":
            shift[(1,)](source, GET=False, DISTANCE=distance, N=N)
        else:
            shift[(1,)](target, GET=True, DISTANCE=-distance, N=N)

    got, report = kinds(host)
    assert got == ["overlap"] * found, str(report)


@ditron.jit
def meet(mine, others, epoch):
    dl.notify(mine + tl.program_id(0), dl.rank(), epoch)
    dl.wait(others, tl.num_programs(0), epoch)


@pytest.mark.parametrize("streams", [("one", "two"), ("one", "one")])
def test_two_launches_that_wait_for_each_other_on_the_sms_of_one_gpu(streams):
    """Each has fewer programs than the GPU has SMs, together they have more; on one stream the first never ends."""

    def host():
        ditron.init()
        view = current_world()
        signals = ditron.symm_zeros(2, 100, dtype=torch.int64, name="signals")
        for number, name in enumerate(streams):
            with view.stream(name):
                meet[(100,)](signals[number], signals[1 - number], 1)

    found, report = kinds(host, ranks=1)
    assert found == (["starved"] if streams[0] != streams[1] else ["never-signalled"]), str(report)
    assert streams[0] == streams[1] or "make one kernel of both" in str(report)


@pytest.mark.parametrize(
    ("programs", "resident", "fits"), [(1, 2, True), (1, 132, True), (60, 132, True), (70, 132, False)]
)
def test_two_launches_that_fit_on_the_gpu_together(programs, resident, fits):
    def host():
        ditron.init()
        view = current_world()
        signals = ditron.symm_zeros(2, programs, dtype=torch.int64, name="signals")
        for number, name in enumerate(("one", "two")):
            with view.stream(name):
                meet[(programs,)](signals[number], signals[1 - number], 1)

    found, report = kinds(host, ranks=1, resident=resident)
    assert found == ([] if fits else ["starved"]) and report.is_complete, str(report)
    assert not fits or any(f"to run {resident} at a time (--resident)" in note for note in report.notes), str(report)
