"""GEMM + AllReduce for few rows: one kernel streams the weight once and sends finished tiles, as words or packets.

The product's time is that of reading B. A program computes all rows of some columns, so that nothing is added between
programs of a GPU; its tile goes to every rank as a message, and the tiles that come back are added in fp32.
"""

from __future__ import annotations

from collections.abc import Iterator

import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

import ditron
import ditron.host as dh
from ditron._program.program import Program
from ditron.distributed.group import Group
from ditron.kernels.exchange import packet_boxes, send_packets_to_all, sum_of_packets
from ditron.kernels.tiles import row_product
from ditron.kernels.words import (
    WORDS_OF_THREAD,
    peer_boxes,
    receive_from_all,
    send_words,
    sum_from_all,
    word_boxes,
    words_of,
)
from ditron.tuning.problem import Options, Problem
from ditron_compiler.errors import DitronError

__all__ = ["fused_candidates", "fused_schedule", "gemm_ar_row_program", "gemm_ar_small_program"]


@ditron.jit
def sum_of_words(words, count, boxes_ptr, epoch, DTYPE: tl.constexpr, RANKS: tl.constexpr):
    """Send the first ``count`` of this program's ``words`` [w] to every rank; the sums of their elements over ranks,
    [w, n].
    """
    WORDS: tl.constexpr = words.shape[0]
    kept = tl.num_programs(0) * WORDS
    first = tl.program_id(0) * WORDS
    at = tl.arange(0, WORDS)
    to = peer_boxes(boxes_ptr, kept, epoch, RANKS)
    for step in tl.static_range(RANKS):
        # A store has no mask: what does not travel is stored at this rank, where nobody reads it.
        send_words(tl.where(at < count, to[step], to[RANKS - 1]) + first + at, words, epoch)
    return sum_from_all(first + tl.minimum(at, count - 1), boxes_ptr, kept, epoch, DTYPE, RANKS)


@ditron.jit
def exchange_words(acc, out_ptr, boxes_ptr, tile, M, N, epoch, RANKS: tl.constexpr):
    """Send the ``M`` rows of ``acc`` [columns, rows] to every rank, add theirs, and store the sum to ``out`` [M, N].

    A word has two rows of a column.
    """
    BN: tl.constexpr = acc.shape[0]
    PAIRS: tl.constexpr = acc.shape[1] // 2
    DTYPE: tl.constexpr = out_ptr.dtype.element_ty
    pairs = words_of(tl.reshape(acc.to(DTYPE), (BN, PAIRS, 2)))
    words = tl.reshape(tl.trans(pairs), (PAIRS * BN,))
    total = sum_of_words(words, tl.cdiv(M, 2) * BN, boxes_ptr, epoch, DTYPE, RANKS)
    word = tl.arange(0, PAIRS * BN)[:, None]
    row = word // BN * 2 + tl.arange(0, 2)[None, :]
    col = tile * BN + word % BN
    tl.store(out_ptr + row.to(tl.int64) * N + col, total.to(DTYPE), mask=(row < M) & (col < N))


@ditron.jit
def exchange_packets(acc, tile_ptr, out_ptr, boxes_ptr, tile, M, N, epoch, PROTOCOL: tl.constexpr):
    """As :func:`exchange_words`, by packets, from ``tile``, and to it."""
    BN: tl.constexpr = acc.shape[0]
    BM: tl.constexpr = acc.shape[1]
    # Only rows that there are travel: they come first in the tile.
    at = tl.arange(0, BN)[:, None] + tl.arange(0, BM)[None, :] * BN
    tl.store(tile_ptr + at, acc.to(out_ptr.dtype.element_ty))
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
    RANKS: tl.constexpr,
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
    if PROTOCOL == "ll":
        exchange_words(acc, out_ptr, boxes_ptr, tile, M, N, epoch, RANKS)
    else:
        tile_ptr = tiles_ptr + tile.to(tl.int64) * (BM * BN)
        exchange_packets(acc, tile_ptr, out_ptr, boxes_ptr, tile, M, N, epoch, PROTOCOL)


@ditron.jit(do_not_specialize=["epoch"])
def gemm_ar_row_kernel(
    a_ptr,
    b_ptr,
    out_ptr,
    boxes_ptr,
    N,
    K,
    epoch,
    BN: tl.constexpr,
    BK: tl.constexpr,
    STAGES: tl.constexpr,
    COPIES: tl.constexpr,
    RANKS: tl.constexpr,
):
    """A program for each ``BN`` columns of the one row of A times the transpose of B, summed over ranks.

    A word is an element in fp32. ``COPIES`` threads poll each, as :func:`receive_words` asks.
    """
    tile = tl.program_id(0)
    total = row_product(a_ptr, b_ptr, tile, N, K, BN, BK, STAGES)
    kept = tl.num_programs(0) * BN
    copy = tl.arange(0, COPIES)[:, None]
    col = tile * BN + tl.broadcast_to(tl.arange(0, BN)[None, :], (COPIES, BN))
    words = tl.broadcast_to(total[None, :], (COPIES, BN)).to(tl.int32, bitcast=True)
    to = peer_boxes(boxes_ptr, kept, epoch, RANKS)
    for step in tl.static_range(RANKS):
        # A store has no mask: what would travel twice is stored at this rank, as its own word is.
        send_words(tl.where(copy == 0, to[step], to[RANKS - 1]) + col, words, epoch)
    received = receive_from_all(col, boxes_ptr, kept, epoch, RANKS)
    total = tl.sum(received.to(tl.float32, bitcast=True), 0)
    tl.store(out_ptr + col, total.to(out_ptr.dtype.element_ty), mask=(copy == 0) & (col < N))


