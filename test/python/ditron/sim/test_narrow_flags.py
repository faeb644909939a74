"""Flags of 32 bits, of which two share eight bytes: each has a release sequence of its own."""

from __future__ import annotations

import pytest
import torch
import triton.language as tl

import ditron
import ditron.language as dl

N = 32
SEEDS = range(50)


@pytest.fixture(autouse=True)
def as_written(monkeypatch):
    monkeypatch.setenv("DITRON_PIPELINE", "as-written")


@ditron.jit
def a_flag_per_program(data, flags, out, N: tl.constexpr):
    at = tl.program_id(0) * N + tl.arange(0, N)
    peer = 1 - dl.rank()
    tl.store(dl.symm_at(data, peer) + at, 1.0)
    dl.st(dl.symm_at(flags, peer) + tl.program_id(0), 1, scope="node", semantic="release")
    while dl.ld(flags + tl.program_id(0), scope="node", semantic="acquire") < 1:
        pass
    tl.store(out + at, tl.load(data + at))


@ditron.jit
def relaxed_counter_beside_a_release(data, flags, out, N: tl.constexpr):
    at = tl.program_id(0) * N + tl.arange(0, N)
    peer = 1 - dl.rank()
    tl.store(dl.symm_at(data, peer) + at, 1.0)
    there = dl.symm_at(flags, peer)
    dl.red(there + 1, 1, scope="node", semantic="release")
    dl.red(there, 1, scope="node", semantic="relaxed")
    while dl.ld(flags, scope="node", semantic="acquire") < 1:
        pass
    tl.store(out + at, tl.load(data + at))


@ditron.jit
def half_of_a_signal(data, flags, out, N: tl.constexpr):
    at = tl.arange(0, N)
    peer = 1 - dl.rank()
    tl.store(dl.symm_at(data, peer) + at, 1.0)
    dl.notify(flags, peer, 1)
    low = flags.to(tl.pointer_type(tl.int32))
    while dl.ld(low, scope="node", semantic="acquire") < 1:
        pass
    tl.store(out + at, tl.load(data + at))


def on_rank(kernel, programs: int, dtype: torch.dtype) -> None:
    ditron.init()
    data = ditron.symm_zeros(programs, N, dtype=torch.float32, name="data")
    flags = ditron.symm_zeros(4, dtype=dtype, name="flags")
    kernel[(programs,)](data, flags, torch.zeros(programs, N), N=N)
    ditron.barrier()


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_neighbouring_flags_are_no_race(dtype):
    for seed in SEEDS:
        ditron.sim.run(on_rank, ranks=2, seed=seed, args=(a_flag_per_program, 2, dtype))


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_a_release_to_the_neighbour_orders_nothing(dtype):
    with pytest.raises(ditron.RaceError, match=r"data\[0, \d+\] of rank"):
        for seed in SEEDS:
            ditron.sim.run(on_rank, ranks=2, seed=seed, args=(relaxed_counter_beside_a_release, 1, dtype))


def test_a_poll_of_half_a_signal_acquires_it():
    for seed in SEEDS:
        ditron.sim.run(on_rank, ranks=2, seed=seed, args=(half_of_a_signal, 1, torch.int64))
