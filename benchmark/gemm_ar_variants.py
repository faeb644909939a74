"""GEMM + AllReduce of few rows, in graphs, on the GPUs of one host: what the weight's stream takes, and the exchange.

    torchrun --nproc-per-node 2 benchmark/gemm_ar_variants.py --rows 1 16 64 --json variants.json
    torchrun --nproc-per-node 4 benchmark/gemm_ar_variants.py --rows 16 --no-variants --schedules protocol=ll

Beside the operator, cuBLAS, NCCL and torch's all-reduces: the operator's former kernel, by packets; without exchange
(``alone``); with several tiles of a program, each sent before the next one's weight is read (``tiles``); with
programmatic dependent launch, where a call asks the L2 cache for the first columns of the weight during the exchange of
the one before (``prefetch`` columns, -1: none). ``--schedules``: the operator's one kernel, with each of these.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

import torch
import torch.distributed as dist
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait
from triton.tools.tensor_descriptor import TensorDescriptor

sys.path.insert(0, str(Path(__file__).resolve().parent))
from cases import Case, arguments, gemm_ar_peers, measure, parse_schedule, usable  # noqa: E402
from measuring import random  # noqa: E402

import ditron  # noqa: E402
import ditron.host as dh  # noqa: E402
from ditron import kernels  # noqa: E402
from ditron.kernels.exchange import packet_boxes, send_packets_to_all, sum_of_packets  # noqa: E402


@ditron.jit
def fetch_to_l2(b_ptr, row, N, K, BN: tl.constexpr, COLUMNS: tl.constexpr):
    """Ask for the first columns of rows of B, which this kernel only reads: so nothing is read too early."""
    rows = tl.minimum(row + tl.arange(0, BN), N - 1).to(tl.int64)
    columns = tl.minimum(tl.arange(0, COLUMNS // 64) * 64, K - 1)
    tl.inline_asm_elementwise(
        "prefetch.global.L2 [$1]; mov.u32 $0, 0;",
        "=r,l",
        [b_ptr + rows[:, None] * K + columns[None, :]],
        dtype=tl.int32,
        is_pure=False,
        pack=1,
    )


@ditron.jit
def exchange_of_tile(
    tile_ptr, out_ptr, boxes_ptr, tile, blocks, M, N, epoch, BM: tl.constexpr, BN: tl.constexpr, PROTOCOL: tl.constexpr
):
    """Add what other ranks have sent of a tile, and store it."""
    count = M * BN
    total = sum_of_packets(tile_ptr, tile_ptr, count, boxes_ptr, tile, blocks, epoch, BM * BN, PROTOCOL)
    within = tl.arange(0, BM * BN)
    col = tile * BN + within % BN
    target_ptr = out_ptr + (within // BN).to(tl.int64) * N + col
    tl.store(target_ptr, total.to(out_ptr.dtype.element_ty), mask=(within < count) & (col < N))


@ditron.jit(do_not_specialize=["epoch"])
def variant_kernel(
    a_desc, b_desc, b_ptr, out_ptr, tiles_ptr, boxes_ptr, M, N, K, epoch,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, PROTOCOL: tl.constexpr,
    TILES: tl.constexpr, PREFETCH: tl.constexpr, ALONE: tl.constexpr,
):  # fmt: skip
    """``TILES`` tiles of ``BN`` columns for each program."""
    blocks = tl.num_programs(0) * TILES
    first = tl.program_id(0) * TILES
    if PREFETCH > 0:
        fetch_to_l2(b_ptr, first * BN, N, K, BN, PREFETCH)
    if PREFETCH >= 0:
        gdc_wait()
    row = tl.arange(0, BM)[None, :]
    col = tl.arange(0, BN)[:, None]
    for t in tl.static_range(TILES):
        tile = first + t
        acc = tl.zeros((BN, BM), tl.float32)
        for k in range(0, K, BK):
            acc = tl.dot(b_desc.load([tile * BN, k]), a_desc.load([0, k]).T, acc)
        if PREFETCH >= 0 and t == TILES - 1:
            gdc_launch_dependents()
        tile_ptr = tiles_ptr + tile.to(tl.int64) * (BM * BN)
        value = acc.to(out_ptr.dtype.element_ty)
        if ALONE:
            tl.store(out_ptr + row * N + tile * BN + col, value, mask=(row < M) & (tile * BN + col < N))
        else:
            tl.store(tile_ptr + row * BN + col, value)
            send_packets_to_all(tile_ptr, 0, M * BN, boxes_ptr, tile, blocks, epoch, BM * BN, PROTOCOL)
    if not ALONE:
        for t in tl.static_range(TILES):
            tile = first + t
            tile_ptr = tiles_ptr + tile.to(tl.int64) * (BM * BN)
            exchange_of_tile(tile_ptr, out_ptr, boxes_ptr, tile, blocks, M, N, epoch, BM, BN, PROTOCOL)


@ditron.program(max_nodes=1)
def variant_program(
    a, b, out, *, rows=16, block=(64, 256), num_warps=4, stages=4, protocol="ll", tiles=1, prefetch=-1, alone=0
):
    (M, N), K = out.shape, a.shape[1]
    BM, (BN, BK) = rows, block
    programs = dh.cdiv(N, BN * tiles)
    unsummed = dh.empty(programs * tiles * BM * BN, dtype=out.dtype, name="tiles")
    boxes = packet_boxes(programs * tiles, BM * BN, out.dtype)
    variant_kernel[(programs,)](
        TensorDescriptor.from_tensor(a, [BM, BK]), TensorDescriptor.from_tensor(b, [BN, BK]), b, out, unsummed, boxes,
        M, N, K, dh.epoch(), BM=BM, BN=BN, BK=BK, PROTOCOL=protocol, TILES=tiles, PREFETCH=prefetch,
        ALONE=bool(alone), num_warps=num_warps, num_stages=stages, **({} if prefetch < 0 else {"launch_pdl": True}),
    )  # fmt: skip


#: By rows.
VARIANTS = {
    1: ["alone=1", "tiles=2", "prefetch=0", "prefetch=1024"],
    16: ["block=64x256,stages=4,alone=1", "tiles=2", "prefetch=1024"],
    64: [
        "block=64x128,stages=6,protocol=ll128,alone=1",
        "block=64x128,stages=4,protocol=ll128,tiles=2",
        "block=64x128,stages=6,protocol=ll128,num_warps=8",
        "block=64x128,stages=6,protocol=ll128,prefetch=1024",
    ],
    128: ["block=64x128,stages=4,protocol=ll128", "block=64x128,stages=4,protocol=ll128,num_warps=8,alone=1"],
}


def gemm_ar(args: argparse.Namespace, device: torch.device) -> Iterator[Case]:
    rank = dist.get_rank()
    for M in args.rows:
        for N, K in args.shapes:
            a, b = random(M, K, rank, device), random(N, K, 100 + rank, device)
            out = torch.empty(M, N, dtype=a.dtype, device=device)
            own = a.float() @ b.float().T
            expected = own.clone()
            dist.all_reduce(expected)
            runs = gemm_ar_peers(a, b) | {
                "ditron": lambda a=a, b=b, out=out: kernels.gemm_ar(a, b, out=out),
                "ditron, fused": lambda a=a, b=b, out=out: kernels.gemm_ar(a, b, out=out, algorithm="fused"),
            }
            for text in args.schedules:
                given = parse_schedule(text)[1] | {"algorithm": "fused"}
                runs[f"ditron, fused, {text}"] = lambda a=a, b=b, out=out, g=given: kernels.gemm_ar(a, b, out=out, **g)
            for text in () if args.no_variants else VARIANTS.get(M, ()):
                how, given = parse_schedule(text)
                given["rows"] = max(16, M)

                def variant(a=a, b=b, out=out, given=given) -> torch.Tensor | None:
                    variant_program(a, b, out, **given)
                    return None if given.get("alone") else out

                variant()
                torch.cuda.synchronize()
                if given.get("alone"):
                    error = ((out.float() - own).norm() / own.norm()).item()
                    assert error < 6e-3, (how, error)
                runs[f"ditron, {how}"] = variant
            yield Case("gemm_ar", f"M={M} {N}x{K}", usable(runs, captured=True), expected, 6e-3, calls=10)


def main() -> None:
    parser = arguments(__doc__, {"gemm_ar": gemm_ar})
    parser.add_argument("--rows", nargs="*", type=int, default=[1, 16, 64, 128])
    parser.add_argument("--schedules", nargs="*", default=[], help="of gemm_ar, such as block=64x128,protocol=ll")
    parser.add_argument("--no-variants", action="store_true", help="no kernel of this file")
    parser.add_argument(
        "--shapes", nargs="*", type=lambda t: tuple(map(int, t.split("x"))), default=[(8192, 3584), (5120, 3200)]
    )
    args = parser.parse_args()
    measure({"gemm_ar": gemm_ar}, args)


if __name__ == "__main__":
    main()
