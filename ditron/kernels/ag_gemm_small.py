"""AllGather + GEMM for few rows: words or packets of them, then a product with K divided between programs reads B once.

The product's time is that of reading B. Its programs begin beside the gather (programmatic dependent launch): their
first tiles of B are on their way to shared memory before they wait for the rows. Whatever wrote B has ended by then,
since the gather, which lets the product begin, has waited for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait
from triton.tools.tensor_descriptor import TensorDescriptor

import ditron
import ditron.host as dh
import ditron.language as dl
from ditron.distributed.group import Group
from ditron.kernels.all_gather import ll128_gather_kernel, ll_gather_kernel
from ditron.kernels.exchange import packet_boxes
from ditron.kernels.gemm_ar_small import tile_rows
from ditron.kernels.schedules import (
    SHARED_BYTES,
    block_for,
    check_tile_rows,
    check_word_block,
    has_tiles,
    least_word_block,
)
from ditron.kernels.words import (
    WORDS_OF_THREAD,
    launch_words,
    receive_data_words,
    send_data_words,
    sum_of_ranks,
    words_of,
)
from ditron.tuning.problem import Options, Problem
from ditron_compiler.errors import DitronError

__all__ = ["MOST_ROWS", "ag_gemm_small_program", "divides_k", "split_k_candidates", "split_k_schedule"]

#: Rows of all ranks up to which this is faster than cuBLAS behind an all-gather (docs/results/links.md).
SPLIT_K_ROWS = 64

#: Of all ranks, that a tile can hold.
MOST_ROWS = 128

#: Rows that tensor cores take of their left operand: columns of a tile, where that is the weight.
LEFT_ROWS = 64

#: Columns of the result and depth of a tile, its stages, and how many iterations ahead a tile of A is loaded: by rows
#: of all ranks up to which that streams a weight the fastest, behind a gather (docs/results/links.md).
_TILES = {16: ((64, 256), 5, 2), 32: ((64, 256), 5, 2), 64: ((64, 128), 8, 4), 128: ((64, 128), 4, 3)}

#: The same of 64 rows that are the left operand: columns are fewer, and so are programs that add parts of a tile.
_LEFT_TILE = ((32, 256), 4, 3)

#: Elements of a program of the gather. It has few, as the product begins when all have.
GATHER_BLOCK = 1024

_SMS = 132  # of the GPUs that the rule was measured on


@ditron.jit
def after_wait(step):
    """``step``, when what the kernel before this one has written is there: what is loaded from there depends on it.

    ``gdc_wait`` in a loop would be before all loads of the iteration; this is pure, so that it is only before those.
    """
    return tl.inline_asm_elementwise(
        "griddepcontrol.wait; mov.u32 $0, $1;", "=r,r", [step], dtype=tl.int32, is_pure=True, pack=1
    )


@triton.constexpr_function
def adders(split):
    """How many of a tile's ``split`` programs add parts: a power of two, so that each has as many rows."""
    return 1 << (split.bit_length() - 1)


