"""Protocols that people write by hand: right, and with one mistake each, whose lines are marked by its name.

``BREAK`` says which mistake a kernel makes; a kernel that makes none is right for any number of ranks.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass

import torch
import triton.language as tl

import ditron
import ditron.language as dl

N = 16


@dataclass(frozen=True)
class Pattern:
    """A kernel, ``run(break)`` that launches it on each rank, and its mistakes: the kind of the first finding."""

    kernel: object
    run: Callable[[str], None]
    mistakes: dict[str, str]

    def lines(self, mistake: str) -> set[int]:
        """The lines that a finding must name."""
        return {
            first + at
            for source, first in map(inspect.getsourcelines, (self.kernel.fn, self.run))
            for at, line in enumerate(source)
            if mistake in line.partition("#")[2].split()
        }


PATTERNS: dict[str, Pattern] = {}


def pattern(kernel: object, mistakes: dict[str, str], patterns: dict[str, Pattern] = PATTERNS) -> Callable:
    def add(run: Callable[[str], None]) -> Callable:
        patterns[kernel.fn.__name__] = Pattern(kernel, run, mistakes)
        return run

    return add


def _flags(count: int) -> torch.Tensor:
    return ditron.symm_zeros(count, dtype=torch.int64, name="flags")


def _box(*shape: int) -> torch.Tensor:
    return ditron.symm_empty(*shape, dtype=torch.float32, name="box")


@ditron.jit(pipeline="as-written", do_not_specialize=["epoch"])
def counted_barrier(x, box, count, out, epoch, N: tl.constexpr, BREAK: tl.constexpr):
    """Everybody adds to everybody's counter and waits for all: which rank's second addition ends whose first wait?"""
    rank, ranks, at = dl.rank(), dl.num_ranks(), tl.arange(0, N)
    for peer in range(ranks):
        if BREAK == "puts":
            dl.putmem_nbi(box + rank * N, x, N * 4, peer)  # puts
        else:
            tl.store(dl.symm_at(box, peer) + rank * N + at, tl.load(x + at))  # one-less reuse
    for peer in range(ranks):
        dl.notify(count, peer, 1, op="add")  # one-less puts
    value = epoch * 2 - 1
    if BREAK == "reuse":
        value = epoch
    if BREAK == "one-less":
        dl.wait(count, 1, value * ranks - 1)  # one-less
    else:
        dl.wait(count, 1, value * ranks)  # puts
    total = tl.zeros((N,), tl.float32)
    for peer in range(ranks):
        total += tl.load(box + peer * N + at)  # one-less puts reuse
    tl.store(out + at, total)
    if BREAK != "reuse":
        for peer in range(ranks):
            dl.notify(count, peer, 1, op="add")  # one-less puts
        dl.wait(count, 1, epoch * 2 * ranks)


@pattern(counted_barrier, {"one-less": "too-early", "puts": "too-early", "reuse": "reuse"})
def run_counted_barrier(mistake: str) -> None:
    ditron.init()
    x, out = torch.ones(N), torch.empty(N)
    box, count = _box(ditron.num_ranks(), N), _flags(1)
    for epoch in (1, 2, 3):
        counted_barrier[(1,)](x, box, count, out, epoch, N=N, BREAK=mistake)
    ditron.barrier()
    assert (out == ditron.num_ranks()).all()


@ditron.jit(pipeline="as-written")
def master_barrier(x, box, flags, out, ROUNDS: tl.constexpr, N: tl.constexpr, BREAK: tl.constexpr):
    """One rank waits for all and tells all: a load through the last wait's token is behind the waits before, too."""
    rank, ranks, at = dl.rank(), dl.num_ranks(), tl.arange(0, N)
    for k in range(ROUNDS):
        half = (k % 2) * ranks * N
        for peer in range(ranks):
            tl.store(dl.symm_at(box, peer) + half + rank * N + at, tl.load(x + at))  # token no-answer
        dl.notify(flags, 0, 1, op="add")  # no-answer
        if rank == 0:
            dl.wait(flags, 1, (k + 1) * ranks)  # token no-answer
            for peer in range(ranks):
                dl.notify(flags + 1, peer, k + 1)
        if BREAK != "no-answer":
            token = dl.wait(flags + 1, 1, k + 1)
        total = tl.zeros((N,), tl.float32)
        for peer in range(ranks):
            here = box + half + peer * N
            if BREAK == "":
                here = dl.consume_token(here, token)
            total += tl.load(here + at)  # token no-answer
        tl.store(out + at, total)


