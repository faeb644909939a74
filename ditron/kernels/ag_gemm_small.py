"""AllGather + GEMM for few rows: words or packets of them, then a product with K divided between programs reads B once.

The product's time is that of reading B. Its programs begin beside the gather (programmatic dependent launch), ask the
L2 cache for the first columns of their part of B, and then wait for the rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_wait
from triton.tools.tensor_descriptor import TensorDescriptor

import ditron
import ditron.host as dh
import ditron.language as dl
from ditron.distributed.group import Group
from ditron.kernels.all_gather import ll128_gather_kernel, ll_gather_kernel
from ditron.kernels.exchange import packet_boxes
from ditron.kernels.schedules import (
    block_for,
    check_tile_rows,
    check_word_block,
    has_tiles,
    least_word_block,
)
from ditron.kernels.words import launch_words
from ditron.tuning.problem import Options, Problem

__all__ = ["MOST_ROWS", "ag_gemm_small_program", "divides_k", "split_k_candidates", "split_k_schedule"]

#: Rows of all ranks up to which this is faster than cuBLAS behind an all-gather (docs/results/links.md).
SPLIT_K_ROWS = 64

#: Of all ranks, that a tile can hold.
MOST_ROWS = 128

#: Columns of the result and depth of a tile, and its stages: what streams a weight the fastest (up to 64 rows).
BLOCK, STAGES = (64, 128), 6

_SMS = 132  # of the GPUs that the rule was measured on


@ditron.jit
def fetch_to_l2(b_ptr, row, k, N, K, BN: tl.constexpr, COLUMNS: tl.constexpr):
    """Ask the L2 cache for columns ``[k, k + COLUMNS)`` of rows ``[row, row + BN)`` of B ``[N, K]``, or its last ones.

    K is ``COLUMNS`` or more.
    """
    HALF: tl.constexpr = COLUMNS // 2
    rows = tl.minimum(row + tl.arange(0, BN), N - 1).to(tl.int64)
    columns = tl.minimum(k + tl.arange(0, 2) * HALF, K - HALF)
    nbytes = tl.full((BN, 2), HALF * (b_ptr.dtype.element_ty.primitive_bitwidth // 8), tl.int32)
    tl.inline_asm_elementwise(
        "cp.async.bulk.prefetch.L2.global [$1], $2; mov.u32 $0, 0;",
        "=r,l,r",
        [b_ptr + rows[:, None] * K + columns[None, :], nbytes],
        dtype=tl.int32,
        is_pure=False,
        pack=1,
    )


@ditron.jit(do_not_specialize=["M"])
def split_k_kernel(
    a_desc,
    b_desc,
    b_ptr,
    bias_ptr,
    out_ptr,
    parts_ptr,
    count_ptr,
    M,
    N,
    K,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    SPLIT: tl.constexpr,
    B_IS_KN: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    FETCH: tl.constexpr,
    IS_EARLY: tl.constexpr,
):
    """``SPLIT`` programs for ``BN`` columns of ``out`` [M, N], M up to ``BM``, each with a part of K.

    The last one of a tile adds the parts, in their order. The weight is the left operand of the tensor cores, which has
    64 rows or more, and A, which has few, the right one.
    """
    tile = tl.program_id(0) // SPLIT
    part = tl.program_id(0) % SPLIT
    steps = tl.cdiv(K, BK)
    first = steps * part // SPLIT
    if IS_EARLY:
        if not B_IS_KN and K >= FETCH:
            fetch_to_l2(b_ptr, tile * BN, first * BK, N, K, BN, FETCH)
        gdc_wait()
    acc = tl.zeros((BN, BM), tl.float32)
    for step in range(first, steps * (part + 1) // SPLIT):
        a = a_desc.load([0, step * BK])
        if B_IS_KN:
            acc = tl.dot(b_desc.load([step * BK, tile * BN]).T, a.T, acc)
        else:
            acc = tl.dot(b_desc.load([tile * BN, step * BK]), a.T, acc)
    column = tl.arange(0, BN)[:, None]
    row = tl.arange(0, BM)[None, :]
    mask = (row < M) & (tile * BN + column < N)
    if SPLIT > 1:
        at = row * BN + column
        parts_ptr += tile * SPLIT * (BM * BN)
        tl.store(parts_ptr + part * (BM * BN) + at, acc, mask=mask)
        arrived = dl.atomic_add(count_ptr + tile, 1, scope="gpu", semantic="acq_rel")
        is_last = arrived == SPLIT - 1
        mask &= is_last
        acc = tl.zeros((BN, BM), tl.float32)
        for other in tl.static_range(SPLIT):
            acc += tl.load(parts_ptr + other * (BM * BN) + at, mask=mask, other=0.0)
        tl.store(count_ptr + tile, 0, mask=is_last)  # for the next call
    if HAS_BIAS:
        acc += tl.load(bias_ptr + tile * BN + column, mask=tile * BN + column < N, other=0.0).to(tl.float32)
    tl.store(out_ptr + row.to(tl.int64) * N + tile * BN + column, acc.to(out_ptr.dtype.element_ty), mask=mask)


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
        "a": "bf16[3, 48]",
        "b": "bf16[40, 48]",
        "bias": "bf16[40]",
        "gathered": f"bf16[{ranks}, 144]",
        "out": f"bf16[{3 * ranks}, 40]",
        "capacity": 256,
        "has_bias": True,
        "rows": 32,
        "block": (16, 16),
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
    block=BLOCK,
    split=2,
    num_warps=4,
    stages=STAGES,
    gather_block=256,
    protocol="ll",
    is_early=False,
):
    """``gathered`` [ranks, rows * K] = all ranks' ``a`` [rows, K]; ``out`` [M, N] = that times ``b`` [N, K] transposed.

    ``b`` is ``[K, N]`` if b_is_kn; ``bias`` [N] counts if has_bias. ``rows``: of a tile, a power of two, 16 or more,
    that holds all ranks' rows. ``split`` programs share the columns of a tile. Memory for words or packets is kept
    for up to ``capacity`` elements of a rank. ``is_early``: the product begins beside the gather.
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
        b,
        bias,
        out,
        dh.empty(tiles * split * rows * BN, dtype=torch.float32, name="parts"),
        dh.zeros(tiles, dtype=torch.int32, name="counts"),
        M,
        N,
        K,
        BM=rows,
        BN=BN,
        BK=BK,
        SPLIT=split,
        B_IS_KN=b_is_kn,
        HAS_BIAS=has_bias,
        FETCH=4 * BK,
        IS_EARLY=is_early,
        num_warps=num_warps,
        num_stages=stages,
        **({"launch_pdl": True} if is_early else {}),
    )


