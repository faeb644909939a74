"""``dh.call`` on GPUs, as far as there is none: which tensors a function gets, on which stream, and when."""

from contextlib import contextmanager

import pytest
import torch

import ditron
import ditron.host as dh
from ditron import DitronError
from ditron._program.execute import actions, library

# ruff: noqa: F811 - tests take the fixture by its name


@pytest.fixture
def streams(monkeypatch):
    """The streams that are torch's current ones, as they are entered and left (0)."""
    seen = [0]

    @contextmanager
    def on_stream(stream, device):
        seen.append(stream)
        yield
        seen.append(0)

    for module in (actions, library):
        monkeypatch.setattr(module, "on_stream", on_stream)
    return seen


SIDE = 1000 + sum(map(ord, "side"))
calls: list[tuple] = []
streams_now: list[int] = []


def add(x, y, out):
    calls.append((streams_now[-1], x.data_ptr(), out.data_ptr()))
    torch.add(x, y, out=out)


@ditron.program
def add_rows(x, out):
    box = dh.symm_zeros(2, 3, dtype=x.dtype, name="box")
    dh.call(add, reads=[x[1], x[2]], writes=[box[1]])
    with dh.stream("side"):
        dh.call(add, reads=[x[0], x[0]], writes=[out])


def test_functions_get_this_calls_tensors_on_the_steps_stream(machine, streams):
    global streams_now
    streams_now = streams
    for call in range(3):
        calls.clear()
        x, out = torch.randn(3, 3), torch.empty(3)
        add_rows(x, out)
        box = machine.group.tensors["add_rows.box"]
        assert torch.equal(box[1], x[1] + x[2]) and torch.equal(out, 2 * x[0])
        row = 3 * x.itemsize
        mine = [(0, x.data_ptr() + row, box.data_ptr() + row), (SIDE, x.data_ptr(), out.data_ptr())]
        if call == 0:  # with other tensors first, on both streams
            assert [stream for stream, _, _ in calls] == [0, SIDE, 0, SIDE]
            assert {x for _, x, _ in calls[:2]}.isdisjoint({x for _, x, _ in mine})
        assert calls[-2:] == mine and len(calls) == (4 if call == 0 else 2)


def test_a_captured_call_is_called(machine, streams):
    global streams_now
    streams_now = streams
    x, out = torch.randn(3, 3), torch.empty(3)
    add_rows(x, out)
    calls.clear()
    machine.capturing, machine.library.capture = True, 1
    add_rows(x, out)
    assert [stream for stream, _, _ in calls] == [0, SIDE]


@ditron.program
def fails(x):
    dh.signal_write(dh.symm_zeros(1, dtype=torch.int64, name="flag")[0], dh.epoch(), dh.rank())
    dh.call(torch.linalg.cholesky, reads=[], writes=[x])


def test_an_error_comes_before_anything_is_enqueued(machine, streams):
    with pytest.raises(DitronError, match="'linalg_cholesky', which the program calls here, raised"):
        fails(torch.zeros(2, 3))
    assert not [entry for entry in machine.library.log if entry[0] == "write"]