@ditron.program(
    example={"a": "bf16[16, 3584]", "b": "bf16[8192, 3584]", "out": "bf16[16, 8192]", "num_ranks": 4},
    sample_args=lambda ranks: {
        "a": "bf16[3, 48]",
        "b": "bf16[40, 48]",
        "out": "bf16[3, 40]",
        "num_ranks": ranks,
        "rows": 4,
        "block": (32, 32),
    },
    max_nodes=1,
)
def gemm_ar_small_program(
    a, b, out, *, num_ranks, b_is_kn=False, rows=16, block=(64, 256), num_warps=4, stages=4, protocol="ll"
):
    """``out`` [M, N] = sum over ranks of ``a`` [M, K] times ``b`` [N, K] transposed; M is at most ``rows``,
    a power of two, on GPUs 16 or more.

    ``b`` is ``[K, N]`` if b_is_kn. ``protocol``: ``"ll"`` for words, ``"ll128"`` for packets.
    """
    (M, N), K = out.shape, a.shape[1]
    BM, (BN, BK) = rows, block
    tiles = dh.cdiv(N, BN)
    if protocol == "ll":
        boxes, unsummed = word_boxes(tiles * BM * BN // 2), out
    else:
        boxes = packet_boxes(tiles, BM * BN, out.dtype)
        unsummed = dh.empty(tiles * BM * BN, dtype=out.dtype, name="tiles")
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
        RANKS=num_ranks,
        num_warps=num_warps,
        num_stages=stages,
    )


@ditron.program(
    example={"a": "bf16[1, 3584]", "b": "bf16[8192, 3584]", "out": "bf16[1, 8192]", "num_ranks": 4},
    sample_args=lambda ranks: {
        "a": "bf16[1, 48]",
        "b": "bf16[40, 48]",
        "out": "bf16[1, 40]",
        "num_ranks": ranks,
        "block": (32, 32),
    },
    max_nodes=1,
)
def gemm_ar_row_program(a, b, out, *, num_ranks, block=(16, 512), num_warps=4, stages=3):
    """As :func:`gemm_ar_small_program`, of one row, and ``b`` [N, K]."""
    (_, N), K = out.shape, a.shape[1]
    BN, BK = block
    tiles = dh.cdiv(N, BN)
    copies = max(WORDS_OF_THREAD * 32 * num_warps // (triton.next_power_of_2(num_ranks) * BN), 1)
    gemm_ar_row_kernel[(tiles,)](
        a,
        b,
        out,
        word_boxes(tiles * BN),
        N,
        K,
        dh.epoch(),
        BN=BN,
        BK=BK,
        STAGES=stages,
        COPIES=copies,
        RANKS=num_ranks,
        num_warps=num_warps,
    )


#: Of a result, up to which words are faster than packets (docs/results/tuning.md).
WORD_BYTES = 384 << 10

#: Rows of all ranks' tiles that 128 threads poll at once: the words of more do not fit their registers.
MOST_POLLED_ROWS = 256


def fused_schedule(M: int, N: int, b_is_kn: bool, group: Group, given: Options) -> tuple[Program, Options]:
    """The program for ``M`` rows of ``N`` and its keyword arguments: ``given``, and others."""
    if M == 1 and not b_is_kn and "rows" not in given:
        chosen = {"num_ranks": group.num_ranks} | ({"block": (32, 32)} if group.small_shapes else {})
        return gemm_ar_row_program, chosen | given
    rows = given.get("rows", max(16, 1 << (M - 1).bit_length()))
    is_small = rows <= 16 or (2 * M * N <= WORD_BYTES and rows * group.num_ranks <= MOST_POLLED_ROWS)
    protocol = "ll" if is_small or not group.has_nvlink else "ll128"
    block, stages = ((64, 256), 4) if rows <= 32 and protocol == "ll" else ((64, 128), 6 if rows <= 64 else 4)
    chosen = {
        "num_ranks": group.num_ranks,
        "rows": rows,
        "block": (32, 32) if group.small_shapes else block,
        "stages": stages,
        "protocol": protocol,
    } | given
    words, threads = chosen["rows"] * chosen["block"][0] // 2, 32 * chosen.get("num_warps", 4)
    if chosen["protocol"] == "ll" and not group.is_sim and not _has_words_for(threads, words, group.num_ranks):
        raise DitronError(
            f"gemm_ar: a tile of {chosen['rows']} rows and {chosen['block'][0]} columns is too small for {threads} "
            "threads, each of which polls four words or more: give a wider block=, fewer num_warps= or protocol='ll128'"
        )
    return gemm_ar_small_program, chosen


def _has_words_for(threads: int, words: int, ranks: int) -> bool:
    """Whether so many threads can poll ``words`` of each rank, as :func:`receive_words` asks."""
    return triton.next_power_of_2(ranks) * words >= WORDS_OF_THREAD * threads


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
