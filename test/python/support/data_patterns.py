"""Protocols whose control, addresses or counts are data: right, and with one mistake each (see check_patterns.py)."""

from __future__ import annotations

import torch
import triton.language as tl
from check_patterns import Pattern, pattern

import ditron
import ditron.language as dl

N = 16
PATTERNS: dict[str, Pattern] = {}


def _box(*shape: int) -> torch.Tensor:
    return ditron.symm_empty(*shape, dtype=torch.float32, name="box")


def _flags(*shape: int, dtype: torch.dtype = torch.int64, name: str = "flags") -> torch.Tensor:
    return ditron.symm_zeros(*shape, dtype=dtype, name=name)


def send_counts(ranks: int) -> torch.Tensor:
    """How many rows each rank sends to each: 0 to 3, and not symmetric."""
    return torch.tensor([[(3 * r + 2 * p + 1) % 4 for p in range(ranks)] for r in range(ranks)], dtype=torch.int32)


@ditron.jit(pipeline="as-written", do_not_specialize=["epoch"])
def peer_from_a_table(x, box, flags, peers, out, epoch, N: tl.constexpr, BREAK: tl.constexpr):
    """Whom to send to, and who takes, is read from a table."""
    at = tl.arange(0, N)
    rank, ranks = dl.rank(), dl.num_ranks()
    to = tl.load(peers + rank)
    if BREAK == "wrong-peer":
        to = tl.load(peers + (rank + 1) % ranks)
    tl.store(dl.symm_at(box, to) + at, tl.load(x + at))  # no-wait
    dl.notify(flags, to, epoch)  # wrong-peer no-wait
    source = box
    if BREAK != "no-wait":
        source = dl.consume_token(box, dl.wait(flags, 1, epoch))
    tl.store(out + at, tl.load(source + at))  # no-wait
    dl.barrier_all()


@pattern(peer_from_a_table, {"no-wait": "unordered"}, PATTERNS)
def run_peer_from_a_table(mistake: str) -> None:
    ditron.init()
    rank, ranks = ditron.rank(), ditron.num_ranks()
    x, out = torch.full((N,), float(rank)), torch.empty(N)
    peers = torch.tensor([(r + 1) % ranks for r in range(ranks)], dtype=torch.int32)
    box, flags = _box(N), _flags(1)
    for epoch in (1, 2, 3):
        peer_from_a_table[(1,)](x, box, flags, peers, out, epoch, N=N, BREAK=mistake)
    ditron.barrier()
    assert (out == (rank + ranks - 1) % ranks).all()


@ditron.jit(pipeline="as-written", do_not_specialize=["epoch"])
def put_of_counted_bytes(x, box, flags, counts, out, epoch, N: tl.constexpr, BREAK: tl.constexpr):
    """How many bytes are put is loaded; the receiver knows as well."""
    rank, ranks, at = dl.rank(), dl.num_ranks(), tl.arange(0, N)
    for peer in range(ranks):
        rows = tl.load(counts + rank * ranks + peer)
        to = box + rank * 4 * N
        if BREAK == "split":
            dl.putmem_nbi(to, x, rows * N * 4, peer)  # split
            dl.signal_op(flags + rank, epoch, peer)  # split
        else:
            dl.putmem_signal(to, x, rows * N * 4, flags + rank, epoch, peer)
    for peer in range(ranks):
        here = dl.consume_token(box, dl.wait(flags + peer, 1, epoch))  # split
        rows = tl.load(counts + peer * ranks + rank)
        if BREAK == "one-more":
            rows += 1
        for row in range(rows):
            data = tl.load(here + (peer * 4 + row) * N + at)  # split one-more
            tl.store(out + (peer * 4 + row) * N + at, data)
    dl.barrier_all()


