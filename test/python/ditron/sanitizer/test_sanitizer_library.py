"""The sanitizer's device library, executed on the CPU: what it reports, whom it tells, and what it lets pass."""

import numpy as np
import pytest
import torch
from device_library import DATA, HEAP, I32, I64, SIGNALS, P, Ranks, compiled
from hypothesis import given, settings
from hypothesis import strategies as st

from ditron.distributed.context import Slot, barrier_area_bytes
from ditron.sanitizer.report import RECORDS, WORDS, Kind, Monitor

# What a vendor's sanitizer.ll provides. Leaving the kernel is counted, and is a return here.
VENDOR = "\n".join(
    [
        "@left = global i64 0",
        "define i64 @times_left() { %v = atomicrmw xchg ptr @left, i64 0 seq_cst ret i64 %v }",
        "define void @ditron_exit() { %o = atomicrmw add ptr @left, i64 1 seq_cst ret void }",
        "define i1 @ditron_barrier_any(i1 %mine, ptr addrspace(1) %poison) { ret i1 %mine }",
        "define i32 @ditron_program_id(i32 %axis) { %r = add i32 %axis, 5 ret i32 %r }",
        "declare i32 @clock_gettime(i32, ptr)",
        "define i64 @ditron_clock_ns() { %t = alloca [2 x i64] %e = call i32 @clock_gettime(i32 1, ptr %t) "
        "%s = load i64, ptr %t %p = getelementptr i64, ptr %t, i64 1 %n = load i64, ptr %p "
        "%b = mul i64 %s, 1000000000 %r = add i64 %b, %n ret i64 %r }",
    ]
)
SIGNATURES = {
    "ditron_sanitizer_wait": (I32, P, P, I32, I64, I32, I32, I32, I64),
    "ditron_sanitizer_signal_wait_until": (I32, P, P, I64, I32, I64),
    "ditron_sanitizer_ll_get": (I32, P, P, P, I64, I64, I64),
    "ditron_ll_put": (I32, P, P, P, I64, I64, I32),
    "ditron_sanitizer_barrier": (I32, P, I32, I32, I64),
    "ditron_check_remote": (I32, P, P, I64, I32, I32, I64),
    "ditron_sanitizer_symm_at": (P, P, P, I32, I64),
    "ditron_notify": (I32, P, P, I64, I32, I32, I32),
    "times_left": (I64,),
}
GE = 3


def without_leaving(text: str) -> str:
    return text.replace("call void @ditron_exit()\n  unreachable", "call void @ditron_exit()\n  ret void")


@pytest.fixture(scope="module")
def library():
    return compiled(SIGNATURES, ("sanitizer",), VENDOR, without_leaving)


class SanitizerRanks(Ranks):
    """Ranks with a report buffer each."""

    def __init__(self, n: int, ranks_per_node: int | None = None, seconds: float = 0.05):
        super().__init__(n, ranks_per_node)
        assert barrier_area_bytes(n) <= SIGNALS
        self.monitors = []
        for rank, table in enumerate(self.tables):
            buffer = torch.zeros(RECORDS * WORDS, dtype=torch.int64)
            self.monitors.append(
                Monitor(buffer, [10 + r for r in range(n)], rank, self.bases[rank], HEAP, range(barrier_area_bytes(n)))
            )
            self.monitors[-1].told = True  # no report of a test at the interpreter's end
            table[Slot.REPORT], table[Slot.LIMIT_NS] = buffer.data_ptr(), int(seconds * 1e9)
            table[Slot.WORLD_SIZE] = n

    def poison(self, rank: int) -> int:
        return int(self.words(rank, 8 * (2 * self.n + 2), 1)[0])


