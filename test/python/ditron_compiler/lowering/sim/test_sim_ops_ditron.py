"""The ditron operations, executed: kernels of several simulated ranks, checked against what they should have done."""

from __future__ import annotations

import inspect

import pytest
import torch
import triton.language as tl

import ditron
import ditron.language as dl
from ditron import sim

SEEDS = [0, 1, 2]


def on_ranks(main, ranks: int = 4, per_node: int | None = None) -> None:
    """Run `main` on simulated ranks under several seeds."""
    for seed in SEEDS:
        sim.run(main, ranks=ranks, ranks_per_node=per_node, seed=seed)


@ditron.jit
def _identity(o):
    tl.store(o, dl.rank())
    tl.store(o + 1, dl.num_ranks())
    tl.store(o + 2, dl.local_rank())
    tl.store(o + 3, dl.num_local_ranks())
    tl.store(o + 4, dl.node())
    tl.store(o + 5, dl.rank(team="node"))
    tl.store(o + 6, dl.thread_id() + dl.lane_id() + dl.warp_id())
    tl.store(o + 7, dl.num_threads())
    dl.sync_threads()


def test_identity() -> None:
    def main() -> None:
        ditron.init()
        o, rank = torch.zeros(8, dtype=torch.int32), ditron.rank()
        _identity[(1,)](o)
        assert o.tolist() == [rank, 4, rank % 2, 2, rank // 2, rank % 2, 0, 1]

    on_ranks(main, 4, per_node=2)


@ditron.jit
def _remote_tiles(x, o, sig, epoch, B: tl.constexpr):
    """Read a tile of each rank through translated tensors of pointers: affine ones, and ones from a table."""
    me, n = dl.rank(), dl.num_ranks()
    for peer in range(n):
        dl.notify(sig + me, peer, epoch)
    token = dl.wait(sig, n, epoch)
    i = tl.arange(0, B)
    rows = i[:, None] * B + i[None, :]
    x = dl.consume_token(x, token)
    for peer in range(n):
        affine = dl.symm_at(x + rows, peer)
        table = dl.symm_at(tl.where(rows % 2 == 0, x + rows, x + rows - 1), peer)
        tl.store(o + peer * B * B + rows, tl.load(affine) + tl.load(table))
    dl.barrier_all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_tensors_of_remote_pointers(dtype: torch.dtype) -> None:
    def main() -> None:
        ditron.init()
        b, rank, ranks = 8, ditron.rank(), ditron.num_ranks()
        x, sig = ditron.symm_zeros(b, b, dtype=dtype), ditron.symm_zeros(ranks, dtype=torch.int64)
        o = torch.zeros(ranks, b, b, dtype=dtype)
        values = torch.arange(b * b).reshape(b, b)
        x.copy_(values + 100 * rank)
        _remote_tiles[(1,)](x, o, sig, 1, B=b)
        for peer in range(ranks):
            there = (values + 100 * peer).to(dtype)
            expected = there + there.flatten()[values.flatten() // 2 * 2].reshape(b, b)
            assert torch.equal(o[peer], expected)

    on_ranks(main)


@ditron.jit
def _token_through_branches(sig, x, o, epoch, B: tl.constexpr):
    me, n = dl.rank(), dl.num_ranks()
    i = tl.arange(0, B)
    peer = (me + 1) % n
    tl.store(dl.symm_at(x, peer) + i, (i + me).to(tl.float32))
    if me % 2 == 0:
        dl.notify(sig, peer, epoch)
        token = dl.wait(sig, 1, epoch)
    else:
        dl.notify(sig, peer, epoch, scope="world")
        token = dl.wait(sig, value=epoch, scope="world")
    acc = tl.zeros((B,), tl.float32)
    for _ in range(3):
        acc += tl.load(dl.consume_token(x, token) + i)
    tl.store(o + i, dl.consume_token(acc, token))


def test_tokens_through_control_flow() -> None:
    def main() -> None:
        ditron.init()
        b, rank, ranks = 16, ditron.rank(), ditron.num_ranks()
        x, sig = ditron.symm_zeros(b, dtype=torch.float32), ditron.symm_zeros(1, dtype=torch.int64)
        o = torch.zeros(b)
        _token_through_branches[(1,)](sig, x, o, 1, B=b)
        assert torch.equal(o, 3 * (torch.arange(b, dtype=torch.float32) + (rank - 1) % ranks))

    on_ranks(main)


@ditron.jit
def _atomics(x, o, B: tl.constexpr):
    """Every rank adds to rank 0's tile, then counts itself in; the last one copies the tile out."""
    i = tl.arange(0, B)
    dl.red(dl.symm_at(x, 0) + i, i + dl.rank(), scope="node", semantic="release")
    dl.red(dl.symm_at(x, 0) + B, dl.rank() + 7, op="max")
    before = dl.atomic_add(dl.symm_at(x, 0) + B + 1, 1, scope="node", semantic="acq_rel")
    swapped = dl.atomic_cas(dl.symm_at(x, 0) + B + 2, 0, dl.rank() + 1)
    dl.st(o, before)
    dl.st(o + 1, swapped)
    dl.barrier_all()
    dl.st(o + 2 + i, dl.ld(dl.symm_at(x, 0) + i, scope="node", semantic="acquire"))
    dl.barrier_all()


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64], ids=str)
def test_remote_atomics(dtype: torch.dtype) -> None:
    def main() -> tuple[int, int, int]:
        ditron.init()
        b, ranks = 16, ditron.num_ranks()
        x, o = ditron.symm_zeros(b + 3, dtype=dtype), torch.zeros(b + 2, dtype=dtype)
        _atomics[(1,)](x, o, B=b)
        i = torch.arange(b, dtype=dtype)
        assert torch.equal(o[2:], i * ranks + sum(range(ranks)))
        if ditron.rank() == 0:
            assert x[b] == ranks - 1 + 7 and x[b + 1] == ranks
        return int(o[0]), int(o[1]), ditron.rank()

    for seed in SEEDS:
        results = sim.run(main, ranks=4, seed=seed)
        assert sorted(before for before, _, _ in results) == [0, 1, 2, 3]
        winner = [rank for _, swapped, rank in results if swapped == 0]
        assert len(winner) == 1
        assert all(swapped in (0, winner[0] + 1) for _, swapped, _ in results)


