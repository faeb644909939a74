"""The checker on words that are polled: data from registers, beside the epoch by which a reader knows it, or alone."""

from __future__ import annotations

import pytest
import torch
import triton.language as tl

import ditron
import ditron.language as dl
from ditron.kernels.ag_gemm_small import ag_gemm_small_program
from ditron.kernels.words import receive_data_words, receive_words, send_data_words, send_words, word_box
from ditron.protocol.api import check_function, check_program
from ditron_compiler.protocol.machine import Machine

WORDS = 256  # one program of one warp sends half of them: four of each thread


@ditron.jit(do_not_specialize=["epoch"])
def exchange(x, boxes, out, epoch, SENDS: tl.constexpr, WORDS: tl.constexpr):
    """Each program sends its part of the words to every rank, and takes all words of all ranks."""
    own = dl.rank()
    ranks = dl.num_ranks()
    part: tl.constexpr = WORDS // 2
    at = tl.program_id(0) * part + tl.arange(0, part)
    bits = tl.load(x + at).to(tl.int32, bitcast=True)
    for step in range(ranks if SENDS == "all" else 1):
        peer = (own + step) % ranks
        send_words(dl.symm_at(word_box(boxes, own, ranks, epoch, WORDS), peer) + at, bits, epoch)
    all_words = tl.arange(0, WORDS)
    for sender in range(ranks):
        words = receive_words(word_box(boxes, sender, ranks, epoch, WORDS) + all_words, epoch)
        row = tl.program_id(0) * ranks + sender
        tl.store(out + row * WORDS + all_words, words.to(tl.float32, bitcast=True))


def report_of(groups, sends="all", calls=3):
    def run():
        ditron.init()
        x, out = torch.ones(WORDS), torch.zeros(2 * ditron.num_ranks() * WORDS)
        boxes = ditron.symm_zeros(2 * ditron.num_ranks() * WORDS, dtype=torch.int64, name="boxes")
        for epoch in range(1, calls + 1):
            exchange[(2,)](x, boxes, out, epoch, SENDS=sends, WORDS=WORDS, num_warps=1)

    return check_function(run, groups)


@pytest.mark.parametrize("ranks", [1, 2])
def test_words_of_floats_are_followed(ranks):
    """A program that begins before another one has sent reads what an earlier call has left, and reads on."""
    report = report_of([(ranks, None)])
    assert not report.findings and report.is_complete, str(report)


def test_words_not_checked_to_the_end():
    """A program that polls when the checker gives up would have read on: what it saw last is no finding."""
    report = report_of([(3, None)])
    assert not report.findings and report.given_up == ["3 ranks"], str(report)


def test_a_program_that_polls_many_words_is_woken_once(monkeypatch):
    """Not once for each time it has waited for each of them, which multiplies with every change."""
    resumed, resume = [], Machine._resume
    monkeypatch.setattr(Machine, "_resume", lambda machine, task: (resumed.append(task), resume(machine, task)))
    assert check_program(ag_gemm_small_program, groups=((3, None),)).is_complete
    assert len(resumed) < 10 * len(set(resumed))


def test_words_that_nobody_sends():
    report = report_of([(2, None)], sends="own")
    assert {finding.kind for finding in report.findings} == {"never-signalled"}, str(report)
    assert "boxes[" in report.findings[0].message


def test_words_of_an_epoch_that_was_there_before():
    """The flag of another call: its words are taken for this one's."""

    @ditron.jit(do_not_specialize=["epoch"])
    def late(x, boxes, out, epoch, WORDS: tl.constexpr):
        at = tl.arange(0, WORDS)
        bits = tl.load(x + at).to(tl.int32, bitcast=True)
        right = (dl.rank() + 1) % dl.num_ranks()
        send_words(dl.symm_at(boxes, right) + at, bits, epoch)
        words = receive_words(boxes + at, epoch)
        tl.store(out + at, words.to(tl.float32, bitcast=True))

    def run():
        ditron.init()
        boxes = ditron.symm_zeros(WORDS, dtype=torch.int64, name="boxes")
        for _ in range(3):
            late[(1,)](torch.ones(WORDS), boxes, torch.zeros(WORDS), 1, WORDS=WORDS, num_warps=1)

    report = check_function(run, [(2, None)])
    assert {finding.kind for finding in report.findings} == {"too-early"}, str(report)


@ditron.jit(do_not_specialize=["epoch"])
def decides_by_what_it_sends(x, flags, boxes, epoch, SENDS: tl.constexpr, WAY: tl.constexpr):
    bits = tl.load(x).to(tl.int32, bitcast=True).to(tl.int64) & 0xFFFFFFFF
    if SENDS:
        dl.st(boxes, (tl.cast(epoch, tl.int64) << 32) | bits)
    if WAY == "address":
        dl.notify(flags + bits % 2, dl.rank(), 1)
    elif bits == 0:
        dl.notify(flags, dl.rank(), 1)
    dl.wait(flags, 1, 1)


