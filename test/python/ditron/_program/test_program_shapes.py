"""Ranks that call a program with different shapes: the simulator notices, in the first call and in later ones."""

from __future__ import annotations

import pytest
import torch
import triton.language as tl
from fake_cuda import machine

import ditron
import ditron.host as dh
import ditron.language as dl
from ditron import SimulationError

# ruff: noqa: F811 - a test takes the fixture by its name

__all__ = ["machine"]


@ditron.program
def exchange(x, out):
    """Memory is for 16 rows at most, so that calls of several sizes share it and allocate nothing."""
    right = (dh.rank() + 1) % dh.num_ranks()
    inbox = dh.symm_empty(16, x.shape[1], dtype=x.dtype, name="inbox")
    dh.barrier()
    dh.rank_copy(x, inbox[: x.shape[0]], right)
    dh.barrier()
    dh.copy(inbox[: x.shape[0]], out)


def call(rows, dtype=torch.float32):
    x, out = torch.full((rows, 2), 1.0 + ditron.rank()).to(dtype), torch.zeros(rows, 2, dtype=dtype)
    exchange(x, out)
    left = (ditron.rank() - 1) % ditron.num_ranks()
    assert torch.equal(out, torch.full((rows, 2), 1.0 + left).to(dtype))


def test_sizes_may_change_from_call_to_call():
    def main():
        ditron.init()
        for rows in (3, 16, 3, 5, 16):
            call(rows)
        if pair := ditron.new_group([2, 0]):  # others make other calls
            with pair:
                call(7)
        call(4)

    for seed in range(3):
        ditron.sim.run(main, ranks=3, seed=seed)


@pytest.mark.parametrize("before", (0, 2))
@pytest.mark.parametrize("rows", ((4, 5), (4, 16)))
def test_different_shapes_are_an_error(before, rows):
    def main():
        ditron.init()
        for _ in range(before):
            call(4)
        call(rows[ditron.rank()])

    message = r"argument 'x' is float32\[\d+, 2\] on rank \d and float32\[\d+, 2\] on rank \d: all ranks call"
    with pytest.raises(SimulationError, match=message):
        ditron.sim.run(main, ranks=2)


def test_different_dtypes_are_an_error():
    def main():
        ditron.init()
        call(4)
        call(4, (torch.float32, torch.int32)[ditron.rank()])

    with pytest.raises(SimulationError, match="(float32|int32).* and (float32|int32)"):
        ditron.sim.run(main, ranks=2)


@ditron.jit
def double_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr, ADD_RANK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    more = dl.rank() if ADD_RANK else 0
    tl.store(out_ptr + i, 2 * tl.load(x_ptr + i, mask=i < n) + more, mask=i < n)


@ditron.program
def double(x, out, *, add_rank=False, scratch=False, parts=False):
    if scratch:
        dh.copy(x[:3], dh.symm_empty(4, dtype=torch.float32, name="scratch")[:3])
    n = x.shape[0]
    double_kernel[(dh.cdiv(n, 16),)](x, out, n * x.stride(0) // x.stride(0), BLOCK=16, ADD_RANK=add_rank)
    if parts:
        double_kernel[(1,)](x[1:], out[1:], n - 1, BLOCK=16, ADD_RANK=False)


def test_a_local_program_is_of_one_rank():
    """Some ranks call it, as often and with what they like."""

    def main():
        ditron.init()
        for rows in range(1, 1 + 20 * ditron.rank(), 7):
            x = torch.arange(rows, dtype=torch.float32)
            double(x, out := torch.zeros(rows))
            assert torch.equal(out, 2 * x)
        call(4)

    ditron.sim.run(main, ranks=3)


@pytest.mark.parametrize("what", ["add_rank", "scratch"])
def test_what_asks_for_the_rank_or_allocates_is_not_local(what):
    def main():
        ditron.init()
        rows = 3 + ditron.rank()
        double(torch.zeros(rows), torch.zeros(rows), **{what: True})

    with pytest.raises(SimulationError, match="all ranks call a program with the same shapes"):
        ditron.sim.run(main, ranks=2)


@pytest.mark.parametrize(
    "options, barriers", [({}, 0), ({"parts": True}, 0), ({"add_rank": True}, 1), ({"scratch": True}, 2)]
)
@pytest.mark.parametrize("x", [torch.zeros(32), torch.zeros(64)[::2]], ids=["dense", "strided"])
def test_on_gpus_a_local_program_waits_for_no_rank(machine, monkeypatch, x, options, barriers):
    """However its arguments lie: ranks whose lie otherwise would not agree."""
    waited = []
    monkeypatch.setattr(type(machine.group), "barrier", lambda group: waited.append(1))
    double._executables.clear()
    for _ in range(2):
        double(x, torch.zeros(32), **options)
    assert len(waited) == barriers