@ditron.jit
def _multimem(x, o, B: tl.constexpr):
    i = tl.arange(0, B)
    dl.barrier_all()
    mc = dl.multicast_ptr(x)
    tl.store(o + i, dl.multimem_ld_reduce(mc + i).to(tl.float32))
    dl.barrier_all()
    if dl.rank() == 1:
        dl.multimem_st(mc + i, (i + 5).to(x.dtype.element_ty))
    dl.barrier_all()
    tl.store(o + B + i, tl.load(x + i).to(tl.float32))
    dl.barrier_all()
    dl.multimem_red(mc + i, tl.full((B,), 2, tl.int32).to(x.dtype.element_ty))
    dl.barrier_all()
    tl.store(o + 2 * B + i, tl.load(x + i).to(tl.float32))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_multimem(dtype: torch.dtype) -> None:
    def main() -> None:
        ditron.init()
        b, rank, ranks = 16, ditron.rank(), ditron.num_ranks()
        x, o = ditron.symm_zeros(b, dtype=dtype), torch.zeros(3, b)
        i = torch.arange(b, dtype=torch.float32)
        x.copy_(i + rank)
        _multimem[(1,)](x, o, B=b)
        assert torch.equal(o[0], i * ranks + sum(range(ranks)))
        assert torch.equal(o[1], i + 5) and torch.equal(o[2], i + 5 + 2 * ranks)

    on_ranks(main)


@ditron.jit
def _transfers(x, inbox, got, sig, nbytes, epoch, NBI: tl.constexpr):
    me, n = dl.rank(), dl.num_ranks()
    right, left = (me + 1) % n, (me + n - 1) % n
    dl.getmem(got, x, nbytes, left, nbi=NBI)
    dl.putmem_signal(inbox, x, nbytes, sig, 1, right, op="add", nbi=NBI)
    seen = dl.signal_wait_until(sig, epoch)
    tl.device_assert(seen >= epoch)
    tl.device_assert(dl.signal_fetch(sig) >= seen)
    tl.device_assert(dl.signal_fetch(sig + 2, semantic="relaxed") == 41)
    dl.quiet()
    dl.signal_op(sig + 1, seen, right)
    dl.signal_wait_until(sig + 1, epoch)
    dl.barrier_all()


