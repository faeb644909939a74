"""The product of AllGather + GEMM: a persistent kernel, whose tiles begin when their rows have arrived."""

from __future__ import annotations

from typing import Any

import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

import ditron
import ditron.host as dh
import ditron.language as dl
from ditron.distributed.group import Group
from ditron.kernels.node_pushes import nearest_shard
from ditron.kernels.operands import capacity_for
from ditron.kernels.schedules import SMALL_TILE
from ditron.kernels.tiles import (
    accumulator,
    add_bias,
    last_round,
    narrow_parts,
    narrow_stages,
    piece_of,
    product_step,
    promoted,
    scale_tile,
    scales_of_shard,
    shards_descriptor,
    store_columns,
    store_tile,
    tile_position,
)
from ditron.tuning.problem import Options

__all__ = [
    "FEWEST_SMS",
    "FEW_COLUMNS",
    "PUSH_REGISTERS",
    "ag_gemm_kernel",
    "few_columns_schedule",
    "multiply_gathered",
    "push_pieces_kernel",
    "push_rows_of_piece",
    "registers_beside_pushers",
    "prefers_stores",
]

#: Of a thread that stores pieces; of any thread at most; of an SM.
PUSH_REGISTERS, MOST_REGISTERS, SM_REGISTERS = 32, 255, 1 << 16


