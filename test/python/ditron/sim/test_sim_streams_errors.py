"""What the simulated machine says about streams that are wrong: races, deadlocks, bad arguments."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import stream_programs
import torch
import triton.language as tl
from stream_programs import all_gather, on_ranks

import ditron
import ditron.language as dl
from ditron import sim

HERE = Path(__file__).name
COPY = stream_programs.line_of("# the copy")


def line_of(text: str) -> str:
    return stream_programs.line_of(text, __file__)


# --- races ------------------------------------------------------------------------------------------------------------


def find(**wrong) -> ditron.RaceError:
    for seed in range(20):
        try:
            sim.run(lambda: all_gather(**wrong), 2, seed=seed)
        except ditron.RaceError as error:
            return error
    raise AssertionError("20 seeds found nothing")


def test_the_correct_program_is_clean():
    assert on_ranks(all_gather, seeds=40) == [[3.0] * 32] * 2


def test_signal_from_another_stream():
    """The signal overtakes the copy: the consumer reads what is not there yet."""
    error = find(signal_from="other")
    text = str(error)
    assert (
        re.search(
            r"race on rows\[\d, 0\] of rank \d: nothing orders this (load and a copy by rank \d's stream copy"
            r"|copy and a load by rank \d's main stream)",
            text,
        )
        or error.kind == "unwritten"
    ), text
    load = re.search(r"stream_programs.py:(\d+)", text.replace(COPY, ""))
    assert COPY in text and "tl.load" in Path(stream_programs.__file__).read_text().splitlines()[int(load[1]) - 1]
    assert "its reader has to wait for a signal written after it on its stream" in text


def test_no_event_between_streams():
    error = find(event=False)
    assert re.search(r"race on (x|out)\[0\] of rank", str(error))  # as the copy, or as the kernel calls it
    assert "copy's read of its source" in str(error) and "let the second wait for an event" in str(error)
    assert COPY in {place.rsplit("/")[-1] for place in (error.location, *error.others)}


def test_source_overwritten_while_it_is_copied():
    error = find(overwrites=True)
    assert "race on x[0] of rank" in str(error) and "copy's read of its source" in str(error)
    assert "kernel overwrite on main stream" in str(error) and "rank" in str(error)


def test_the_script_reads_before_it_synchronizes():
    error = find(peeks=True)
    assert "read by host code" in str(error) and "synchronize() the stream first" in str(error)


def test_the_script_reads_another_streams_work():
    """Synchronizing one stream says nothing about another, also when that happens to be done."""

    def main(awaits: bool):
        view = sim.current_world()
        x = torch.zeros(64)
        view.stream("a").fill(x, 1, name="x")
        if awaits:
            view.stream("b").wait_event(view.stream("a").record())
        view.stream("b").fill(torch.zeros(4), 1)
        view.stream("b").synchronize()
        return x.sum().item()

    assert sim.run(main, 1, args=(True,)) == [64]
    with pytest.raises(
        ditron.RaceError,
        match=r"race on x\[0\] of rank 0: nothing orders this read by host code and "
        r"a store by rank 0's stream a",
    ):
        sim.run(main, 1, args=(False,))


def test_a_write_by_the_script_under_a_copy():
    def main():
        view = sim.current_world()
        box, x = view.alloc((64,), torch.float32, name="box"), torch.ones(64)
        view.stream("copy").rank_copy(x, box, 1 - view.rank, names=("x", "box"))
        x.zero_()

    with pytest.raises(ditron.RaceError, match=r"race on x\[0\] of rank \d"):
        sim.run(main, 2)


def test_two_copies_to_one_place():
    def main():
        view = sim.current_world()
        box = view.alloc((64,), torch.float32, name="box")
        view.stream("copy").rank_copy(torch.ones(64), box, 0)
        view.barrier()

    with pytest.raises(ditron.RaceError, match=r"race on box\[0\] of rank 0"):
        sim.run(main, 3)


def test_a_signal_overtaken_by_another_stream():
    def main():
        view = sim.current_world()
        signal = view.alloc((1,), torch.int64, name="signal")
        for index in range(2):
            view.stream("s", index).signal_write(signal, index + 1, peer=1 - view.rank)
        view.barrier()

    errors = []
    for seed in range(20):
        try:
            sim.run(main, 2, seed=seed)
        except ditron.SimulationError as error:
            errors.append(error)
    assert errors and all(e.kind == "signal" and "goes backwards, from 2 to 1" in str(e) for e in errors)
    assert all("let the second wait for an event" in str(e) for e in errors)


def test_a_pull_of_what_is_not_there_yet():
    def main():
        view = sim.current_world()
        box = view.alloc((64,), torch.float32, name="box")
        view.stream().copy(torch.ones(64), box)
        view.stream("pull").rank_copy(box, torch.zeros(64), 1 - view.rank, push=False)
        view.barrier()

    with pytest.raises(ditron.RaceError, match=r"race on box\[0\] of rank") as caught:
        sim.run(main, 2)
    assert "let its stream wait for a signal that follows the writes it is to read" in str(caught.value)


# --- deadlocks --------------------------------------------------------------------------------------------------------


def deadlock(function, ranks: int = 2, **machine) -> str:
    with pytest.raises(ditron.DeadlockError) as caught:
        sim.run(function, ranks, **machine)
    return str(caught.value)


def test_a_wait_that_nobody_ends():
    def main():
        view = sim.current_world()
        arrived = view.alloc((4,), torch.int64, name="arrived")
        if view.rank == 1:
            arrived[2] = 2
            view.stream("copy").signal_wait(arrived[2], 3)  # nobody

    text = deadlock(main)
    assert re.search(
        rf"rank 1's stream copy waits at \S*{line_of('# nobody')} for signal arrived\[2\] >= 3, is 2; "
        r"no program has signalled arrived\[2\]",
        text,
    ), text


def test_an_event_and_a_signal_that_wait_for_each_other():
    def main():
        view = sim.current_world()
        arrived = view.alloc((1,), torch.int64, name="arrived")
        one, other = view.stream("one"), view.stream("other")
        one.signal_wait(arrived, 1)
        other.wait_event(one.record())  # before the signal
        other.signal_write(arrived, 1)

    text = deadlock(main, ranks=1)
    assert "for the event that its rank's stream one records" in text and "a cycle: " in text
    assert "the signal at" not in text, text  # an address says nothing


def starving(local: bool, resident: int = 4):
    """Consumers fill the rank, and wait for a signal that comes after a copy."""
    ditron.init()
    view = sim.current_world()
    rows = view.alloc((2, 16), torch.float32, name="rows")
    ready = view.alloc((1,), torch.int64, name="ready")
    x, out, copy, main = torch.ones(16), torch.zeros(resident * 16), view.stream("copy"), view.stream()
    started = view.alloc((1,), torch.int64, name="started")
    with main:
        signal_then_await[(resident,)](started, ready, out, N=16)
    copy.signal_wait(started, resident)
    if local:
        copy.copy(x, rows[0])  # own rows
        copy.signal_write(ready, 1)
    else:
        copy.rank_copy(x, rows[0], 1 - view.rank)
        copy.signal_write(ready, 1, peer=1 - view.rank)
    main.wait_event(copy.record())
    view.synchronize(main)
    return out.sum().item()


@ditron.jit
def signal_then_await(started, ready, out, N: tl.constexpr):
    dl.notify(started, dl.rank(), 1, op="add")
    dl.wait(ready, 1, 1)
    tl.store(out + tl.program_id(0) * N + tl.arange(0, N), tl.full([N], 1.0, tl.float32))


def test_a_local_copy_starves_behind_spinning_consumers():
    text = deadlock(lambda: starving(True), ranks=1, resident=4)
    assert re.search(
        rf"rank 0's stream copy: the copy at \S*{line_of('# own rows')} has not started: it is a kernel, "
        r"and all 4 program slots of rank 0 are taken by programs that wait",
        text,
    ), text
    assert (
        "a cycle: " in text
        and "`signal_then_await` on rank 0's main stream waits for ready[0], which rank 0's stream copy writes later"
        in text
    ), text
    assert sim.run(lambda: starving(True), 1, resident=5) == [64.0]


def test_a_copy_between_ranks_does_not_starve():
    for seed in range(5):
        assert sim.run(lambda: starving(False), 2, seed=seed, resident=4) == [64.0, 64.0]


def test_a_fill_starves_too():
    def main():
        ditron.init()
        view = sim.current_world()
        ready, started = (view.alloc((1,), torch.int64, name=name) for name in ("ready", "started"))
        with view.stream("consumers"):
            signal_then_await[(2,)](started, ready, torch.zeros(32), N=16)
        view.stream().signal_wait(started, 2)
        view.stream().fill(torch.zeros(4), 1)

    text = deadlock(main, ranks=1, resident=2)
    assert "rank 0's main stream: the fill at" in text and "a copy or a fill within a GPU needs an SM" in text, text


def test_a_cycle_of_events_and_signals():
    def main():
        view = sim.current_world()
        go = view.alloc((1,), torch.int64, name="go")
        a, b = view.stream("a"), view.stream("b")
        a.signal_wait(go, 1)
        b.wait_event(a.record())  # the event
        b.signal_write(go, 1)  # too late
        view.synchronize()

    text = deadlock(main, ranks=1)
    assert "rank 0's stream a waits at" in text and "for signal go[0] >= 1, is 0" in text
    assert re.search(
        rf"rank 0's stream b waits at \S*{line_of('# the event')} for the event that its rank's stream a "
        r"records at",
        text,
    ), text
    assert re.search(
        r"a cycle: rank 0's stream a \(at \S+\) waits for go\[0\], which rank 0's stream b writes later, "
        rf"at \S*{line_of('# too late')}; rank 0's stream b \(at \S+\) waits for the event that rank 0's "
        r"stream a records later",
        text,
    ), text


def test_a_barrier_where_one_is_missing():
    def main():
        view = sim.current_world()
        if view.rank != 1:
            view.stream().barrier()
        view.synchronize()

    assert re.search(
        r"rank 0's main stream waits at \S+ in a barrier of ranks 0, 1, 2; not arrived: 1", deadlock(main, 3)
    )


# --- bad input --------------------------------------------------------------------------------------------------------

BAD = {
    "shapes": (lambda v, s, x: s.copy(x[0], x), "same shape and dtype, got [4] of torch.float32 and [4, 4]"),
    "types": (lambda v, s, x: s.copy(x, x.double()), "same shape and dtype"),
    "columns": (lambda v, s, x: s.copy(x.T, torch.zeros(4, 4)), "copy: expected rows, each without a gap"),
    "blocks": (lambda v, s, x: s.fill(torch.zeros(4, 4, 4)[:2, :2, :2], 0), "fill: expected rows"),
    "peer": (lambda v, s, x: s.rank_copy(x, x, 2), "rank_copy: expected a peer from 0 to 1, got 2"),
    "local": (lambda v, s, x: s.rank_copy(x, torch.zeros(4, 4), 1 - v.rank), "expected a symmetric address"),
    "pull local": (lambda v, s, x: s.rank_copy(torch.zeros(4, 4), x, 1 - v.rank, push=False), "a symmetric address"),
    "freed": (lambda v, s, x: (v.free(x), v.barrier(), s.rank_copy(x, x, 1 - v.rank)), "x[0, 0], which was freed"),
    "op": (lambda v, s, x: s.signal_write(x.view(torch.int64)[0, 0], 1, op="or"), "op to be one of set, add, got 'or'"),
    "cmp": (lambda v, s, x: s.signal_wait(x.view(torch.int64)[0, 0], 1, cmp="is"), "cmp to be one of eq, ne"),
    "signal type": (lambda v, s, x: s.signal_write(x[0, 0], 1), "expected one int64 element, got 1 of torch.float32"),
    "signals": (lambda v, s, x: s.signal_write(x.view(torch.int64)[0], 1), "one int64 element, got 2"),
    "local signal": (lambda v, s, x: s.signal_wait(torch.zeros(1, dtype=torch.int64), 1), "a symmetric address"),
    "group": (lambda v, s, x: s.barrier(sim.RankGroup((1 - v.rank,))), "is not in the group of ranks"),
}


@pytest.mark.parametrize("mistake", BAD)
def test_bad_input(mistake):
    """The error comes where the item is enqueued, and names that line."""
    call, message = BAD[mistake]

    def main():
        view = sim.current_world()
        x = view.alloc((4, 4), torch.float32, name="x")
        with pytest.raises(ditron.SimulationError) as caught:
            call(view, view.stream("copy"), x)
        assert message in str(caught.value)
        assert HERE in caught.value.location and caught.value.location in str(caught.value)

    sim.run(main, 2)


def test_an_event_of_another_rank():
    events = {}

    def main():
        view = sim.current_world()
        events[view.rank] = view.stream().record()
        view.barrier()
        with pytest.raises(ditron.SimulationError, match=r"an event of rank \d is awaited by rank \d"):
            view.stream().wait_event(events[1 - view.rank])

    sim.run(main, 2)


def test_a_kernels_mistake_on_a_stream():
    def main():
        ditron.init()
        with sim.current_world().stream("s"):
            out_of_bounds[(1,)](sim.current_world().alloc((4,), torch.float32, name="box"))
        sim.current_world().synchronize()

    with pytest.raises(ditron.SimulationError, match="kernel out_of_bounds on stream s, rank 0, program"):
        sim.run(main, 1)


@ditron.jit
def out_of_bounds(x):
    tl.store(x + 100, 1.0)