@pattern(master_barrier, {"token": "token", "no-answer": "too-early"})
def run_master_barrier(mistake: str) -> None:
    ditron.init()
    x, out = torch.ones(N), torch.empty(N)
    box, flags = _box(2, ditron.num_ranks(), N), _flags(2)
    master_barrier[(1,)](x, box, flags, out, ROUNDS=4, N=N, BREAK=mistake)
    ditron.barrier()
    assert (out == ditron.num_ranks()).all()


@ditron.jit(pipeline="as-written", do_not_specialize=["epoch"])
def two_shots(x, box, flags, out, epoch, N: tl.constexpr, BREAK: tl.constexpr):
    """An all-reduce: each rank adds up its part and sends the sum to all."""
    rank, ranks, at = dl.rank(), dl.num_ranks(), tl.arange(0, N)
    parts, sums = box, box + ranks * N
    for peer in range(ranks):
        tl.store(dl.symm_at(parts, peer) + rank * N + at, tl.load(x + peer * N + at))
        dl.notify(flags + rank, peer, epoch)  # same-signal
    here = dl.consume_token(parts, dl.wait(flags, ranks, epoch))
    total = tl.zeros((N,), tl.float32)
    for peer in range(ranks):
        total += tl.load(here + peer * N + at)
    done = flags + ranks
    if BREAK == "same-signal":
        done = flags
    for peer in range(ranks):
        tl.store(dl.symm_at(sums, peer) + rank * N + at, total)  # own-only same-signal
        dl.notify(done + rank, peer, epoch)  # own-only same-signal
    if BREAK == "own-only":
        token = dl.wait(done + rank, 1, epoch)  # own-only
    else:
        token = dl.wait(done, ranks, epoch)  # same-signal
    for peer in range(ranks):
        place = dl.consume_token(sums, token) + peer * N
        tl.store(out + peer * N + at, tl.load(place + at))  # own-only same-signal
    dl.quiet()


@pattern(two_shots, {"own-only": "unordered", "same-signal": "shared"})
def run_two_shots(mistake: str) -> None:
    ditron.init()
    ranks = ditron.num_ranks()
    x, out = torch.ones(ranks, N), torch.empty(ranks, N)
    box, flags = _box(2, ranks, N), _flags(2 * ranks)
    for epoch in (1, 2, 3):
        two_shots[(1,)](x, box, flags, out, epoch, N=N, BREAK=mistake)
    ditron.barrier()
    assert (out == ranks).all()


@ditron.jit(pipeline="as-written", do_not_specialize=["epoch"])
def chunked_ring(x, table, flags, out, epoch, CHUNKS: tl.constexpr, N: tl.constexpr, BREAK: tl.constexpr):
    """An all-gather round the ring in chunks, each with a signal of its own."""
    rank, ranks, at = dl.rank(), dl.num_ranks(), tl.arange(0, N)
    here = table + (epoch % 2) * ranks * CHUNKS * N
    for chunk in range(CHUNKS):
        tl.store(here + (rank * CHUNKS + chunk) * N + at, tl.load(x + chunk * N + at))
    for step in range(ranks - 1):
        mine, next_ = (rank + ranks - step) % ranks, (rank + ranks - step - 1) % ranks
        for chunk in range(CHUNKS):
            place = here + (mine * CHUNKS + chunk) * N
            signal = flags + mine * CHUNKS + chunk
            dl.putmem_signal_nbi(place, place, N * 4, signal, epoch, (rank + 1) % ranks)  # first-only
        for chunk in range(CHUNKS):
            signal = flags + next_ * CHUNKS
            if BREAK == "":
                signal += chunk
            place = dl.consume_token(here, dl.wait(signal, 1, epoch)) + (next_ * CHUNKS + chunk) * N  # first-only
            tl.store(out + (next_ * CHUNKS + chunk) * N + at, tl.load(place + at))  # first-only
    dl.quiet()
    dl.barrier_all()


