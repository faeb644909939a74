"""Signals that a stream writes and waits for, one after the other: captured calls do it in one kernel."""

import re

import pytest
import torch
from fake_cuda import RANKS, send

import ditron
import ditron.host as dh
from ditron._program.execute import actions, cuda
from ditron._program.execute.builtin_kernels import BuiltinPart, builtin_sequence
from ditron._program.execute.signal_runs import SignalRun, join_signals
from ditron_compiler import host


@ditron.program
def handshake(x):
    """Writes, waits, and a write behind them."""
    signals = dh.symm_zeros(4, dtype=torch.int64, name="signals")
    with dh.stream("copy"):
        dh.signal_write(signals[0], dh.epoch(), 1)  # tells
        dh.signal_write(signals[0], 7, 2)
        dh.signal_wait(signals[1], dh.epoch())
        dh.signal_wait(signals[2], dh.epoch() - 1, cmp="ne")
        dh.signal_wait(signals[3], 5)
        dh.signal_write(signals[0], dh.epoch(), 2)


def write_and_wait(signals):
    dh.signal_write(signals[0], dh.epoch(), 1)
    dh.signal_wait(signals[1], dh.epoch())
    dh.signal_wait(signals[2], dh.epoch())


@ditron.program
def publishes(x):
    """Writes behind a copy, and two waits behind them."""
    signals = dh.symm_zeros(4, dtype=torch.int64, name="signals")
    box = dh.symm_empty(4, dtype=x.dtype, name="box")
    with dh.stream("copy"):
        dh.rank_copy(x, box, 1)
        write_and_wait(signals)


@ditron.program
def publishes_for_another(x):
    """The copy is of another stream."""
    signals = dh.symm_zeros(4, dtype=torch.int64, name="signals")
    box = dh.symm_empty(4, dtype=x.dtype, name="box")
    dh.rank_copy(x, box, 1)
    copied = dh.record()
    with dh.stream("copy"):
        dh.await_event(copied)
        write_and_wait(signals)


@ditron.program
def adds(x):
    """An addition is no write of a run."""
    signals = dh.symm_zeros(4, dtype=torch.int64, name="signals")
    dh.signal_write(signals[0], 1, 1, op="add")
    dh.signal_wait(signals[1], dh.epoch())
    dh.signal_wait(signals[2], dh.epoch())


@ditron.program
def apart(x):
    """Waits that are alone, or not of one stream."""
    signals = dh.symm_zeros(4, dtype=torch.int64, name="signals")
    dh.signal_write(signals[0], dh.epoch(), 1)
    dh.signal_wait(signals[1], dh.epoch())
    dh.copy(x[:2], x[2:])
    dh.signal_wait(signals[2], dh.epoch())
    with dh.stream("copy"):
        dh.signal_wait(signals[3], dh.epoch())


def captured(machine, program) -> list[tuple]:
    """The kernels of a captured call, with their arguments."""
    program(torch.zeros(4))
    machine.capturing, machine.stream = True, 5
    machine.triton.launches.clear()
    machine.library.log.clear()
    program(torch.zeros(4))
    return [(source.name, arguments) for source, _, arguments in machine.triton.launches]


def test_writes_and_waits_are_one_kernel(machine):
    [(_, (_, values, *_)), (name, arguments)] = captured(machine, handshake)
    assert name == "handshake_signals"
    signals, context = machine.group.tensors["handshake.signals"].data_ptr(), machine.group.context.data_ptr()
    *given, last = arguments
    assert [given[index] for index in (0, 3, 6, 8, 10)] == [signals, signals, signals + 8, signals + 16, signals + 24]
    assert (given[2], given[5], given[11], last) == (1, 2, 5, context)
    epoch, seven, before = given[1], given[4], given[9]
    assert given[7] == epoch and sorted((epoch, seven, before)) == [values, values + 8, values + 16]
    [write] = [entry for entry in machine.library.log if entry[0] == "copy"]  # the write behind them is a copy
    assert write[2] == epoch


def test_the_kernel_is_made_once_and_has_the_lines_of_its_steps(machine):
    captured(machine, handshake)
    captured(machine, handshake)
    [kernel] = [kernel for kernel in machine.group.loaded if kernel.name == "handshake_signals"]
    lines = open(__file__).read().splitlines()
    line = next(index for index, text in enumerate(lines, 1) if text.endswith("# tells"))
    for place in (line, line + 1, line + 2, line + 3, line + 4):
        assert f'signal_runs.py":{place}:' in kernel.asm["ttir"]


def parts_of(kernel) -> list[str]:
    """The operations of a kernel that write signals, wait for them, or order them."""
    found = re.findall(r"\"ditron\.(notify|signal_op|signal_wait_until|quiet)\"|cmp = #ditron\.cmp<(\w+)>", kernel)
    return [name or comparison for name, comparison in found]


