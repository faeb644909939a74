"""Kernels that are wrong, each in one way, with what the simulator has to say about it.

A kernel gets `data` [4, N] fp32 and `flags` [8] i64 in symmetric memory, `out` [4, N] fp32 of its own, and the number
of the call. The lines that a report must name, and may name, end in `# <-`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import triton.language as tl

import ditron
import ditron.language as dl

N = 32
CASES: dict[str, Case] = {}


@dataclass(frozen=True)
class Case:
    """`kind` and, when it is not enough, `says`: part of the message."""

    name: str
    kernel: Any
    kind: str
    lines: frozenset[int]
    says: str = ""
    ranks: int = 2
    calls: int = 1
    grid: int = 1
    resident: int = 132
    ranks_per_node: int | None = None
    host: Callable | None = None

    def main(self) -> None:
        """What a rank runs."""
        ditron.init()
        data = ditron.symm_empty(4, N, dtype=torch.float32, name="data")
        if self.kind != "unwritten":
            data.zero_()
        flags = ditron.symm_zeros(8, dtype=torch.int64, name="flags")
        out = torch.zeros(4, N)
        if self.host is not None:
            self.host(self.kernel, data, flags, out)
            return
        for epoch in range(1, self.calls + 1):
            self.kernel[(self.grid,)](data, flags, out, epoch, N=N)


def marked(function: Callable) -> set[int]:
    """The numbers of its marked lines."""
    source, first = inspect.getsourcelines(function)
    return {first + i for i, text in enumerate(source) if text.rstrip().endswith("# <-")}


def broken(kind: str, **facts: Any) -> Callable:
    """Put a kernel, or the host function of the kernel above it, in the catalogue."""

    def add(made: Any) -> Any:
        kernel, host = (made, None) if hasattr(made, "fn") else (facts.pop("kernel"), made)
        lines = marked(kernel.fn) | (marked(host) if host else set())
        name = (host or kernel).__name__
        assert lines, f"{name} marks no line"
        CASES[name] = Case(name, kernel, kind, frozenset(lines), host=host, **facts)
        return made

    return add


def location_lines(error: Any) -> list[int]:
    """Line numbers in this file that a report names, the first access first."""
    places = [error.location, *error.others]
    return [int(place.split(":")[1]) for place in places if place and Path(place.split(":")[0]) == Path(__file__)]


# --- data and its signal ----------------------------------------------------------------------------------------------


@broken("race", says="data[0, 0]")
@ditron.jit
def missing_wait(data, flags, out, epoch, N: tl.constexpr):
    at = tl.arange(0, N)
    dl.putmem_signal(data, out, N * 4, flags, epoch, 1 - dl.rank())  # <-
    tl.store(out + at, tl.load(data + at))  # <-


@broken("race")
@ditron.jit
def data_after_its_flag(data, flags, out, epoch, N: tl.constexpr):
    at = tl.arange(0, N)
    peer = 1 - dl.rank()
    dl.notify(flags, peer, epoch)
    tl.store(dl.symm_at(data, peer) + at, 1.0)  # <-
    token = dl.wait(flags, 1, epoch)
    tl.store(out + at, tl.load(dl.consume_token(data, token) + at))  # <-


@broken("race")
@ditron.jit
def relaxed_flag(data, flags, out, epoch, N: tl.constexpr):
    at = tl.arange(0, N)
    peer = 1 - dl.rank()
    tl.store(dl.symm_at(data, peer) + at, 1.0)  # <-
    dl.st(dl.symm_at(flags, peer), epoch, scope="node")
    while dl.ld(flags, scope="node", semantic="acquire") < epoch:
        pass
    tl.store(out + at, tl.load(data + at))  # <-


@broken("race")
@ditron.jit
def relaxed_look_at_the_flag(data, flags, out, epoch, N: tl.constexpr):
    at = tl.arange(0, N)
    peer = 1 - dl.rank()
    tl.store(dl.symm_at(data, peer) + at, 1.0)  # <-
    dl.st(dl.symm_at(flags, peer), epoch, scope="node", semantic="release")
    while dl.ld(flags, scope="node") < epoch:
        pass
    tl.store(out + at, tl.load(data + at))  # <-


@broken("race")
@ditron.jit
def relaxed_signal_fetch(data, flags, out, epoch, N: tl.constexpr):
    at = tl.arange(0, N)
    dl.putmem_signal(data, out, N * 4, flags, epoch, 1 - dl.rank())  # <-
    while dl.signal_fetch(flags, semantic="relaxed") < epoch:
        pass
    tl.store(out + N + at, tl.load(data + at))  # <-


@broken("race")
@ditron.jit
def gpu_scope_on_a_peers_flag(data, flags, out, epoch, N: tl.constexpr):
    at = tl.arange(0, N)
    peer = 1 - dl.rank()
    tl.store(dl.symm_at(data, peer) + at, 1.0)  # <-
    dl.st(dl.symm_at(flags, peer), epoch, semantic="release")
    while dl.ld(flags, scope="node", semantic="acquire") < epoch:
        pass
    tl.store(out + at, tl.load(data + at))  # <-


@broken("race")
@ditron.jit
def wait_of_gpu_scope(data, flags, out, epoch, N: tl.constexpr):
    at = tl.arange(0, N)
    dl.putmem_signal(data, out, N * 4, flags, epoch, 1 - dl.rank())  # <-
    dl.wait(flags, 1, epoch, scope="gpu")
    tl.store(out + N + at, tl.load(data + at))  # <-


@broken("race", grid=2, ranks_per_node=1, says='by a NIC, and the signal between the two has scope="gpu"')
@ditron.jit
def gpu_scope_before_a_nic_reads(data, flags, out, epoch, N: tl.constexpr):
    """One program writes, another one puts what it has written: to a rank on another node."""
    at = tl.arange(0, N)
    if tl.program_id(0) == 0:
        tl.store(data + at, 1.0)  # <-
        dl.notify(flags, dl.rank(), epoch, scope="gpu")
    else:
        dl.wait(flags, 1, epoch)
        dl.putmem_signal(data + N, data, N * 4, flags + 1, epoch, 1 - dl.rank())  # <-
        dl.wait(flags + 1, 1, epoch)
        tl.store(out + at, tl.load(data + N + at))


@broken("race", grid=2, ranks_per_node=1, says='by a NIC, and the signal between the two has scope="gpu"')
@ditron.jit
def atomic_of_gpu_scope_before_a_nic_reads(data, flags, out, epoch, N: tl.constexpr):
    at = tl.arange(0, N)
    if tl.program_id(0) == 0:
        tl.store(data + at, 1.0)  # <-
        dl.atomic_add(flags, 1, scope="gpu", semantic="release")
    else:
        while dl.ld(flags, scope="gpu", semantic="acquire") < epoch:
            pass
        dl.putmem_nbi(data + N, data, N * 4, 1 - dl.rank())  # <-
        dl.quiet()
        dl.notify(flags + 1, 1 - dl.rank(), epoch)
        dl.wait(flags + 1, 1, epoch)
        tl.store(out + at, tl.load(data + N + at))


@broken("race")
@ditron.jit
def relaxed_wait(data, flags, out, epoch, N: tl.constexpr):
    at = tl.arange(0, N)
    dl.putmem_signal(data, out, N * 4, flags, epoch, 1 - dl.rank())  # <-
    dl.wait(flags, 1, epoch, semantic="relaxed")
    tl.store(out + N + at, tl.load(data + at))  # <-


@broken("race")
@ditron.jit
def ordinary_load_of_a_flag(data, flags, out, epoch, N: tl.constexpr):
    dl.notify(flags, 1 - dl.rank(), epoch)  # <-
    seen = tl.load(flags)  # <-
    while seen < epoch:
        seen = tl.load(flags)  # <-
    tl.store(out, seen.to(tl.float32))


@broken("race")
@ditron.jit
def no_fence_between_put_and_signal(data, flags, out, epoch, N: tl.constexpr):
    at = tl.arange(0, N)
    peer = 1 - dl.rank()
    dl.putmem(data, out, N * 4, peer)  # <-
    dl.signal_op(flags, epoch, peer)
    dl.wait(flags, 1, epoch)
    tl.store(out + N + at, tl.load(data + at))  # <-


@broken("race")
@ditron.jit
def second_put_without_a_signal(data, flags, out, epoch, N: tl.constexpr):
    at = tl.arange(0, N)
    peer = 1 - dl.rank()
    dl.putmem_signal(data, out, N * 4, flags, epoch, peer)
    dl.putmem(data + N, out, N * 4, peer)  # <-
    dl.wait(flags, 1, epoch)
    tl.store(out + N + at, tl.load(data + N + at))  # <-


@broken("race")
@ditron.jit
def sync_all_is_no_quiet(data, flags, out, epoch, N: tl.constexpr):
    at = tl.arange(0, N)
    dl.putmem(data, out, N * 4, 1 - dl.rank())  # <-
    dl.sync_all()
    tl.store(out + N + at, tl.load(data + at))  # <-


@broken("race")
@ditron.jit
def symm_at_without_acquire(data, flags, out, epoch, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(data + at, 1.0)  # <-
    tl.store(out + at, tl.load(dl.symm_at(data, 1 - dl.rank()) + at))  # <-


@broken("race", ranks=3)
@ditron.jit
def wrong_neighbour(data, flags, out, epoch, N: tl.constexpr):
    at = tl.arange(0, N)
    right = (dl.rank() + 1) % dl.num_ranks()
    left = (dl.rank() + 2) % dl.num_ranks()
    dl.putmem(data, out, N * 4, right)  # <-
    dl.notify(flags, left, epoch)
    dl.wait(flags, 1, epoch)
    tl.store(out + N + at, tl.load(data + at))  # <-


# --- counts and epochs ------------------------------------------------------------------------------------------------


@broken("race")
@ditron.jit
def count_one_too_low(data, flags, out, epoch, N: tl.constexpr):
    at = tl.arange(0, N)
    for chunk in range(2):
        dl.putmem_signal(data + chunk * N, out, N * 4, flags, 1, 1 - dl.rank(), op="add")  # <-
    dl.wait(flags, 1, 1)
    for chunk in range(2):
        tl.store(out + (2 + chunk) * N + at, tl.load(data + chunk * N + at))  # <-


@broken("deadlock", says="flags[0] >= 3 (it is 2)")
@ditron.jit
def count_one_too_high(data, flags, out, epoch, N: tl.constexpr):
    for chunk in range(2):
        dl.putmem_signal(data + chunk * N, out, N * 4, flags, 1, 1 - dl.rank(), op="add")
    dl.wait(flags, 1, 3)  # <-


@broken("race")
@ditron.jit
def wrong_signal(data, flags, out, epoch, N: tl.constexpr):
    at = tl.arange(0, N)
    for chunk in range(2):
        dl.putmem_signal(data + chunk * N, out, N * 4, flags + chunk, epoch, 1 - dl.rank())  # <-
    dl.wait(flags, 1, epoch)
    tl.store(out + N + at, tl.load(data + N + at))  # <-


@broken("race", ranks=3)
@ditron.jit
def fewer_signals_than_chunks(data, flags, out, epoch, N: tl.constexpr):
    at = tl.arange(0, N)
    rank = dl.rank()
    for peer in range(3):
        dl.putmem_signal(data + rank * N, out, N * 4, flags + rank, epoch, peer)  # <-
    dl.wait(flags, 2, epoch)
    for chunk in range(3):
        tl.store(out + N + at, tl.load(data + chunk * N + at))  # <-


@broken("race", calls=2)
@ditron.jit
def wrong_epoch(data, flags, out, epoch, N: tl.constexpr):
    at = tl.arange(0, N)
    dl.putmem_signal(data + epoch * N, out, N * 4, flags, epoch, 1 - dl.rank())  # <-
    dl.wait(flags, 1, epoch - 1)
    tl.store(out + N + at, tl.load(data + epoch * N + at))  # <-
    dl.quiet()


@broken("race", calls=4, grid=2)
@ditron.jit
def counting_without_quiet(data, flags, out, epoch, N: tl.constexpr):
    at = tl.arange(0, N)
    chunk = data + ((epoch % 2) * 2 + tl.program_id(0)) * N
    dl.putmem_signal(chunk, out, N * 4, flags, 1, 1 - dl.rank(), op="add")  # <-
    dl.wait(flags, 1, epoch * 2)
    for other in range(2):
        tl.load(data + ((epoch % 2) * 2 + other) * N + at)  # <-
        tl.store(out + (2 + tl.program_id(0)) * N + at, tl.load(data + ((epoch % 2) * 2 + other) * N + at))  # <-


@broken("deadlock", calls=6, says="flags[0] ==")
@ditron.jit
def equality_overtaken(data, flags, out, epoch, N: tl.constexpr):
    if dl.rank() == 0:
        dl.notify(flags, 1, epoch)
    else:
        dl.wait(flags, 1, epoch, cmp="eq")  # <-


@broken("race", calls=2)
@ditron.jit
def reset_race(data, flags, out, epoch, N: tl.constexpr):
    if dl.rank() == 0:
        dl.notify(flags, 1, 1)  # <-
    else:
        dl.wait(flags, 1, 1)
        tl.store(flags, 0)  # <-


@broken("signal", calls=6, says="goes backwards")
@ditron.jit
def signal_goes_backwards(data, flags, out, epoch, N: tl.constexpr):
    if dl.rank() == 0:
        dl.signal_op(flags, epoch, 1)  # <-


@broken("signal", says="wraps")
@ditron.jit
def signal_wraps(data, flags, out, epoch, N: tl.constexpr):
    for _ in range(2):
        dl.notify(flags, 1 - dl.rank(), 1 << 62, op="add")  # <-


# --- buffers that are used again --------------------------------------------------------------------------------------


@broken("race", calls=2)
@ditron.jit
def single_buffer_without_credit(data, flags, out, epoch, N: tl.constexpr):
    at = tl.arange(0, N)
    dl.putmem_signal(data, out, N * 4, flags, epoch, 1 - dl.rank())  # <-
    dl.wait(flags, 1, epoch)
    tl.store(out + N + at, tl.load(data + at))  # <-
    dl.quiet()


@broken("race", ranks=3, calls=4)
@ditron.jit
def two_buffers_by_parity_in_a_ring(data, flags, out, epoch, N: tl.constexpr):
    at = tl.arange(0, N)
    half = data + (epoch % 2) * N
    dl.putmem_signal(half, out, N * 4, flags, epoch, (dl.rank() + 1) % 3)  # <-
    dl.wait(flags, 1, epoch)
    tl.store(out + N + at, tl.load(half + at))  # <-
    dl.quiet()


@broken("race")
@ditron.jit
def source_used_again_too_soon(data, flags, out, epoch, N: tl.constexpr):
    at = tl.arange(0, N)
    dl.putmem_nbi(data, out, N * 4, 1 - dl.rank())  # <-
    tl.store(out + at, 1.0)  # <-


@broken("race", calls=2)
@ditron.jit
def source_used_again_by_the_next_launch(data, flags, out, epoch, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(data + at, 1.0)  # <-
    dl.putmem_nbi(data + N * epoch, data, N * 4, 1 - dl.rank())  # <-


@broken("race")
@ditron.jit
def get_used_before_quiet(data, flags, out, epoch, N: tl.constexpr):
    at = tl.arange(0, N)
    dl.getmem_nbi(out, data, N * 4, 1 - dl.rank())  # <-
    tl.store(out + N + at, tl.load(out + at))  # <-


# --- two writers ------------------------------------------------------------------------------------------------------


@broken("race", ranks=3)
@ditron.jit
def slots_overlap(data, flags, out, epoch, N: tl.constexpr):
    for peer in range(3):
        dl.putmem(data + dl.rank() * (N - 1), out, N * 4, peer)  # <-


@broken("race", grid=2, says="out[0]")
@ditron.jit
def two_programs_write_one_place(data, flags, out, epoch, N: tl.constexpr):
    tl.store(out + tl.arange(0, N), 1.0)  # <-


@broken("race")
@ditron.jit
def two_puts_without_fence(data, flags, out, epoch, N: tl.constexpr):
    dl.putmem(data, out, N * 4, 1 - dl.rank())  # <-
    dl.putmem(data, out + N, N * 4, 1 - dl.rank())  # <-


@broken("race", grid=4)
@ditron.jit
def relaxed_lock(data, flags, out, epoch, N: tl.constexpr):
    while dl.atomic_cas(flags, 0, 1) != 0:
        pass
    tl.store(out, tl.load(out) + 1.0)  # <-
    dl.st(flags, 0)


@broken("race", grid=4)
@ditron.jit
def last_program_adds_up(data, flags, out, epoch, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(out + tl.program_id(0) * N + at, 1.0)  # <-
    if tl.atomic_add(flags, 1, sem="relaxed") == 3:
        for other in range(4):
            tl.store(data + at, tl.load(out + other * N + at))  # <-


# --- memory that is not there -----------------------------------------------------------------------------------------


@broken("bounds", says="past the end of `data`, to data[4, 0]")
@ditron.jit
def one_row_too_many(data, flags, out, epoch, N: tl.constexpr):
    for row in range(5):
        tl.store(data + row * N + tl.arange(0, N), 1.0)  # <-


@broken("unwritten", says="data[0, 0]")
@ditron.jit
def nobody_wrote_it(data, flags, out, epoch, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(out + at, tl.load(data + at))  # <-


@broken("unwritten", says="data[1, 31]")
@ditron.jit
def padding_is_read(data, flags, out, epoch, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(data + N + at, 1.0, mask=at < N - 1)
    tl.store(out + at, tl.load(data + N + at, mask=at < N - 1))
    tl.store(out + at, tl.load(data + N + at))  # <-


@ditron.jit
def put_to_right(data, flags, out, epoch, N: tl.constexpr):
    dl.putmem_signal(data, out, N * 4, flags, epoch, 1 - dl.rank())  # <-


@ditron.jit
def write_there(data, flags, out, epoch, N: tl.constexpr):
    tl.store(data + tl.arange(0, N), 1.0)  # <-


@broken("race", kernel=put_to_right)
def script_reads_before_a_barrier(kernel, data, flags, out):
    kernel[(1,)](data, flags, out, 1, N=N)
    out += data  # <-


@broken("freed", kernel=write_there, says="data[0, 0], which was freed")
def used_after_it_was_freed(kernel, data, flags, out):
    ditron.symm_free(data)
    kernel[(1,)](data, flags, out, 1, N=N)


@broken("freed", kernel=write_there, says="does not hold")
def freed_twice(kernel, data, flags, out):
    ditron.symm_free(data)
    ditron.symm_free(data)  # <-


# --- waiting for ever -------------------------------------------------------------------------------------------------


@broken("deadlock", says="no program has signalled")
@ditron.jit
def missing_notify(data, flags, out, epoch, N: tl.constexpr):
    dl.putmem(data, out, N * 4, 1 - dl.rank())
    dl.wait(flags, 1, epoch)  # <-


@broken("deadlock", ranks=3, says="flags[0] of rank 2 has been signalled")
@ditron.jit
def wrong_rank(data, flags, out, epoch, N: tl.constexpr):
    if dl.rank() == 0:
        dl.notify(flags, 2, epoch)
    elif dl.rank() == 1:
        dl.wait(flags, 1, epoch)  # <-


@broken("deadlock", says="wait for each other")
@ditron.jit
def cyclic_wait(data, flags, out, epoch, N: tl.constexpr):
    dl.wait(flags, 1, epoch)  # <-
    dl.notify(flags, 1 - dl.rank(), epoch)


@broken("deadlock", grid=3, resident=2, says="slots are taken by programs that wait")
@ditron.jit
def starved_producer(data, flags, out, epoch, N: tl.constexpr):
    if tl.program_id(0) < 2:
        dl.wait(flags, 1, epoch)  # <-
    else:
        dl.notify(flags, dl.rank(), epoch)


@broken("deadlock", says="not arrived: 1")
@ditron.jit
def barrier_that_one_misses(data, flags, out, epoch, N: tl.constexpr):
    if dl.rank() == 0:
        dl.barrier_all()  # <-
