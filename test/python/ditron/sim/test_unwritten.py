"""Copies of memory that nobody has written: who reads one is reported, whatever way it went, and nobody else."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import triton.language as tl

import ditron
import ditron.host as dh
import ditron.language as dl
from ditron import sim

N = 32
HERE = Path(__file__).name


def marked(name: str) -> str:
    """file:line of the line that ends in ``# name``."""
    lines = Path(__file__).read_text().splitlines()
    return f"{HERE}:{next(i for i, line in enumerate(lines, 1) if line.endswith(f'# {name}'))}"


@ditron.jit
def get(box, own, N: tl.constexpr, NBI: tl.constexpr):
    if NBI:
        dl.getmem_nbi(own, box, N * 4, 1 - dl.rank())  # get nbi
        dl.quiet()
    else:
        dl.getmem(own, box, N * 4, 1 - dl.rank())  # get


@ditron.jit
def load(own, out, HOW_MANY, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(out + at, tl.load(own + at, at < HOW_MANY, 0.0), at < HOW_MANY)  # load


@ditron.jit
def get_and_load(box, own, out, HOW_MANY, N: tl.constexpr, NBI: tl.constexpr):
    get(box, own, N, NBI)
    load(own, out, HOW_MANY, N)


@ditron.jit
def put_and_load(box, other, out, N: tl.constexpr):
    dl.putmem(other, box, N * 4, 1 - dl.rank())  # put
    dl.barrier_all()
    load(other, out, N, N)


@ditron.jit
def by_way_of_own_memory(box, own, other, out, WRITES: tl.constexpr, N: tl.constexpr):
    dl.getmem(own, box, N * 4, 1 - dl.rank())
    if WRITES:
        tl.store(own + tl.arange(0, N), 0.0)
    put_and_load(own, other, out, N)


def half_written() -> torch.Tensor:
    box = ditron.symm_empty(N, dtype=torch.float32, name="box")
    box[: N // 2] = 0.0
    ditron.barrier()
    return box


def found(main, *args, **machine) -> ditron.SimulationError:
    with pytest.raises(ditron.SimulationError) as caught:
        sim.run(main, 2, args=args, **machine)
    assert caught.value.kind == "unwritten", caught.value
    return caught.value


def gets(how_many: int, nbi: bool) -> None:
    ditron.init()
    get_and_load[(1,)](half_written(), torch.ones(N), torch.ones(N), how_many, N=N, NBI=nbi)


@pytest.mark.parametrize("nbi", [False, True])
def test_what_a_kernel_gets(nbi):
    sim.run(gets, 2, args=(N // 2, nbi))  # the rest was copied, and is not used
    error = found(gets, N // 2 + 1, nbi)
    assert f"this load reads own[{N // 2}] of rank" in str(error) and "a copy of uninitialized memory" in str(error)
    assert marked("load") in error.location
    [copy] = error.others
    assert marked("get nbi" if nbi else "get") in copy


def test_what_a_kernel_puts():
    def main():
        ditron.init()
        put_and_load[(1,)](half_written(), ditron.symm_zeros(N, dtype=torch.float32, name="other"), torch.ones(N), N=N)

    error = found(main)
    assert f"this load reads other[{N // 2}] of rank" in str(error) and marked("put") in error.others[0]


def test_by_way_of_own_memory():
    """What is written over a copy counts, also zeros, and goes along when it is copied on."""

    def main(writes: bool):
        ditron.init()
        other = ditron.symm_empty(N, dtype=torch.float32, name="other")
        by_way_of_own_memory[(1,)](half_written(), torch.ones(N), other, torch.ones(N), WRITES=writes, N=N)

    sim.run(main, 2, args=(True,))
    assert marked("put") in found(main, False).others[0]


def on_streams(how: str, cure: str = "") -> None:
    ditron.init()
    view, box, own, out = sim.current_world(), half_written(), torch.ones(N), torch.ones(N)
    main, side = view.stream(), view.stream("side")
    if how == "copy":
        main.copy(box, own)  # copy
    else:
        main.rank_copy(box, own, 1 - view.rank, push=False)  # pull
    if cure == "fill":
        main.fill(own, 0.0)
    elif cure == "write":
        main.copy(torch.zeros(N), own)
    elif cure == "script":
        side.wait_event(main.record())
        view.synchronize(main)  # side is not known to be over
        own.zero_()
    with main:
        load[(1,)](own, out, N // 2 if cure == "mask" else N, N=N)
    view.synchronize()


@pytest.mark.parametrize("how", ["copy", "pull"])
@pytest.mark.parametrize("ranks_per_node", [1, 2])
def test_what_streams_copy(how, ranks_per_node):
    error = found(on_streams, how, ranks_per_node=ranks_per_node)
    assert f"this load reads own[{N // 2}] of rank" in str(error) and marked("load") in error.location
    assert marked(how) in error.others[0], error
    for cure in ("fill", "write", "script", "mask"):
        for seed in range(5):
            sim.run(on_streams, 2, args=(how, cure), seed=seed, ranks_per_node=ranks_per_node)


def test_memory_that_is_used_again():
    """A tensor that a copy went to is gone once the script knows the copy to be over; another may lie there then."""

    def main():
        ditron.init()
        view, box = sim.current_world(), half_written()
        stream, other = view.stream("copies"), view.stream("other")
        flag = ditron.symm_zeros(1, dtype=torch.int64, name="flag")
        other.signal_wait(flag, 1)  # so that something is under way all the time
        own = torch.ones(N)
        stream.copy(box, own)
        view.synchronize(stream)
        own.numpy()[:] = 0.0  # not seen, like memory that torch gives out again
        with stream:
            load[(1,)](own, torch.ones(N), N, N=N)
        stream.signal_write(flag, 1)
        view.synchronize()

    sim.run(main, 2)


@ditron.program
def copied_out(box, own, out, *, how_many, N):
    dh.copy(box, own)  # copied out
    load[(1,)](own, out, how_many, N=N)


def test_what_a_program_copies():
    def main(how_many: int):
        ditron.init()
        copied_out(half_written(), torch.ones(N), torch.ones(N), how_many=how_many, N=N)
        sim.current_world().synchronize()

    sim.run(main, 2, args=(N // 2,))
    assert marked("copied out") in found(main, N).others[0]
