"""Programs of a plain kernel that store the same at the same place, as kernels of many packages do: that is no race."""

import pytest
import torch
import triton
import triton.language as tl

import ditron
from ditron import sim

N = 64


@triton.jit
def store(out, value, differs, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(out + i, value + tl.where(i == 5, tl.program_id(0) * differs, 0))


@triton.jit
def store_and_go_on(out, value, differs, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(out + i, value + tl.where(i == 5, tl.program_id(0) * differs, 0))
    tl.store(out + B + tl.program_id(0), 1)


@triton.jit
def store_by_two_lines(out, value, differs, B: tl.constexpr):
    if tl.program_id(0) == 0:
        tl.store(out + tl.arange(0, B), value)
    else:
        tl.store(out + tl.arange(0, B), value)


@triton.jit
def store_and_read(out, value, differs, B: tl.constexpr):
    if tl.program_id(0) < 2:
        tl.store(out + tl.arange(0, B), value)
    else:
        tl.store(out + B, tl.load(out))


def _main(kernel, differs, symmetric):
    ditron.init()
    zeros = ditron.symm_zeros if symmetric else torch.zeros
    out = zeros(2 * N, dtype=torch.int32)
    kernel[(4,)](out, 7, differs, B=N)
    return out[:N].tolist()


def _run(kernel, differs=0, symmetric=False, seed=0):
    return sim.run(_main, 1, seed=seed, args=(kernel, differs, symmetric))[0]


@pytest.mark.parametrize("kernel", [store, store_and_go_on])
@pytest.mark.parametrize("seed", range(5))
def test_the_same_value_is_no_race(kernel, seed):
    assert _run(kernel, seed=seed) == [7] * N


@pytest.mark.parametrize("kernel", [store, store_and_go_on])
def test_another_value_is(kernel):
    """Also where only one element of the tile is another one; the report is as ever."""
    with pytest.raises(ditron.RaceError) as caught:
        _run(kernel, differs=1)
    line = kernel.fn.__code__.co_firstlineno + 3
    assert "race on out[5] of rank 0: nothing orders this store and a store by rank 0" in str(caught.value)
    assert [place.split(":")[-2] for place in (caught.value.location, *caught.value.others)] == [str(line)] * 2


@pytest.mark.parametrize("kernel", [store_by_two_lines, store_and_read])
def test_so_are_other_lines_and_readers(kernel):
    with pytest.raises(ditron.RaceError):
        _run(kernel)


def test_so_is_symmetric_memory():
    """Others may see there what is stored later."""
    with pytest.raises(ditron.RaceError):
        _run(store, symmetric=True)


@ditron.jit
def store_distributed(out, value, differs, B: tl.constexpr):
    tl.store(out + tl.arange(0, B), value)


def test_so_are_kernels_of_ditron():
    """Their author is here to mend it."""
    with pytest.raises(ditron.RaceError):
        _run(store_distributed)