def test_one_fence_for_all_writes_and_one_quiet(machine, monkeypatch):
    texts = []
    make = cuda.builtin_sequence
    monkeypatch.setattr(cuda, "builtin_sequence", lambda *args: texts.append(make(*args)) or texts[-1])
    captured(machine, handshake)
    waits = [f"signal_wait_until {cmp}" for cmp in ("ge", "ne", "ge")]
    assert " ".join(parts_of(texts[0])) == " ".join(["notify", "signal_op", *waits, "quiet"])


@pytest.mark.parametrize("program", [publishes, publishes_for_another])
def test_writes_behind_a_copy_stay_copies(machine, program):
    """Another rank's kernel may wait for them, and leave this rank's no SM."""
    name = program.__name__
    assert [kernel for kernel, _ in captured(machine, program)] == [f"{name}_advance", f"{name}_signals"]
    assert len([entry for entry in machine.library.log if entry[0] == "copy"]) == 2


def test_an_addition_is_a_kernel_of_its_own(machine):
    assert [name for name, _ in captured(machine, adds)] == ["adds_advance", "adds_add_loaded", "adds_signals"]


def test_waits_that_the_stream_makes_are_not_joined():
    """Of a counted signal, by a memory operation."""
    stream = host.StreamId("copy")
    signals = [host.BufferView(host.Storage("symmetric", name, 0, (1,), "i64"), 0, (1,), (1,)) for name in "abc"]
    waits = [
        host.SignalWait(stream=stream, loc="here", signal=signal, cmp="ge", value=1)
        for signal in (*signals, *signals[:2])
    ]
    joined = join_signals(waits, lambda wait: wait.signal is not signals[2])
    assert [len(step.steps) if isinstance(step, SignalRun) else step for step in joined] == [2, waits[2], 2]


def test_the_place_of_the_kernel_is_asked_for(machine, monkeypatch):
    asked = []
    monkeypatch.setattr(actions, "warn_of_waits_without_a_place", lambda *args: asked.append(args[-1]))
    x, out = torch.randn(4, 8), torch.empty(4, 8)
    send(x, out)
    machine.capturing, machine.stream = True, 5
    send(x, out)
    [[(wait, kernel)]] = asked
    assert kernel.kernel.name == "send_signals" and wait.signal.storage.name == "done"


def test_waits_alone_and_of_other_streams_are_their_own_kernels(machine):
    names = [name for name, _ in captured(machine, apart)]
    assert names == ["apart_advance", "apart_wait_loaded", "apart_wait_loaded", "apart_wait_loaded"]


def test_calls_that_are_not_captured_leave_signals_to_the_driver(machine):
    machine.library.log.clear()
    handshake(torch.zeros(4))
    signals = [entry[0] for entry in machine.library.log if entry[0] in ("write", "wait")]
    assert signals == ["write", "write", "wait", "wait", "write"]
    assert [source.name for source, _, _ in machine.triton.launches] == ["handshake_wait_value"]  # it has no "ne"


@pytest.mark.parametrize("seed", range(4))
def test_ranks_meet_in_the_kernel(seed):
    """On simulated ranks: none leaves the kernel of a call before all have come to it."""
    writes = [BuiltinPart("write_loaded", f"here.py:{peer}:0", ("RELEASES", peer == 1)) for peer in range(1, RANKS)]
    waits = [BuiltinPart("wait_loaded", "here.py:9:0", ("CMP", "ge"))] * (RANKS - 1)
    text = builtin_sequence("meet", [*writes, *waits])
    came = [0] * RANKS

    def main():
        ditron.init()
        group = ditron.current_group()
        rank, view = ditron.rank(), group.world
        kernel = view.compile(text, {})
        signals = ditron.symm_zeros(RANKS, dtype=torch.int64)
        value, stream, seen = torch.zeros(1, dtype=torch.int64), view.stream(), []
        at = lambda index: signals.data_ptr() + 8 * index  # noqa: E731
        others = [(rank + step) % RANKS for step in range(1, RANKS)]
        tensors = [("signals", signals), ("value", value)]
        for call in (1, 2, 3):
            came[rank] = call
            value.fill_(call)
            slots = [slot for peer in others for slot in (at(rank), value.data_ptr(), peer)]
            slots += [slot for peer in others for slot in (at(peer), value.data_ptr())]
            stream.launch(kernel, (1, 1, 1), [*slots, 0], group=group.handle, tensors=tensors, line="here")
            view.synchronize(stream)
            seen.append(all(number >= call for number in came))
        return seen

    for seen in ditron.sim.run(main, ranks=RANKS, seed=seed):
        assert seen == [True] * 3
