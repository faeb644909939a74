"""GEMM + AllReduce for few rows: one kernel streams the weight once and exchanges finished tiles as words.

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
import ditron.language as dl
from ditron._program.program import Program
from ditron.distributed.group import Group
from ditron.kernels.schedules import check_schedule
from ditron.kernels.tiles import row_product
from ditron.kernels.words import (
    WORDS_OF_THREAD,
    elements_of_word,
    gather_parts,
    peer_boxes,
    ranks_to_poll,
    receive_from_all,
    send_data_words,
    send_words,
    sum_from_all,
    sum_of_ranks,
    word_boxes,
    words_of,
)
from ditron.tuning.problem import Options, Problem
from ditron_compiler.errors import DitronError

__all__ = ["fused_candidates", "fused_schedule", "gemm_ar_row_program", "gemm_ar_small_program"]


@ditron.jit
def words_of_tile(acc, DTYPE: tl.constexpr):
    """``acc`` [columns, rows] as data words [w], a word with two or four rows of a column; columns change fastest."""
    BN: tl.constexpr = acc.shape[0]
    PER: tl.constexpr = elements_of_word(DTYPE, 64)
    words = words_of(tl.reshape(acc.to(DTYPE), (BN, acc.shape[1] // PER, PER)), 64)
    return tl.reshape(tl.trans(words), (words.shape[1] * BN,))


@ditron.jit
def store_elements(out_ptr, elements, word, tile, M, N, BN: tl.constexpr):
    """To ``out`` [M, N] the elements [..., n] of words ``word`` [...] of a tile (:func:`words_of_tile`)."""
    PER: tl.constexpr = elements.shape[-1]
    word = tl.expand_dims(word, -1)
    row = word // BN * PER + tl.arange(0, PER)
    col = tile * BN + word % BN
    tl.store(out_ptr + row.to(tl.int64) * N + col, elements, mask=(row < M) & (col < N))


@ditron.jit
def exchange_words(acc, out_ptr, boxes_ptr, tile, M, N, epoch, RANKS: tl.constexpr):
    """Send the ``M`` rows of ``acc`` [columns, rows] to every rank, add theirs, and store the sum to ``out`` [M, N]."""
    BN: tl.constexpr = acc.shape[0]
    DTYPE: tl.constexpr = out_ptr.dtype.element_ty
    words = words_of_tile(acc, DTYPE)
    WORDS: tl.constexpr = words.shape[0]
    count = tl.cdiv(M, elements_of_word(DTYPE, 64)) * BN
    kept = tl.num_programs(0) * WORDS
    at = tl.arange(0, WORDS)
    to = peer_boxes(boxes_ptr, kept, epoch, RANKS)
    for step in tl.static_range(RANKS):
        # A store has no mask: what does not travel is stored at this rank, as all its own words are.
        send_data_words(tl.where(at < count, to[step], to[RANKS - 1]) + tile * WORDS + at, words)
    # Of other ranks, words that do not travel are polled as the last one that does.
    sender = ranks_to_poll(RANKS)[:, None]
    polled = tl.where(sender == dl.rank(), at[None, :], tl.minimum(at, count - 1)[None, :])
    received = receive_from_all(tile * WORDS + polled, boxes_ptr, kept, epoch, 64, RANKS)
    store_elements(out_ptr, sum_of_ranks(received, DTYPE).to(DTYPE), at, tile, M, N, BN)


@ditron.jit
def exchange_in_two_shots(acc, out_ptr, boxes_ptr, tile, M, N, epoch, RANKS: tl.constexpr):
    """As :func:`exchange_words`, each rank adding a part of all rows of ``acc`` and sending it to all.

    Behind the boxes for the parts are those for the sums.
    """
    BN: tl.constexpr = acc.shape[0]
    DTYPE: tl.constexpr = out_ptr.dtype.element_ty
    words = words_of_tile(acc, DTYPE)
    PART: tl.constexpr = words.shape[0] // RANKS
    kept = tl.num_programs(0) * PART
    at = tl.arange(0, words.shape[0])
    to = peer_boxes(boxes_ptr, kept, epoch, RANKS)
    adder_ptr = to[RANKS - 1]
    for step in tl.static_range(RANKS - 1):
        adder_ptr = tl.where(at // PART == (dl.rank() + step + 1) % RANKS, to[step], adder_ptr)
    send_data_words(adder_ptr + tile * PART + at % PART, words)
    own = tile * PART + tl.arange(0, PART)
    total = sum_from_all(own, boxes_ptr, kept, epoch, DTYPE, 64, RANKS)
    sums = gather_parts(total.to(DTYPE), tile, boxes_ptr + 2 * RANKS * kept, kept, epoch, RANKS)
    word = tl.arange(0, sums.shape[0])[:, None] * PART + tl.arange(0, PART)[None, :]
    store_elements(out_ptr, sums, word, tile, M, N, BN)


@ditron.jit(do_not_specialize=["epoch"])
def gemm_ar_small_kernel(
    a_desc,
    b_desc,
    out_ptr,
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
        exchange_in_two_shots(acc, out_ptr, boxes_ptr, tile, M, N, epoch, RANKS)


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
    received = receive_from_all(tl.expand_dims(col, 0), boxes_ptr, kept, epoch, 32, RANKS)
    total = tl.sum(received.to(tl.float32, bitcast=True), 0)
    tl.store(out_ptr + col, total.to(out_ptr.dtype.element_ty), mask=(copy == 0) & (col < N))


@ditron.program(
    example={"a": "bf16[16, 3584]", "b": "bf16[8192, 3584]", "out": "bf16[16, 8192]", "num_ranks": 4},
    sample_args=lambda ranks: {
        "a": "bf16[3, 48]",
        "b": "bf16[12, 48]",
        "out": "bf16[3, 12]",
        "num_ranks": ranks,
        "rows": 8,
        "block": (8, 32),
        "protocol": "two_shot_ll" if ranks in (2, 4) else "ll",
    },
    max_nodes=1,
)
def gemm_ar_small_program(
    a, b, out, *, num_ranks, b_is_kn=False, rows=16, block=(64, 256), num_warps=4, stages=4, protocol="ll"
):
    """``out`` [M, N] = sum over ranks of ``a`` [M, K] times ``b`` [N, K] transposed; M is at most ``rows``,
    a power of two, on GPUs 16 or more.

    ``b`` is ``[K, N]`` if b_is_kn. ``protocol``: ``"ll"``, by which every rank adds all, or ``"two_shot_ll"``, by which
    each of 1, 2, 4 or 8 ranks adds a part.
    """
    (M, N), K = out.shape, a.shape[1]
    BM, (BN, BK) = rows, block
    tiles = dh.cdiv(N, BN)
    words = tiles * BM * BN * out.dtype.itemsize // 8
    gemm_ar_small_kernel[(tiles,)](
        TensorDescriptor.from_tensor(a, [BM, BK]),
        TensorDescriptor.from_tensor(b, [BK, BN] if b_is_kn else [BN, BK]),
        out,
        word_boxes(words if protocol == "ll" else 2 * words // num_ranks),
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


#: Words that a thread polls at once: more do not fit its registers.
MOST_WORDS = 32


def protocols_for(M: int, ranks: int, columns: int = 64, threads: int = 128) -> list[str]:
    """Those by which ``threads`` can exchange ``M`` rows of ``columns`` of 16 bits, the fastest first
    (docs/results/tuning.md).
    """
    words, found = tile_rows(M) * columns // 4, []
    polled = max(triton.next_power_of_2(ranks), 2) * words // threads  # by each, in one shot
    if ranks > 2 and adds_parts(words, ranks, threads):
        found.append("two_shot_ll")
    if WORDS_OF_THREAD <= polled <= MOST_WORDS:
        found.append("ll")
    return found


def adds_parts(words: int, ranks: int, threads: int) -> bool:
    """Whether ranks can add a part each of a tile's words: each thread has one of a part, and polls enough."""
    return not ranks & (ranks - 1) and words >= max(ranks, WORDS_OF_THREAD) * threads