@pattern(put_of_counted_bytes, {"split": "unpublished", "one-more": "unwritten"}, PATTERNS)
def run_put_of_counted_bytes(mistake: str) -> None:
    ditron.init()
    rank, ranks = ditron.rank(), ditron.num_ranks()
    counts = send_counts(ranks)
    x, out = torch.full((4, N), rank + 1.0), torch.zeros(ranks, 4, N)
    box, flags = _box(ranks, 4, N), _flags(ranks)
    for epoch in (1, 2, 3):
        put_of_counted_bytes[(1,)](x, box, flags, counts, out, epoch, N=N, BREAK=mistake)
    ditron.barrier()
    expected = torch.zeros(ranks, 4)
    for peer in range(ranks):
        expected[peer, : counts[peer, rank]] = peer + 1
    assert (out == expected[:, :, None]).all()


@ditron.jit(pipeline="as-written")
def seen_twice(x, box, count, out, N: tl.constexpr, BREAK: tl.constexpr):
    """A counter that is at 2 already is looked at for 1, then for 2."""
    rank, last, at = dl.rank(), dl.num_ranks() - 1, tl.arange(0, N)
    if rank == 0:
        for part in tl.static_range(2):
            tl.store(dl.symm_at(box, last) + part * N + at, tl.load(x + at))  # one-less relaxed
            dl.notify(count, last, 1, op="add")  # one-less relaxed
    if rank == last:
        for part in tl.static_range(2):
            if BREAK == "one-less":
                while dl.ld(count, scope="node", semantic="acquire") < part:  # one-less
                    pass
            elif BREAK == "relaxed":
                while dl.ld(count, scope="node") <= part:  # relaxed
                    pass
            else:
                while dl.ld(count, scope="node", semantic="acquire") <= part:
                    pass
            tl.store(out + part * N + at, tl.load(box + part * N + at))  # one-less relaxed


@pattern(seen_twice, {"one-less": "too-early", "relaxed": "semantic"}, PATTERNS)
def run_seen_twice(mistake: str) -> None:
    ditron.init()
    x, out = torch.ones(N), torch.ones(2, N)
    seen_twice[(1,)](x, _box(2, N), _flags(1, name="count"), out, N=N, BREAK=mistake)
    ditron.barrier()
    assert (out == 1).all()


@ditron.jit(pipeline="as-written")
def poll_by_an_atomic(x, box, count, out, N: tl.constexpr, BREAK: tl.constexpr):
    """An addition of 0 polls."""
    rank, ranks, at = dl.rank(), dl.num_ranks(), tl.arange(0, N)
    right = (rank + 1) % ranks
    tl.store(dl.symm_at(box, right) + at, tl.load(x + at))  # relaxed
    if BREAK != "not-sent":
        tl.atomic_add(dl.symm_at(count, right), 1, sem="release", scope="sys")  # relaxed
    if BREAK == "relaxed":
        while tl.atomic_add(count, 0, sem="relaxed", scope="sys") < 1:  # relaxed
            pass
    else:
        while tl.atomic_add(count, 0, scope="sys") < 1:  # not-sent
            pass
    tl.store(out + at, tl.load(box + at))  # relaxed


@pattern(poll_by_an_atomic, {"relaxed": "semantic", "not-sent": "never-signalled"}, PATTERNS)
def run_poll_by_an_atomic(mistake: str) -> None:
    ditron.init()
    x, out = torch.ones(N), torch.zeros(N)
    poll_by_an_atomic[(1,)](x, _box(N), _flags(1, dtype=torch.int32, name="count"), out, N=N, BREAK=mistake)
    ditron.barrier()
    assert (out == 1).all()


@ditron.jit(pipeline="as-written")
def last_arriver(x, parts, count, out, P: tl.constexpr, N: tl.constexpr, BREAK: tl.constexpr):
    """Split-K: whichever program comes last adds up, and clears the counter for the next launch."""
    part, at = tl.program_id(0), tl.arange(0, N)
    tl.store(parts + part * N + at, tl.load(x + at) + part)  # relaxed early
    if BREAK == "relaxed":
        before = tl.atomic_add(count, 1, sem="relaxed")  # relaxed
    else:
        before = tl.atomic_add(count, 1)  # early
    last = P - 1
    if BREAK == "early":
        last = P - 2
    if before == last:
        total = tl.zeros((N,), tl.float32)
        for other in range(P):
            total += tl.load(parts + other * N + at)  # relaxed early
        tl.store(out + at, total)
        if BREAK != "no-reset":
            tl.store(count, 0)


