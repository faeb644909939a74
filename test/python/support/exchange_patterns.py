"""Exchanges whose sizes are counted first: dispatch and combine of an MoE layer (see check_patterns.py)."""

from __future__ import annotations

import torch
import triton.language as tl
from check_patterns import Pattern, pattern

import ditron
import ditron.language as dl

N, TOKENS = 16, 8
PATTERNS: dict[str, Pattern] = {}


def _box(*shape: int, name: str = "box") -> torch.Tensor:
    return ditron.symm_empty(*shape, dtype=torch.float32, name=name)


def _flags(*shape: int, dtype: torch.dtype = torch.int64, name: str = "flags") -> torch.Tensor:
    return ditron.symm_zeros(*shape, dtype=dtype, name=name)


def routing(rank: int, ranks: int) -> torch.Tensor:
    """The rank that each token of ``rank`` goes to: some get many, some none."""
    return torch.tensor([(t * t + rank * (t % 3)) % ranks for t in range(TOKENS)], dtype=torch.int32)


@ditron.jit(pipeline="as-written", do_not_specialize=["epoch"])
def dispatch_by_counts(
    x, to, slots, counts, box, arrived, flags, out, sums, epoch, T: tl.constexpr, N: tl.constexpr, BREAK: tl.constexpr
):
    """Tokens go to the ranks that a table names, with their number behind; the receiver adds up as many as came."""
    rank, ranks, at = dl.rank(), dl.num_ranks(), tl.arange(0, N)
    for row in range(T):
        peer, slot = tl.load(to + row), tl.load(slots + row)
        if BREAK == "one-slot":
            slot = 0
        dl.putmem_nbi(box + (rank * T + slot) * N, x + row * N, N * 4, peer)  # one-slot
    for peer in range(ranks):
        if BREAK == "no-fence":
            dl.putmem_nbi(arrived + rank, counts + peer, 4, peer)  # no-fence
            dl.signal_op(flags + rank, epoch, peer)  # no-fence
        else:
            dl.fence()
            dl.putmem_signal(arrived + rank, counts + peer, 4, flags + rank, epoch, peer)  # no-wait not-all
    for peer in range(ranks):
        source, number = box, arrived
        if BREAK == "not-all":
            token = dl.wait(flags, 1, epoch)  # not-all
            source, number = dl.consume_token(box, token), dl.consume_token(arrived, token)
        elif BREAK != "no-wait":
            token = dl.wait(flags + peer, 1, epoch)  # no-fence
            source, number = dl.consume_token(box, token), dl.consume_token(arrived, token)
        n = tl.load(number + peer)  # no-wait not-all no-fence
        total = tl.zeros((N,), tl.float32)
        for slot in range(n):
            total += tl.load(source + (peer * T + slot) * N + at)
        tl.store(sums + peer * N + at, total)
        tl.store(out + peer, n)
    dl.barrier_all()


@pattern(
    dispatch_by_counts,
    {"no-wait": "unordered", "not-all": "unordered", "one-slot": "writers", "no-fence": "unpublished"},
    PATTERNS,
)
def run_dispatch_by_counts(mistake: str) -> None:
    ditron.init()
    rank, ranks = ditron.rank(), ditron.num_ranks()
    to = routing(rank, ranks)
    slots = torch.tensor([(to[:t] == to[t]).sum() for t in range(TOKENS)], dtype=torch.int32)
    counts = torch.tensor([(to == p).sum() for p in range(ranks)], dtype=torch.int32)
    x = torch.full((TOKENS, N), rank + 1.0)
    out, sums = torch.zeros(ranks, dtype=torch.int32), torch.zeros(ranks, N)
    box, arrived = _box(ranks, TOKENS, N), _flags(ranks, dtype=torch.int32, name="arrived")
    flags = _flags(ranks)
    for epoch in (1, 2, 3):
        dispatch_by_counts[(1,)](
            x, to, slots, counts, box, arrived, flags, out, sums, epoch, T=TOKENS, N=N, BREAK=mistake
        )
    ditron.barrier()
    expected = [(routing(p, ranks) == rank).sum() for p in range(ranks)]
    assert out.tolist() == expected
    assert sums[:, 0].tolist() == [n * (p + 1.0) for p, n in enumerate(expected)]


@ditron.jit(pipeline="as-written", do_not_specialize=["epoch"])
def combine_by_counts(x, counts, offsets, box, flags, out, epoch, N: tl.constexpr, BREAK: tl.constexpr):
    """Rows go back to where they came from, each block to an offset that is the sum of the counts before it."""
    rank, ranks, at = dl.rank(), dl.num_ranks(), tl.arange(0, N)
    lane = tl.arange(0, 8)
    for peer in range(ranks):
        n = tl.load(counts + rank * ranks + peer)
        theirs = tl.load(counts + lane * ranks + peer, mask=lane < rank, other=0)
        first = tl.sum(theirs)
        if BREAK == "one-more":
            first = first + 1
        for row in range(n):
            tl.store(dl.symm_at(box, peer) + (first + row) * N + at, tl.load(x + at))  # sent-first relaxed one-more
            if BREAK == "sent-first" and row == 0:
                dl.notify(flags, peer, n, op="add")  # sent-first
        if BREAK == "sent-first":
            pass
        elif BREAK == "relaxed":
            dl.signal_op(flags, n, peer, op="add")  # relaxed
        else:
            dl.notify(flags, peer, n, op="add")
    mine = tl.load(counts + lane * ranks + rank, mask=lane < ranks, other=0)
    rows = tl.sum(mine)
    token = dl.wait(flags, 1, epoch * rows)  # sent-first relaxed
    total = tl.zeros((N,), tl.float32)
    for row in range(rows):
        total += tl.load(dl.consume_token(box, token) + row * N + at)  # sent-first relaxed
    tl.store(out + at, total)
    dl.barrier_all()


