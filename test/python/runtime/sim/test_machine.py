"""The simulated machine: signals, puts and gets, barriers, the seed."""

from __future__ import annotations

import pytest
import torch
from machine_kernels import kernel

from ditron import sim

SEEDS = range(20)
SHAPES = [(1, None), (2, None), (3, None), (4, None), (8, None), (8, 4)]

RING = kernel(
    "ring",
    "sig: ptr, value: i64",
    """
  %me = call i32 @ditron_sim_rank(i32 0)
  %n = call i32 @ditron_sim_num_ranks(i32 0)
  %after = add i32 %me, 1
  %next = urem i32 %after, %n
  %first = icmp eq i32 %me, 0
  br i1 %first, label %start, label %relay
start:
  call void @ditron_sim_notify(ptr %sig, i64 %value, i32 %next, i32 0, i32 1, i32 0)
  call void @ditron_sim_wait(ptr %sig, i32 1, i64 %value, i32 3, i32 1, i32 1, i32 1)
  ret void
relay:
  call void @ditron_sim_wait(ptr %sig, i32 1, i64 %value, i32 3, i32 1, i32 1, i32 2)
  call void @ditron_sim_notify(ptr %sig, i64 %value, i32 %next, i32 0, i32 1, i32 3)
  ret void
""",
)

# Rank 0 sends 8 bytes to rank 1 by what `mode` says; rank 1 meets it by `meet` and copies what it finds to out.
SEND = kernel(
    "send",
    "buf: ptr, source: ptr, sig: ptr, out: ptr, mode: i32, meet: i32",
    """
  %me = call i32 @ditron_sim_rank(i32 0)
  %sends = icmp eq i32 %me, 0
  br i1 %sends, label %sender, label %receiver
sender:
  switch i32 %mode, label %put [i32 1, label %nbi  i32 2, label %with_signal]
put:
  call void @ditron_sim_putmem(ptr %buf, ptr %source, i64 8, i32 1, i32 0, i32 0)
  br label %sent
nbi:
  call void @ditron_sim_putmem(ptr %buf, ptr %source, i64 8, i32 1, i32 1, i32 1)
  br label %sent
with_signal:
  call void @ditron_sim_putmem_signal(ptr %buf, ptr %source, i64 8, ptr %sig, i64 5, i32 1, i32 1, i32 1, i32 2)
  br label %sent
sent:
  switch i32 %meet, label %done [i32 1, label %s_sync  i32 2, label %s_quiet  i32 3, label %s_notify
                                 i32 4, label %s_signal  i32 5, label %s_barrier  i32 6, label %s_overwrite]
s_sync:
  call void @ditron_sim_sync_all(i32 0, i32 3)
  ret void
s_quiet:
  call void @ditron_sim_quiet(i32 4)
  call void @ditron_sim_sync_all(i32 0, i32 5)
  ret void
s_notify:
  call void @ditron_sim_notify(ptr %sig, i64 5, i32 1, i32 0, i32 1, i32 6)
  ret void
s_signal:
  call void @ditron_sim_signal_op(ptr %sig, i64 5, i32 1, i32 0, i32 7)
  ret void
s_barrier:
  call void @ditron_sim_barrier(i32 0, i32 8)
  ret void
s_overwrite:
  store i64 -1, ptr %source
  call void @ditron_sim_notify(ptr %sig, i64 5, i32 1, i32 0, i32 1, i32 6)
  ret void
receiver:
  switch i32 %meet, label %r_wait [i32 1, label %r_sync  i32 2, label %r_sync  i32 5, label %r_barrier]
r_sync:
  call void @ditron_sim_sync_all(i32 0, i32 9)
  br label %copy
r_barrier:
  call void @ditron_sim_barrier(i32 0, i32 9)
  br label %copy
r_wait:
  call void @ditron_sim_wait(ptr %sig, i32 1, i64 5, i32 3, i32 1, i32 1, i32 10)
  br label %copy
copy:
  %seen = load i64, ptr %buf
  store i64 %seen, ptr %out
  br label %done
done:
  ret void
""",
)
PUT, NBI, WITH_SIGNAL = range(3)
NOTHING, SYNC, QUIET, NOTIFY, SIGNAL, BARRIER, OVERWRITE = range(7)