@pattern(last_arriver, {"relaxed": "unordered", "early": "unordered"}, PATTERNS)
def run_last_arriver(mistake: str) -> None:
    ditron.init()
    x, parts, out = torch.ones(N), torch.empty(4, N), torch.empty(N)
    count = torch.zeros(1, dtype=torch.int32)
    for _ in range(2):
        out.zero_()
        last_arriver[(4,)](x, parts, count, out, P=4, N=N, BREAK=mistake)
    assert (out == 10).all()


@ditron.jit(pipeline="as-written")
def ticket_queue(x, queue, done, out, TASKS: tl.constexpr, N: tl.constexpr, BREAK: tl.constexpr):
    """Programs draw tickets; each task needs the one before it."""
    at = tl.arange(0, N)
    ticket = tl.atomic_add(queue, 1)
    while ticket < TASKS:
        total = tl.load(x + ticket * N + at)
        if ticket > 0:
            if BREAK != "no-wait":
                if BREAK == "other":
                    while dl.ld(done + ticket, semantic="acquire") < 1:  # other
                        pass
                else:
                    while dl.ld(done + ticket - 1, semantic="acquire") < 1:  # relaxed
                        pass
            total += tl.load(out + (ticket - 1) * N + at)  # no-wait relaxed
        tl.store(out + ticket * N + at, total)  # no-wait relaxed
        if BREAK == "relaxed":
            dl.st(done + ticket, 1)  # relaxed
        else:
            dl.st(done + ticket, 1, semantic="release")  # no-wait other
        ticket = tl.atomic_add(queue, 1)


@pattern(ticket_queue, {"no-wait": "unordered", "relaxed": "semantic", "other": "never-signalled"}, PATTERNS)
def run_ticket_queue(mistake: str) -> None:
    ditron.init()
    tasks = 7
    x, out = torch.ones(tasks, N), torch.empty(tasks, N)
    queue, done = torch.zeros(1, dtype=torch.int32), torch.zeros(tasks, dtype=torch.int32)
    ticket_queue[(3,)](x, queue, done, out, TASKS=tasks, N=N, BREAK=mistake)
    assert (out[:, 0] == torch.arange(1, tasks + 1)).all()


@ditron.jit(pipeline="as-written", do_not_specialize=["epoch"])
def table_of_addresses(x, boxes, flags, out, epoch, N: tl.constexpr, BREAK: tl.constexpr):
    """Peers' buffers by a table of their addresses, as libraries of symmetric memory give it."""
    rank, ranks, at = dl.rank(), dl.num_ranks(), tl.arange(0, N)
    for peer in range(ranks):
        box = tl.load(boxes + peer).to(tl.pointer_type(tl.float32))
        tl.store(box + rank * N + at, tl.load(x + at))  # no-wait
        dl.notify(flags + rank, peer, epoch)  # no-wait
    mine = tl.load(boxes + rank)
    if BREAK != "no-wait":
        mine = dl.consume_token(mine, dl.wait(flags, ranks, epoch))
    total = tl.zeros((N,), tl.float32)
    for peer in range(ranks):
        total += tl.load(mine.to(tl.pointer_type(tl.float32)) + peer * N + at)  # no-wait
    tl.store(out + at, total)
    dl.barrier_all()


@pattern(table_of_addresses, {"no-wait": "unordered"}, PATTERNS)
def run_table_of_addresses(mistake: str) -> None:
    ditron.init()
    ranks = ditron.num_ranks()
    x, out = torch.ones(N), torch.empty(N)
    box, flags = _box(ranks, N), _flags(ranks)
    boxes = torch.tensor(ditron.all_gather_object(box.data_ptr()))
    for epoch in (1, 2, 3):
        table_of_addresses[(1,)](x, boxes, flags, out, epoch, N=N, BREAK=mistake)
    ditron.barrier()
    assert (out == ranks).all()
