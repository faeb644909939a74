"""Kernels that move ``n`` bf16 elements over one link, in each way that our language has; every P-th block a program's.

Pushes write ``box_ptr`` of the right neighbour, pulls read ``box_ptr`` of the left one to ``x_ptr``.
"""

from __future__ import annotations

import triton.language as tl

import ditron
import ditron.language as dl
from ditron.calibration.kernels import load_pull, neighbour, packet_push, store_push, tma_push

__all__ = [
    "getmem_pull",
    "load_pull",
    "packet_push",
    "packet_take",
    "putmem_push",
    "store_push",
    "tma_pull",
    "tma_push",
]


@ditron.jit
def putmem_push(x_ptr, box_ptr, n, BLOCK: tl.constexpr):
    for block in range(tl.program_id(0), tl.cdiv(n, BLOCK), tl.num_programs(0)):
        first = block.to(tl.int64) * BLOCK
        dl.putmem_nbi(box_ptr + first, x_ptr + first, tl.minimum(n - first, BLOCK) * 2, neighbour(1))
    dl.quiet()


@ditron.jit
def getmem_pull(x_ptr, box_ptr, n, BLOCK: tl.constexpr):
    for block in range(tl.program_id(0), tl.cdiv(n, BLOCK), tl.num_programs(0)):
        first = block.to(tl.int64) * BLOCK
        dl.getmem_nbi(x_ptr + first, box_ptr + first, tl.minimum(n - first, BLOCK) * 2, neighbour(-1))
    dl.quiet()


@ditron.jit
def tma_pull(x_ptr, box_ptr, n, ROWS: tl.constexpr, COLS: tl.constexpr, STAGES: tl.constexpr):
    rows = n // COLS
    there_ptr = dl.symm_at(box_ptr, neighbour(-1))
    source = tl.make_tensor_descriptor(there_ptr, [rows, COLS], [COLS, 1], [ROWS, COLS])
    target = tl.make_tensor_descriptor(x_ptr, [rows, COLS], [COLS, 1], [ROWS, COLS])
    for block in tl.range(tl.program_id(0), tl.cdiv(rows, ROWS), tl.num_programs(0), num_stages=STAGES):
        target.store([block * ROWS, 0], source.load([block * ROWS, 0]))


@ditron.jit(do_not_specialize=["epoch"])
def packet_take(out_ptr, packets_ptr, n, epoch, BLOCK: tl.constexpr, PROTOCOL: tl.constexpr):
    PLACE: tl.constexpr = dl.packet_bytes(BLOCK * 2) // 8
    for block in range(tl.program_id(0), tl.cdiv(n, BLOCK), tl.num_programs(0)):
        first = block.to(tl.int64) * BLOCK
        nbytes = tl.minimum(n - first, BLOCK) * 2
        dl.ll_get(out_ptr + first, packets_ptr + block.to(tl.int64) * PLACE, nbytes, epoch, protocol=PROTOCOL)