def divides_k(rows: int, N: int, K: int) -> bool:
    """Whether this program is taken without being asked for: ``rows`` of all ranks are few, N is a tile or less for
    each SM, and K long.
    """
    return rows <= SPLIT_K_ROWS and N <= BLOCK[0] * _SMS and K >= 8 * BLOCK[1]


def split_k_candidates(problem: Problem) -> Iterator[Options]:
    """Schedules of this program that are worth measuring."""
    if divides_k(problem.M, problem.N, problem.K) and has_tiles(problem):
        yield {"algorithm": "split_k"}
        tiles = -(-problem.N // BLOCK[0])
        for programs, stages in ((_SMS, 4), (2 * _SMS, 4), (3 * _SMS, 3)):
            if programs >= tiles:
                yield {"algorithm": "split_k", "split": programs // tiles, "stages": stages}


def split_k_schedule(group: Group, rows: int, N: int, a: torch.Tensor, given: Options) -> dict[str, Any]:
    """Keyword arguments of the program for ``rows`` rows of all ranks: ``given``, and others.

    Raises DitronError for a tile, as a caller has named it, that does not hold the rows or cannot be.
    """
    block = given.get("block", (32, 32) if group.small_shapes else BLOCK)
    protocol = given.get("protocol", "ll")
    gather_block = block_for(group, protocol)["block"]
    if protocol == "ll":
        gather_block = max(gather_block, least_word_block(a.dtype))
    chosen = {
        "num_ranks": group.num_ranks,
        "rows": max(16, triton.next_power_of_2(rows)),
        "block": block,
        "split": 2 if group.small_shapes else max(1, group.sms // -(-N // block[0])),
        "gather_block": gather_block,
        "protocol": protocol,
        "stages": STAGES if rows <= 64 else 4,
        "is_early": not group.is_sim,
    } | given
    check_tile_rows("ag_gemm", chosen["rows"], rows)
    if chosen["protocol"] == "ll":
        check_word_block("ag_gemm", "gather_block", chosen["gather_block"], a.dtype)
    return chosen
