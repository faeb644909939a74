"""The five examples on real GPUs, at a small, an odd and a full-size shape, against torch in fp32.

    torchrun --nproc-per-node 4 test/gpu/check_examples.py --transport p2p --table table.md

Each row is one example at one shape: the largest error over all ranks and calls, and its bound. A rank that fails
brings the others down (torchrun ends them); a rank that hangs is ended by ``--limit`` seconds per row.
"""

from __future__ import annotations

import argparse
import datetime
import faulthandler
import sys
import time
from pathlib import Path

import torch
import triton

import ditron

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples"))
import ag_gemm  # noqa: E402
import all_gather  # noqa: E402
import gemm_rs  # noqa: E402
import ll_all_gather  # noqa: E402
import put_signal  # noqa: E402
import ring  # noqa: E402

GEMM = dict(num_warps=8, num_stages=3)

# (example, shape in words, bound of the error, what runs it); shapes are per rank.
ROWS = [
    ("ring", "1 000 elements", 1e-5, lambda: ring.check(1000)),
    ("ring", "4 097 elements", 1e-5, lambda: ring.check(4097)),
    ("ring", "8 388 608 elements", 1e-5, lambda: ring.check(8 << 20)),
    ("put_signal", "1 024 elements", 0, lambda: put_signal.check(1024)),
    ("put_signal", "30 001 elements", 0, lambda: put_signal.check(30001)),
    ("put_signal", "16 777 216 elements", 0, lambda: put_signal.check(16 << 20)),
    ("all_gather", "4 096 elements", 0, lambda: all_gather.check(4096)),
    ("all_gather", "10 007 elements", 0, lambda: all_gather.check(10007)),
    ("all_gather", "2048 x 8192 elements", 0, lambda: all_gather.check(2048 * 8192, chunk=65536)),
    ("ll_all_gather", "4 elements, ll", 0, lambda: ll_all_gather.check(4, calls=50, protocol="ll")),
    ("ll_all_gather", "4 elements, ll128", 0, lambda: ll_all_gather.check(4, calls=50, protocol="ll128")),
    ("ll_all_gather", "3 001 elements, ll", 0, lambda: ll_all_gather.check(3001, calls=50, protocol="ll")),
    ("ll_all_gather", "3 001 elements, ll128", 0, lambda: ll_all_gather.check(3001, calls=50, protocol="ll128")),
    ("ll_all_gather", "32 768 elements, ll128", 0, lambda: ll_all_gather.check(32768, calls=50, protocol="ll128")),
    ("ag_gemm", "M/rank 256, N 256, K 256", 8e-3, lambda: ag_gemm.check(256, 256, 256, **GEMM)),
    ("ag_gemm", "M/rank 333, N 200, K 328", 8e-3, lambda: ag_gemm.check(333, 200, 328, **GEMM)),
    ("ag_gemm", "M/rank 77, N 131, K 67", 8e-3, lambda: ag_gemm.check(77, 131, 67, **GEMM)),
    (
        "ag_gemm",
        "M 8192, N 28672/4, K 8192",
        8e-3,
        lambda: ag_gemm.check(8192 // ditron.num_ranks(), 28672 // 4, 8192, **GEMM),
    ),
    ("gemm_rs", "M/rank 256, N 256, K 256", 1.5e-2, lambda: gemm_rs.check(256, 256, 256, **GEMM)),
    ("gemm_rs", "M/rank 333, N 200, K 328", 1.5e-2, lambda: gemm_rs.check(333, 200, 328, **GEMM)),
    ("gemm_rs", "M/rank 77, N 131, K 67", 1.5e-2, lambda: gemm_rs.check(77, 131, 67, **GEMM)),
    (
        "gemm_rs",
        "M 8192, N 8192, K 28672/4",
        1.5e-2,
        lambda: gemm_rs.check(8192 // ditron.num_ranks(), 8192, 28672 // 4, **GEMM),
    ),
]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--transport", default="p2p")
    parser.add_argument("--table", type=Path, help="append the table to this file")
    parser.add_argument("--only", default="", help="rows whose example contains this word")
    parser.add_argument("--small", action="store_true", help="leave out the full-size rows, each example's last")
    parser.add_argument("--limit", type=int, default=90, help="seconds a row may take")
    args = parser.parse_args()

    ditron.init(transport=args.transport, heap_bytes=6 << 30)
    rank = ditron.rank()
    table = [f"| example ({args.transport}) | shape | error | bound | s |", "|---|---|---|---|---|"]
    failed = 0
    for name, shape, bound, run in ROWS:
        full_size = (name, shape) == [(n, s) for n, s, *_ in ROWS if n == name][-1]
        if args.only not in name or (args.small and full_size):
            continue
        if rank == 0:
            print(f"{args.transport}: {name}, {shape} ...", flush=True)
        faulthandler.dump_traceback_later(args.limit, exit=True)
        start = time.perf_counter()
        errors = ditron.all_gather_object(run())
        faulthandler.cancel_dump_traceback_later()
        error = max(errors)
        failed += not error <= bound
        row = f"| {name} | {shape} | {error:.1e} | {bound:g} | {time.perf_counter() - start:.1f} |"
        table.append(row)
        if rank == 0:
            print(row if error <= bound else f"FAILED {row} (per rank: {errors})", flush=True)
    if rank == 0 and args.table:
        with args.table.open("a") as file:
            file.write(
                f"\n{ditron.num_ranks()} x {torch.cuda.get_device_name()}, torch {torch.__version__}, triton "
                f"{triton.__version__}, {datetime.date.today()}: {len(table) - 2 - failed} of "
                f"{len(table) - 2} rows within their bound\n\n" + "\n".join(table) + "\n"
            )
    ditron.finalize()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