@ditron.jit(do_not_specialize=["epoch"])
def decides_by_what_it_receives(x, flags, boxes, epoch, SENDS: tl.constexpr, WAY: tl.constexpr):
    bits = tl.load(x).to(tl.int32, bitcast=True).to(tl.int64) & 0xFFFFFFFF
    dl.st(boxes, (tl.cast(epoch, tl.int64) << 32) | bits, scope="gpu")
    word = dl.ld(boxes, scope="gpu")
    while (word >> 32) != 1:
        word = dl.ld(boxes, scope="gpu")
    if WAY == "address":
        dl.notify(flags + word.to(tl.int32) % 2, dl.rank(), 1)
    elif word.to(tl.int32) == 0:
        dl.notify(flags, dl.rank(), 1)
    dl.wait(flags, 1, 1)


@ditron.jit(do_not_specialize=["epoch"])
def decides_by_a_copy(x, flags, boxes, epoch, SENDS: tl.constexpr, WAY: tl.constexpr):
    bits = tl.load(x).to(tl.int32, bitcast=True).to(tl.int64) & 0xFFFFFFFF
    tl.store(boxes, (tl.cast(epoch, tl.int64) << 32) | bits)
    dl.putmem(boxes + 1, boxes, 8, dl.rank())
    dl.quiet()
    word = tl.load(boxes + 1) if WAY == "address" else tl.load(boxes)
    if word % 2 == 0:
        dl.notify(flags, dl.rank(), 1)
    dl.wait(flags, 1, 1)


@ditron.jit(do_not_specialize=["epoch"])
def repeats_as_often_as_it_receives(x, flags, boxes, epoch, SENDS: tl.constexpr, WAY: tl.constexpr):
    bits = tl.load(x).to(tl.int32, bitcast=True).to(tl.int64) & 0xFFFFFFFF
    dl.st(boxes, (tl.cast(epoch, tl.int64) << 32) | bits, scope="gpu")
    first = tl.cast(epoch, tl.int64) << 32
    for _ in range(dl.ld(boxes, scope="gpu") if WAY == "control" else first, first + 1):
        dl.notify(flags, dl.rank(), 1)
    if WAY == "address":
        dl.notify(flags + tl.load(boxes) % 2, dl.rank(), 1)
    dl.wait(flags, 1, 1)


KERNELS = [
    decides_by_what_it_sends,
    decides_by_what_it_receives,
    decides_by_a_copy,
    repeats_as_often_as_it_receives,
]


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("sends", [True, False])
@pytest.mark.parametrize("way", ["address", "control"])
def test_what_decides_by_a_float_is_not_followed(kernel, sends, way):
    """The bits of 1.0 are not 0: these hang, or not, by data that the checker does not know."""

    def run():
        ditron.init()
        flags, boxes = (ditron.symm_zeros(2, dtype=torch.int64, name=name) for name in ("flags", "boxes"))
        kernel[(1,)](torch.ones(1), flags, boxes, 1, SENDS=sends, WAY=way)

    report = check_function(run, [(1, None)])
    assert not report.is_complete, str(report)


