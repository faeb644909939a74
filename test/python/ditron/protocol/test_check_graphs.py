"""Programs as CUDA graphs run them: a stream's wait is a kernel there, behind the programs that were launched before."""

from __future__ import annotations

import pytest
import torch
import triton.language as tl

import ditron
import ditron.host as dh
import ditron.language as dl
from ditron.protocol.api import check_program

PROGRAMS = 264  # two for each place of a GPU with 132


@ditron.jit(do_not_specialize=["epoch"])
def take(inbox_ptr, arrived_ptr, out_ptr, n, epoch):
    """Each program takes every num_programs-th element, once the neighbour's have arrived."""
    for i in tl.range(tl.program_id(0), n, tl.num_programs(0)):
        token = dl.wait(arrived_ptr, 1, epoch)  # here
        tl.store(out_ptr + i, tl.load(dl.consume_token(inbox_ptr + i, token)))


def samples(ranks):
    return {"x": f"f32[{PROGRAMS}]", "out": f"f32[{PROGRAMS}]"}


def exchange(x, out, *, programs=PROGRAMS, early=False, parity=False):
    """``out`` is the left neighbour's x: its kernel runs while the copy stream waits until it may push."""
    rank, ranks, epoch = dh.rank(), dh.num_ranks(), dh.epoch()
    left, right = (rank - 1) % ranks, (rank + 1) % ranks
    inboxes = dh.symm_empty(2, x.shape[0], dtype=x.dtype, name="inboxes")
    inbox = inboxes[epoch % 2] if parity else inboxes[0]
    arrived = dh.symm_zeros(1, dtype=torch.int64, name="arrived")
    done = dh.symm_zeros(1, dtype=torch.int64, name="done")
    if early:
        dh.signal_wait(done[0], epoch - 1)
        may_push = dh.record()
    take[(programs,)](inbox, arrived, out, x.shape[0], epoch)
    with dh.stream("copy"):
        if early:
            dh.await_event(may_push)
        else:
            dh.signal_wait(done[0], epoch - 1)  # there
        dh.rank_copy(x, inbox, right)
        dh.signal_write(arrived[0], epoch, right)
    dh.signal_write(done[0], epoch, left)


def variant(**constants):
    def traced(x, out):
        exchange(x, out, **constants)

    return ditron.program(traced, sample_args=samples, max_nodes=1)


TOO_MANY, AS_MANY_AS_FIT = variant(), variant(programs=132)
WAITS_BEFORE, BY_PARITY = variant(early=True), variant(parity=True)
PAIR = [(2, None)]


@pytest.fixture(autouse=True)
def not_when_compiled(monkeypatch):
    monkeypatch.setenv("DITRON_PROTOCOL", "off")


def line(marker):
    return next(i for i, text in enumerate(open(__file__), 1) if text.rstrip().endswith(f"# {marker}"))


def run(program, **machine):
    def main():
        ditron.init()
        for call in range(3):
            x, out = torch.full((PROGRAMS,), 10.0 * call + ditron.rank()), torch.zeros(PROGRAMS)
            program(x, out)
            assert torch.equal(out, torch.full((PROGRAMS,), 10.0 * call + 1 - ditron.rank()))

    ditron.sim.run(main, ranks=2, **machine)


def test_more_programs_than_fit_hang_in_a_graph_and_only_there():
    (finding,) = check_program(TOO_MANY, PAIR).findings
    assert finding.kind == "starved" and finding.loc.startswith(f"{__file__}:{line('here')}:")
    assert "in a CUDA graph" in finding.message and "launch no more programs than fit" in finding.hint
    assert [place.split(":")[1] for _, place in finding.others] == [str(line("there"))]
    assert not check_program(TOO_MANY, PAIR, resident=PROGRAMS).findings
    run(TOO_MANY, seed=0)
    report = rf"the signal_wait at {__file__}:{line('there')}:.* has not started: in a CUDA graph it is a kernel"
    with pytest.raises(ditron.DeadlockError, match=report):
        for seed in range(20):
            run(TOO_MANY, seed=seed, graphs=True)


@pytest.mark.parametrize("program", (AS_MANY_AS_FIT, WAITS_BEFORE, BY_PARITY), ids=("fit", "before", "parity"))
def test_what_does_not_hang_in_a_graph(program):
    """Programs that all fit; a wait before the launch; one that cannot be captured."""
    assert not check_program(program, PAIR).findings
    for seed in range(5):
        run(program, seed=seed, graphs=True)


def test_a_small_sample_gets_a_note():
    """What is checked with few programs may be launched with more than fit."""
    report = check_program(variant(programs=4), PAIR)
    assert not report.findings
    (note,) = (note for note in report.notes if "in a CUDA graph" in note)
    assert note.startswith(f"{__file__}:{line('here')}:") and f":{line('there')}:" in note
    assert not any("in a CUDA graph" in note for note in check_program(variant(programs=4, early=True), PAIR).notes)


def test_a_wait_needs_no_place_of_its_own():
    """As many programs as places, and a wait beside them: it fits on an SM with one."""
    program = variant(programs=4)
    for seed in range(10):
        run(program, resident=4, seed=seed, graphs=True)