def test_wait_that_is_answered_reports_nothing(library):
    ranks = SanitizerRanks(2, seconds=20)

    def program(rank):
        for epoch in range(1, 51):
            library.notify(ranks.contexts[rank], ranks.at(rank, SIGNALS), epoch, 1 - rank, 0, 1)
            library.sanitizer_wait(ranks.contexts[rank], ranks.at(rank, SIGNALS), 1, epoch, GE, 1, 1, 7)
            library.sanitizer_signal_wait_until(ranks.contexts[rank], ranks.at(rank, SIGNALS), epoch, GE, 7)

    ranks.run(program)
    assert not any(monitor.reported for monitor in ranks.monitors) and library.times_left() == 0
    assert [ranks.poison(r) for r in range(2)] == [0, 0]


def test_wait_that_expires_is_reported_and_everybody_is_told(library):
    ranks = SanitizerRanks(3, ranks_per_node=2)
    ranks.words(1, SIGNALS, 4)[:] = [9, 9, 4, 9]
    library.sanitizer_wait(ranks.contexts[1], ranks.at(1, SIGNALS), 4, 9, GE, 1, 1, 77)
    assert library.times_left() == 1
    (report,) = ranks.monitors[1].reports()
    assert report.kind == Kind.EXPIRED and report.rank == 11 and report.program == (5, 6, 7) and report.thread == 0
    assert (report.cmp, report.expected, report.actual, report.peer, report.first) == (">=", 9, 4, None, 11)
    assert 0.05 <= report.seconds < 10 and f"offset {SIGNALS + 16} of the symmetric heap" in report.where
    # Rank 0 is on the same node and knows; rank 2's memory is not mapped here.
    assert [ranks.poison(r) for r in range(3)] == [2, 2, 0]
    # Who waits there is sent home at once, and says what it waited for; who need not wait goes on.
    library.sanitizer_wait(ranks.contexts[0], ranks.at(0, SIGNALS), 1, 0, GE, 1, 1, 78)
    assert library.times_left() == 0 and not ranks.monitors[0].reported
    library.sanitizer_wait(ranks.contexts[0], ranks.at(0, SIGNALS), 1, 1, GE, 1, 1, 78)
    (other,) = ranks.monitors[0].reports()
    assert other.kind == Kind.WAITING and other.first == 11 and other.seconds < 0.05
    assert library.times_left() == 1


def test_packet_that_does_not_come_is_reported(library):
    ranks, data = SanitizerRanks(2), np.arange(64, dtype=np.uint8)
    out = np.zeros(64, np.uint8)
    library.ll_put(ranks.contexts[0], ranks.at(0, DATA), data.ctypes.data, 40, 7, 1)
    library.sanitizer_ll_get(ranks.contexts[1], out.ctypes.data, ranks.at(1, DATA), 40, 7, 5)
    assert (out[:40] == data[:40]).all() and not out[40:].any() and not ranks.monitors[1].reported
    # One of no bytes is waited for, too.
    library.sanitizer_ll_get(ranks.contexts[1], out.ctypes.data, ranks.at(1, DATA), 0, 7, 5)
    assert not ranks.monitors[1].reported
    # The sender has sent 40 bytes, which are 10 packets; the eleventh has never been written.
    ranks.words(1, DATA + 80, 1)[0] = 3 << 32
    library.sanitizer_ll_get(ranks.contexts[1], out.ctypes.data, ranks.at(1, DATA), 44, 7, 5)
    assert library.times_left() == 1
    (report,) = ranks.monitors[1].reports()
    assert report.kind == Kind.EXPIRED and (report.cmp, report.expected, report.actual) == ("==", 7, 3)
    assert f"offset {DATA + 80} of the symmetric heap" in report.where


def test_message_of_no_bytes_that_does_not_come_is_reported(library):
    ranks = SanitizerRanks(2)
    library.sanitizer_ll_get(ranks.contexts[1], ranks.at(1, DATA + 512), ranks.at(1, DATA), 0, 7, 5)
    assert library.times_left() == 1
    (report,) = ranks.monitors[1].reports()
    assert (report.kind, report.cmp, report.expected) == (Kind.EXPIRED, "==", 7)


