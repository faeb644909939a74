"""Streams and copy engines of the simulated machine: what each item does, and what orders them."""

from __future__ import annotations

import pytest
import torch
import triton.language as tl
from stream_programs import add_one, all_gather, await_then_add, line_of, on_ranks

import ditron
import ditron.language as dl
from ditron import sim
from ditron.sim.trace import FIRST_STREAM, Recording, perfetto
from ditron.sim.world import World

# --- each kind of item ------------------------------------------------------------------------------------------------


def test_a_stream_is_one_by_its_name_and_index():
    def main():
        view = sim.current_world()
        assert view.stream("ring", 1) is view.stream("ring", 1)
        assert len({view.stream(), view.stream("ring"), view.stream("ring", 1), view.stream("copy")}) == 4
        return repr(view.stream("ring", 1)), repr(view.stream())

    assert sim.run(main, 1)[0] == ("<stream 'ring', 1 of simulated rank 0>", "<stream '' of simulated rank 0>")


@pytest.mark.parametrize("ranks_per_node", [4, 2, 1])
@pytest.mark.parametrize("push", [True, False])
def test_rank_copy(push, ranks_per_node):
    def main():
        view = sim.current_world()
        rows = view.alloc((4, 24), torch.float32, name="rows")
        rows[view.rank] = view.rank + torch.arange(24) / 100
        view.barrier()
        right, left = (view.rank + 1) % 4, (view.rank - 1) % 4
        if push:
            view.stream("copy").rank_copy(rows[view.rank], rows[view.rank], right)
        else:
            view.stream("copy").rank_copy(rows[left], rows[left], left, push=False)
        view.barrier()
        return rows[left].tolist()

    results = on_ranks(main, 4, ranks_per_node=ranks_per_node)
    assert results == [(torch.full((24,), (rank - 1) % 4) + torch.arange(24) / 100).tolist() for rank in range(4)]


@pytest.mark.parametrize("ranks_per_node", [2, 1])
def test_a_copy_is_over_when_it_has_landed(ranks_per_node):
    def main():
        view = sim.current_world()
        far = view.alloc((64,), torch.float32, name="far").fill_(view.rank + 1)
        view.barrier()
        near, out, stream = torch.zeros(64), torch.zeros(64), view.stream()
        stream.rank_copy(far, near, 1 - view.rank, push=False)
        stream.copy(near, out)
        stream.synchronize()
        return out.unique().tolist()

    assert on_ranks(main, 2, 20, ranks_per_node=ranks_per_node, races=False) == [[2.0], [1.0]]


