"""How many calls, and how many ranks, the checker looks at."""

from __future__ import annotations

import pytest
import torch
import triton.language as tl

import ditron
import ditron.host as dh
import ditron.language as dl
from ditron.protocol.api import check_function, check_program
from ditron.protocol.calls import MAX_CALLS

N = 64


@ditron.jit
def pass_right(x, boxes, flags, out, epoch, BOXES: tl.constexpr, ANSWER: tl.constexpr, N: tl.constexpr):
    right = (dl.rank() + 1) % dl.num_ranks()
    box = boxes + (epoch % BOXES) * N
    dl.putmem_signal(box, x, N * 4, flags, epoch, right)
    token = dl.wait(flags, 1, epoch)
    at = tl.arange(0, N)
    tl.store(out + at, tl.load(dl.consume_token(box, token) + at))
    dl.quiet()
    if ANSWER:
        dl.barrier_all()


def in_kernel(boxes: int, answer: bool):
    @ditron.program(sample_args=lambda ranks: {"x": "f32[64]", "out": "f32[64]"})
    def in_kernel(x, out):
        memory = dh.symm_empty(boxes, N, dtype=x.dtype, name="boxes")
        flags = dh.symm_zeros(1, dtype=torch.int64, name="flags")
        pass_right[(1,)](x, memory, flags, out, dh.epoch(), BOXES=boxes, ANSWER=answer, N=N)

    return in_kernel


def in_program(boxes: int, answer: bool):
    @ditron.program(sample_args=lambda ranks: {"x": "f32[64]", "out": "f32[64]"})
    def in_program(x, out):
        epoch = dh.epoch()
        memory = dh.symm_empty(boxes, N, dtype=x.dtype, name="boxes")
        flags = dh.symm_zeros(1, dtype=torch.int64, name="flags")
        pass_right[(1,)](x, memory[epoch % boxes], flags, out, epoch, BOXES=1, ANSWER=answer, N=N)

    return in_program


@pytest.mark.parametrize("boxes", [3, 4, 6])
@pytest.mark.parametrize("make", [in_kernel, in_program])
def test_a_program_is_called_as_often_as_its_buffers_ask_for(make, boxes):
    """In a ring without answers the left neighbour may be ahead by as many calls as there are ranks, less one."""
    report = check_program(make(boxes, False), [(boxes + 1, None)])
    assert "reuse" in {finding.kind for finding in report.findings}, str(report)
    assert f"call {boxes + 1}" in str(report)
    right = check_program(make(boxes, True), [(boxes + 1, None)])
    assert not right.findings and right.is_complete, str(right)


@pytest.mark.parametrize("make", [in_kernel, in_program])
def test_a_period_that_is_too_long_has_a_note(make):
    report = check_program(make(50, True), [(2, None)])
    assert not report.findings and not report.is_complete
    assert f"comes again after more than {MAX_CALLS - 2} calls: {MAX_CALLS} are looked at" in str(report)


@pytest.mark.parametrize(("calls", "says"), [(3, "launch it 4 times"), (4, "")])
def test_a_script_with_too_few_calls_has_a_note(calls, says):
    def main():
        ditron.init()
        memory = ditron.symm_empty(3, N, dtype=torch.float32, name="boxes")
        flags = ditron.symm_zeros(1, dtype=torch.int64, name="flags")
        for epoch in range(1, calls + 1):
            pass_right[(1,)](torch.ones(N), memory, flags, torch.empty(N), epoch, BOXES=3, ANSWER=True, N=N)

    report = check_function(main, [(2, None)])
    assert not report.findings and report.is_complete is not bool(says) and says in str(report), str(report)


def test_a_script_that_chooses_among_buffers_itself():
    def main():
        ditron.init()
        memory = ditron.symm_empty(3, N, dtype=torch.float32, name="boxes")
        flags = ditron.symm_zeros(1, dtype=torch.int64, name="flags")
        for epoch in range(1, 4):
            pass_right[(1,)](torch.ones(N), memory[epoch % 3], flags, torch.empty(N), epoch, BOXES=1, ANSWER=True, N=N)

    report = check_function(main, [(2, None)])
    assert [note.rpartition(": ")[2] for note in report.not_followed] == ["launch it 4 times"], str(report)


@ditron.jit
def meet(flags, epoch):
    """A dissemination barrier whose number of rounds is right for up to four ranks."""
    rounds = 2 if dl.num_ranks() > 2 else 1
    for number in range(rounds):
        dl.notify(flags + number, (dl.rank() + (1 << number)) % dl.num_ranks(), epoch)
        dl.wait(flags + number, 1, epoch)


@ditron.jit
def meet_unrolled(flags, epoch):
    for number in tl.static_range(2):
        dl.notify(flags + number, (dl.rank() + (1 << number)) % dl.num_ranks(), epoch)
        dl.wait(flags + number, 1, epoch)


@pytest.mark.parametrize("barrier", [meet, meet_unrolled])
def test_a_barrier_with_rounds_for_four_ranks(barrier):
    def main():
        ditron.init()
        flags = ditron.symm_zeros(2, dtype=torch.int64, name="flags")
        box, out = ditron.symm_zeros(N, dtype=torch.float32, name="box"), torch.empty(N)
        for epoch in (1, 2, 3):
            store_everywhere[(1,)](box, N=N)
            barrier[(1,)](flags, epoch)
            out.copy_(box)
            ditron.barrier()

    report = check_function(main)
    assert report.findings and report.checked[5] == "5 ranks", str(report)
    assert all("with 5 ranks" in finding.where for finding in report.findings), str(report)


@ditron.jit
def store_everywhere(box, N: tl.constexpr):
    for peer in range(dl.num_ranks()):
        if peer == (dl.rank() + 4) % dl.num_ranks():
            tl.store(dl.symm_at(box, peer) + tl.arange(0, N), 1.0)


@ditron.jit
def gather(x, flags, out, epoch, KNOWN: tl.constexpr):
    """Rounds for as many ranks as are known; those beyond are forgotten."""
    for number in range(1, min(dl.num_ranks(), KNOWN)):
        dl.notify(flags + dl.rank(), (dl.rank() + number) % dl.num_ranks(), epoch)
    for peer in range(dl.num_ranks()):
        if peer != dl.rank():
            dl.wait(flags + peer, 1, epoch)


@pytest.mark.parametrize(("known", "group"), [(4, "5 ranks"), (6, "7 ranks"), (100, None)])
def test_rounds_that_are_right_for_some_numbers_of_ranks(known, group):
    def main():
        ditron.init()
        flags = ditron.symm_zeros(16, dtype=torch.int64, name="flags")
        for epoch in (1, 2, 3):
            gather[(1,)](torch.ones(N), flags, torch.empty(N), epoch, KNOWN=known)

    report = check_function(main)
    if group is None:
        assert not report.findings and report.checked[5:] == ["5 ranks"], str(report)
    else:
        assert report.findings and report.checked[-1] == group and f"with {group}:" in str(report), str(report)
