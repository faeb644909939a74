"""Counts of this rank alone in captured calls: waits for them are memory operations, as far as there is no GPU."""

import pytest
import torch
import triton.language as tl

import ditron
import ditron.host as dh
import ditron.language as dl

# ruff: noqa: F811 - tests take the fixture by its name


@ditron.jit(do_not_specialize=["n"])
def count_tiles(x_ptr, counts_ptr, n):
    tl.store(x_ptr + tl.program_id(0), 1.0)
    dl.notify(counts_ptr + tl.program_id(0) % n, dl.rank(), 1, op="add", scope="gpu")


@ditron.program
def push_counted(x, out):
    """Rows are pushed when the kernel has counted them; of as many rows as x has."""
    rank, ranks, epoch = dh.rank(), dh.num_ranks(), dh.epoch()
    inbox = dh.symm_empty(4, 8, dtype=x.dtype, name="inbox")
    counts = dh.symm_zeros(8, dtype=torch.int64, name="counts")
    count_tiles[(8 * x.shape[0],)](x, counts, x.shape[0])
    with dh.stream("copy"):
        for row in dh.range(x.shape[0]):
            dh.signal_wait(counts[row], epoch * 8)
            dh.rank_copy(x[row], inbox[row], (rank + 1) % ranks)


@ditron.program
def waits_twice(x, out):
    """The same count is awaited on two streams: who comes first must not clear it."""
    counts = dh.symm_zeros(1, dtype=torch.int64, name="counts")
    count_tiles[(8,)](x, counts, 1)
    for name in ("one", "other"):
        with dh.stream(name):
            dh.signal_wait(counts[0], dh.epoch() * 8)


def run(machine, program, rows=3, capturing=False):
    machine.capturing = capturing
    machine.library.capture = 1 if capturing else 0
    machine.library.log.clear()
    launches = len(machine.triton.launches)
    program(torch.zeros(rows, 8), torch.zeros(rows, 8))
    return machine.library.log, machine.triton.launches[launches:]


def test_captured_waits_for_counts_are_memory_operations(machine):
    log, _ = run(machine, push_counted)
    counts = machine.group.tensors["push_counted.counts"].data_ptr()
    assert [entry[1:3] for entry in log if entry[0] == "wait"] == [(counts + 8 * row, 8) for row in range(3)]
    log, launches = run(machine, push_counted, capturing=True)
    batches = [entry for entry in log if entry[0] == "batch"]
    own = batches[0][2]  # counts of captured calls are others
    assert own != counts
    expected = [(kind, own + 8 * row, value) for row in range(3) for kind, value in (("wait", 8), ("write", 0))]
    assert [entry[1:4] for entry in batches] == expected
    assert {entry[4] for entry in batches} == {1000 + sum(map(ord, "copy"))}
    assert not [entry for entry in log if entry[0] == "wait"]
    (kernel,) = [arguments for _, _, arguments in launches if arguments[-2] == 3]  # the other one counts calls
    assert kernel[1] == own and len(launches) == 2
    log, _ = run(machine, push_counted)  # calls after a capture are of that form, too
    assert [entry[1:4] for entry in log if entry[0] == "batch"] == expected


def test_other_sizes_leave_nothing_behind(machine):
    """A call that waits for other signals clears all of them, before and after."""
    for rows in (3, 2):
        run(machine, push_counted, rows)
    log, _ = run(machine, push_counted, 3, capturing=True)
    own = [entry for entry in log if entry[0] == "batch"][0][2]
    assert not [entry for entry in log if entry[0] == "fill"]
    log, _ = run(machine, push_counted, 2, capturing=True)
    assert [entry[1:4] for entry in log if entry[0] == "batch"] == [("wait", own + 8 * row, 8) for row in range(2)]
    places = [index for index, entry in enumerate(log) if entry[0] == "fill" and entry[1] in (own, own + 4)]
    waits = [index for index, entry in enumerate(log) if entry[0] == "batch"]
    assert len(places) == 4 and places[1] < waits[0] and waits[-1] < places[2]
    assert {log[index][-1] for index in places} == {0}


def test_a_count_that_is_awaited_twice_is_cleared_at_the_end(machine):
    run(machine, waits_twice, 1)
    log, _ = run(machine, waits_twice, 1, capturing=True)
    batches = [entry for entry in log if entry[0] == "batch"]
    assert [entry[1] for entry in batches] == ["wait", "wait"] and len({entry[2] for entry in batches}) == 1
    assert [entry[0] for entry in log if entry[0] in ("batch", "fill")] == ["fill"] * 2 + ["batch"] * 2 + ["fill"] * 2


@pytest.mark.parametrize("why", ("the driver cannot", "the sanitizer"))
def test_kernels_wait_where_memory_operations_cannot(machine, why):
    if why == "the driver cannot":
        machine.library.batches = False
    else:
        machine.group.sanitize = 1
    run(machine, push_counted)
    machine.library.batches = True
    log, launches = run(machine, push_counted, capturing=True)
    assert not [entry for entry in log if entry[0] == "batch"]
    assert len(launches) == 2 + 3  # the waits are kernels
