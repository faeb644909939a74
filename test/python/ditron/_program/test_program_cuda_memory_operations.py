"""Signals that streams write and wait for by memory operations: in batches, and in graphs where values are constant."""

import pytest
import torch
from fake_cuda import RANKS

import ditron
import ditron.host as dh
from ditron._program.execute.driver import WAIT_FLAGS
from ditron.kernels.pushes import handshake

COPY = 1000 + sum(map(ord, "copy"))


@ditron.program
def meet(x, out, *, cmp="ge"):
    done = dh.symm_zeros(dh.num_ranks(), dtype=torch.int64, name="done")
    with dh.stream("copy"):
        handshake(done)
        dh.copy(x, out)
        dh.signal_wait(done[0], 0, cmp=cmp)


def operations(machine):
    """What each batch of the log did: ("write" or "wait", signal, value), signals by their numbers."""
    first = machine.group.tensors["meet.done"].data_ptr()
    bases = [buffer.data_ptr() for buffer in machine.group.heap.buffers]
    entries = [entry for entry in machine.library.log if entry[0] == "batch"]
    assert {entry[4] for entry in entries} == {COPY}

    def place(address):
        (rank,) = (r for r, base in enumerate(bases) if 0 <= address - base < machine.group.heap.buffer.nbytes)
        return rank, (address - bases[rank] - (first - bases[0])) // 8

    return [(kind, *place(address), value) for _, kind, address, value, _ in entries]


HANDSHAKE = [  # of rank 0
    *[("write", peer, 0, 1) for peer in range(1, RANKS)],
    *[entry for peer in range(1, RANKS) for entry in (("wait", 0, peer, 1), ("write", 0, peer, 0))],
]


def test_a_handshake_is_one_call_of_the_driver(machine):
    meet(torch.randn(8), torch.empty(8))
    machine.library.log.clear()
    machine.library.batch_sizes.clear()
    meet(torch.randn(8), torch.empty(8))
    assert operations(machine) == HANDSHAKE and machine.library.batch_sizes == [len(HANDSHAKE)]
    assert [entry[0] for entry in machine.library.log if entry[0] in ("write", "wait")] == ["wait"]  # behind the copy


def test_constant_signals_are_memory_operations_in_graphs(machine):
    x, out = torch.randn(8), torch.empty(8)
    meet(x, out)
    machine.capturing, machine.stream = True, 5
    for _ in range(2):  # the first one asks whether the driver can
        machine.library.log.clear()
        machine.library.batch_sizes.clear()
        machine.triton.launches.clear()
        meet(x, out)
    assert operations(machine) == [*HANDSHAKE, ("wait", 0, 0, 0)]
    assert machine.library.batch_sizes == [len(HANDSHAKE), 1]  # the copy is between them
    assert [source.name for source, _, _ in machine.triton.launches] == ["meet_advance"]
    assert not [entry for entry in machine.library.log if entry[0] == "copy" and entry[3] == 8]


@ditron.program
def write_many(x):
    signals = dh.symm_zeros(300, dtype=torch.int64, name="signals")
    for index in dh.range(0, 300):
        dh.signal_write(signals[index], dh.epoch(), dh.rank())
    dh.copy(x, x)


def test_batches_are_as_large_as_the_driver_takes(machine):
    for call in range(1, 3):
        machine.library.batch_sizes.clear()
        write_many(torch.zeros(4))
        assert machine.library.batch_sizes == [255, 45]
        assert set(machine.group.tensors["write_many.signals"].tolist()) == {call}


@pytest.mark.parametrize("batches, cmp", [(False, "ge"), (True, "ne")])
def test_what_no_memory_operation_can_do_is_a_kernel(machine, batches, cmp):
    assert "ne" not in WAIT_FLAGS
    x, out = torch.randn(8), torch.empty(8)
    meet(x, out, cmp=cmp)
    machine.library.batches, machine.capturing, machine.stream = batches, True, 5
    machine.triton.launches.clear()
    meet(x, out, cmp=cmp)
    kernels = [source.name for source, _, _ in machine.triton.launches]
    assert kernels == ["meet_advance", *["meet_wait_value"] * (1 if batches else RANKS)]