@pytest.mark.parametrize("dtype", [torch.int8, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("kind", ["rank_copy", "copy"])
def test_rows_with_pitches(kind, dtype):
    """A window of a matrix goes to a window of another, and nothing beside it changes."""

    def main():
        view = sim.current_world()
        there = view.alloc((9, 16), dtype, name="there")
        here = torch.arange(60).reshape(6, 10).to(dtype)
        stream = view.stream()
        if kind == "rank_copy":
            stream.rank_copy(here[1:5, 2:9], there[3:7, 4:11], 1 - view.rank)
        else:
            stream.copy(here[1:5, 2:9], there[3:7, 4:11])
        view.barrier()
        return there.double().tolist()

    expected = torch.zeros(9, 16)
    expected[3:7, 4:11] = torch.arange(60).reshape(6, 10)[1:5, 2:9]
    assert on_ranks(main, 2, 4) == [expected.double().tolist()] * 2


def test_shapes_that_lie_as_rows():
    """Dimensions that follow each other without a gap count as one, those of one element not at all."""

    def main():
        view = sim.current_world()
        x, out = torch.arange(96.0).reshape(2, 4, 1, 12), torch.zeros(2, 4, 1, 12)
        y, z = torch.zeros(3, 2, 4, 12)[1:2], torch.zeros(96)
        stream = view.stream()
        stream.copy(x, out)
        stream.copy(x.reshape(1, 2, 4, 12), y)
        stream.copy(x[:, :2, 0], z.reshape(2, 48)[:, :24].reshape(2, 2, 12))
        stream.copy(x[:0], out[:0])
        stream.synchronize()
        return torch.equal(x, out), torch.equal(x.reshape(1, 2, 4, 12), y), z[24:48].any().item()

    assert sim.run(main, 1) == [(True, True, False)]


@pytest.mark.parametrize(
    "dtype, value",
    [(torch.float32, 1.5), (torch.bfloat16, -2), (torch.int64, 2**62 + 1), (torch.bool, True), (torch.uint8, 200)],
)
def test_fill(dtype, value):
    def main():
        view = sim.current_world()
        x = torch.zeros(4, 6, dtype=dtype)
        view.stream().fill(x[1:3, 2:5], value)
        view.stream().synchronize()
        return x

    expected = torch.zeros(4, 6, dtype=dtype)
    expected[1:3, 2:5] = value
    assert torch.equal(sim.run(main, 1)[0], expected)


def test_launch_and_events():
    """A diamond: two streams go on from one event, and the main stream waits for both."""

    def main():
        ditron.init()
        view = sim.current_world()
        x = torch.zeros(4, 32)
        streams = [view.stream(), view.stream("a"), view.stream("b")]
        with streams[0]:
            add_one[(1,)](x[0], x[1], N=32)
        begun = streams[0].record()
        for stream, out in zip(streams[1:], x[2:], strict=True):
            stream.wait_event(begun)
            with stream:
                add_one[(1,)](x[1], out, N=32)
            streams[0].wait_event(stream.record())
        streams[0].copy(x[2], x[0])
        streams[0].synchronize()
        return x[:, 0].tolist()

    assert on_ranks(main) == [[2, 1, 2, 2]] * 2


@pytest.mark.parametrize("cmp, value", [("eq", 4), ("ne", 0), ("gt", 3), ("ge", 4), ("lt", 8), ("le", 7)])
def test_signals(cmp, value):
    """Two writes that follow each other on a stream are seen in that order; each comparison ends the wait."""

    def main():
        view = sim.current_world()
        signals = view.alloc((2,), torch.int64, name="signals")
        signals.fill_(9 if cmp in ("lt", "le") else 0)
        view.barrier()
        stream = view.stream()
        peer = 1 - view.rank
        if cmp in ("lt", "le"):
            stream.signal_write(signals[:1], -5, op="add", peer=peer)
            stream.signal_write(signals[1], -5, op="add", peer=peer)
        else:
            stream.signal_write(signals[:1], 3, peer=peer)
            stream.signal_write(signals[0], 1, op="add", peer=peer)
            stream.signal_write(signals[1], 4, peer=peer)
        stream.signal_wait(signals, value, cmp=cmp)
        stream.synchronize()
        return signals.tolist()

    results = [sim.run(main, 2, seed=seed) for seed in range(8)]
    if cmp not in ("ne",):  # which is over when the first write has landed
        assert all(result == [[4, 4]] * 2 for result in results)


def test_a_signal_write_is_over_when_it_is_there():
    """Rank 2 hears of the second of rank 0's writes, and finds the first in rank 1's memory."""

    def main():
        view = sim.current_world()
        first, second = (view.alloc((1,), torch.int64, name=name) for name in ("first", "second"))
        found, stream = torch.zeros(1, dtype=torch.int64), view.stream()
        if view.rank == 0:
            stream.signal_write(first, 1, peer=1)
            stream.signal_write(second, 1, peer=2)
        elif view.rank == 2:
            stream.signal_wait(second, 1)
            stream.rank_copy(first, found, 1, push=False)
        stream.synchronize()
        return found.item()

    assert on_ranks(main, 3, 40, races=False) == [0, 0, 1]


def test_a_signal_comes_after_what_is_before_it():
    """A kernel's stores and a copy are there when the signal is."""

    def main():
        ditron.init()
        view = sim.current_world()
        inbox, arrived = view.alloc((64,), torch.float32, name="inbox"), view.alloc((1,), torch.int64, name="arrived")
        x, out, copy = torch.full((64,), float(view.rank)), torch.zeros(64), view.stream("copy")
        with copy:
            add_one[(1,)](x, x, N=64)
        copy.rank_copy(x, inbox, 1 - view.rank)
        copy.signal_write(arrived, 1, peer=1 - view.rank)
        await_then_add[(1,)](arrived, 1, inbox, out, N=64)
        return out.tolist()

    assert on_ranks(main, seeds=20) == [[3.0] * 64, [2.0] * 64]


@ditron.jit(pipeline="as-written")  # others would add a quiet
def put_row(inbox, x, peer, N: tl.constexpr):
    dl.putmem_nbi(inbox, x, N * 4, peer)


@pytest.mark.parametrize("ranks_per_node", [2, 1])
def test_a_signal_comes_after_puts_of_kernels(ranks_per_node):
    def main():
        ditron.init()
        view = sim.current_world()
        inbox, arrived = view.alloc((64,), torch.float32, name="inbox"), view.alloc((1,), torch.int64, name="arrived")
        out, stream, peer = torch.zeros(64), view.stream(), 1 - view.rank
        with stream:
            put_row[(1,)](inbox, torch.full((64,), view.rank + 1.0), peer, N=64)
            stream.signal_write(arrived, 1, peer=peer)
            await_then_add[(1,)](arrived, 1, inbox, out, N=64)
        stream.synchronize()
        return out.unique().tolist()

    assert on_ranks(main, seeds=20, ranks_per_node=ranks_per_node) == [[3.0], [2.0]]


def test_barrier():
    def main():
        view = sim.current_world()
        box = view.alloc((4,), torch.float32, name="box")
        stream, out = view.stream("s"), torch.zeros(4)
        for peer in range(4):
            stream.rank_copy(torch.full((1,), view.rank + 1.0), box[view.rank : view.rank + 1], peer)
        stream.barrier()
        stream.copy(box, out)
        stream.synchronize()
        return out.tolist()

    assert on_ranks(main, 4, ranks_per_node=2) == [[1, 2, 3, 4]] * 4


def test_groups():
    """Peers count in the group, and groups' barriers are apart."""

    def main():
        view = sim.current_world()
        groups = [view.new_group([2, 0]), view.new_group([1, 3])]
        group = groups[view.rank % 2]
        box = view.alloc((1,), torch.int64, name="box")
        me = group.ranks.index(view.rank)
        view.stream().signal_write(box, 10 + view.rank, peer=1 - me, group=group)
        view.stream().barrier(group)
        view.synchronize()
        return box.item()

    assert on_ranks(main, 4) == [12, 13, 10, 11]


# --- what is ordered, and what is not ---------------------------------------------------------------------------------


def test_a_stream_keeps_its_order():
    def main():
        ditron.init()
        view = sim.current_world()
        x, y = torch.zeros(32), torch.zeros(32)
        stream = view.stream("s")
        for _ in range(3):
            with stream:
                add_one[(1,)](x, y, N=32)
            stream.copy(y, x)
        stream.synchronize()
        return x.tolist()

    assert on_ranks(main, 1) == [[3.0] * 32]


def test_streams_are_in_no_order():
    """Which of two streams signals first differs by seed."""

    def main():
        view = sim.current_world()
        order = view.alloc((3,), torch.int64, name="order")
        for index in range(2):
            stream = view.stream("s", index)
            stream.rank_copy(torch.zeros(64), view.alloc((64,), torch.float32), 1 - view.rank)
            stream.signal_write(order[index], 1)
        view.stream("watch").signal_wait(order[0], 1)
        view.stream("watch").synchronize()
        second = order[1].item()
        view.barrier()
        return second

    assert {tuple(sim.run(main, 2, seed=seed)) for seed in range(20)} > {(0, 0), (1, 1)}


def test_independent_programs_keep_the_streams_order():
    """Without a seed and a search for races they may run on all cores; what follows still comes after all of them."""

    def main():
        ditron.init()
        x, y = torch.zeros(64 * 32), torch.zeros(64 * 32)
        stream = sim.current_world().stream("s")
        for _ in range(5):
            with stream:
                add_one[(64,)](x, y, N=32)
            stream.copy(y, x)
        stream.synchronize()
        return x.unique().tolist()

    assert sim.run(main, 2, races=False) == [[5.0]] * 2


def test_the_script_goes_on():
    """Enqueuing waits for nothing, and synchronize for one stream only."""

    def main():
        view = sim.current_world()
        signal = view.alloc((1,), torch.int64, name="signal")
        view.stream("waits").signal_wait(signal, 1)
        view.stream("other").fill(torch.zeros(4), 1)
        view.stream("other").synchronize()
        view.stream("other").signal_write(signal, 1)
        view.synchronize()
        return signal.item()

    assert on_ranks(main, 2) == [1, 1]


def test_an_ordinary_launch_follows_the_main_stream():
    def main():
        ditron.init()
        x, y = torch.zeros(32), torch.zeros(32)
        sim.current_world().stream().fill(x, 5)
        add_one[(1,)](x, y, N=32)
        return y.tolist()

    assert on_ranks(main, 2) == [[6.0] * 32] * 2


def test_what_is_left_on_a_stream_is_done_when_the_script_ends():
    boxes = []

    def main():
        view = sim.current_world()
        x = torch.zeros(8)
        boxes.append(x)
        view.stream("late").fill(x, view.rank + 1)

    sim.run(main, 3)
    assert sorted(x[0].item() for x in boxes) == [1, 2, 3]


def test_tensors_live_as_long_as_they_are_used():
    """The script forgets its tensors at once; the same memory serves many times, and no race is seen in it."""

    def main():
        view = sim.current_world()
        out = torch.zeros(20, 256)
        for index in range(20):
            view.stream("s", index % 2).copy(torch.full((256,), float(index)), out[index])
        assert len(view.stream("s")._kept) == 10
        view.synchronize()
        assert not view.stream("s")._kept and not view.stream("s", 1)._kept
        return out[:, 0].tolist()

    assert on_ranks(main, 1) == [[float(index) for index in range(20)]]


def test_calls_follow_each_other():
    """Push, signal, consume, by parity and epoch, without a barrier between calls; clean with races looked for."""

    def main():
        ditron.init()
        view = sim.current_world()
        inbox = view.alloc((2, 32), torch.float32, name="inbox", undefined=True)
        arrived, free = (view.alloc((1,), torch.int64, name=name) for name in ("arrived", "free"))
        copy, main, peer = view.stream("copy"), view.stream(), 1 - view.rank
        results = []
        for epoch in range(1, 7):
            x, out = torch.full((32,), float(10 * epoch + view.rank)), torch.zeros(32)
            copy.signal_wait(free, epoch - 2)
            copy.rank_copy(x, inbox[epoch % 2], peer)
            copy.signal_write(arrived, epoch, peer=peer)
            with main:
                await_then_add[(1,)](arrived, epoch, inbox[epoch % 2], out, N=32)
            main.signal_write(free, epoch, peer=peer)
            view.synchronize(main)
            results.append(out[0].item())
        view.synchronize(copy)
        return results

    expected = [[10.0 * epoch + 1 + peer for epoch in range(1, 7)] for peer in (1, 0)]
    assert on_ranks(main, 2, 20) == expected
    assert sim.run(main, 2, races=False) == expected
    assert sim.run(main, 2, ranks_per_node=1) == expected


# --- replay, trace ----------------------------------------------------------------------------------------------------


def recorded(seed: int, races: bool = True) -> tuple[int, Recording]:
    world = World(2, seed=seed, races=races)
    world.machine.enable_trace(1 << 20)
    world.run(all_gather)
    return world.trace_hash, Recording(world.machine.take_trace(), "test", 2, 2, seed)


def test_the_same_seed_is_the_same_run():
    hashes = [recorded(seed)[0] for seed in (1, 2, 3, 1, 2, 3)]
    assert hashes[:3] == hashes[3:] and len(set(hashes)) == 3


def test_items_are_in_the_trace():
    from test_sim_trace import check_form, slices

    _, recording = recorded(1)
    lines = perfetto(recording)
    check_form(lines)
    assert sorted(recording.streams(0)) == ["main stream", "stream copy"]
    names = {
        line["tid"]: line["args"]["name"]
        for line in lines["traceEvents"]
        if line["name"] == "thread_name" and line["pid"] == 0
    }
    items = [s for s in slices(lines) if s["pid"] == 0 and names[s["tid"]] == "stream copy" and s["cat"] != "wait"]
    assert [s["name"] for s in items] == [
        "wait_event of main stream",
        "rank_copy 128 bytes to rows[0, 0] of rank 1",
        "signal_write arrived[0] of rank 1 = 1",
        "record",
    ]
    assert all(one["end"] <= two["ts"] for one, two in zip(items, items[1:], strict=False))
    assert line_of("# the copy") in items[1]["args"]["line"]
    pieces = [e for e in recording.events if e.kind == "data" and e.rank == 1]
    assert sum(e.nbytes for e in pieces) == 128 and all(items[1]["ts"] < e.time < items[1]["end"] for e in pieces)
    assert any(release.sender.slot >= FIRST_STREAM for release in recording.releases)


def test_rows_of_streams_are_drawn(tmp_path):
    import matplotlib

    with matplotlib.rc_context({"svg.fonttype": "none"}):  # text stays text
        sim.run(all_gather, 2, timeline=tmp_path / "out.svg")
    text = (tmp_path / "out.svg").read_text()
    assert ">stream copy<" in text and ">main stream<" in text and "one per stream" in text
