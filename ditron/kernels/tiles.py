"""Tile functions that the operators share: the order of tiles, one tile's product, its way to memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

import ditron
import ditron.host as dh

__all__ = [
    "MAX_REGISTERS",
    "PIECE",
    "accumulator",
    "add_bias",
    "block_scaled_dot_step",
    "columns_of",
    "dot_between",
    "dot_step",
    "growing_piece_of",
    "growing_piece_rows",
    "last_round",
    "load_rows",
    "multiply_tiles",
    "narrow_parts",
    "narrow_stages",
    "piece_of",
    "piece_rows",
    "product_step",
    "promoted",
    "row_product",
    "rows_of_growing_piece",
    "scale_tile",
    "scales_of_shard",
    "shards_descriptor",
    "store_columns",
    "store_tile",
    "tile_position",
]

#: What the tiles of a piece add up to in a call, however many they are: calls of other shapes use the same counters.
PIECE = 1 << 20

#: Of a thread of eight warps. In a CUDA graph a stream's wait is a kernel of one warp: a program that stays on its SM
#: until that wait is over has to leave registers for it.
MAX_REGISTERS = 232


def piece_rows(rows: Any, block_rows: int, piece: int, pieces: int) -> tuple[Any, Any]:
    """First and last row, in a host program, of one of the ``pieces`` that a shard's rows of tiles are divided into.

    Each has a row of tiles or more when there are as many rows of tiles as pieces.
    """
    tiles = dh.cdiv(rows, block_rows)
    first, last = tiles * piece // pieces * block_rows, tiles * (piece + 1) // pieces * block_rows
    return dh.minimum(first, rows), dh.minimum(last, rows)


def shards_descriptor(buffer: Any, shards: Any, rows: Any, columns: Any, block: Sequence[int]) -> TensorDescriptor:
    """A buffer of a host program as ``[shards, rows, columns]``: a tile of one shard is clipped at its last row."""
    return TensorDescriptor(buffer, [shards, rows, columns], [rows * columns, columns, 1], [1, *block])


@ditron.jit
def piece_of(m, tiles_m, PIECES: tl.constexpr):
    """The piece that a row of tiles lies in, and how many rows of tiles the piece begins at and has."""
    piece = ((m + 1) * PIECES - 1) // tiles_m
    first = tiles_m * piece // PIECES
    return piece, first, tiles_m * (piece + 1) // PIECES - first


def growing_piece_rows(rows: Any, block_rows: int, piece: int, pieces: int) -> tuple[Any, Any]:
    """As :func:`piece_rows`, where piece p has p + 1 parts of the rows of tiles: the first ones arrive early."""
    tiles, parts = dh.cdiv(rows, block_rows), pieces * (pieces + 1) // 2
    first = tiles * (piece * (piece + 1) // 2) // parts * block_rows
    last = tiles * ((piece + 1) * (piece + 2) // 2) // parts * block_rows
    return dh.minimum(first, rows), dh.minimum(last, rows)


@ditron.jit
def growing_piece_of(m, tiles_m, PIECES: tl.constexpr):
    """The piece of ``growing_piece_rows`` that a row of tiles lies in, and how many rows of tiles it begins at."""
    piece = 0
    for last in tl.static_range(1, PIECES):
        piece += (m >= tiles_m * (last * (last + 1) // 2) // (PIECES * (PIECES + 1) // 2)).to(tl.int32)
    return piece, tiles_m * (piece * (piece + 1) // 2) // (PIECES * (PIECES + 1) // 2)


@ditron.jit
def rows_of_growing_piece(piece, rows, tiles_m, BM: tl.constexpr, PIECES: tl.constexpr):
    """As :func:`growing_piece_rows`, in a kernel; ``tiles_m`` rows of tiles are of ``BM`` rows."""
    parts: tl.constexpr = PIECES * (PIECES + 1) // 2
    first = tiles_m * (piece * (piece + 1) // 2) // parts * BM
    last = tiles_m * ((piece + 1) * (piece + 2) // 2) // parts * BM
    return tl.minimum(first, rows), tl.minimum(last, rows)


@ditron.jit
def tile_position(tile, tiles_m, tiles_n, first_shard, shards, GROUP: tl.constexpr):
    """Shard, row of tiles in the shard and column of tiles of a linearized tile index.

    Shards follow each other from ``first_shard`` on; each has ``tiles_m`` x ``tiles_n`` tiles, in groups of ``GROUP``
    rows of tiles, so that the programs that run at one time share rows of A and columns of B in the L2 cache.
    """
    shard = (first_shard + tile // (tiles_m * tiles_n)) % shards
    tile = tile % (tiles_m * tiles_n)
    first = tile // (GROUP * tiles_n) * GROUP
    size = tl.minimum(tiles_m - first, GROUP)
    within = tile % (GROUP * tiles_n)
    return shard, first + within % size, within // size


def narrow_parts(columns: int) -> int:
    """Into how many a tile of the last round may be divided: parts of fewer columns take longer than their share."""
    return 4 if columns >= 256 else 2 if columns >= 32 else 1


@triton.constexpr_function
def narrow_stages(stages, rows, columns, width):
    """Stages of tiles of ``width`` columns in the shared memory of those of ``columns``.

    Below 64 rows Triton keeps one stage less in shared memory than there are, so that more of them take more.
    """
    return stages * (rows + columns) // (rows + width) if rows >= 64 else stages


@ditron.jit
def last_round(tiles, most, PROGRAMS: tl.constexpr, PARTS: tl.constexpr):
    """How many of the ``tiles`` are computed whole, and into how many ranges of columns each of the rest is divided.

    These leave some of ``PROGRAMS`` programs without a tile in the last round. They are halves or, up to ``PARTS``,
    quarters where so many fit in that round, and ``most`` tiles at most are left for it.
    """
    rest = tiles % PROGRAMS
    parts = 1
    if PARTS >= 2:
        parts = tl.where(rest * 2 <= PROGRAMS, 2, parts)
    if PARTS >= 4:
        parts = tl.where(rest * 4 <= PROGRAMS, 4, parts)
    parts = tl.where(rest <= most, parts, 1)
    return tl.where(parts > 1, tiles - rest, tiles), parts


@ditron.jit
def dot_step(
    a_desc,
    b_desc,
    shard,
    row,
    col,
    k,
    acc,
    BM: tl.constexpr,
    BK: tl.constexpr,
    B_IS_KN: tl.constexpr,
):
    """``acc`` plus A[shard] @ B.T at (row, col) over K from ``k`` to ``k + BK``; ``a_desc`` is of [shards, rows, K]."""
    return dot_between(a_desc, b_desc, shard, row, k, col, k, acc, BM, BK, B_IS_KN)


@ditron.jit
def dot_between(
    a_desc,
    b_desc,
    shard,
    row,
    k_of_a,
    col,
    k_of_b,
    acc,
    BM: tl.constexpr,
    BK: tl.constexpr,
    B_IS_KN: tl.constexpr,
):
    """As ``dot_step``, where A's shards are parts of K: ``k_of_a`` in one of them is ``k_of_b`` in B."""
    a = a_desc.load([shard, row, k_of_a]).reshape(BM, BK)
    if B_IS_KN:
        b = b_desc.load([k_of_b, col])
    else:
        b = b_desc.load([col, k_of_b]).T
    return tl.dot(a, b, acc, out_dtype=acc.dtype)