@pattern(chunked_ring, {"first-only": "unordered"})
def run_chunked_ring(mistake: str) -> None:
    ditron.init()
    ranks = ditron.num_ranks()
    x, out = torch.ones(3, N), torch.ones(ranks, 3, N)
    table, flags = _box(2, ranks, 3, N), _flags(3 * ranks)
    for epoch in (1, 2, 3):
        chunked_ring[(1,)](x, table, flags, out, epoch, CHUNKS=3, N=N, BREAK=mistake)
    ditron.barrier()
    assert (out == 1).all()


@ditron.jit(pipeline="as-written")
def bounded_queue(x, slots, flags, out, COUNT: tl.constexpr, DEPTH: tl.constexpr, N: tl.constexpr, BREAK: tl.constexpr):
    """Rank 0 sends to the last rank by way of a few slots; what has been taken comes back as a credit."""
    rank, last, at = dl.rank(), dl.num_ranks() - 1, tl.arange(0, N)
    if rank == 0:
        for k in range(COUNT):
            if BREAK == "credit":
                dl.wait(flags + 1, 1, k - DEPTH)
            else:
                dl.wait(flags + 1, 1, k - DEPTH + 1)
            slot = dl.symm_at(slots, last) + (k % DEPTH) * N
            tl.store(slot + at, tl.load(x + at) + k)  # credit answered-first
            dl.notify(flags, last, k + 1)
    if rank == last:
        for k in range(COUNT):
            token = dl.wait(flags, 1, k + 1)
            if BREAK == "answered-first":
                dl.notify(flags + 1, 0, k + 1)
            value = tl.load(dl.consume_token(slots, token) + (k % DEPTH) * N + at)  # credit answered-first
            tl.store(out + k * N + at, value)
            if BREAK != "answered-first":
                dl.notify(flags + 1, 0, k + 1)
    dl.quiet()


@pattern(bounded_queue, {"credit": "reuse", "answered-first": "reuse"})
def run_bounded_queue(mistake: str) -> None:
    ditron.init()
    x, out = torch.ones(N), torch.ones(7, N)
    bounded_queue[(1,)](x, _box(3, N), _flags(2), out, COUNT=7, DEPTH=3, N=N, BREAK=mistake)
    ditron.barrier()
    if ditron.rank() == ditron.num_ranks() - 1:
        assert (out[:, 0] == torch.arange(1, 8)).all()


@ditron.jit(pipeline="as-written", do_not_specialize=["epoch"])
def two_ways(x, box, flags, out, epoch, N: tl.constexpr, BREAK: tl.constexpr):
    """To the right and to the left at a time; of 2 ranks one is both, and the first wait is for the other way, too."""
    rank, ranks, at = dl.rank(), dl.num_ranks(), tl.arange(0, N)
    right, left = (rank + 1) % ranks, (rank + ranks - 1) % ranks
    from_left, from_right, again = flags, flags + 1, flags + 2
    dl.wait(again, 2, epoch - 1)
    for half in range(2):
        tl.store(dl.symm_at(box, right) + half * N + at, tl.load(x + at))
        tl.store(dl.symm_at(box, left) + (2 + half) * N + at, tl.load(x + at))  # crossed
    dl.notify(from_left, right, epoch)
    token = dl.wait(from_left, 1, epoch)  # crossed
    dl.notify(from_right, left, epoch)  # crossed
    here = dl.consume_token(box, token)
    for half in range(2):
        tl.store(out + half * N + at, tl.load(here + half * N + at))
    if BREAK == "":
        here = dl.consume_token(box, dl.wait(from_right, 1, epoch))
    for half in range(2):
        tl.store(out + half * N + at, tl.load(here + (2 + half) * N + at))  # crossed
    dl.notify(again, left, epoch)
    dl.notify(again + 1, right, epoch)
    dl.quiet()


@pattern(two_ways, {"crossed": "unordered"})
def run_two_ways(mistake: str) -> None:
    ditron.init()
    x, out = torch.ones(N), torch.empty(2, N)
    box, flags = _box(4, N), _flags(4)
    for epoch in (1, 2, 3):
        two_ways[(1,)](x, box, flags, out, epoch, N=N, BREAK=mistake)
    ditron.barrier()
    assert (out == 1).all()
