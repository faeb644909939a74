"""Calls after a capture whose kernels count them: one launch, as before; what the kernels do, on the simulator."""

import pytest
import torch
import triton.language as tl

import ditron
import ditron.host as dh
from ditron import DitronError
from ditron._program.execute import builtin_kernels, cuda
from ditron._program.execute.kernels import with_count

# ruff: noqa: F811 - tests take the fixture by its name


@ditron.jit(do_not_specialize=["epoch"])
def tell(out_ptr, epoch):
    tl.store(out_ptr + tl.program_id(0), epoch)


@ditron.jit(do_not_specialize=["epoch", "last"])
def tell_twice(out_ptr, epoch, last):
    tl.store(out_ptr + tl.program_id(0), epoch + last)


@ditron.program
def tells(out):
    signals = dh.symm_zeros(2, dtype=torch.int64, name="signals")
    tell[(out.shape[0],)](out, dh.epoch())
    with dh.stream("side"):
        tell[(2,)](signals, dh.epoch())


@ditron.program
def tells_once(out):
    tell[(out.shape[0],)](out, dh.epoch())


@ditron.program
def tells_two_numbers(out):
    tell_twice[(out.shape[0],)](out, dh.epoch(), dh.epoch() - 1)


@ditron.program
def tells_another_number(out):
    tell[(out.shape[0],)](out, 2 * dh.epoch())


@ditron.program
def tells_early(out):
    tell[(out.shape[0],)](out, dh.epoch(), launch_pdl=True)


@ditron.program
def tells_and_signals(out):
    tell[(out.shape[0],)](out, dh.epoch())
    dh.signal_write(dh.symm_zeros(1, dtype=torch.int64, name="signals")[0], 1, 1)


@ditron.program
def launches_alone(out):
    tell[(out.shape[0],)](out, 7)
    tell[(1,)](out, 8)


def launched(machine, program, capturing=False, stream=5, rows=6):
    machine.capturing, machine.stream, machine.library.capture = capturing, stream, int(capturing)
    machine.library.log.clear()
    machine.triton.launches.clear()
    program(torch.zeros(rows, dtype=torch.int64))
    return [(source.name, arguments) for source, _, arguments in machine.triton.launches]


def test_calls_after_a_capture_are_counted_by_their_kernels(machine):
    for _ in range(3):
        assert [name for name, _ in launched(machine, tells)] == ["tell", "tell"]
    [(_, (count, cells, before, _)), *kernels] = launched(machine, tells, capturing=True)
    assert before == 3 and cells % 16 == 0
    assert [arguments[1] for _, arguments in kernels] == [cells] * 2  # where the number of calls before is
    loaded = len(machine.group.loaded)
    [(advance, _), *kernels] = launched(machine, tells)  # sets the count that those after it add to
    assert advance == "tells_advance" and [arguments[1] for _, arguments in kernels] == [count + 16] * 2
    words = []
    for stream in (5, 5, 6, 5):
        kernels = launched(machine, tells, stream=stream)
        assert [name for name, _ in kernels] == ["tell", "tell"]
        assert kernels[0][1][1] == kernels[1][1][1]
        words.append(kernels[0][1][1] - count)
    assert words == [0, 8, 0, 8]
    [(_, (_, again, _, _)), *kernels] = launched(machine, tells, capturing=True)
    assert again % 16 == 0 and again >= cells + 16
    assert len(launched(machine, tells)) == 2
    assert len(machine.group.loaded) == loaded  # loading code could wait for what waits for this rank


@pytest.mark.parametrize("program", (tells_two_numbers, tells_another_number, tells_early, tells_and_signals))
def test_other_programs_are_counted_before_their_kernels(machine, program):
    launched(machine, program)
    for capturing in (True, False, False):
        assert launched(machine, program, capturing)[0][0] == f"{program.fn.__name__}_advance"


def test_a_call_without_programs_is_counted(machine):
    """Of an empty grid nothing is launched; other ranks' grids may not be empty."""
    for capturing in (False, True, False, False):
        launched(machine, tells_once, capturing, rows=16)
    for rows, names in ((0, ["tells_once_advance"]), (16, ["tell"]), (0, ["tells_once_advance"]), (16, ["tell"])):
        assert [name for name, _ in launched(machine, tells_once, rows=rows)] == names
    assert launched(machine, tells_once, capturing=True, rows=0)[0][0] == "tells_once_advance"


def test_calls_of_launches_alone_have_no_number_and_no_order(machine):
    """They keep no memory: in a graph nothing but their kernels is left, so that each begins behind the one before."""
    for capturing, stream in ((False, 5), (True, 5), (True, 6), (False, 6), (False, 5)):
        kernels = launched(machine, launches_alone, capturing, stream)
        assert [(name, arguments[1]) for name, arguments in kernels] == [("tell", 7), ("tell", 8)]
        assert not machine.library.log  # no event is recorded or awaited


def test_the_call_after_one_that_failed_is_counted_before_its_kernels(machine, monkeypatch):
    """Whether the kernels of the one that failed have counted it is not known."""
    for capturing in (False, True, False, False):
        launched(machine, tells, capturing)
    loaded = len(machine.group.loaded)
    with monkeypatch.context() as patch, pytest.raises(DitronError, match="recording an event"):
        patch.setattr(cuda.driver(), "_record", lambda event, stream: 700)
        launched(machine, tells)
    [(name, (count, *_)), *kernels] = launched(machine, tells)
    assert name == "tells_advance" and [arguments[1] for _, arguments in kernels] == [count + 16] * 2
    assert [name for name, _ in launched(machine, tells)] == ["tell", "tell"]
    assert len(machine.group.loaded) == loaded


def test_what_kernels_and_captured_calls_count():
    """Each call of either kind finds the number that follows that of the call before it, in all of its programs."""

    def main():
        ditron.init()
        executable, _ = tells.executable_and_arguments({"out": "i64[6]"})
        view, group = ditron.current_group().world, ditron.current_group()
        kernel = view.compile(with_count(executable.kernel("tell"), 1), {})
        count, values = torch.zeros(2, dtype=torch.int64), torch.zeros(2, dtype=torch.int64)
        assert count.data_ptr() % 16 == 0
        seen, expected, word = [], 3, 0
        for captured in (True, False, False, False, True, True, False, True, False, False):
            out, where = torch.zeros(6, dtype=torch.int64), values
            if captured:
                builtin_kernels._advance[(1,)](count, values, 3, SLOPES=(1, 1), OFFSETS=(-1, 0))
            else:
                word, where = 1 - word, count
            slots = [out.data_ptr(), where.data_ptr() + 8 * word * (not captured)]
            slots += [0] * (len(kernel.arg_types) - len(slots))
            stream = view.stream()
            tensors = [("out", out), ("count", where)]
            stream.launch(kernel, (6, 1, 1), slots, group=group.handle, tensors=tensors, line="here")
            view.synchronize(stream)
            expected += 1
            seen.append(out.tolist() == [expected] * 6)
            assert int(count.max()) == expected
        return seen

    assert all(ditron.sim.run(main, ranks=1)[0])