@ditron.jit(do_not_specialize=["epoch"])
def exchange_data(x, boxes, out, epoch, WAY: tl.constexpr, WORDS: tl.constexpr):
    """As ``exchange``, with words of 64 bits of floats, by one program, in memory with ``WAY == "one half"`` or two."""
    own = dl.rank()
    ranks = dl.num_ranks()
    at = tl.arange(0, WORDS)
    pair = tl.arange(0, 2)
    bits = tl.load(x + at[:, None] * 2 + pair[None, :]).to(tl.int32, bitcast=True).to(tl.int64) & 0xFFFFFFFF
    words = tl.sum(bits << (pair * 32).to(tl.int64)[None, :], 1)
    half = 0 if WAY == "one half" else epoch
    steps = 1 if WAY == "none sent" else tl.minimum(ranks, 2) if WAY == "to the right" else ranks
    for step in range(steps):
        send_data_words(dl.symm_at(word_box(boxes, own, ranks, half, WORDS), (own + step) % ranks) + at, words)
    for number in range(steps if WAY == "to the right" else ranks):
        sender = (own + ranks - number) % ranks if WAY == "to the right" else number
        box = word_box(boxes, sender, ranks, half, WORDS) + at
        if WAY == "left" or WAY == "half left":
            received = dl.ld(box, scope="node")
            while tl.max((received == 0).to(tl.int32)) != 0:
                received = dl.ld(box, scope="node")
            if WAY == "half left":
                dl.st(box, tl.where(at < WORDS // 2, 0, received), scope="node")
            received = ~received
        elif WAY == "any":
            received = dl.ld(box, scope="node")
            while tl.min((received == 0).to(tl.int32)) != 0:
                received = dl.ld(box, scope="node")
            dl.st(box, tl.zeros_like(received), scope="node")
        elif WAY == "some":
            received = dl.ld(box, scope="node")
            while tl.max(((received == 0) & (at < WORDS // 2)).to(tl.int32)) != 0:
                received = dl.ld(box, scope="node")
            dl.st(box, tl.zeros_like(received), scope="node")
        elif WAY == "another":
            first = dl.ld(box + tl.zeros((WORDS,), tl.int32), scope="node")
            received = dl.ld(box, scope="node")
            while tl.max((first == 0).to(tl.int32)) != 0:
                first = dl.ld(box + tl.zeros((WORDS,), tl.int32), scope="node")
                received = dl.ld(box, scope="node")
            dl.st(box, tl.zeros_like(received), scope="node")
        elif WAY == "first":
            first = dl.ld(box + tl.zeros((WORDS,), tl.int32), scope="node")
            while tl.max((first == 0).to(tl.int32)) != 0:
                first = dl.ld(box + tl.zeros((WORDS,), tl.int32), scope="node")
            received = dl.ld(box, scope="node")
            dl.st(box, tl.zeros_like(received), scope="node")
        elif WAY == "least":
            received = dl.ld(box, scope="node")
            while tl.min((received != 0).to(tl.int32)) == 0:
                received = dl.ld(box, scope="node")
            dl.st(box, tl.zeros_like(received), scope="node")
        elif WAY == "number":
            received = dl.ld(box, scope="node")
            while tl.sum((received == 0).to(tl.int32)) != 0:
                received = dl.ld(box, scope="node")
            dl.st(box, tl.zeros_like(received), scope="node")
        elif WAY == "scalars":
            one = word_box(boxes, sender, ranks, half, WORDS)
            word = dl.ld(one, scope="node")
            while word == 0:
                word = dl.ld(one, scope="node")
            for i in range(WORDS):
                tl.store(out + i, (~dl.ld(one + i, scope="node")).to(tl.int32).to(tl.float32, bitcast=True))
            received = tl.zeros((WORDS,), tl.int64)
            dl.st(box, received, scope="node")
        else:
            received = receive_data_words(box)
        tl.store(out + at, received.to(tl.int32).to(tl.float32, bitcast=True))
        if WAY == "decides" and tl.max(received) == 0:
            dl.notify(boxes, own, 1)


def report_of_data(way, groups, calls=4, words=WORDS // 8):

    def run():
        ditron.init()
        x, out = torch.ones(2 * words), torch.zeros(words)
        boxes = ditron.symm_zeros(2 * ditron.num_ranks() * words, dtype=torch.int64, name="boxes")
        for epoch in range(1, calls + 1):
            exchange_data[(1,)](x, boxes, out, epoch, WAY=way, WORDS=words, num_warps=1)

    return check_function(run, groups)


@pytest.mark.parametrize("ranks", [1, 2, 3])
@pytest.mark.parametrize("way", ["two halves", "least", "number"])
def test_data_words_are_followed(way, ranks):
    """By loops that say in other words that all must be there, too."""
    report = report_of_data(way, [(ranks, None)])
    assert not report.findings and report.is_complete, str(report)


def test_data_words_of_a_large_tensor_are_no_finding():
    """Of more than 1024 at once it is not seen who waits for them."""
    assert not report_of_data("two halves", [(2, None)], words=2048).findings


@pytest.mark.parametrize("ranks, kinds", [(2, set()), (3, {"reuse"})])
def test_data_words_of_a_rank_that_may_be_two_calls_ahead(ranks, kinds):
    """Of three ranks that send to the next one, the receiver is heard by the sender two calls later."""
    report = report_of_data("to the right", [(ranks, None)])
    assert {finding.kind for finding in report.findings} == kinds and report.is_complete, str(report)
    assert all("not known to have read the one of an earlier call" in finding.message for finding in report.findings)


@pytest.mark.parametrize(
    "way, kind",
    [("none sent", "never-signalled"), ("left", "too-early"), ("half left", "reuse"), ("one half", "reuse")],
)
def test_data_words_that_are_wrong(way, kind):
    """Not sent; not made 0, all of them, by who read them; in memory of one half, where the next call's come too soon."""
    report = report_of_data(way, [(2, None)])
    assert kind in {finding.kind for finding in report.findings}, str(report)


@pytest.mark.parametrize("way", ["any", "some", "another", "first", "scalars", "decides"])
def test_data_words_that_are_not_followed(way):
    """Of which some are used that no loop has waited for; and a kernel that decides by what came."""
    report = report_of_data(way, [(2, None)])
    assert not report.is_complete, str(report)
    assert way == "decides" or "it is not seen that a loop waits for all of these words" in str(report)