def test_more_reports_than_there_is_room_for(library):
    ranks = SanitizerRanks(1, seconds=0)
    for value in range(1, RECORDS + 9):
        library.sanitizer_wait(ranks.contexts[0], ranks.at(0, SIGNALS), 1, value, GE, 1, 1, 1)
    reports = ranks.monitors[0].reports()
    assert sorted(report.expected for report in reports) == list(range(1, RECORDS + 1))
    assert [report.kind for report in reports] == [Kind.EXPIRED] + [Kind.WAITING] * (RECORDS - 1)
    library.times_left()


@pytest.mark.parametrize("n", [1, 2, 5])
def test_barrier_separates_and_mixes_with_none_that_is_missing(library, n):
    ranks, seen = SanitizerRanks(n, seconds=20), []

    def program(rank):
        mine = ranks.words(rank, DATA, 1)
        for epoch in range(1, 101):
            mine[0] = epoch
            library.sanitizer_barrier(ranks.contexts[rank], 0, 1, 1)
            seen.append([int(ranks.words(peer, DATA, 1)[0]) for peer in range(n)] == [epoch] * n)
            library.sanitizer_barrier(ranks.contexts[rank], 1, 1, 1)

    ranks.run(program)
    assert len(seen) == 100 * n and all(seen) and library.times_left() == 0


def test_barrier_names_who_did_not_come(library):
    ranks = SanitizerRanks(3)
    ranks.run(lambda rank: rank == 1 or library.sanitizer_barrier(ranks.contexts[rank], 0, 1, 5))
    reports = ranks.monitors[0].reports() + ranks.monitors[2].reports()
    assert {report.peer for report in reports} == {11} and {report.expected for report in reports} == {1}
    assert "the barrier's counters" in reports[0].where and library.times_left() == 2


def test_barrier_of_a_larger_world_is_refused_where_it_would_trap(library):
    ranks = SanitizerRanks(2)
    ranks.tables[0][Slot.WORLD_SIZE] = 4
    library.sanitizer_barrier(ranks.contexts[0], 2, 1, 5)
    assert ranks.monitors[0].reports()[0].kind == Kind.WORLD_NOT_REACHED
    library.times_left()


@settings(max_examples=300)
@given(
    rank=st.integers(-3, 6), offset=st.integers(-64, HEAP + 64), nbytes=st.integers(0, HEAP + 8), direct=st.booleans()
)
def test_remote_access_is_let_pass_or_explained(library, rank, offset, nbytes, direct):
    ranks = SanitizerRanks(4, ranks_per_node=2)
    library.check_remote(ranks.contexts[1], ranks.at(1, offset), nbytes, rank, direct, 3)
    expected = None
    if not 0 <= rank < 4:
        expected = Kind.RANK_OUT_OF_RANGE
    elif nbytes and not (0 <= offset and offset + nbytes <= HEAP):
        expected = Kind.OUTSIDE_HEAP
    elif direct and rank >= 2:
        expected = Kind.RANK_NOT_MAPPED
    reports = ranks.monitors[1].reports()
    assert [report.kind for report in reports] == ([] if expected is None else [expected])
    assert library.times_left() == len(reports) and (ranks.poison(0) == 2) == bool(reports)
    if reports:
        assert reports[0].nbytes == nbytes and reports[0].peer == (10 + rank if 0 <= rank < 4 else rank)


def test_sanitizer_symm_at(library):
    ranks = SanitizerRanks(4, ranks_per_node=2)
    assert library.sanitizer_symm_at(ranks.contexts[2], ranks.at(2, 100), 3, 1) == ranks.at(3, 100)
    assert not ranks.monitors[2].reported
    assert library.sanitizer_symm_at(ranks.contexts[2], ranks.at(2, 100), 0, 1) is None
    assert ranks.monitors[2].reports()[0].kind == Kind.RANK_NOT_MAPPED and library.times_left() == 1


def test_first_of_many_threads_reports_a_wrong_access(library):
    ranks = SanitizerRanks(2)
    for _ in range(32):
        library.check_remote(ranks.contexts[0], ranks.at(0, 0), 8, 2, 1, 3)
    assert len(ranks.monitors[0].reports()) == 1 and library.times_left() == 32
    assert np.count_nonzero(ranks.monitors[0].buffer.numpy()) > 0