def tile_rows(M: int) -> int:
    """Rows of a tile that has ``M``: tensor cores take 16 or more."""
    return max(16, triton.next_power_of_2(M))


def is_schedule_of_fused(given: Options) -> bool:
    """Whether a schedule can only be of the fused kernel, and of no collective."""
    return bool(given.keys() & {"protocol", "rows", "stages"}) or isinstance(given.get("block"), tuple)


def fused_schedule(M: int, b_is_kn: bool, group: Group, given: Options) -> tuple[Program, Options]:
    """The program for ``M`` rows and its keyword arguments: ``given``, and others.

    Raises DitronError for what is no schedule of it, and for a tile that cannot be exchanged.
    """
    if M == 1 and not b_is_kn and "rows" not in given:
        check_schedule("gemm_ar", given, gemm_ar_row_program)
        chosen = {"num_ranks": group.num_ranks} | ({"block": (32, 32)} if group.small_shapes else {})
        return gemm_ar_row_program, chosen | given
    check_schedule("gemm_ar", given, gemm_ar_small_program)
    rows = given.get("rows", tile_rows(M))
    block, stages = ((64, 256), 4) if rows <= 32 else ((64, 128), 6 if rows <= 64 else 4)
    chosen = {
        "num_ranks": group.num_ranks,
        "rows": rows,
        "block": (32, 32) if group.small_shapes else block,
        "stages": stages,
        "b_is_kn": b_is_kn,
    } | given
    columns, threads = chosen["block"][0], 32 * chosen.get("num_warps", 4)
    if "protocol" not in given:
        found = protocols_for(rows, group.num_ranks, columns, threads)
        if not found and not group.is_sim:
            raise DitronError(
                f"gemm_ar: {threads} threads cannot exchange a tile of {rows} rows and {columns} columns with "
                f"{group.num_ranks - 1} others: name another block=, rows= or num_warps=, or no algorithm and schedule"
            )
        chosen["protocol"] = next(iter(found), "ll")
    _check_exchange(chosen["protocol"], rows, columns, threads, group)
    return gemm_ar_small_program, chosen


def _check_exchange(protocol: str, rows: int, columns: int, threads: int, group: Group) -> None:
    """Raise DitronError for a protocol by which a tile cannot be exchanged: its threads have too few words."""
    words, ranks = rows * columns // 4, group.num_ranks
    if protocol == "two_shot_ll" and ranks & (ranks - 1):
        raise DitronError(f"gemm_ar: protocol='two_shot_ll' is of 1, 2, 4 or 8 ranks, got {ranks}: give 'll'")
    is_enough = max(triton.next_power_of_2(ranks), 2) * words >= WORDS_OF_THREAD * threads
    if protocol == "two_shot_ll":
        is_enough = adds_parts(words, ranks, threads)
    if not is_enough and not group.is_sim:
        raise DitronError(
            f"gemm_ar: a tile of {rows} rows and {columns} columns is too small for {threads} threads to exchange by "
            f"protocol={protocol!r}: give more rows=, a wider block= or fewer num_warps="
        )


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
            for protocol in protocols_for(problem.rows, problem.ranks):
                yield {"algorithm": "fused", "block": (columns, depth), "stages": stages, "protocol": protocol}