def send(mode: int, meet: int) -> int:
    world = sim.current_world()
    buf = world.alloc((1,), torch.int64, name="buf")
    sig = world.alloc((1,), torch.int64, name="sig")
    source, out = torch.tensor([42]), torch.zeros(1, dtype=torch.int64)
    world.launch(SEND, (1,), [buf.data_ptr(), source.data_ptr(), sig.data_ptr(), out.data_ptr(), mode, meet])
    world.barrier()
    assert world.rank == 0 or meet == OVERWRITE or buf.item() == 42, "a host barrier lets everything arrive"
    return out.item()


def seen(mode: int, meet: int, ranks_per_node: int | None = None) -> set[int]:
    return {sim.run(send, ranks=2, ranks_per_node=ranks_per_node, seed=seed, args=(mode, meet))[1] for seed in SEEDS}


@pytest.mark.parametrize("ranks, ranks_per_node", SHAPES)
def test_ring_comes_around(ranks, ranks_per_node):
    def main():
        world = sim.current_world()
        sig = world.alloc((4,), torch.int64, name="signals")
        for epoch in (1, 2, 3):
            world.launch(RING, (1,), [sig.data_ptr(), epoch])
            assert sig[0] >= epoch and not sig[1:].any(), "the rank before may be one round ahead"
        return True

    for seed in SEEDS:
        assert sim.run(main, ranks, ranks_per_node, seed) == [True] * ranks


@pytest.mark.parametrize("mode", [PUT, NBI])
@pytest.mark.parametrize("meet", [QUIET, NOTIFY, BARRIER])
@pytest.mark.parametrize("ranks_per_node", [1, 2])
def test_ordered_put_is_always_seen(mode, meet, ranks_per_node):
    assert seen(mode, meet, ranks_per_node) == {42}


@pytest.mark.parametrize("mode", [PUT, NBI])
@pytest.mark.parametrize("meet", [SYNC, SIGNAL])
def test_unordered_put_is_sometimes_late(mode, meet):
    assert seen(mode, meet) == {0, 42}


def test_signal_of_a_put_comes_after_its_data():
    assert seen(WITH_SIGNAL, NOTHING) == {42}


def test_source_of_a_nonblocking_put_is_read_late():
    assert seen(NBI, OVERWRITE) == {42, -1}
    assert seen(PUT, OVERWRITE) == {42}


# Rank 1 fills its buffer with what rank 0 has; `nbi`: without waiting, and then by quiet when `quiet`.
FETCH = kernel(
    "fetch",
    "dst: ptr, src: ptr, out: ptr, nbi: i32, quiet: i32",
    """
  %fetch_later = icmp ne i32 %nbi, 0
  br i1 %fetch_later, label %later, label %now
now:
  call void @ditron_sim_getmem(ptr %dst, ptr %src, i64 16, i32 0, i32 0, i32 0)
  br label %look
later:
  call void @ditron_sim_getmem(ptr %dst, ptr %src, i64 16, i32 0, i32 1, i32 1)
  %wants_quiet = icmp ne i32 %quiet, 0
  br i1 %wants_quiet, label %complete, label %look
complete:
  call void @ditron_sim_quiet(i32 2)
  br label %look
look:
  %seen = load i64, ptr %dst
  store i64 %seen, ptr %out
  ret void
""",
)


@pytest.mark.parametrize("nbi, quiet, expected", [(0, 0, {7}), (1, 1, {7}), (1, 0, {0, 7})])
def test_get(nbi, quiet, expected):
    def main():
        world = sim.current_world()
        src = world.alloc((2,), torch.int64, name="src")
        src.fill_(7 if world.rank == 0 else 9)
        world.barrier()
        dst, out = torch.zeros(2, dtype=torch.int64), torch.zeros(1, dtype=torch.int64)
        if world.rank == 1:
            world.launch(FETCH, (1,), [dst.data_ptr(), src.data_ptr(), out.data_ptr(), nbi, quiet])
            assert dst.tolist() == [7, 7], "what goes to a tensor of the script arrives before the launch is over"
        return out.item()

    assert {sim.run(main, 2, 1, seed)[1] for seed in range(100)} == expected


# Two puts to one word with or without a fence between; the second should win.
TWICE = kernel(
    "twice",
    "buf: ptr, one: ptr, two: ptr, fence: i32",
    """
  call void @ditron_sim_putmem(ptr %buf, ptr %one, i64 8, i32 1, i32 0, i32 0)
  %ordered = icmp ne i32 %fence, 0
  br i1 %ordered, label %order, label %again
order:
  call void @ditron_sim_fence(i32 1)
  br label %again
again:
  call void @ditron_sim_putmem(ptr %buf, ptr %two, i64 8, i32 1, i32 0, i32 2)
  ret void
""",
)