def registers_beside_pushers(num_warps: int, push_warps: int, maxnreg: int | None) -> int:
    """Of a thread of a program that waits for what others push, at most: theirs find room on its SM."""
    left = SM_REGISTERS - push_warps * 32 * PUSH_REGISTERS
    return min(maxnreg or MOST_REGISTERS, left // (num_warps * 32) // 8 * 8)


@ditron.jit
def push_rows_of_piece(rows_ptr, theirs_ptr, first, last, K, index, programs, BLOCK: tl.constexpr):
    """Store rows ``first`` to ``last`` of [rows, K] at the same place of a peer: every ``programs``-th block."""
    begin, elements = first.to(tl.int64) * K, (last - first).to(tl.int64) * K
    for block in range(index, tl.cdiv(elements, BLOCK).to(tl.int32), programs):
        at = block.to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
        mask = at < elements
        tl.store(theirs_ptr + begin + at, tl.load(rows_ptr + begin + at, mask=mask), mask=mask)


@ditron.jit
def push_pieces_kernel(
    a_ptr,
    gathered_ptr,
    arrived_ptr,
    rows,
    K,
    BM: tl.constexpr,
    PIECES: tl.constexpr,
    COUNT: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Store the rows of ``a`` [rows, K] in ``gathered`` [ranks, rows, K] of every other rank, and count each piece.

    A program stores every P-th block of a piece; the shares of all are ``COUNT``. The rank before this one, which needs
    them first, is the first.
    """
    own = dl.rank()
    ranks = dl.num_ranks()
    programs = tl.num_programs(0)
    share = tl.where(tl.program_id(0) == 0, COUNT - programs + 1, 1)
    tiles_m = tl.cdiv(rows, BM)
    for step in range(1, ranks):
        peer = (own + ranks - step) % ranks
        theirs_ptr = dl.symm_at(gathered_ptr + own.to(tl.int64) * rows * K, peer)
        for piece in range(PIECES):
            first = tl.minimum(tiles_m * piece // PIECES * BM, rows)
            last = tl.minimum(tiles_m * (piece + 1) // PIECES * BM, rows)
            push_rows_of_piece(a_ptr, theirs_ptr, first, last, K, tl.program_id(0), programs, BLOCK)
            dl.notify(arrived_ptr + own * PIECES + piece, peer, share, op="add")


@ditron.jit
def shard_tile(tile, tiles_m, tiles_n, GROUP: tl.constexpr, HAS_NODES: tl.constexpr):
    """As ``tile_position``: of the own shard first, of others in the order in which they arrive."""
    own = dl.rank()
    ranks = dl.num_ranks()
    if HAS_NODES:
        order, m, n = tile_position(tile, tiles_m, tiles_n, 0, ranks, GROUP)
        shard = nearest_shard(order, own, ranks)
    else:
        shard, m, n = tile_position(tile, tiles_m, tiles_n, own, ranks, GROUP)
    return shard, m, n


@ditron.jit
def narrow_tile(
    tile,
    part,
    a_desc,
    gathered_desc,
    b_desc,
    bias_ptr,
    scale_a_ptr,
    gathered_scale_ptr,
    scale_b_ptr,
    c_desc,
    arrived_ptr,
    goal,
    rows,
    N,
    K,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    GROUP: tl.constexpr,
    PIECES: tl.constexpr,
    STAGES: tl.constexpr,
    PARTS: tl.constexpr,
    B_IS_KN: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    SCALE_A: tl.constexpr,
    SCALE_B: tl.constexpr,
    PROMOTE: tl.constexpr,
    HAS_NODES: tl.constexpr,
):
    """One of ``PARTS`` ranges of a tile's columns; the descriptors of B and C are of so many."""
    WIDTH: tl.constexpr = BN // PARTS
    NARROW_STAGES: tl.constexpr = narrow_stages(STAGES, BM, BN, WIDTH)
    tiles_m = tl.cdiv(rows, BM)
    shard, m, n = shard_tile(tile, tiles_m, tl.cdiv(N, BN), GROUP, HAS_NODES)
    source = a_desc
    source_shard = 0
    row = m * BM
    if SCALE_A != "none":
        scales = scale_a_ptr
    if shard != dl.rank():
        source = gathered_desc
        source_shard = shard
        token = dl.wait(arrived_ptr + shard * PIECES + piece_of(m, tiles_m, PIECES)[0], 1, goal)
        row = dl.consume_token(m * BM, token)
        if SCALE_A != "none":
            scales = dl.consume_token(scales_of_shard(gathered_scale_ptr, shard, rows, K, SCALE_A), token)
    col = n * BN + part * WIDTH
    acc = accumulator(a_desc, BM, WIDTH, SCALE_A)
    if PROMOTE:
        sums = tl.zeros((BM, WIDTH), tl.float32)
    for k in tl.range(tl.cdiv(K, BK), num_stages=NARROW_STAGES):
        acc = product_step(
            source,
            b_desc,
            scales if SCALE_A != "none" else None,
            scale_b_ptr,
            rows,
            source_shard,
            row,
            col,
            k * BK,
            acc,
            rows,
            K,
            BM,
            WIDTH,
            BK,
            B_IS_KN,
            SCALE_A,
        )
        if PROMOTE:
            sums, acc = promoted(sums, acc, k, tl.cdiv(K, BK), PROMOTE)
    result = sums if PROMOTE else acc
    if SCALE_A != "none":
        result = scale_tile(result, scales, scale_b_ptr, row, col, rows, N, BM, WIDTH, SCALE_A, SCALE_B)
    store_columns(c_desc, shard, m * BM, col, add_bias(result, bias_ptr, col, N, WIDTH, HAS_BIAS))


@ditron.jit(do_not_specialize=["epoch"])
def ag_gemm_kernel(
    a_desc,
    gathered_desc,
    b_desc,
    b_half_desc,
    b_quarter_desc,
    bias_ptr,
    scale_a_ptr,
    gathered_scale_ptr,
    scale_b_ptr,
    c_half_desc,
    c_quarter_desc,
    arrived_ptr,
    rows,
    N,
    K,
    epoch,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    GROUP: tl.constexpr,
    PIECES: tl.constexpr,
    PROGRAMS: tl.constexpr,
    STAGES: tl.constexpr,
    PARTS: tl.constexpr,
    B_IS_KN: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    SCALE_A: tl.constexpr,
    SCALE_B: tl.constexpr,
    PROMOTE: tl.constexpr,
    HAS_NODES: tl.constexpr,
    COUNT: tl.constexpr,
):
    """Tiles of C ``[ranks, rows, N]``, each after its piece of A has arrived; a shard has ``PIECES`` of them.

    The signal of a piece that has arrived is ``COUNT`` times the epoch. Tiles that leave programs without one in the
    last round are computed as halves or, up to ``PARTS``, quarters of their columns, where so many fit in that round.
    """
    ranks = dl.num_ranks()
    own = dl.rank()
    tiles_m = tl.cdiv(rows, BM)
    tiles_n = tl.cdiv(N, BN)
    tiles = ranks * tiles_m * tiles_n
    whole, parts = last_round(tiles, tiles, PROGRAMS, PARTS)
    waited = own * PIECES
    goal = epoch * COUNT
    token = dl.wait(arrived_ptr + waited, 0, goal)
    if PROMOTE:
        acc = tl.zeros((BM, BN), tl.float32)
    for tile in tl.range(tl.program_id(0), whole, PROGRAMS, flatten=True):
        shard, m, n = shard_tile(tile, tiles_m, tiles_n, GROUP, HAS_NODES)
        piece = shard * PIECES + piece_of(m, tiles_m, PIECES)[0]
        if shard == own:
            source = a_desc
            source_shard = 0
            row = m * BM
            if SCALE_A != "none":
                scales = scale_a_ptr
        else:
            source = gathered_desc
            source_shard = shard
            if piece != waited:
                token = dl.wait(arrived_ptr + piece, 1, goal)
            row = dl.consume_token(m * BM, token)
            if SCALE_A != "none":
                scales = dl.consume_token(scales_of_shard(gathered_scale_ptr, shard, rows, K, SCALE_A), token)
        waited = piece  # before the loop over K: what changes after it makes Triton give up the pipeline across tiles
        if PROMOTE:
            sums = tl.zeros((BM, BN), tl.float32)
        else:
            acc = accumulator(a_desc, BM, BN, SCALE_A)
        for k in range(tl.cdiv(K, BK)):
            acc = product_step(
                source,
                b_desc,
                scales if SCALE_A != "none" else None,
                scale_b_ptr,
                rows,
                source_shard,
                row,
                n * BN,
                k * BK,
                acc,
                rows,
                K,
                BM,
                BN,
                BK,
                B_IS_KN,
                SCALE_A,
            )
            if PROMOTE:
                sums, acc = promoted(sums, acc, k, tl.cdiv(K, BK), PROMOTE)
        result = sums if PROMOTE else acc
        if SCALE_A != "none":
            result = scale_tile(result, scales, scale_b_ptr, row, n * BN, rows, N, BM, BN, SCALE_A, SCALE_B)
        result = add_bias(result, bias_ptr, n * BN, N, BN, HAS_BIAS)
        store_tile(c_half_desc, shard, m * BM, n * BN, result, 2)
    narrow_b = (b_half_desc, b_quarter_desc)
    narrow_c = (c_half_desc, c_quarter_desc)
    for index in tl.static_range(PARTS // 2):  # halves, quarters
        items = tl.where(parts == 2 << index, (tiles - whole) * (2 << index), 0)
        for item in tl.range(tl.program_id(0), items, PROGRAMS):  # one at most; of a branch, ptxas serializes products
            narrow_tile(
                whole + item // (2 << index),
                item % (2 << index),
                a_desc,
                gathered_desc,
                narrow_b[index],
                bias_ptr,
                scale_a_ptr,
                gathered_scale_ptr,
                scale_b_ptr,
                narrow_c[index],
                arrived_ptr,
                goal,
                rows,
                N,
                K,
                BM,
                BN,
                BK,
                GROUP,
                PIECES,
                STAGES,
                2 << index,
                B_IS_KN,
                HAS_BIAS,
                SCALE_A,
                SCALE_B,
                PROMOTE,
                HAS_NODES,
            )


def multiply_gathered(
    a: Any,
    gathered: Any,
    b: Any,
    bias: Any,
    c: Any,
    arrived: Any,
    epoch: Any,
    *,
    b_is_kn: bool,
    has_bias: bool,
    pieces: int,
    programs: int,
    block: tuple[int, int, int],
    group_m: int,
    num_warps: int,
    stages: int,
    scales: tuple[Any, Any, Any] = (None, None, None),
    kinds: tuple[str, str] = ("none", "none"),
    promote: int = 0,
    maxnreg: int | None = None,
    has_nodes: bool = False,
    count: int = 1,
) -> None:
    """Launch the kernel; ``scales`` of a, of the gathered shards, and of b."""
    (rows, K), N, ranks = a.shape, c.shape[1], dh.num_ranks()
    BM, BN, BK = block
    tiles = ranks * dh.cdiv(rows, BM) * dh.cdiv(N, BN)
    parts = narrow_parts(BN)

    def of_b(columns: int) -> TensorDescriptor:
        return TensorDescriptor.from_tensor(b, [BK, columns] if b_is_kn else [columns, BK])

    ag_gemm_kernel[(dh.minimum(programs, parts * tiles),)](
        shards_descriptor(a, 1, rows, K, (BM, BK)),
        shards_descriptor(gathered, ranks, rows, K, (BM, BK)),
        of_b(BN),
        of_b(BN // 2) if parts >= 2 else None,
        of_b(BN // 4) if parts >= 4 else None,
        bias,
        *scales,
        shards_descriptor(c, ranks, rows, N, (BM, BN // 2)),
        shards_descriptor(c, ranks, rows, N, (BM, BN // 4)) if parts >= 4 else None,
        arrived,
        rows,
        N,
        K,
        epoch,
        BM=BM,
        BN=BN,
        BK=BK,
        GROUP=group_m,
        PIECES=pieces,
        PROGRAMS=programs,
        STAGES=stages,
        PARTS=parts,
        B_IS_KN=b_is_kn,
        HAS_BIAS=has_bias,
        SCALE_A=kinds[0],
        SCALE_B=kinds[1],
        PROMOTE=promote,
        HAS_NODES=has_nodes,
        COUNT=count,
        num_warps=num_warps,
        num_stages=stages,
        **({} if maxnreg is None else {"maxnreg": maxnreg}),
    )


#: With so many columns or fewer, a product takes not much longer than its rows travel.
FEW_COLUMNS = 2048

#: With more than one peer, and ``FEW_COLUMNS`` columns or fewer, stores of so many programs bring a product's rows
#: sooner than a copy engine (docs/results/tensor-parallel.md).
PUSHERS = 14

#: Between two ranks, with up to so many rows of each and ``FEW_COLUMNS`` columns or fewer, smaller tiles in four pieces
#: are ahead (docs/results/tensor-parallel-experiments.md).
MOST_ROWS_OF_TWO = 8192

#: On a GPU with fewer SMs, a part of one for instance, the programs that store are too many of those that fit at once.
FEWEST_SMS = 5 * PUSHERS


def prefers_stores(group: Group) -> bool:
    """Whether programs that store rows are taken without being asked for, on this group's GPUs and links."""
    return group.has_nvlink and group.sms >= FEWEST_SMS and not group.small_shapes


def few_columns_schedule(ranks: int, rows: int, N: int, most: int = FEW_COLUMNS, pushers: int = PUSHERS) -> Options:
    """For a weight of up to ``most`` columns, smaller tiles and more pieces, stored by programs of more than two ranks.

    Empty elsewhere, and for more rows than that was measured with between two ranks, or fewer than two pieces have.
    """
    pieces = min(4, capacity_for(rows) // SMALL_TILE[0])
    if ranks < 2 or most < N or pieces < 2:
        return {}
    tiles: Options = {"block": SMALL_TILE, "pieces": pieces, "stages": 5}
    if ranks == 2:
        group_m = min(8, capacity_for(rows) // SMALL_TILE[0] // pieces)
        return tiles | {"group_m": group_m} if capacity_for(rows) <= MOST_ROWS_OF_TWO else {}
    return tiles | {"group_m": 4, "pushers": pushers}
