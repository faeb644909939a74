"""The numbers that calls find when they are counted on the GPU: eager, captured and replayed in any order.

    torchrun --nproc-per-node 1 test/gpu/check_counting.py [--calls 3000]

Each program of a kernel stores the number of its call. Calls of two programs follow each other on streams that change: one
whose kernels count them, and one that is counted by a kernel before its own. Every number is compared.
"""

from __future__ import annotations

import argparse
import faulthandler
import random
import sys
from typing import Any

import torch
import triton.language as tl

import ditron
import ditron.host as dh

PROGRAMS = 1500  # more than run at once


@ditron.jit(do_not_specialize=["epoch"])
def tell(out_ptr, epoch):
    tl.store(out_ptr + tl.program_id(0), epoch)


@ditron.program
def counted_by_kernels(out):
    half = out.shape[0] // 2
    tell[(half,)](out, dh.epoch())
    with dh.stream("beside"):
        tell[(half,)](out[half:], dh.epoch())


@ditron.program
def counted_before(out):
    twice = dh.epoch() * 2 - dh.epoch()
    tell[(out.shape[0],)](out, twice)
    dh.signal_write(dh.symm_zeros(1, dtype=torch.int64, name="signal")[0], dh.epoch(), dh.rank())


def check(program: Any, calls: int, seed: int) -> None:
    draw, device = random.Random(seed), ditron.device()
    out = torch.zeros(2 * PROGRAMS, dtype=torch.int64, device=device)
    expected = torch.zeros(1, dtype=torch.int64, device=device)
    bad = torch.zeros(1, dtype=torch.int64, device=device)
    streams = [torch.cuda.current_stream(), *(torch.cuda.Stream() for _ in range(2))]

    def call() -> None:
        program(out)
        expected.add_(1)
        bad.add_((out != expected).sum())

    for _ in range(3):
        call()
    torch.cuda.synchronize()
    graphs = []
    for count in (1, 3):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in range(count):
                call()
        graphs.append(graph)
        for _ in range(seed % 2):  # eager calls before the first replay, or not
            call()
    before = streams[0]
    made = {"eager": 0, "replayed": 0}
    for number in range(calls):
        stream = streams[0] if draw.random() < 0.7 else draw.choice(streams)
        stream.wait_stream(before)
        with torch.cuda.stream(stream):
            if draw.random() < 0.6:
                call()
                made["eager"] += 1
            else:
                draw.choice(graphs).replay()
                made["replayed"] += 1
        before = stream
        if number % 500 == 499:
            torch.cuda.synchronize()
            faulthandler.dump_traceback_later(60, exit=True)
    torch.cuda.synchronize()
    assert int(bad) == 0, f"{program}, seed {seed}: {int(bad)} wrong numbers in {made}"
    assert int(expected) > calls
    if ditron.rank() == 0:
        print(f"{program.__name__}, seed {seed}: {made}, {int(expected)} calls, every number right", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--calls", type=int, default=3000)
    args = parser.parse_args()
    faulthandler.dump_traceback_later(60, exit=True)
    ditron.init()
    for program in (counted_by_kernels, counted_before):
        for seed in range(2):
            check(program, args.calls, seed)
            program.free()
    ditron.finalize()
    return 0


if __name__ == "__main__":
    sys.exit(main())
