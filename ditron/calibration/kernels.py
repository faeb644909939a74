"""Kernels that do one thing, so that their time is of one number of a machine; every P-th block is a program's.

Pushes write ``box_ptr`` of the right neighbour, pulls read ``box_ptr`` of the left one to ``x_ptr``.
"""

from __future__ import annotations

import triton
import triton.language as tl

import ditron
import ditron.language as dl
from ditron.kernels.exchange import send_packets_to_all, sum_of_packets
from ditron.kernels.tiles import multiply_tiles

__all__ = [
    "copy_kernel",
    "element_kernel",
    "load_pull",
    "neighbour",
    "packet_push",
    "packet_sum_kernel",
    "product_kernel",
    "small_kernel",
    "store_push",
    "tma_push",
    "turns_kernel",
]


@ditron.jit(do_not_specialize=["epoch"])
def small_kernel(x_ptr, y_ptr, epoch, BLOCK: tl.constexpr):
    """``y`` = ``x`` + ``epoch``, a block for each program."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + at, tl.load(x_ptr + at) + epoch)


@ditron.jit(do_not_specialize=["epoch"])
def packet_sum_kernel(x_ptr, out_ptr, boxes_ptr, n, epoch, BLOCK: tl.constexpr, PROTOCOL: tl.constexpr):
    """``out`` [n] = the sum over ranks of ``x``, a block for each program, which sends it to all as packets."""
    block = tl.program_id(0)
    blocks = tl.num_programs(0)
    count = tl.minimum(n - block * BLOCK, BLOCK)
    x_ptr += block * BLOCK
    out_ptr += block * BLOCK
    send_packets_to_all(x_ptr, 0, count, boxes_ptr, block, blocks, epoch, BLOCK, PROTOCOL)
    total = sum_of_packets(x_ptr, out_ptr, count, boxes_ptr, block, blocks, epoch, BLOCK, PROTOCOL)
    at = tl.arange(0, triton.next_power_of_2(BLOCK))
    tl.store(out_ptr + at, total.to(out_ptr.dtype.element_ty), mask=at < count)


@ditron.jit
def copy_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    """``n`` elements from this GPU's memory, and to it."""
    for block in range(tl.program_id(0), tl.cdiv(n, BLOCK), tl.num_programs(0)):
        at = block.to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
        tl.store(y_ptr + at, tl.load(x_ptr + at, mask=at < n), mask=at < n)


@ditron.jit
def element_kernel(x_ptr, y_ptr, n, SPECIAL: tl.constexpr, TIMES: tl.constexpr, BLOCK: tl.constexpr):
    """``y`` = ``TIMES`` exponentials, or multiply-adds, of ``x`` [n], a block for each program."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x_ptr + at, mask=at < n).to(tl.float32)
    for _ in tl.static_range(TIMES):
        if SPECIAL:
            value = tl.exp2(-value)
        else:
            value = value * 0.75 + 0.5
    tl.store(y_ptr + at, value.to(y_ptr.dtype.element_ty), mask=at < n)


@ditron.jit(do_not_specialize=["epoch"])
def turns_kernel(signals_ptr, epoch, TURNS: tl.constexpr):
    """Two programs of this GPU that signal each other in turn, ``TURNS`` times each."""
    me = tl.program_id(0)
    own = dl.rank()
    for turn in range(TURNS):
        value = epoch.to(tl.int64) * TURNS + turn
        if me == 1:
            dl.wait(signals_ptr + 1, 1, value, scope="gpu")
        dl.notify(signals_ptr + 1 - me, own, value, scope="gpu")
        if me == 0:
            dl.wait(signals_ptr, 1, value, scope="gpu")


@ditron.jit(do_not_specialize=["epoch"])
def product_kernel(
    a_desc,
    b_desc,
    c_desc,
    M,
    N,
    K,
    epoch,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    GROUP: tl.constexpr,
    PROGRAMS: tl.constexpr,
):
    """C [1, M, N] = A [1, M, K] @ B [N, K].T, persistent, as the operators multiply.

    For ``epoch`` its program counts calls, as those of operators do: in a CUDA graph by a kernel of its own.
    """
    multiply_tiles(a_desc, b_desc, c_desc, M, N, K, BM, BN, BK, GROUP, PROGRAMS)


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


@ditron.jit(do_not_specialize=["epoch"])
def packet_push(x_ptr, packets_ptr, n, epoch, BLOCK: tl.constexpr, PROTOCOL: tl.constexpr):
    PLACE: tl.constexpr = dl.packet_bytes(BLOCK * 2) // 8
    for block in range(tl.program_id(0), tl.cdiv(n, BLOCK), tl.num_programs(0)):
        first = block.to(tl.int64) * BLOCK
        nbytes = tl.minimum(n - first, BLOCK) * 2
        place_ptr = packets_ptr + block.to(tl.int64) * PLACE
        dl.ll_put(place_ptr, x_ptr + first, nbytes, neighbour(1), epoch, protocol=PROTOCOL)
