"""Which signals count on one rank alone: a kernel that adds to its own, streams that wait for what a call adds."""

from __future__ import annotations

import pytest
import torch
import triton.language as tl

import ditron
import ditron.host as dh
import ditron.language as dl
from ditron.kernels.gemm_rs import gemm_rs_program
from ditron_compiler.analysis.own_counts import own_counts
from ditron_compiler.ir.dialects import ditron as dialect


def counts_of(program, *args, **kwargs):
    module = program.module(*args, **kwargs)
    (op,) = (op for op in module.body.operations if isinstance(op, dialect.ProgramOp))
    return own_counts(op)


def test_the_counts_of_gemm_rs():
    assert set(counts_of(gemm_rs_program, **gemm_rs_program.sample_args(2))) == {"counts"}


@ditron.jit
def add(x_ptr, counts_ptr, B: tl.constexpr):
    for tile in range(tl.program_id(0), 8, 2):
        at = counts_ptr + tile % 2
        if tile > 1:
            dl.notify(at, dl.rank(), 1, op="add", scope="gpu")
    tl.store(x_ptr, 1.0)


@ditron.jit
def add_there(x_ptr, counts_ptr, B: tl.constexpr):
    dl.notify(counts_ptr, (dl.rank() + 1) % dl.num_ranks(), 1, op="add")


@ditron.jit
def set_it(x_ptr, counts_ptr, B: tl.constexpr):
    dl.notify(counts_ptr, dl.rank(), 1)


@ditron.jit
def add_and_read(x_ptr, counts_ptr, B: tl.constexpr):
    dl.notify(counts_ptr, dl.rank(), 1, op="add")
    dl.wait(counts_ptr, 1, 1)


@ditron.jit
def add_by_symm_at(x_ptr, counts_ptr, B: tl.constexpr):
    dl.notify(counts_ptr, dl.rank(), 1, op="add")
    dl.atomic_add(dl.symm_at(counts_ptr, (dl.rank() + 1) % dl.num_ranks()), 1, scope="node")


def program_of(kernel, wait, extra=lambda counts: None, zeroed=True):
    make = dh.symm_zeros if zeroed else dh.symm_empty

    @ditron.program
    def counting(x):
        counts = make(4, dtype=torch.int64, name="counts")
        kernel[(2,)](x, counts, B=8)
        with dh.stream("copy"):
            wait(counts)
        extra(counts)

    return counting


WAIT = lambda counts: dh.signal_wait(counts[0], dh.epoch() * 4)  # noqa: E731


def test_what_counts():
    x = torch.zeros(8)
    assert counts_of(program_of(add, WAIT), x) == {"counts": 4}
    assert counts_of(program_of(add, lambda counts: dh.signal_wait(counts[1], dh.epoch())), x) == {"counts": 1}


@pytest.mark.parametrize("kernel", (add_there, set_it, add_and_read, add_by_symm_at), ids=lambda k: k.__name__)
def test_kernels_that_do_more_than_add(kernel):
    assert counts_of(program_of(kernel, WAIT), torch.zeros(8)) == {}


@pytest.mark.parametrize(
    "program",
    [
        program_of(add, lambda counts: dh.signal_wait(counts[0], dh.epoch() * 4 - 4)),
        program_of(add, lambda counts: dh.signal_wait(counts[0], dh.epoch() * 4, cmp="eq")),
        program_of(add, lambda counts: dh.signal_wait(counts[0], 4)),
        program_of(add, lambda counts: None),
        program_of(add, WAIT, lambda counts: dh.signal_wait(counts[1], dh.epoch() * 5)),
        program_of(add, WAIT, lambda counts: dh.signal_write(counts[0], dh.epoch(), 0)),
        program_of(add, WAIT, lambda counts: dh.fill(counts, 0)),
        program_of(add, WAIT, zeroed=False),
    ],
)
def test_programs_that_use_them_otherwise(program):
    assert counts_of(program, torch.zeros(8)) == {}
