"""Captured calls, and calls on several streams, of programs on GPUs (test_program_cuda.py)."""

import gc
import weakref

import pytest
import torch
import triton.language as tl
from fake_cuda import RANKS, FakeGroup, by_parity, send
from triton.language.extra.cuda import gdc_launch_dependents

import ditron
import ditron.host as dh
from ditron import DitronError


def test_captured(machine):
    x, out = torch.randn(4, 8), torch.empty(4, 8)
    send(x, out)
    send(x, out)
    machine.library.log.clear()
    machine.triton.launches.clear()
    machine.capturing, machine.stream = True, 5
    send(x, out)
    launches = [(source.name, arguments) for source, _, arguments in machine.triton.launches]
    assert [name for name, _ in launches] == ["send_advance", "send_signals", "use"]
    count, cells, before = launches[0][1][:3]
    assert before == 2 and cells > count + 8  # this call's own
    assert launches[2][1][4] in (cells, cells + 8)  # the epoch, by its address
    assert "wait" not in {entry[0] for entry in machine.library.log}
    signals = [entry for entry in machine.library.log if entry[0] == "copy" and entry[3] == 8]
    assert len(signals) == RANKS + RANKS - 1 and {entry[2] for entry in signals} == {launches[2][1][4]}
    machine.capturing = False
    machine.triton.launches.clear()
    send(x, out)  # replays count on the device, and so do calls from now on
    assert machine.triton.launches[0][0].name == "send_advance"


def test_captured_calls_are_counted_ahead(machine):
    """On a stream of its own, into values of each call's own, so that a kernel follows the call before it at once."""
    x, out, library = torch.randn(4, 8), torch.empty(4, 8), machine.library
    send(x, out)
    machine.capturing, machine.stream, library.capture = True, 5, 7
    library.in_capture = lambda stream: stream == 5 or joined
    values = []
    for joined in (False, True):
        library.log.clear()
        machine.triton.launches.clear()
        send(x, out)
        values.append(machine.triton.launches[0][2][1])
        events = [entry for entry in library.log if entry[0] in ("cuEventRecord", "cuStreamWaitEvent")]
        if not joined:  # the stream joins the capture once
            (_, begun, main), (_, side, awaited), *events = events
            assert main == 5 != side and awaited == begun
        assert events[0][0] == "cuEventRecord" and events[0][2] == side
        assert events[1] == ("cuStreamWaitEvent", 5, events[0][1])
    assert values[0] != values[1]


def order_of(log: list[tuple], call) -> list[tuple]:
    """What the call logs, but for the program's own streams: where it begins, and where it ends."""
    start = len(log)
    call()
    return [log[start], log[-1]]


def test_calls_on_several_streams_follow_each_other(machine):
    """A call on another stream begins by waiting for the event that the one before it ended with."""
    x, out, log = torch.randn(4, 8), torch.empty(4, 8), machine.library.log
    begins, ends = [], []
    for machine.stream in (5, 5, 6, 6, 5):
        first, last = order_of(log, lambda: send(x, out))
        begins.append(first if first[0] == "cuStreamWaitEvent" and first[1] == machine.stream else None)
        ends.append(last)
    event = ends[0][1]
    assert ends == [("cuEventRecord", event, stream) for stream in (5, 5, 6, 6, 5)]
    assert begins == [None, None, ("cuStreamWaitEvent", 6, event), None, ("cuStreamWaitEvent", 5, event)]


def test_programs_on_several_streams_do_not_wait_for_each_other(machine):
    x, out, log = torch.randn(4, 8), torch.empty(4, 8), machine.library.log
    send(x, out)
    machine.stream = 6
    by_parity(x, out)
    start = len(log)
    by_parity(x, out)
    assert log[start][0] != "cuStreamWaitEvent"


def test_a_program_does_not_keep_a_group(machine):
    group = FakeGroup()
    with group:
        send(torch.randn(4, 8), torch.empty(4, 8))
    assert group.tensors
    for kernel in group.loaded:
        kernel.module = None
    dead = weakref.ref(group)
    del group, kernel
    gc.collect()
    assert dead() is None


def test_captured_calls_on_several_streams(machine):
    """The calls of one capture follow each other; what was enqueued outside, or in another capture, is not awaited."""
    x, out, log = torch.randn(4, 8), torch.empty(4, 8), machine.library.log
    send(x, out)
    machine.capturing, begins = True, []
    for machine.library.capture, machine.stream in ((7, 5), (7, 6), (8, 5), (8, 5), (9, 6)):
        first, last = order_of(log, lambda: send(x, out))
        begins.append(first if first[0] == "cuStreamWaitEvent" else None)
        assert last[0] == "cuEventRecord"
    captured = last[1]
    assert begins == [None, ("cuStreamWaitEvent", 6, captured), None, None, None]
    machine.capturing = False
    first, last = order_of(log, lambda: send(x, out))
    assert first == ("cuStreamWaitEvent", 6, last[1]) and last[1] != captured  # the eager call on stream 0


def test_captured_before_it_was_called(machine):
    machine.capturing = True
    with pytest.raises(DitronError, match="call it once on every rank first"):
        send(torch.randn(4, 8), torch.empty(4, 8))


@ditron.jit
def scale(x_ptr, out_ptr, n, factor, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets, mask=offsets < n) * factor, mask=offsets < n)


@ditron.program
def scale_twice(x, first, second):
    n = x.shape[0] * x.shape[1]
    with dh.stream("side"):
        scale[(1,)](x, first, n, 2.0, BLOCK=64)
    scale[(1,)](x, second, n, 3.0, BLOCK=32)


@ditron.program
def wait_beside(x, out):
    full = dh.symm_zeros(1, dtype=torch.int64, name="full")
    with dh.stream("side"):
        dh.signal_write(full[0], dh.epoch(), dh.rank())
        dh.signal_wait(full[0], dh.epoch())
        dh.copy(x, out)


def test_kernels_on_other_streams_leave_shared_memory(machine):
    """An SM on which one runs first has shared memory left for a program of the caller's stream."""
    x, given = torch.randn(4, 8), machine.library.attributes
    scale_twice(x, torch.empty(4, 8), torch.empty(4, 8))
    assert [what[1:] for what in given] == [(9, 100)]  # CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT
    scale_twice(x, torch.empty(4, 8), torch.empty(4, 8))
    assert len(given) == 1


@ditron.jit
def scale_and_let_begin(x_ptr, out_ptr, n, factor, BLOCK: tl.constexpr):
    gdc_launch_dependents()
    offsets = tl.arange(0, BLOCK)
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets, mask=offsets < n) * factor, mask=offsets < n)


@ditron.program
def scale_before(x, first, second):
    n = x.shape[0] * x.shape[1]
    scale_and_let_begin[(1,)](x, first, n, 2.0, BLOCK=64)
    scale[(1,)](x, second, n, 3.0, BLOCK=32)


def test_a_kernel_that_lets_the_next_one_begin_leaves_shared_memory(machine):
    scale_before(torch.randn(4, 8), torch.empty(4, 8), torch.empty(4, 8))
    assert [what[1:] for what in machine.library.attributes] == [(9, 100)]  # of one of both kernels


def test_waits_on_other_streams_leave_shared_memory(machine):
    """They are kernels when they are captured."""
    x, out = torch.randn(4, 8), torch.empty(4, 8)
    wait_beside(x, out)
    assert not machine.library.attributes
    machine.capturing, machine.stream = True, 5
    wait_beside(x, out)
    assert [what[1:] for what in machine.library.attributes] == [(9, 100)] * 2  # the wait, and what counts the call
