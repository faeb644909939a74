"""Kernels that move ``n`` bf16 elements over one link, in each way that our language has; every P-th block a program's.

Pushes write ``box_ptr`` of the right neighbour, pulls read ``box_ptr`` of the left one to ``x_ptr``.
"""

from __future__ import annotations

import triton.language as tl

import ditron
import ditron.language as dl


@ditron.jit
def neighbour(distance: tl.constexpr):
    return (dl.rank() + dl.num_ranks() + distance) % dl.num_ranks()


@ditron.jit
def store_push(x_ptr, box_ptr, n, BLOCK: tl.constexpr):
    there_ptr = dl.symm_at(box_ptr, neighbour(1))
    for block in range(tl.program_id(0), tl.cdiv(n, BLOCK), tl.num_programs(0)):
        at = block.to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
        tl.store(there_ptr + at, tl.load(x_ptr + at, mask=at < n), mask=at < n)


@ditron.jit
def load_pull(x_ptr, box_ptr, n, BLOCK: tl.constexpr):
    there_ptr = dl.symm_at(box_ptr, neighbour(-1))
    for block in range(tl.program_id(0), tl.cdiv(n, BLOCK), tl.num_programs(0)):
        at = block.to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
        tl.store(x_ptr + at, tl.load(there_ptr + at, mask=at < n), mask=at < n)


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
def tma_push(x_ptr, box_ptr, n, ROWS: tl.constexpr, COLS: tl.constexpr, STAGES: tl.constexpr, ADD: tl.constexpr):
    """By descriptors over this rank's and the neighbour's memory; ``ADD`` adds there instead of storing."""
    rows = n // COLS
    source = tl.make_tensor_descriptor(x_ptr, [rows, COLS], [COLS, 1], [ROWS, COLS])
    there_ptr = dl.symm_at(box_ptr, neighbour(1))
    target = tl.make_tensor_descriptor(there_ptr, [rows, COLS], [COLS, 1], [ROWS, COLS])
    for block in tl.range(tl.program_id(0), tl.cdiv(rows, ROWS), tl.num_programs(0), num_stages=STAGES):
        tile = source.load([block * ROWS, 0])
        if ADD:
            target.atomic_add([block * ROWS, 0], tile)
        else:
            target.store([block * ROWS, 0], tile)


@ditron.jit
def tma_pull(x_ptr, box_ptr, n, ROWS: tl.constexpr, COLS: tl.constexpr, STAGES: tl.constexpr):
    rows = n // COLS
    there_ptr = dl.symm_at(box_ptr, neighbour(-1))
    source = tl.make_tensor_descriptor(there_ptr, [rows, COLS], [COLS, 1], [ROWS, COLS])
    target = tl.make_tensor_descriptor(x_ptr, [rows, COLS], [COLS, 1], [ROWS, COLS])
    for block in tl.range(tl.program_id(0), tl.cdiv(rows, ROWS), tl.num_programs(0), num_stages=STAGES):
        target.store([block * ROWS, 0], source.load([block * ROWS, 0]))


@ditron.jit(do_not_specialize=["epoch"])
def packet_push(x_ptr, packets_ptr, n, epoch, BLOCK: tl.constexpr, PROTOCOL: tl.constexpr):
    PLACE: tl.constexpr = dl.packet_bytes(BLOCK * 2) // 8
    for block in range(tl.program_id(0), tl.cdiv(n, BLOCK), tl.num_programs(0)):
        first = block.to(tl.int64) * BLOCK
        nbytes = tl.minimum(n - first, BLOCK) * 2
        place_ptr = packets_ptr + block.to(tl.int64) * PLACE
        dl.ll_put(place_ptr, x_ptr + first, nbytes, neighbour(1), epoch, protocol=PROTOCOL)


@ditron.jit(do_not_specialize=["epoch"])
def packet_take(out_ptr, packets_ptr, n, epoch, BLOCK: tl.constexpr, PROTOCOL: tl.constexpr):
    PLACE: tl.constexpr = dl.packet_bytes(BLOCK * 2) // 8
    for block in range(tl.program_id(0), tl.cdiv(n, BLOCK), tl.num_programs(0)):
        first = block.to(tl.int64) * BLOCK
        nbytes = tl.minimum(n - first, BLOCK) * 2
        dl.ll_get(out_ptr + first, packets_ptr + block.to(tl.int64) * PLACE, nbytes, epoch, protocol=PROTOCOL)