@pytest.mark.parametrize("fence, expected", [(1, {2}), (0, {1, 2})])
def test_fence_orders_puts(fence, expected):
    def main():
        world = sim.current_world()
        buf = world.alloc((1,), torch.int64, name="buf")
        one, two = torch.tensor([1]), torch.tensor([2])
        if world.rank == 0:
            world.launch(TWICE, (1,), [buf.data_ptr(), one.data_ptr(), two.data_ptr(), fence])
        world.barrier()
        return buf.item()

    assert {sim.run(main, 2, seed=seed, races=False)[1] for seed in SEEDS} == expected


# Program 0 adds to a signal until the wait of program 1 is over; %cmp and %value are its comparison.
COUNT = kernel(
    "count",
    "sig: ptr, out: ptr, step: i64, value: i64, cmp: i32, n: i32",
    """
  %counts = icmp eq i32 %pid, 0
  br i1 %counts, label %add, label %waits
add:
  %i = phi i32 [0, %entry], [%i1, %add]
  %address = getelementptr i64, ptr %sig, i32 %i
  call void @ditron_sim_notify(ptr %address, i64 %step, i32 0, i32 1, i32 0, i32 0)
  %i1 = add i32 %i, 1
  %more = icmp slt i32 %i1, %n
  br i1 %more, label %add, label %end
waits:
  call void @ditron_sim_wait(ptr %sig, i32 %n, i64 %value, i32 %cmp, i32 0, i32 1, i32 1)
  %last = call i64 @ditron_sim_signal_wait_until(ptr %sig, i64 %value, i32 %cmp, i32 2)
  store i64 %last, ptr %out
  br label %end
end:
  ret void
""",
)


@pytest.mark.parametrize(
    "step, value, cmp",
    [
        (3, 3, 0),
        (3, 0, 1),
        (3, 2, 2),
        (3, 3, 3),
        (-3, 0, 4),
        (-3, -3, 5),
    ],
    ids=["eq", "ne", "gt", "ge", "lt", "le"],
)
@pytest.mark.parametrize("n", [1, 7])
def test_wait_compares_every_signal(step, value, cmp, n):
    def main():
        sig = sim.current_world().alloc((n,), torch.int64, name="sig")
        out = torch.zeros(1, dtype=torch.int64)
        sim.current_world().launch(COUNT, (2,), [sig.data_ptr(), out.data_ptr(), step, value, cmp, n])
        assert sig.tolist() == [step] * n
        return out.item()

    for seed in SEEDS:
        assert sim.run(main, 1, seed=seed) == [step]


# Every rank writes its epoch to its peers' buffers, meets them, and adds up what it was sent.
MEET = kernel(
    "meet",
    "buf: ptr, out: ptr, epoch: i64, kind: i32",
    """
  %me = call i32 @ditron_sim_rank(i32 0)
  %n = call i32 @ditron_sim_num_ranks(i32 0)
  %source = alloca i64
  store i64 %epoch, ptr %source
  br label %put
put:
  %r = phi i32 [0, %entry], [%r1, %put]
  %slot = getelementptr i64, ptr %buf, i32 %me
  call void @ditron_sim_putmem(ptr %slot, ptr %source, i64 8, i32 %r, i32 0, i32 0)
  %r1 = add i32 %r, 1
  %more = icmp slt i32 %r1, %n
  br i1 %more, label %put, label %meet
meet:
  %all = icmp eq i32 %kind, 0
  br i1 %all, label %barrier_all, label %barrier
barrier_all:
  call void @ditron_sim_barrier_all(i32 1)
  br label %read
barrier:
  call void @ditron_sim_barrier(i32 0, i32 2)
  br label %read
read:
  %i = phi i32 [0, %barrier_all], [0, %barrier], [%i1, %read]
  %sum = phi i64 [0, %barrier_all], [0, %barrier], [%sum1, %read]
  %from = getelementptr i64, ptr %buf, i32 %i
  %sent = load i64, ptr %from
  %sum1 = add i64 %sum, %sent
  %i1 = add i32 %i, 1
  %again = icmp slt i32 %i1, %n
  br i1 %again, label %read, label %end
end:
  store i64 %sum1, ptr %out
  ret void
""",
)