@pytest.mark.parametrize("per_node", [None, 2])
@pytest.mark.parametrize("nbi", [False, True])
def test_transfers(nbi: bool, per_node: int | None) -> None:
    def main() -> None:
        ditron.init()
        rank, ranks, n = ditron.rank(), ditron.num_ranks(), 77
        x, inbox, got = (ditron.symm_zeros(n, dtype=torch.float32) for _ in range(3))
        sig = ditron.symm_zeros(3, dtype=torch.int64)
        sig[2] = 41
        for epoch in (1, 2):
            x.copy_(torch.arange(n) + 1000 * rank + epoch)
            ditron.barrier()
            _transfers[(1,)](x, inbox, got, sig, n * 4, epoch, NBI=nbi)
            expected = torch.arange(n, dtype=torch.float32) + 1000 * ((rank - 1) % ranks) + epoch
            assert torch.equal(inbox, expected) and torch.equal(got, expected)

    on_ranks(main, 4, per_node)


@ditron.jit
def _order_of_visits(o, size, BLOCK: tl.constexpr):
    tile = tl.program_id(0)
    tl.store(o + tile, dl.swizzle(tile, size, BLOCK, mode="gather"))
    tl.store(o + tl.num_programs(0) + tile, dl.swizzle(tile, size, BLOCK, mode="scatter"))


def test_swizzle_is_a_permutation() -> None:
    def main() -> None:
        ditron.init()
        tiles, rank = 12, ditron.rank()
        o = torch.zeros(2, tiles, dtype=torch.int32)
        _order_of_visits[(tiles,)](o, tiles * 16, BLOCK=16)
        assert sorted(o[0].tolist()) == sorted(o[1].tolist()) == list(range(tiles))
        assert o[0, 0] == rank * 3 and o[1, 0] == (rank + 1) % 4 * 3

    on_ranks(main)


@ditron.jit
def _spin_on_loads(flag, o):
    """A wait written by hand, with ordinary accesses."""
    if dl.rank() == 0:
        tl.store(dl.symm_at(flag, 1), 1)
    else:
        while tl.load(flag) == 0:
            pass
    tl.store(o, 1)


def test_loop_of_ordinary_loads_lets_others_go_on() -> None:
    def main() -> None:
        ditron.init()
        flag, o = ditron.symm_zeros(1, dtype=torch.int32), torch.zeros(1)
        _spin_on_loads[(1,)](flag, o)
        assert o.item() == 1

    on_ranks(main, 2)


@ditron.jit
def _puts(dst, src, sig, n):
    dl.putmem(dst, src, n, 0)  # here


@ditron.jit
def _gets(dst, src, sig, n):
    dl.getmem(dst, src, n, 0)  # here


@ditron.jit
def _puts_and_signals(dst, src, sig, n):
    dl.putmem_signal(dst, src, n, sig, 1, 0)  # here


@pytest.mark.parametrize("kernel", [_puts, _gets, _puts_and_signals], ids=lambda kernel: kernel.__name__)
@pytest.mark.parametrize(
    "dtype, count, message",
    [
        (torch.float32, 7, "7 bytes, not a multiple of the 4 bytes of an f32"),
        (torch.bfloat16, 7, "7 bytes, not a multiple of the 2 bytes of a bf16"),
        (torch.int64, 12, "12 bytes, not a multiple of the 8 bytes of an i64"),
        (torch.float16, 6, None),
        (torch.uint8, 7, None),
    ],
)
def test_parts_of_elements_are_not_moved(kernel, dtype, count, message) -> None:
    """The byte count is known at run time only."""

    def main() -> None:
        ditron.init()
        dst, src = ditron.symm_zeros(8, dtype=dtype), ditron.symm_zeros(8, dtype=dtype)
        kernel[(1,)](dst, src, ditron.symm_zeros(1, dtype=torch.int64), count)

    if message is None:
        sim.run(main, ranks=1)
        return
    with pytest.raises(ditron.SimulationError, match=message) as raised:
        sim.run(main, ranks=1)
    lines, first = inspect.getsourcelines(kernel.fn)
    here = first + next(k for k, line in enumerate(lines) if "# here" in line)
    assert f"{__file__}:{here}" in str(raised.value)


@ditron.jit
def _waits(sig, count):
    dl.wait(sig, count, 0)


@pytest.mark.parametrize(
    "count, message",
    [
        (-1, "wait: expected a count of at least 0 signals, got -1"),
        (1_000_000, r"wait for 1000000 signals from signals\[0\] on, where there are 3"),
    ],
)
def test_waits_are_counted_in_signals(count, message) -> None:
    def main() -> None:
        ditron.init()
        _waits[(1,)](ditron.symm_zeros(3, dtype=torch.int64, name="signals"), count)

    with pytest.raises(ditron.SimulationError, match=message):
        sim.run(main, ranks=1)
