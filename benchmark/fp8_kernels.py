"""Ways to add scaled products of fp8, in a kernel with a constant for each; rows sorted by expert, or gathered."""

from __future__ import annotations

import triton.language as tl

import ditron
from ditron.kernels.grouped import expert_tile, scale_of_weights
from ditron.kernels.tiles import store_columns

__all__ = ["fp8_product"]


@ditron.jit
def rows_of(a_desc, x_ptr, slot, row, k, K, GATHER: tl.constexpr):
    """128 elements along K of some rows."""
    if GATHER:
        at = x_ptr + slot.to(tl.int64)[:, None] * K + tl.arange(0, 128)[None, :]
        return tl.load(at + k, mask=(slot >= 0)[:, None], other=0.0)
    else:
        return a_desc.load([row, k])


@ditron.jit
def scales_at(scale_ptr, slot, row, k, K, GATHER: tl.constexpr, ROWS: tl.constexpr):
    """Of those elements."""
    if GATHER:
        return tl.load(scale_ptr + slot.to(tl.int64) * (K // 128) + k // 128, mask=slot >= 0, other=0.0)
    else:
        return tl.load(scale_ptr + (row + tl.arange(0, ROWS)).to(tl.int64) * (K // 128) + k // 128)


@ditron.jit
def ordered_fma(x, y, z):
    """x * y + z, not moved behind the products that follow it in the program."""
    return tl.inline_asm_elementwise(
        "fma.rn.f32 $0, $1, $2, $3;", "=f,f,f,f", [x, y, z], dtype=tl.float32, is_pure=False, pack=1
    )


@ditron.jit
def fp8_product(
    x_ptr,
    a_desc,
    w_desc,
    c_desc,
    row_slot_ptr,
    tiles_ptr,
    num_tiles_ptr,
    scale_a_ptr,
    scale_w_ptr,
    N,
    K,
    BM: tl.constexpr,
    BN: tl.constexpr,
    PARTS_M: tl.constexpr,
    PARTS_N: tl.constexpr,
    GROUP: tl.constexpr,
    PROGRAMS: tl.constexpr,
    GATHER: tl.constexpr,
    SCALED: tl.constexpr,
    ORDERED: tl.constexpr,
):
    """A tile is ``PARTS_M`` x ``PARTS_N`` products, each with a sum of its own.

    ``ORDERED``: each is scaled and added before the next one is waited for, as the program says, instead of behind all.
    Without ``SCALED``: what tensor cores and memory take.
    """
    tiles_n = tl.cdiv(N, BN)
    HM: tl.constexpr = BM // PARTS_M
    HN: tl.constexpr = BN // PARTS_N
    for tile in tl.range(tl.program_id(0), tl.load(num_tiles_ptr) * tiles_n, PROGRAMS, flatten=True):
        m, n, expert, _, _ = expert_tile(tile, tiles_n, tiles_ptr, GROUP)
        w_row = expert * N + n * BN
        row = m * BM
        scale_w = scale_of_weights(scale_w_ptr, expert, n * BN, N, K)
        slots = ()
        accs = ()
        for i in tl.static_range(PARTS_M):
            if GATHER:
                slots = slots + (tl.load(row_slot_ptr + row + i * HM + tl.arange(0, HM)),)
            else:
                slots = slots + (0,)
            for _ in tl.static_range(PARTS_N):
                accs = accs + (tl.zeros((HM, HN), tl.float32),)
        for k in range(0, K, 128):
            ws = ()
            sws = ()
            for j in tl.static_range(PARTS_N):
                ws = ws + (w_desc.load([w_row + j * HN, k]),)
                sws = sws + (tl.load(scale_w + j * HN // 128 * (K // 128) + k // 128),)
            sums = ()
            for i in tl.static_range(PARTS_M):
                a = rows_of(a_desc, x_ptr, slots[i], row + i * HM, k, K, GATHER)
                if SCALED:
                    s = scales_at(scale_a_ptr, slots[i], row + i * HM, k, K, GATHER, HM)
                for j in tl.static_range(PARTS_N):
                    if SCALED:
                        d = tl.dot(a, ws[j].T)
                        of_row = (s * sws[j])[:, None]
                        if ORDERED:
                            acc = ordered_fma(d, of_row, accs[i * PARTS_N + j])
                        else:
                            acc = accs[i * PARTS_N + j] + d * of_row
                        sums = sums + (acc,)
                    else:
                        sums = sums + (tl.dot(a, ws[j].T, accs[i * PARTS_N + j]),)
            accs = sums
        for i in tl.static_range(PARTS_M):
            for j in tl.static_range(PARTS_N):
                store_columns(c_desc, 0, row + i * HM, n * BN + j * HN, accs[i * PARTS_N + j])
