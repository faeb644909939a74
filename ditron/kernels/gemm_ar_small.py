"""GEMM + AllReduce for few rows: one kernel that streams the weight once and sends each finished tile as packets.

The product's time is that of reading B. A program computes all rows of some columns, so that nothing is added between
programs of a GPU; its tile goes to every rank as a message, and the tiles that come back are added in fp32.
"""

from __future__ import annotations

from collections.abc import Iterator

import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

import ditron
import ditron.host as dh
from ditron._program.program import Program
from ditron.distributed.group import Group
from ditron.kernels.exchange import packet_boxes, send_packets_to_all, sum_of_packets
from ditron.kernels.tiles import row_product
from ditron.tuning.problem import Options, Problem

__all__ = ["fused_candidates", "fused_schedule", "gemm_ar_row_program", "gemm_ar_small_program"]


@ditron.jit
def exchange_tile(
    out_ptr, tile_ptr, boxes_ptr, tile, M, N, epoch, BM: tl.constexpr, BN: tl.constexpr, PROTOCOL: tl.constexpr
):
    """Send a tile's ``M`` rows to every rank, add theirs, and store the sum to ``out`` [M, N]."""
    count = M * BN
    blocks = tl.num_programs(0)
    send_packets_to_all(tile_ptr, 0, count, boxes_ptr, tile, blocks, epoch, BM * BN, PROTOCOL)
    total = sum_of_packets(tile_ptr, tile_ptr, count, boxes_ptr, tile, blocks, epoch, BM * BN, PROTOCOL)
    within = tl.arange(0, BM * BN)
    col = tile * BN + within % BN
    target_ptr = out_ptr + (within // BN).to(tl.int64) * N + col
    tl.store(target_ptr, total.to(out_ptr.dtype.element_ty), mask=(within < count) & (col < N))


@ditron.jit(do_not_specialize=["epoch"])
def gemm_ar_small_kernel(
    a_desc,
    b_desc,
    out_ptr,
    tiles_ptr,
    boxes_ptr,
    M,
    N,
    K,
    epoch,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    B_IS_KN: tl.constexpr,
    PROTOCOL: tl.constexpr,
):
    """A program for each ``BN`` columns: A times the transpose of B there, summed over ranks.

    The weight is the left operand of the tensor cores, which has 64 rows or more, and A, which has few, the right one.
    """
    tile = tl.program_id(0)
    acc = tl.zeros((BN, BM), tl.float32)
    for k in range(0, K, BK):
        a = a_desc.load([0, k])
        if B_IS_KN:
            acc = tl.dot(b_desc.load([k, tile * BN]).T, a.T, acc)
        else:
            acc = tl.dot(b_desc.load([tile * BN, k]), a.T, acc)
    # Only rows that there are travel: they come first in the tile.
    tile_ptr = tiles_ptr + tile.to(tl.int64) * (BM * BN)
    at = tl.arange(0, BN)[:, None] + tl.arange(0, BM)[None, :] * BN
    tl.store(tile_ptr + at, acc.to(out_ptr.dtype.element_ty))
    exchange_tile(out_ptr, tile_ptr, boxes_ptr, tile, M, N, epoch, BM, BN, PROTOCOL)


@ditron.jit(do_not_specialize=["epoch"])
def gemm_ar_row_kernel(
    a_ptr,
    b_ptr,
    out_ptr,
    tiles_ptr,
    boxes_ptr,
    N,
    K,
    epoch,
    BN: tl.constexpr,
    BK: tl.constexpr,
    STAGES: tl.constexpr,
    PROTOCOL: tl.constexpr,
):
    """A program for each ``BN`` columns of the one row of A times the transpose of B, summed over ranks."""
    tile = tl.program_id(0)
    total = row_product(a_ptr, b_ptr, tile, N, K, BN, BK, STAGES)
    tile_ptr = tiles_ptr + tile * BN
    tl.store(tile_ptr + tl.arange(0, BN), total.to(out_ptr.dtype.element_ty))
    exchange_tile(out_ptr, tile_ptr, boxes_ptr, tile, 1, N, epoch, 1, BN, PROTOCOL)


@ditron.program(
    example={"a": "bf16[16, 3584]", "b": "bf16[8192, 3584]", "out": "bf16[16, 8192]"},
    sample_args=lambda ranks: {
        "a": "bf16[5, 48]",
        "b": "bf16[40, 48]",
        "out": "bf16[5, 40]",
        "block": (32, 32),
    },
    max_nodes=1,
)
def gemm_ar_small_program(a, b, out, *, b_is_kn=False, rows=16, block=(64, 256), num_warps=4, stages=4, protocol="ll"):
    """``out`` [M, N] = sum over ranks of ``a`` [M, K] times ``b`` [N, K] transposed; M is at most ``rows``,
    a power of two, 16 or more.

    ``b`` is ``[K, N]`` if b_is_kn.
    """
    (M, N), K = out.shape, a.shape[1]
    BM, (BN, BK) = rows, block
    tiles = dh.cdiv(N, BN)
    unsummed = dh.empty(tiles * BM * BN, dtype=out.dtype, name="tiles")
    boxes = packet_boxes(tiles, BM * BN, out.dtype)
    gemm_ar_small_kernel[(tiles,)](
        TensorDescriptor.from_tensor(a, [BM, BK]),
        TensorDescriptor.from_tensor(b, [BK, BN] if b_is_kn else [BN, BK]),
        out,
        unsummed,
        boxes,
        M,
        N,
        K,
        dh.epoch(),
        BM=BM,
        BN=BN,
        BK=BK,
        B_IS_KN=b_is_kn,
        PROTOCOL=protocol,
        num_warps=num_warps,
        num_stages=stages,
    )


@ditron.program(
    example={"a": "bf16[1, 3584]", "b": "bf16[8192, 3584]", "out": "bf16[1, 8192]"},
    sample_args=lambda ranks: {"a": "bf16[1, 48]", "b": "bf16[40, 48]", "out": "bf16[1, 40]", "block": (32, 32)},
    max_nodes=1,
)
def gemm_ar_row_program(a, b, out, *, block=(16, 512), num_warps=4, stages=3, protocol="ll"):
    """As :func:`gemm_ar_small_program`, of one row, and ``b`` [N, K]."""
    (_, N), K = out.shape, a.shape[1]
    BN, BK = block
    tiles = dh.cdiv(N, BN)
    unsummed = dh.empty(tiles * BN, dtype=out.dtype, name="tiles")
    boxes = packet_boxes(tiles, BN, out.dtype)
    gemm_ar_row_kernel[(tiles,)](
        a,
        b,
        out,
        unsummed,
        boxes,
        N,
        K,
        dh.epoch(),
        BN=BN,
        BK=BK,
        STAGES=stages,
        PROTOCOL=protocol,
        num_warps=num_warps,
    )


def fused_schedule(M: int, b_is_kn: bool, group: Group, given: Options) -> tuple[Program, Options]:
    """The program for ``M`` rows and its keyword arguments: ``given``, and others."""
    if M == 1 and not b_is_kn and "rows" not in given:
        return gemm_ar_row_program, ({"block": (32, 32)} if group.small_shapes else {}) | given
    rows = max(16, 1 << (M - 1).bit_length())
    block, stages = ((64, 256), 4) if M <= 16 else ((64, 128), 6 if M <= 64 else 4)
    protocol = "ll128" if M > 16 and group.has_nvlink else "ll"
    chosen = {"rows": rows, "block": (32, 32) if group.small_shapes else block, "stages": stages, "protocol": protocol}
    return gemm_ar_small_program, chosen | given


def fused_candidates(problem: Problem) -> Iterator[Options]:
    """Schedules of the fused kernel that are worth measuring."""
    if problem.rows > 128 or problem.dtype == "fp32" or any(n * problem.itemsize % 16 for n in (problem.N, problem.K)):
        return
    if problem.rows == 1:
        for columns, depth, stages in ((16, 512, 3), (16, 512, 4), (8, 512, 4)):
            yield {"algorithm": "fused", "block": (columns, depth), "stages": stages}
        return
    for columns, depth, stages in ((64, 128, 6), (64, 256, 4), (64, 128, 4)):
        if stages * depth * (max(problem.rows, 16) + columns) * problem.itemsize < 224 << 10:
            for protocol in (
                ("ll", "ll128") if problem.rows > 16 or problem.rows == 16 and problem.ranks > 2 else ("ll",)
            ):
                yield {"algorithm": "fused", "block": (columns, depth), "stages": stages, "protocol": protocol}