@pattern(combine_by_counts, {"sent-first": "unpublished", "relaxed": "unpublished", "one-more": "bounds"}, PATTERNS)
def run_combine_by_counts(mistake: str) -> None:
    ditron.init()
    rank, ranks = ditron.rank(), ditron.num_ranks()
    counts = torch.tensor([[1 + (2 * r + p) % 3 for p in range(ranks)] for r in range(ranks)], dtype=torch.int32)
    rows = int(counts[:, rank].sum())
    largest = int(counts.sum(0).max())
    x, out = torch.full((N,), rank + 1.0), torch.empty(N)
    box, flags = _box(largest, N), _flags(1)
    for epoch in (1, 2, 3):
        combine_by_counts[(1,)](x, counts, rows, box, flags, out, epoch, N=N, BREAK=mistake)
    ditron.barrier()
    assert (out == sum((r + 1.0) * counts[r, rank] for r in range(ranks))).all()


@ditron.jit(pipeline="as-written", do_not_specialize=["epoch"])
def packets_by_counts(x, counts, packets, box, out, epoch, HALF: tl.constexpr, N: tl.constexpr, BREAK: tl.constexpr):
    """An all-to-all of packets: a message of a loaded size to each rank, in two places by the parity of the epoch."""
    rank, ranks, at = dl.rank(), dl.num_ranks(), tl.arange(0, N)
    parity = epoch % 2
    if BREAK == "one-place":
        parity = 0
    for peer in range(ranks):
        n = tl.load(counts + rank * ranks + peer)
        dl.ll_put(packets + (parity * ranks + rank) * HALF, x, n * 4, peer, epoch)  # one-place
    total = tl.zeros((N,), tl.float32)
    for peer in range(ranks):
        n = tl.load(counts + peer * ranks + rank)
        if BREAK == "swapped":
            n = tl.load(counts + rank * ranks + peer)
        token = dl.ll_get(box + peer * N, packets + (parity * ranks + peer) * HALF, n * 4, epoch)  # one-place swapped
        total += tl.load(dl.consume_token(box, token) + peer * N + at, mask=at < n, other=0.0)
    tl.store(out + at, total)


@pattern(packets_by_counts, {"swapped": "count", "one-place": "overtaken"}, PATTERNS)
def run_packets_by_counts(mistake: str) -> None:
    ditron.init()
    rank, ranks = ditron.rank(), ditron.num_ranks()
    counts = torch.tensor([[(5 * r + 3 * p) % N for p in range(ranks)] for r in range(ranks)], dtype=torch.int32)
    x, out, box = torch.ones(N), torch.empty(N), torch.zeros(ranks, N)
    packets = ditron.symm_packets(2, ranks, nbytes=N * 4, name="packets")
    half = packets.shape[-1]
    for epoch in (1, 2, 3, 4):
        packets_by_counts[(1,)](x, counts, packets, box, out, epoch, HALF=half, N=N, BREAK=mistake)
    ditron.barrier()
    assert out.tolist() == [sum(i < counts[p, rank] for p in range(ranks)) for i in range(N)]


@ditron.jit(pipeline="as-written")
def histogram_by_atomics(to, counts, slots, T: tl.constexpr, R: tl.constexpr, BREAK: tl.constexpr):
    """Slots of tokens by an atomic addition per token; programs share the counters."""
    pid, lane = tl.program_id(0), tl.arange(0, T)
    peer = tl.load(to + pid * T + lane)
    slot = tl.atomic_add(counts + peer, 1)  # plain
    if BREAK == "plain":
        slot = tl.load(counts + peer)  # plain
        tl.store(counts + peer, slot + 1)
    tl.store(slots + peer * R + slot, pid * T + lane)


@pattern(histogram_by_atomics, {"plain": "unordered"}, PATTERNS)
def run_histogram_by_atomics(mistake: str) -> None:
    ditron.init()
    to = torch.cat([routing(0, 4), routing(1, 4)])
    counts, slots = torch.zeros(4, dtype=torch.int32), torch.full((4, 16), -1, dtype=torch.int32)
    histogram_by_atomics[(2,)](to, counts, slots, T=TOKENS, R=16, BREAK=mistake)
    assert counts.tolist() == [(to == p).sum() for p in range(4)]
    assert sorted(i for i in slots.flatten().tolist() if i >= 0) == list(range(2 * TOKENS))
