"""Captured waits beside programs that wait: a warning where they have no place on an SM, as far as there is no GPU."""

import warnings
from types import SimpleNamespace

import pytest
import torch
import triton.language as tl
from fake_cuda import H200

import ditron
import ditron.host as dh
import ditron.language as dl

# ruff: noqa: F811 - tests take the fixture by its name


@ditron.jit(do_not_specialize=["epoch"])
def wait_and_use(x_ptr, arrived_ptr, out_ptr, epoch):
    token = dl.wait(arrived_ptr, 1, epoch)
    tl.store(out_ptr, tl.load(dl.consume_token(x_ptr, token)))


@ditron.jit
def use(x_ptr, out_ptr):
    tl.store(out_ptr, tl.load(x_ptr))


def program(kernel_waits, programs, num_warps):
    @ditron.program
    def exchange(x, out):
        rank, ranks, epoch = dh.rank(), dh.num_ranks(), dh.epoch()
        inbox = dh.symm_empty(8, dtype=x.dtype, name="inbox")
        arrived = dh.symm_zeros(1, dtype=torch.int64, name="arrived")
        done = dh.symm_zeros(1, dtype=torch.int64, name="done")
        if kernel_waits:
            wait_and_use[(programs,)](inbox, arrived, out, epoch, num_warps=num_warps)
        else:
            use[(programs,)](inbox, out, num_warps=num_warps)
        with dh.stream("copy"):
            dh.signal_write(done[0], epoch, (rank + 1) % ranks)
            dh.signal_wait(done[0], epoch)
            dh.rank_copy(x, inbox, (rank + 1) % ranks)
            dh.signal_write(arrived[0], epoch, (rank + 1) % ranks)

    return exchange


def warned(machine, registers, **options):
    """The warnings of a captured call; kernels take so many registers a thread."""
    machine.triton.utils.load_binary = lambda name, *_: (77, 1234, registers if "use" in name else 32, 0, 1024)
    exchange = program(**options)
    exchange(torch.zeros(8), torch.zeros(8))
    machine.capturing, machine.library.capture = True, 1
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        exchange(torch.zeros(8), torch.zeros(8))
    return [str(entry.message) for entry in caught if entry.category is RuntimeWarning]


def test_no_registers_are_left(machine):
    (text,) = warned(machine, 254, kernel_waits=True, programs=132, num_warps=8)
    assert "'exchange' in a CUDA graph: 132 programs of kernel 'wait_and_use'" in text and "maxnreg=232" in text
    assert "65536 of 65536 registers" in text and "stream 'copy'" in text and "test_program_cuda_residency.py:" in text


@pytest.mark.parametrize(
    "options",
    [
        dict(registers=228, programs=132),  # 6144 are left
        dict(registers=254, programs=131),  # an SM is free
        dict(registers=254, programs=132, kernel_waits=False),  # they end
    ],
    ids=str,
)
def test_a_place_is_left(machine, options):
    assert warned(machine, **{"kernel_waits": True, "num_warps": 8} | options) == []


@pytest.mark.parametrize("warps, registers, programs, fits", [(4, 64, 7 * 132, True), (4, 64, 8 * 132, False)])
def test_several_programs_on_an_sm(warps, registers, programs, fits):
    kernel = SimpleNamespace(registers=registers * 32 * warps, shared=0)
    assert H200.has_place(kernel, programs, SimpleNamespace(registers=1024, shared=0)) is fits


def test_no_shared_memory_is_left():
    kernel, other = SimpleNamespace(registers=1 << 15, shared=232448), SimpleNamespace(registers=1024, shared=0)
    assert not H200.has_place(kernel, 132, other)
    assert H200.has_place(kernel, 131, other)