@ditron.jit
def accumulator(a_desc, BM: tl.constexpr, BN: tl.constexpr, SCALE_A: tl.constexpr):
    """Zeros to add products to: in int32 for int8 operands, but for sums of products that are scaled already."""
    if a_desc.dtype == tl.int8 and SCALE_A != "block":
        return tl.zeros((BM, BN), tl.int32)
    else:
        return tl.zeros((BM, BN), tl.float32)


@ditron.jit
def scales_of_shard(scale_ptr, shard, rows, K, KIND: tl.constexpr):
    """Where the scales of A's rows in a shard begin, of the given kind; blocks are ``[K / 128, rows]``."""
    if KIND == "tensor":
        return scale_ptr + shard
    elif KIND == "row":
        return scale_ptr + shard * rows
    else:
        return scale_ptr + shard * rows * tl.cdiv(K, 128)


@ditron.jit
def block_scaled_dot_step(
    a_desc,
    b_desc,
    scale_a_ptr,
    scale_b_ptr,
    scale_rows,
    shard,
    row,
    col,
    k,
    acc,
    rows,
    K,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
):
    """As ``dot_step``, where 128 elements of a row of A, and 128 x 128 of B ``[N, K]``, share a scale.

    ``scale_a_ptr`` is of this shard's rows in ``[K / 128, scale_rows]``.
    """
    at = row + tl.arange(0, BM)
    of_a = tl.load(scale_a_ptr + k // 128 * scale_rows + at, mask=(at < rows) & (k < K), other=0.0)
    of_b = tl.load(scale_b_ptr + col // 128 * tl.cdiv(K, 128) + k // 128, mask=k < K, other=0.0)
    a = a_desc.load([shard, row, k]).reshape(BM, BK)
    product = tl.dot(a, b_desc.load([col, k]).T, out_dtype=tl.int32 if a_desc.dtype == tl.int8 else tl.float32)
    return acc + product.to(tl.float32) * (of_a * of_b)[:, None]


@ditron.jit
def product_step(
    a_desc,
    b_desc,
    scale_a_ptr,
    scale_b_ptr,
    scale_rows,
    shard,
    row,
    col,
    k,
    acc,
    rows,
    K,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    B_IS_KN: tl.constexpr,
    SCALE_A: tl.constexpr,
):
    """``dot_step``, or ``block_scaled_dot_step`` of operands whose scales are of blocks."""
    if SCALE_A == "block":
        acc = block_scaled_dot_step(
            a_desc, b_desc, scale_a_ptr, scale_b_ptr, scale_rows, shard, row, col, k, acc, rows, K, BM, BN, BK
        )
    else:
        acc = dot_step(a_desc, b_desc, shard, row, col, k, acc, BM, BK, B_IS_KN)
    return acc


@ditron.jit
def promoted(sums, acc, k, steps, EVERY: tl.constexpr):
    """``sums`` and ``acc`` behind step ``k``: every ``EVERY`` steps what tensor cores have added is added in fp32.

    Behind the last step ``acc`` is zero, as it must be before the first: whatever else writes to an accumulator makes
    Triton or ptxas wait for each product.
    """
    if (k % EVERY == EVERY - 1) | (k == steps - 1):
        sums += acc
        acc = tl.zeros(acc.shape, tl.float32)
    return sums, acc


@ditron.jit
def scale_tile(
    acc,
    scale_a_ptr,
    scale_b_ptr,
    row,
    col,
    rows,
    N,
    BM: tl.constexpr,
    BN: tl.constexpr,
    SCALE_A: tl.constexpr,
    SCALE_B: tl.constexpr,
):
    """A tile at (row, col) of a shard in fp32, times the scales of its rows of A and of its columns: rows of B.

    Of blocks, the products have been scaled already.
    """
    acc = acc.to(tl.float32)
    if SCALE_A == "row":
        at = row + tl.arange(0, BM)
        acc *= tl.load(scale_a_ptr + at, mask=at < rows, other=0.0)[:, None]
    elif SCALE_A == "tensor":
        acc *= tl.load(scale_a_ptr)
    if SCALE_B == "row":
        at = col + tl.arange(0, BN)
        acc *= tl.load(scale_b_ptr + at, mask=at < N, other=0.0)[None, :]
    elif SCALE_B == "tensor":
        acc *= tl.load(scale_b_ptr)
    return acc


@ditron.jit
def add_bias(acc, bias_ptr, col, N, BN: tl.constexpr, HAS_BIAS: tl.constexpr):
    """``acc`` plus ``bias`` [N] in each row, if there is one."""
    if HAS_BIAS:
        cols = col + tl.arange(0, BN)
        acc += tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)[None, :]
    return acc


@ditron.jit
def halves_of(acc):
    """The left and the right half of an accumulator, in registers."""
    return tl.split(tl.permute(tl.reshape(acc, (acc.shape[0], 2, acc.shape[1] // 2)), (0, 2, 1)))


@ditron.jit
def columns_of(acc, part: tl.constexpr, PARTS: tl.constexpr):
    """One of ``PARTS`` (2 or 4) equal ranges of an accumulator's columns."""
    left, right = halves_of(acc)
    half = left if part < PARTS // 2 else right
    if PARTS == 4:
        left, right = halves_of(half)
        half = left if part % 2 == 0 else right
    return half


@ditron.jit
def load_rows(ptr, row, col, rows, N, HEIGHT: tl.constexpr, WIDTH: tl.constexpr):
    """A tile, or some of its columns, of ``[rows, N]`` by loads of all threads."""
    at_row = row + tl.arange(0, HEIGHT)
    at_col = col + tl.arange(0, WIDTH)
    at = at_row.to(tl.int64)[:, None] * N + at_col[None, :]
    return tl.load(ptr + at, mask=(at_row < rows)[:, None] & (at_col < N)[None, :], other=0.0)


@ditron.jit
def store_columns(desc, shard, row, col, columns):
    """Some columns of a tile to ``[shards, rows, N]``."""
    desc.store([shard, row, col], columns.to(desc.dtype).reshape(1, columns.shape[0], columns.shape[1]))


@ditron.jit
def store_tile(desc, shard, row, col, acc, PARTS: tl.constexpr):
    """A tile in ``PARTS`` ranges of columns: less shared memory, which pays for one more stage of loads."""
    for part in tl.static_range(PARTS):
        columns = columns_of(acc, part, PARTS)
        store_columns(desc, shard, row, col + part * columns.shape[1], columns)


@ditron.jit
def multiply_tiles(
    a_desc,
    b_desc,
    c_desc,
    M,
    N,
    K,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    GROUP: tl.constexpr,
    PROGRAMS: tl.constexpr,
):
    """C [1, M, N] = A [1, M, K] @ B [N, K].T by ``PROGRAMS`` programs that wait for nothing."""
    tiles_m = tl.cdiv(M, BM)
    tiles_n = tl.cdiv(N, BN)
    for tile in tl.range(tl.program_id(0), tiles_m * tiles_n, PROGRAMS, flatten=True):
        shard, m, n = tile_position(tile, tiles_m, tiles_n, 0, 1, GROUP)
        acc = tl.zeros((BM, BN), tl.float32)
        for k in range(tl.cdiv(K, BK)):
            acc = dot_step(a_desc, b_desc, shard, m * BM, n * BN, k * BK, acc, BM, BK, False)
        store_tile(c_desc, shard, m * BM, n * BN, acc, 2)


@ditron.jit
def row_product(a_ptr, b_ptr, tile, N, K, BN: tl.constexpr, BK: tl.constexpr, STAGES: tl.constexpr):
    """Dot products, in fp32, of the one row of A with ``BN`` rows of B [N, K], without tensor cores and TMA."""
    rows = tile * BN + tl.arange(0, BN)
    within = tl.arange(0, BK)
    row_ptr = b_ptr + rows.to(tl.int64)[:, None] * K
    acc = tl.zeros((BN, BK), tl.float32)
    for k in tl.range(0, K, BK, num_stages=STAGES):
        mask = k + within < K
        b = tl.load(
            row_ptr + (k + within)[None, :],
            mask=(rows < N)[:, None] & mask[None, :],
            other=0.0,
            eviction_policy="evict_first",
        )
        a = tl.load(a_ptr + k + within, mask=mask, other=0.0)
        acc += b.to(tl.float32) * a.to(tl.float32)[None, :]
    return tl.sum(acc, 1)
