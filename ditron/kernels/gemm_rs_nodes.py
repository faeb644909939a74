"""GEMM + ReduceScatter over several nodes: the sum of a node's parts goes to another one once, by NIC.

A rank adds what its node has for the ranks of its number on other nodes, in those tiles of its persistent kernel, and a
NIC puts the sums. The own rows come last: they get the own node's parts, and the other nodes' sums.
"""

from __future__ import annotations

import torch
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

import ditron
import ditron.host as dh
import ditron.language as dl
from ditron.kernels.tiles import (
    PIECE,
    columns_of,
    dot_step,
    piece_of,
    piece_rows,
    shards_descriptor,
    store_columns,
    store_tile,
    tile_position,
)

__all__ = ["gemm_rs_nodes_program"]


@ditron.jit(do_not_specialize=["epoch"])
def gemm_rs_nodes_kernel(
    a_desc,
    b_desc,
    out_desc,
    outbox_desc,
    inbox_desc,
    counts_ptr,
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
    PIECE: tl.constexpr,
    B_IS_KN: tl.constexpr,
    RANKS: tl.constexpr,
    LOCAL: tl.constexpr,
    PARTS: tl.constexpr,
):
    """Tiles of all shards: parts for the node's other ranks and sums for other nodes to the outbox, own sums to out.

    The inbox [ranks + nodes, rows, N] has, for each node, the parts that the own node's ranks have for this rank's
    number there; behind them, the sums of the other nodes.
    """
    own = dl.rank()
    node = own // LOCAL
    number = own % LOCAL
    tiles_m = tl.cdiv(rows, BM)
    tiles_n = tl.cdiv(N, BN)
    k_steps = tl.cdiv(K, BK)
    publish_at = tl.minimum(4, k_steps - 1)  # by then the stores of the tile before have completed: nothing waits
    counted = -1  # piece of the tile before, which is not published yet, and what it counts
    share = 0
    # Not flattened: Triton 3.6 cannot fuse the loops with a branch within a branch behind.
    for tile in range(tl.program_id(0), RANKS * tiles_m * tiles_n, PROGRAMS):
        order, m, n = tile_position(tile, tiles_m, tiles_n, 0, RANKS, GROUP)
        to_node = (node + 1 + order // LOCAL) % (RANKS // LOCAL)
        to_number = (number + 1 + order % LOCAL) % LOCAL
        shard = to_node * LOCAL + to_number
        piece, first, tile_rows = piece_of(m, tiles_m, PIECES)
        before = counted
        before_share = share
        counted = tl.where(shard == own, -1, shard * PIECES + piece)
        share = tl.where((m == first) & (n == 0), PIECE - tile_rows * tiles_n + 1, 1)
        acc = tl.zeros((BM, BN), tl.float32)
        for k in range(k_steps):
            acc = dot_step(a_desc, b_desc, shard, m * BM, n * BN, k * BK, acc, BM, BK, B_IS_KN)
            if (k == publish_at) & (before >= 0):
                dl.notify(counts_ptr + before, own, before_share, op="add")
        if to_number == number:
            for part in tl.static_range(PARTS):
                total = columns_of(acc, part, PARTS)
                col = n * BN + part * (BN // PARTS)
                for other in tl.static_range(1, LOCAL):
                    slot = to_node * LOCAL + (number + other) % LOCAL
                    token = dl.wait(arrived_ptr + slot * PIECES + piece, 1, epoch)
                    theirs = inbox_desc.load([slot, dl.consume_token(m * BM, token), col])
                    total += theirs.reshape(BM, BN // PARTS).to(tl.float32)
                if shard == own:
                    for far in tl.static_range(1, RANKS // LOCAL):
                        slot = RANKS + (node + far) % (RANKS // LOCAL)
                        token = dl.wait(arrived_ptr + slot * PIECES + piece, 1, epoch)
                        theirs = inbox_desc.load([slot, dl.consume_token(m * BM, token), col])
                        total += theirs.reshape(BM, BN // PARTS).to(tl.float32)
                    store_columns(out_desc, 0, m * BM, col, total)
                else:
                    store_columns(outbox_desc, shard, m * BM, col, total)
        else:
            store_tile(outbox_desc, shard, m * BM, n * BN, acc, PARTS)
    if counted >= 0:
        dl.notify(counts_ptr + counted, own, share, op="add")


@ditron.jit(do_not_specialize=["epoch"])
def put_sums_kernel(
    outbox_ptr,
    inbox_ptr,
    counts_ptr,
    arrived_ptr,
    done_ptr,
    rows,
    N,
    epoch,
    BLOCK_ROWS: tl.constexpr,
    PIECES: tl.constexpr,
    PIECE: tl.constexpr,
    RANKS: tl.constexpr,
    LOCAL: tl.constexpr,
):
    """One program: this node's sums to the rank of the same number on every other node, the one after it first."""
    own = dl.rank()
    slot = RANKS + own // LOCAL
    for step in range(LOCAL, RANKS, LOCAL):  # what the call before sent to this rank has been added
        dl.notify(done_ptr + own, (own + step) % RANKS, epoch)
    tiles = tl.cdiv(rows, BLOCK_ROWS)
    row_bytes = tl.cast(N, tl.int64) * (outbox_ptr.dtype.element_ty.primitive_bitwidth // 8)
    for step in range(LOCAL, RANKS, LOCAL):
        peer = (own + step) % RANKS
        dl.wait(done_ptr + peer, 1, epoch)
        for piece in tl.static_range(PIECES):
            first = tl.minimum(tiles * piece // PIECES * BLOCK_ROWS, rows)
            last = tl.minimum(tiles * (piece + 1) // PIECES * BLOCK_ROWS, rows)
            # Of the world, as the tiles' notify: a NIC reads the sums, not only this GPU.
            token = dl.wait(counts_ptr + peer * PIECES + piece, 1, epoch.to(tl.int64) * PIECE)
            sums_ptr = dl.consume_token(outbox_ptr, token) + (peer.to(tl.int64) * rows + first) * N
            there_ptr = inbox_ptr + (slot.to(tl.int64) * rows + first) * N
            arrived = arrived_ptr + slot * PIECES + piece
            dl.putmem_signal_nbi(there_ptr, sums_ptr, (last - first) * row_bytes, arrived, epoch, peer)
    dl.quiet()


@ditron.program(
    example={
        "a": "bf16[32768, 1024]",
        "b": "bf16[4096, 1024]",
        "out": "bf16[2048, 4096]",
        "capacity": 2048,
        "num_ranks": 16,
        "local_ranks": 8,
    },
    sample_args=lambda ranks: {
        "a": f"bf16[{40 * ranks}, 32]",
        "b": "bf16[48, 32]",
        "out": "bf16[40, 48]",
        "capacity": 64,
        "num_ranks": ranks,
        "local_ranks": 2 if ranks % 2 == 0 else 1,
        "pieces": 2,
        "block": (16, 32, 32),
        "programs": 4,
    },
)
def gemm_rs_nodes_program(
    a,
    b,
    out,
    capacity,
    *,
    num_ranks,
    local_ranks,
    b_is_kn=False,
    pieces=4,
    programs=132,
    block=(128, 256, 64),
    group_m=8,
    num_warps=8,
    stages=3,
    parts=4,
    maxnreg=None,
):
    """As :func:`gemm_rs_program`, on nodes of ``local_ranks`` each, or of multiples of them."""
    rank, ranks, epoch, local = dh.rank(), dh.num_ranks(), dh.epoch(), local_ranks
    (rows, N), K = out.shape, a.shape[1]
    nodes = num_ranks // local
    outbox = dh.symm_empty(ranks * capacity, N, dtype=out.dtype, name="outbox")
    inbox = dh.symm_empty((ranks + nodes) * capacity, N, dtype=out.dtype, name="inbox")
    counts = dh.symm_zeros(ranks * pieces, dtype=torch.int64, name="counts")
    arrived = dh.symm_zeros((ranks + nodes) * pieces, dtype=torch.int64, name="arrived")
    done = dh.symm_zeros(ranks, dtype=torch.int64, name="done")
    BM, BN, BK = block
    columns = (BM, BN // parts)
    programs = max(1, programs - 1)  # one SM is left to the puts

    tiles = ranks * dh.cdiv(rows, BM) * dh.cdiv(N, BN)
    gemm_rs_nodes_kernel[(dh.minimum(programs, tiles),)](
        shards_descriptor(a, ranks, rows, K, (BM, BK)),
        TensorDescriptor.from_tensor(b, [BK, BN] if b_is_kn else [BN, BK]),
        shards_descriptor(out, 1, rows, N, columns),
        shards_descriptor(outbox, ranks, rows, N, columns),
        shards_descriptor(inbox, ranks + nodes, rows, N, columns),
        counts,
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
        PIECE=PIECE,
        B_IS_KN=b_is_kn,
        RANKS=num_ranks,
        LOCAL=local,
        PARTS=parts,
        num_warps=num_warps,
        num_stages=stages,
        **({} if maxnreg is None else {"maxnreg": maxnreg}),
    )
    with dh.stream("net"):
        put_sums_kernel[(1,)](
            outbox,
            inbox,
            counts,
            arrived,
            done,
            rows,
            N,
            epoch,
            BLOCK_ROWS=BM,
            PIECES=pieces,
            PIECE=PIECE,
            RANKS=num_ranks,
            LOCAL=local,
            num_warps=1,
        )
    number, first_rank = rank % local, rank - rank % local
    with dh.stream("copy"):
        for step in dh.range(1, local):  # what the call before sent to this rank has been added
            dh.signal_write(done[rank], epoch, first_rank + (number + step) % local)
        for step in dh.range(1, local):
            dh.signal_wait(done[first_rank + (number + step) % local], epoch)
        for far in dh.range(1, nodes + 1):
            to_node = (rank // local + far) % nodes
            slot = to_node * local + number
            for step in dh.range(1, local):
                to_number = (number + step) % local
                shard, peer = to_node * local + to_number, first_rank + to_number
                for piece in range(pieces):
                    first, last = piece_rows(rows, BM, piece, pieces)
                    dh.signal_wait(counts[shard * pieces + piece], epoch * PIECE)
                    source = outbox[shard * rows + first : shard * rows + last]
                    dh.rank_copy(source, inbox[slot * rows + first : slot * rows + last], peer)
                    dh.signal_write(arrived[slot * pieces + piece], epoch, peer)
