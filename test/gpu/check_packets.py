"""Small messages as packets on real GPUs, whose size changes from call to call, some without any bytes.

    torchrun --nproc-per-node 2 test/gpu/check_packets.py --table table.md
    ditron run --sim 3 test/gpu/check_packets.py --calls 40

A message of no bytes is a flag: a call of such messages keeps ranks together as any other does, so a rank that lags by
calls must not lose what came meanwhile. Each rank's messages of a call have one size, another than its last.
"""

from __future__ import annotations

import argparse
import datetime
import faulthandler
import random
from pathlib import Path

import torch
import triton.language as tl

import ditron
import ditron.language as dl

SIZES = 0, 0, 0, 4, 16, 100, 120, 120, 1024  # bytes of a message
MOST = max(SIZES)


def gather(src_ptr, table_ptr, signal_ptr, nbytes_ptr, epoch, MOST: tl.constexpr):
    """A program for each distance; ``nbytes_ptr`` has the size of each rank's messages in this call."""
    rank, num_ranks = dl.rank(), dl.num_ranks()
    to = (rank + tl.program_id(0)) % num_ranks
    nbytes = tl.load(nbytes_ptr + rank)
    dl.putmem_signal(table_ptr + rank * MOST, src_ptr, nbytes, signal_ptr + rank, epoch, to)
    dl.wait(signal_ptr + (rank + num_ranks - tl.program_id(0)) % num_ranks, 1, epoch)
    dl.quiet()


KERNELS = {
    name: ditron.jit(gather, pipeline=name, do_not_specialize=["epoch"])
    for name in ("low-latency-ll", "low-latency-ll128")
}


def check(kernel, calls: int) -> int:
    """Number of calls of which a row was wrong; looked at only at the end, so that calls follow each other."""
    rank, num_ranks, device = ditron.rank(), ditron.num_ranks(), ditron.device()
    table = ditron.symm_zeros(2, num_ranks, MOST, dtype=torch.uint8, name="table")
    signals = ditron.symm_packets(num_ranks, nbytes=MOST, name="signals")
    chance, late = random.Random(1), random.Random(2)
    sizes = [[chance.choice(SIZES) for _ in range(num_ranks)] for _ in range(calls)]
    taken = []
    for call in range(calls):
        if device.type == "cuda" and late.randrange(num_ranks) == rank:
            torch.cuda._sleep(late.randrange(200_000))
        src = torch.full((MOST,), (call * 7 + rank) % 251, dtype=torch.uint8, device=device)
        nbytes = torch.tensor(sizes[call], dtype=torch.int64, device=device)
        kernel[num_ranks,](src, table[call % 2], signals, nbytes, call + 1, MOST=MOST, num_warps=4)
        taken.append(table[call % 2].clone())
    if device.type == "cuda":
        torch.cuda.synchronize()
    wrong = 0
    for call, rows in enumerate(taken):
        wrong += any(not (rows[r, :n].cpu() == (call * 7 + r) % 251).all() for r, n in enumerate(sizes[call]))
    ditron.barrier()
    return wrong


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--calls", type=int, default=1000)
    parser.add_argument("--table", help="append the table there")
    parser.add_argument("--limit", type=float, default=100, help="seconds until a rank that hangs is ended")
    args = parser.parse_args()
    faulthandler.dump_traceback_later(args.limit, exit=True)
    ditron.init()
    rows = [(name, check(kernel, args.calls)) for name, kernel in KERNELS.items()]
    if ditron.rank() == 0:
        text = f"\nPackets of changing sizes, {ditron.num_ranks()} ranks, {datetime.date.today()}\n\n"
        text += "| pipeline | calls | wrong |\n| --- | ---: | ---: |\n"
        text += "".join(f"| {name} | {args.calls} | {wrong} |\n" for name, wrong in rows)
        print(text, flush=True)
        if args.table:
            with Path(args.table).open("a") as file:
                file.write(text)
    assert not any(wrong for _, wrong in rows), rows


if __name__ == "__main__":
    main()