@ditron.jit
def sum_of_parts(acc, boxes_ptr, part, SPLIT: tl.constexpr):
    """Of ``acc`` [columns, rows], summed over the ``SPLIT`` programs of a tile, the rows that this one adds:
    [row pairs, columns, 2]; of no meaning in a program behind the last of the :func:`adders`.

    Each program sends the adders what they add, as data words of two rows in fp32. ``boxes``: of each adder, [from each
    program, row pairs, columns], 0 before and after.
    """
    BN: tl.constexpr = acc.shape[0]
    PAIRS: tl.constexpr = acc.shape[1] // 2
    OWN: tl.constexpr = PAIRS // adders(SPLIT)
    col = tl.arange(0, BN)
    pair = tl.arange(0, PAIRS)[None, :]
    to = (pair // OWN * SPLIT + part) * OWN + pair % OWN
    send_data_words(boxes_ptr + to * BN + col[:, None], words_of(tl.reshape(acc, (BN, PAIRS, 2)), 64))
    sums = tl.zeros((OWN, BN, 2), tl.float32)
    if part < adders(SPLIT):
        sender = tl.arange(0, triton.next_power_of_2(SPLIT))[:, None, None]
        box = part * SPLIT + tl.minimum(sender, SPLIT - 1)
        word = (box * OWN + tl.arange(0, OWN)[None, :, None]) * BN + col[None, None, :]
        received = receive_data_words(boxes_ptr + word)
        sums = sum_of_ranks(tl.where(sender < SPLIT, received, 0), tl.float32)
    return sums


@ditron.jit
def store_rows(out_ptr, bias_ptr, values, row, col, M, N, HAS_BIAS: tl.constexpr):
    """Rows ``row`` and columns ``col`` of ``out`` [M, N], to which ``bias`` [N] is added if HAS_BIAS."""
    if HAS_BIAS:
        values += tl.load(bias_ptr + col, mask=col < N, other=0.0).to(tl.float32)
    mask = (row < M) & (col < N)
    tl.store(out_ptr + row.to(tl.int64) * N + col, values.to(out_ptr.dtype.element_ty), mask=mask)


@ditron.jit(do_not_specialize=["M"])
def split_k_kernel(
    a_desc,
    b_desc,
    bias_ptr,
    out_ptr,
    boxes_ptr,
    M,
    N,
    K,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    SPLIT: tl.constexpr,
    B_IS_KN: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    A_AHEAD: tl.constexpr,
    B_AHEAD: tl.constexpr,
    IS_EARLY: tl.constexpr,
    ROWS_LEFT: tl.constexpr,
):
    """``SPLIT`` programs for ``BN`` columns of ``out`` [M, N], M up to ``BM``, each with a part of K.

    The parts of each row are added in one order. The weight is the left operand of the tensor cores, which has
    64 rows or more, and A, which has few, the right one; with ``ROWS_LEFT``, of 64 rows, the other way round.
    """
    tile = tl.program_id(0) // SPLIT
    part = tl.program_id(0) % SPLIT
    steps = tl.cdiv(K, BK)
    first = steps * part // SPLIT
    if ROWS_LEFT:
        acc = tl.zeros((BM, BN), tl.float32)
    else:
        acc = tl.zeros((BN, BM), tl.float32)
    for step in range(first, steps * (part + 1) // SPLIT):
        if B_IS_KN:
            b = dl.load_ahead(b_desc.load([step * BK, tile * BN]), B_AHEAD).T
        else:
            b = dl.load_ahead(b_desc.load([tile * BN, step * BK]), B_AHEAD)
        column = (after_wait(step) if IS_EARLY else step) * BK
        if ROWS_LEFT:
            acc = tl.dot(dl.load_ahead(a_desc.load([0, column]), A_AHEAD), b.T, acc)
        else:
            acc = tl.dot(b, dl.load_ahead(a_desc.load([0, column]), A_AHEAD).T, acc)
    if IS_EARLY:
        gdc_wait()  # a program without an iteration has not waited, and all must before their kernel ends
        # All programs have begun when the last is here, so those of a tile find each other whatever begins now.
        gdc_launch_dependents()
    col = tile * BN + tl.arange(0, BN)
    if ROWS_LEFT:
        acc = acc.T
    if SPLIT == 1:
        store_rows(out_ptr, bias_ptr, acc, tl.arange(0, BM)[None, :], col[:, None], M, N, HAS_BIAS)
    else:
        sums = sum_of_parts(acc, boxes_ptr + tile * (SPLIT * (BM // 2) * BN), part, SPLIT)
        row = (part * sums.shape[0] + tl.arange(0, sums.shape[0])) * 2  # BM or more behind the adders
        row = row[:, None, None] + tl.arange(0, 2)[None, None, :]
        store_rows(out_ptr, bias_ptr, sums, row, col[None, :, None], M, N, HAS_BIAS)


@ditron.program(
    example={
        "a": "bf16[8, 8192]",
        "b": "bf16[3584, 8192]",
        "bias": "bf16[3584]",
        "gathered": "bf16[4, 65536]",
        "out": "bf16[32, 3584]",
        "capacity": 65536,
        "num_ranks": 4,
    },
    sample_args=lambda ranks: {
        "a": "bf16[2, 40]",
        "b": "bf16[6, 40]",
        "bias": "bf16[6]",
        "gathered": f"bf16[{ranks}, 80]",
        "out": f"bf16[{2 * ranks}, 6]",
        "capacity": 256,
        "has_bias": True,
        "rows": 8,
        "block": (4, 16),
        "split": 2,
        "num_ranks": ranks,
    },
    max_nodes=1,
)
def ag_gemm_small_program(
    a,
    b,
    bias,
    gathered,
    out,
    capacity,
    *,
    num_ranks,
    b_is_kn=False,
    has_bias=False,
    rows=16,
    block=(64, 256),
    split=2,
    num_warps=4,
    stages=5,
    a_ahead=2,
    rows_left=False,
    gather_block=256,
    protocol="ll",
    is_early=False,
):
    """``gathered`` [ranks, rows * K] = all ranks' ``a`` [rows, K]; ``out`` [M, N] = that times ``b`` [N, K] transposed.

    ``b`` is ``[K, N]`` if b_is_kn; ``bias`` [N] counts if has_bias. ``rows``: of a tile, a power of two, 16 or more,
    that holds all ranks' rows, which are the left operand if ``rows_left``. ``split`` programs share the columns of a
    tile. Memory for words or packets is kept for up to ``capacity`` elements of a rank. ``is_early``: the product
    begins beside the gather. A tile of B is loaded ``stages - 1`` iterations ahead, one of A ``a_ahead``; the
    difference is what is loaded before the gather has ended.
    """
    (M, N), K, elements = out.shape, a.shape[1], gathered.shape[1]
    BN, BK = block
    tiles = dh.cdiv(N, BN)
    if protocol == "ll":
        launch_words(ll_gather_kernel, a, gathered, elements, capacity, num_ranks, gather_block, 64, TRIGGERS=is_early)
    else:
        blocks = -(-capacity // gather_block)
        boxes = packet_boxes(blocks, gather_block, a.dtype)
        ll128_gather_kernel[(dh.cdiv(elements, gather_block),)](
            a,
            gathered,
            boxes,
            elements,
            blocks,
            dh.epoch(),
            BLOCK=gather_block,
            TRIGGERS=is_early,
            num_warps=4,
        )
    split_k_kernel[(tiles * split,)](
        TensorDescriptor(gathered, [M, K], [K, 1], [rows, BK]),
        TensorDescriptor.from_tensor(b, [BK, BN] if b_is_kn else [BN, BK]),
        bias,
        out,
        dh.zeros(tiles * split * (rows // 2) * BN, dtype=torch.int64, name="parts"),
        M,
        N,
        K,
        BM=rows,
        BN=BN,
        BK=BK,
        SPLIT=split,
        B_IS_KN=b_is_kn,
        HAS_BIAS=has_bias,
        A_AHEAD=a_ahead,
        B_AHEAD=stages - 1,
        IS_EARLY=is_early,
        ROWS_LEFT=rows_left,
        num_warps=num_warps,
        num_stages=stages,
        **({"launch_pdl": True} if is_early else {}),
    )


def divides_k(rows: int, N: int, K: int) -> bool:
    """Whether this program is taken without being asked for: ``rows`` of all ranks are few, N is a tile or less for
    each SM, and K long.
    """
    return rows <= SPLIT_K_ROWS and N <= LEFT_ROWS * _SMS and K >= 1024


def split_k_candidates(problem: Problem) -> Iterator[Options]:
    """Schedules of this program that are worth measuring."""
    if divides_k(problem.M, problem.N, problem.K) and has_tiles(problem):
        yield {"algorithm": "split_k"}
        split = max(1, _SMS // -(-problem.N // LEFT_ROWS))
        for block, stages in (((64, 256), 4), ((64, 128), 6)):
            if stages * block[1] * (tile_rows(problem.M) + block[0]) * problem.itemsize <= SHARED_BYTES:
                yield {"algorithm": "split_k", "block": block, "stages": stages}
        if 2 * split < tile_rows(1):  # of fewer rows than the problem's, too; an SM has two up to 32 rows
            yield {"algorithm": "split_k", "split": 2 * split, "block": (64, 128), "stages": 4}


def has_rows_left(tile: int, N: int, b_is_kn: bool, sms: int) -> bool:
    """Whether a tile of so many rows has them as the left operand: where each program has a tile of few columns."""
    return tile == LEFT_ROWS and N <= _LEFT_TILE[0][0] * sms and not b_is_kn


def split_k_schedule(group: Group, rows: int, N: int, a: torch.Tensor, b_is_kn: bool, given: Options) -> dict[str, Any]:
    """Keyword arguments of the program for ``rows`` rows of all ranks: ``given``, and others.

    Raises DitronError for a tile, as a caller has named it, that does not hold the rows or cannot be.
    """
    is_early = given.get("is_early", not group.is_sim)
    tile = given.get("rows", tile_rows(rows))
    check_tile_rows("ag_gemm", tile, rows)
    is_usual = not given.keys() & {"block", "stages", "a_ahead"} and not group.small_shapes
    rows_left = given.get("rows_left", is_usual and has_rows_left(tile, N, b_is_kn, group.sms))
    block, stages, a_ahead = _LEFT_TILE if rows_left else _TILES[min(tile, MOST_ROWS)]
    block = given.get("block", (32, 32) if group.small_shapes else block)
    if "block" in given or not is_early:
        stages = min(max(SHARED_BYTES // ((tile + block[0]) * block[1] * a.itemsize), 2), 8)
    stages = given.get("stages", stages)
    if given.keys() & {"block", "stages"} or not is_early:  # as far ahead as the weight, if there is memory for it
        a_ahead = min(stages - 1, (SHARED_BYTES // (block[1] * a.itemsize) - stages * block[0]) // tile - 1)
    protocol = given.get("protocol", "ll")
    gather_block = block_for(group, protocol)["block"]
    if protocol == "ll":
        gather_block = max(gather_block if group.small_shapes else GATHER_BLOCK, least_word_block(a.dtype))
    chosen = {
        "num_ranks": group.num_ranks,
        "rows": tile,
        "block": block,
        "split": 2 if group.small_shapes else min(max(1, group.sms // -(-N // block[0])), tile - 1),
        "gather_block": gather_block,
        "protocol": protocol,
        "stages": stages,
        "a_ahead": a_ahead,
        "rows_left": rows_left,
        "is_early": is_early,
    } | given
    if chosen["protocol"] == "ll":
        check_word_block("ag_gemm", "gather_block", chosen["gather_block"], a.dtype)
    _check_loads(chosen, a.itemsize)
    _check_parts(chosen, block[0], group)
    return chosen


def _check_loads(chosen: Mapping[str, Any], itemsize: int) -> None:
    """Raise DitronError for tiles that cannot be loaded so far ahead."""
    stages, a_ahead, rows, (columns, depth) = (chosen[name] for name in ("stages", "a_ahead", "rows", "block"))
    if stages < 2:
        raise DitronError(f"ag_gemm: stages of algorithm='split_k' must be 2 or more, got {stages}")
    nbytes = (stages * columns + (a_ahead + 1) * rows) * depth * itemsize
    if a_ahead < 1 or nbytes > SHARED_BYTES:
        raise DitronError(
            f"ag_gemm: {stages} tiles of {columns} x {depth} of the weight and {max(a_ahead, 1) + 1} of {rows} rows do "
            f"not fit the {SHARED_BYTES >> 10} KB of shared memory: give fewer stages=, a_ahead= or a smaller block="
        )
    if a_ahead >= stages:
        raise DitronError(f"ag_gemm: a_ahead must be less than stages, which is {stages}, got {a_ahead}")


def _check_parts(chosen: Mapping[str, Any], columns: int, group: Group) -> None:
    """Raise DitronError for a tile whose programs cannot exchange their parts: they wait for each other, so that all
    must run at a time. A GPU starts programs in the order of their numbers, and those of a tile follow each other.
    """
    split, rows = chosen["split"], chosen["rows"]
    if split >= rows:
        raise DitronError(f"ag_gemm: split must be less than the {rows} rows of a tile, got {split}")
    if split > group.sms and not group.is_sim:
        raise DitronError(f"ag_gemm: split must be at most the {group.sms} SMs of the GPU, got {split}")
    threads = 32 * chosen.get("num_warps", 4)
    if split > 1 and rows // 2 * columns < WORDS_OF_THREAD * threads and not group.is_sim:
        raise DitronError(
            f"ag_gemm: a tile of {rows} rows and {columns} columns is too small for {threads} threads to exchange "
            "parts of K: give more rows=, a wider block=, fewer num_warps= or split=1"
        )