@pytest.mark.parametrize("ranks, ranks_per_node", [(1, None), (3, None), (8, 4), (64, 8)])
@pytest.mark.parametrize("kind", [0, 1], ids=["barrier_all", "barrier"])
def test_barrier(ranks, ranks_per_node, kind):
    def main():
        world = sim.current_world()
        buf = world.alloc((world.world_size,), torch.int64, name="buf")
        out = torch.zeros(1, dtype=torch.int64)
        sums = []
        for epoch in (1, 10):
            world.launch(MEET, (1,), [buf.data_ptr(), out.data_ptr(), epoch, kind])
            sums.append(out.item())
            world.barrier()
        return sums

    for seed in range(3 if ranks == 64 else 20):
        assert sim.run(main, ranks, ranks_per_node, seed) == [[ranks, 10 * ranks]] * ranks


@pytest.mark.parametrize("kind", [0, 1], ids=["barrier_all", "barrier"])
def test_barrier_is_of_the_group(kind):
    def main():
        world = sim.current_world()
        pair = world.new_group([3, 1])
        if world.rank not in pair.ranks:
            return None
        buf = world.alloc((2,), torch.int64, name="buf", group=pair)
        out = torch.zeros(1, dtype=torch.int64)
        world.launch(MEET, (1,), [buf.data_ptr(), out.data_ptr(), 5, kind], group=pair)
        return out.item()

    assert sim.run(main, 4) == [None, 10, None, 10]


def test_more_programs_than_places():
    """Programs start in order of their ids, so a consumer that comes after its producer finds it started."""

    def main():
        world = sim.current_world()
        flags = world.alloc((100,), torch.int64, name="flags")
        world.launch(CHAIN, (100,), [flags.data_ptr()])
        return flags.tolist()

    for seed in SEEDS:
        assert sim.run(main, 1, seed=seed, resident=3) == [[1] * 100]


CHAIN = kernel(
    "chain",
    "flags: ptr",
    """
  %mine = getelementptr i64, ptr %flags, i32 %pid
  %first = icmp eq i32 %pid, 0
  br i1 %first, label %tell, label %wait
wait:
  %before = getelementptr i64, ptr %mine, i64 -1
  call void @ditron_sim_wait(ptr %before, i32 1, i64 1, i32 3, i32 0, i32 1, i32 0)
  br label %tell
tell:
  %me = call i32 @ditron_sim_rank(i32 0)
  call void @ditron_sim_notify(ptr %mine, i64 1, i32 %me, i32 0, i32 0, i32 1)
  ret void
""",
)


def test_program_ids_cover_the_grid():
    def main():
        out = torch.zeros(4, 3, 2, dtype=torch.int32)
        sim.current_world().launch(PIDS, (2, 3, 4), [out.data_ptr()])
        return out

    x, y, z = torch.arange(2), torch.arange(3).view(3, 1), torch.arange(4).view(4, 1, 1)
    assert torch.equal(sim.run(main, 1)[0], (1 + x + 10 * y + 100 * z).to(torch.int32))


PIDS = kernel(
    "pids",
    "out: ptr",
    """
  %zy = mul i32 %pid2, %n1
  %row = add i32 %zy, %pid1
  %rows = mul i32 %row, %n0
  %index = add i32 %rows, %pid
  %address = getelementptr i32, ptr %out, i32 %index
  %a = mul i32 %pid1, 10
  %b = mul i32 %pid2, 100
  %c = add i32 %a, %b
  %d = add i32 %c, %pid
  %e = add i32 %d, 1
  store i32 %e, ptr %address
  ret void
""",
)


def test_same_seed_same_run():
    def trace(seed: int) -> tuple[int, list]:
        world = sim.World(4, 2, seed)
        results = world.run(send_around)
        return world.trace_hash, results

    def send_around():
        world = sim.current_world()
        flags = world.alloc((20,), torch.int64, name="flags")
        world.launch(CHAIN, (20,), [flags.data_ptr()])
        sig = world.alloc((1,), torch.int64, name="sig")
        world.launch(RING, (1,), [sig.data_ptr(), 1])

    runs = [trace(seed) for seed in SEEDS]
    assert runs == [trace(seed) for seed in SEEDS]
    assert len({trace for trace, _ in runs}) == len(SEEDS)
