"""Flags that are reset, epochs that the device counts, and data that is its own flag (see check_patterns.py)."""

from __future__ import annotations

import torch
import triton.language as tl
from check_patterns import Pattern, pattern

import ditron
import ditron.language as dl

N = 16
PATTERNS: dict[str, Pattern] = {}


def _box(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return ditron.symm_empty(*shape, dtype=dtype, name="box")


def _flags(*shape: int, dtype: torch.dtype = torch.int64, name: str = "flags") -> torch.Tensor:
    return ditron.symm_zeros(*shape, dtype=dtype, name=name)


@ditron.jit(pipeline="as-written")
def epoch_on_the_device(x, box, flags, calls, out, N: tl.constexpr, BREAK: tl.constexpr):
    """The kernel counts its calls in a tensor of its own."""
    rank, ranks, at = dl.rank(), dl.num_ranks(), tl.arange(0, N)
    epoch = tl.load(calls) + 1
    half = box + (epoch % 2) * ranks * N
    if BREAK == "one-half":
        half = box
    for peer in range(ranks):
        tl.store(dl.symm_at(half, peer) + rank * N + at, tl.load(x + at))  # not-counted one-half
        dl.notify(flags + rank, peer, epoch)  # not-counted
    source = dl.consume_token(half, dl.wait(flags, ranks, epoch))  # not-counted
    total = tl.zeros((N,), tl.float32)
    for peer in range(ranks):
        total += tl.load(source + peer * N + at)  # not-counted one-half
    tl.store(out + at, total)
    if BREAK != "not-counted":
        tl.store(calls, epoch)


@pattern(epoch_on_the_device, {"not-counted": "too-early", "one-half": "reuse"}, PATTERNS)
def run_epoch_on_the_device(mistake: str) -> None:
    ditron.init()
    ranks = ditron.num_ranks()
    x, out, calls = torch.ones(N), torch.empty(N), torch.zeros(1, dtype=torch.int64)
    box, flags = _box(2, ranks, N), _flags(ranks)
    for _ in range(4):
        epoch_on_the_device[(1,)](x, box, flags, calls, out, N=N, BREAK=mistake)
    ditron.barrier()
    assert (out == ranks).all()


@ditron.jit(pipeline="as-written")
def flags_reset_by_the_host(x, box, flags, out, N: tl.constexpr, BREAK: tl.constexpr):
    """The usual idiom of libraries with 32-bit flags: set to 1, and zeroed between two barriers of the host."""
    rank, ranks, at = dl.rank(), dl.num_ranks(), tl.arange(0, N)
    for peer in range(ranks):
        tl.store(dl.symm_at(box, peer) + rank * N + at, tl.load(x + at))  # no-reset relaxed
        if BREAK == "relaxed":
            dl.st(dl.symm_at(flags, peer) + rank, 1, scope="node")  # relaxed
        else:
            dl.st(dl.symm_at(flags, peer) + rank, 1, scope="node", semantic="release")  # no-reset late-reset
    for peer in range(ranks):
        while dl.ld(flags + peer, scope="node", semantic="acquire") != 1:  # relaxed no-reset late-reset
            pass
    total = tl.zeros((N,), tl.float32)
    for peer in range(ranks):
        total += tl.load(box + peer * N + at)  # no-reset relaxed
    tl.store(out + at, total)


@pattern(
    flags_reset_by_the_host,
    {"relaxed": "semantic", "no-reset": "too-early", "late-reset": "overtaken"},
    PATTERNS,
)
def run_flags_reset_by_the_host(mistake: str) -> None:
    ditron.init()
    ranks = ditron.num_ranks()
    x, out = torch.ones(N), torch.empty(N)
    box, flags = _box(ranks, N), _flags(ranks, dtype=torch.int32)
    for _ in range(3):
        flags_reset_by_the_host[(1,)](x, box, flags, out, N=N, BREAK=mistake)
        ditron.barrier()
        if mistake != "no-reset":
            flags.zero_()  # late-reset
        if mistake != "late-reset":
            ditron.barrier()
    ditron.barrier()
    assert (out == ranks).all()


@ditron.jit(pipeline="as-written")
def sense_reversal(x, parts, count, sense, out, P: tl.constexpr, N: tl.constexpr, BREAK: tl.constexpr):
    """A barrier of a launch's programs: the last to arrive resets the counter and turns the sense."""
    pid, at = tl.program_id(0), tl.arange(0, N)
    total = tl.zeros((N,), tl.float32)
    for k in tl.static_range(4):
        tl.store(parts + pid * N + at, tl.load(x + at) + k)  # not-waited once
        for half in tl.static_range(2):
            want = 1 - half
            if half == 0 or BREAK != "once":
                before = tl.atomic_add(count, 1)  # not-waited
                if before == P - 1:
                    if BREAK == "turned-first":
                        dl.st(sense, want, semantic="release")  # turned-first
                    dl.st(count, 0)
                    if BREAK != "turned-first":
                        dl.st(sense, want, semantic="release")
                elif BREAK != "not-waited":
                    while dl.ld(sense, semantic="acquire") != want:  # turned-first
                        pass
            if half == 0:
                for other in range(P):
                    total += tl.load(parts + other * N + at)  # not-waited once
    tl.store(out + pid * N + at, total)


@pattern(sense_reversal, {"not-waited": "unordered", "once": "reuse", "turned-first": "overtaken"}, PATTERNS)
def run_sense_reversal(mistake: str) -> None:
    ditron.init()
    x, parts, out = torch.ones(N), torch.empty(3, N), torch.empty(3, N)
    count, sense = torch.zeros(1, dtype=torch.int32), torch.zeros(1, dtype=torch.int32)
    sense_reversal[(3,)](x, parts, count, sense, out, P=3, N=N, BREAK=mistake)
    assert (out == 3 * (1 + 2 + 3 + 4)).all()


@ditron.jit(pipeline="as-written")
def flag_in_zeros(x, box, flag, out, N: tl.constexpr, BREAK: tl.constexpr):
    """One program tells the other by a flag in memory of torch, which is polled by acquire loads."""
    pid, at = tl.program_id(0), tl.arange(0, N)
    if pid == 0:
        tl.store(box + at, tl.load(x + at))  # relaxed
        if BREAK == "relaxed":
            dl.st(flag, 1)  # relaxed
        else:
            dl.st(flag, 1, semantic="release")  # other
    else:
        if BREAK == "other":
            while dl.ld(flag + 1, semantic="acquire") != 1:  # other
                pass
        else:
            while dl.ld(flag, semantic="acquire") != 1:  # relaxed
                pass
        tl.store(out + at, tl.load(box + at))  # relaxed


@pattern(flag_in_zeros, {"relaxed": "semantic", "other": "never-signalled"}, PATTERNS)
def run_flag_in_zeros(mistake: str) -> None:
    ditron.init()
    x, box, out = torch.ones(N), torch.empty(N), torch.zeros(N)
    flag_in_zeros[(2,)](x, box, torch.zeros(2, dtype=torch.int32), out, N=N, BREAK=mistake)
    assert (out == 1).all()


@ditron.jit(pipeline="as-written", do_not_specialize=["epoch"])
def lamport(x, box, out, epoch, N: tl.constexpr, SLOTS: tl.constexpr, EMPTY: tl.constexpr, BREAK: tl.constexpr):
    """An all-reduce whose data is its own flag: what is still EMPTY has not come. Of the slots, one is used, and the
    one that was used in the call before is emptied."""
    rank, ranks, at = dl.rank(), dl.num_ranks(), tl.arange(0, N)
    now, last = box + (epoch % SLOTS) * ranks * N, box + ((epoch + SLOTS - 1) % SLOTS) * ranks * N
    value = tl.load(x + at)
    if BREAK != "not-emptied":
        for peer in range(ranks):
            dl.st(last + peer * N + at, tl.full((N,), EMPTY, tl.int32), scope="node")
    for peer in range(ranks):
        dl.st(dl.symm_at(now, peer) + rank * N + at, value, scope="node")  # no-poll not-emptied
    total = tl.zeros((N,), tl.int32)
    for peer in range(ranks):
        got = dl.ld(now + peer * N + at, scope="node")  # no-poll not-emptied
        if BREAK != "no-poll":
            while tl.min(got) == EMPTY:
                got = dl.ld(now + peer * N + at, scope="node")
        total += got
    tl.store(out + at, total)


@pattern(lamport, {"no-poll": "unordered", "not-emptied": "too-early"}, PATTERNS)
def run_lamport(mistake: str) -> None:
    ditron.init()
    ranks, empty, calls = ditron.num_ranks(), -(2**31), 5
    x, out = torch.arange(calls * N, dtype=torch.int32).reshape(calls, N), torch.empty(calls, N, dtype=torch.int32)
    box = _box(3, ranks, N, dtype=torch.int32)
    box.fill_(empty)
    ditron.barrier()
    for call in range(calls):
        lamport[(1,)](x[call], box, out[call], call + 1, N=N, SLOTS=3, EMPTY=empty, BREAK=mistake)
    ditron.barrier()
    assert (out == ranks * x).all()


@ditron.jit(pipeline="as-written", do_not_specialize=["epoch"])
def sums_cleared_ahead(x, sums, flags, out, epoch, N: tl.constexpr, BREAK: tl.constexpr):
    """Every rank adds to everybody's sum; that of the next call is cleared before a barrier."""
    ranks, at = dl.num_ranks(), tl.arange(0, N)
    now, next_ = sums + (epoch % 2) * N, sums + ((epoch + 1) % 2) * N
    if BREAK == "":
        tl.store(next_ + at, tl.zeros((N,), tl.float32))
        dl.barrier_all()
    for peer in range(ranks):
        dl.red(dl.symm_at(now, peer) + at, tl.load(x + at), scope="node")  # late
        dl.notify(flags, peer, 1, op="add")  # late
    token = dl.wait(flags, 1, epoch * ranks)  # late
    tl.store(out + at, tl.load(dl.consume_token(now, token) + at))  # late
    if BREAK == "late":
        tl.store(now + at, tl.zeros((N,), tl.float32))


@pattern(sums_cleared_ahead, {"late": "too-early"}, PATTERNS)
def run_sums_cleared_ahead(mistake: str) -> None:
    ditron.init()
    x, out = torch.ones(N), torch.empty(N)
    sums, flags = ditron.symm_zeros(2, N, dtype=torch.float32, name="sums"), _flags(1)
    for epoch in range(1, 5):
        sums_cleared_ahead[(1,)](x, sums, flags, out, epoch, N=N, BREAK=mistake)
    ditron.barrier()
    assert (out == ditron.num_ranks()).all()
