"""Kernels and a program that the tests of the simulator's streams share."""

from __future__ import annotations

from pathlib import Path

import torch
import triton.language as tl

import ditron
import ditron.language as dl
from ditron import sim


@ditron.jit
def add_one(x, out, N: tl.constexpr):
    at = tl.program_id(0) * N + tl.arange(0, N)
    tl.store(out + at, tl.load(x + at) + 1)


@ditron.jit
def await_then_add(signal, value, x, out, N: tl.constexpr):
    """Every program waits for the signal first: a consumer that holds its place on an SM."""
    dl.wait(signal, 1, value)
    at = tl.program_id(0) * N + tl.arange(0, N)
    tl.store(out + at, tl.load(x + at) + 1)


@ditron.jit
def overwrite(x, N: tl.constexpr):
    tl.store(x + tl.arange(0, N), tl.full([N], -1.0, tl.float32))


def all_gather(*, signal_from: str = "copy", event: bool = True, overwrites: bool = False, peeks: bool = False):
    """Rank r's rows go to its peer; correct unless one of these says otherwise."""
    ditron.init()
    view = sim.current_world()
    rows = view.alloc((2, 32), torch.float32, name="rows", undefined=True)
    arrived = view.alloc((1,), torch.int64, name="arrived")
    x, out, peer = torch.zeros(32), torch.zeros(32), 1 - view.rank
    copy, main = view.stream("copy"), view.stream()
    with main:
        add_one[(1,)](torch.ones(32), x, N=32)
    made = main.record()
    if event:
        copy.wait_event(made)
    copy.rank_copy(x, rows[view.rank], peer, names=("x", "rows"))  # the copy
    view.stream(signal_from).signal_write(arrived, 1, peer=peer)  # the signal
    with main:
        await_then_add[(1,)](arrived, 1, rows[peer], out, N=32)
        if overwrites:
            overwrite[(1,)](x, N=32)
    if peeks:
        out.sum()
    main.wait_event(copy.record())
    view.synchronize(main)
    return out.tolist()


def on_ranks(function, ranks: int = 2, seeds: int = 8, **machine):
    """The results of each seed are the same; return one."""
    results = [sim.run(function, ranks, seed=seed, **machine) for seed in range(seeds)]
    assert all(result == results[0] for result in results)
    return results[0]


def line_of(text: str, file: str = __file__) -> str:
    """`file:line` where the text stands in a file, without its folder."""
    (line,) = (
        n for n, line in enumerate(Path(file).read_text().splitlines(), 1) if text in line and "line_of(" not in line
    )
    return f"{Path(file).name}:{line}"
