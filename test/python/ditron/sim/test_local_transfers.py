"""Nonblocking transfers from and to tensors that are not symmetric, which outlive the launch that issues them."""

from __future__ import annotations

import pytest
import torch
import triton.language as tl

import ditron
import ditron.language as dl

N = 64


@pytest.fixture(autouse=True)
def as_written(monkeypatch):
    monkeypatch.setenv("DITRON_PIPELINE", "as-written")


@ditron.jit
def send(data, source, flags, N: tl.constexpr, QUIET: tl.constexpr):
    dl.putmem_nbi(data, source, N * 4, 1 - dl.rank())
    if QUIET:
        dl.quiet()


@ditron.jit
def fetch(data, target, flags, N: tl.constexpr, QUIET: tl.constexpr):
    dl.getmem_nbi(target, data, N * 4, 1 - dl.rank())
    if QUIET:
        dl.quiet()


@ditron.jit
def send_and_await(data, source, flags, N: tl.constexpr, QUIET: tl.constexpr):
    """The signal that comes back follows the put."""
    peer = 1 - dl.rank()
    dl.putmem_signal_nbi(data, source, N * 4, flags, 1, peer)
    dl.wait(flags, 1, 1)
    dl.notify(flags + 1, peer, 1)
    dl.wait(flags + 1, 1, 1)


@ditron.jit
def read(source, out, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(out + at, tl.load(source + at))


@ditron.jit
def write(source, out, N: tl.constexpr):
    tl.store(source + tl.arange(0, N), 2.0)


def start(kernel, quiet: bool) -> torch.Tensor:
    ditron.init()
    data = ditron.symm_zeros(N, dtype=torch.float32, name="data")
    flags = ditron.symm_zeros(2, dtype=torch.int64, name="flags")
    own = torch.ones(N)
    ditron.barrier()
    kernel[(1,)](data, own, flags, N=N, QUIET=quiet)
    return own


def refilled_by_host(kernel, quiet):
    start(kernel, quiet).fill_(2.0)
    ditron.barrier()


def refilled_after_a_barrier(kernel, quiet):
    own = start(kernel, quiet)
    ditron.barrier()
    own.fill_(2.0)


def refilled_by_a_kernel(kernel, quiet):
    own = start(kernel, quiet)
    write[(1,)](own, torch.zeros(N), N=N)
    ditron.barrier()


def read_by_a_kernel(kernel, quiet):
    own = start(kernel, quiet)
    read[(1,)](own, torch.zeros(N), N=N)
    ditron.barrier()


def read_by_host(kernel, quiet):
    start(kernel, quiet).sum()
    ditron.barrier()


def read_by_host_on_a_stream(kernel, quiet):
    with ditron.sim.current_world().stream("side"):
        own = start(kernel, quiet)
    ditron.sim.current_world().synchronize()
    own.sum()
    ditron.barrier()


@pytest.mark.parametrize(
    "main, kernel, name",
    [
        (refilled_by_host, send, "source"),
        (refilled_by_a_kernel, send, "source"),
        (read_by_a_kernel, fetch, "source"),
        (refilled_by_a_kernel, fetch, "source"),
        (read_by_host, fetch, "target"),
        (read_by_host_on_a_stream, fetch, "target"),
    ],
)
def test_without_quiet_it_is_a_race(main, kernel, name):
    for seed in range(10):
        with pytest.raises(ditron.RaceError) as caught:
            ditron.sim.run(main, ranks=2, seed=seed, args=(kernel, False))
        assert f"race on {name}[0] of rank" in str(caught.value) and "dl.quiet()" in str(caught.value), caught.value
        assert all("test_local_transfers.py" in place for place in (caught.value.location, *caught.value.others))


@pytest.mark.parametrize(
    "main, kernel, quiet",
    [
        (refilled_by_host, send, True),
        (refilled_by_a_kernel, send, True),
        (refilled_by_host, send_and_await, False),
        (refilled_by_a_kernel, send_and_await, False),
        (refilled_after_a_barrier, send, False),
        (refilled_after_a_barrier, fetch, False),
        (read_by_a_kernel, send, False),
        (read_by_host, send, False),
        (read_by_a_kernel, fetch, True),
        (read_by_host, fetch, True),
        (read_by_host_on_a_stream, fetch, True),
    ],
)
def test_what_is_ordered_is_none(main, kernel, quiet):
    for seed in range(10):
        ditron.sim.run(main, ranks=2, seed=seed, args=(kernel, quiet))
