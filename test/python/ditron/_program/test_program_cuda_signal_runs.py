"""Signals that a stream writes and waits for, one after the other: captured calls do it in one kernel."""

import pytest
import torch
from fake_cuda import RANKS

import ditron
import ditron.host as dh
from ditron._program.execute.builtin_kernels import BuiltinPart, builtin_sequence


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
    numbers = {0: "epoch", 1: "before", 2: "seven"}
    assert [given[index] for index in (0, 3, 6, 8, 10)] == [signals, signals, signals + 8, signals + 16, signals + 24]
    assert (given[2], given[5], given[11], last) == (1, 2, 5, context)
    epoch, seven, before = given[1], given[4], given[9]
    assert given[7] == epoch and sorted((epoch, seven, before)) == [values + 8 * index for index in numbers]
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
