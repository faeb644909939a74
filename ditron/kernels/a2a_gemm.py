"""AllToAll + GEMM: columns of all ranks are gathered and rows scattered, then multiplied: Ulysses behind attention.

Copy engines push this rank's columns of every other rank's rows to that rank, in pieces that grow. One persistent
kernel adds products over K by its parts: a tile begins with the own one, and waits for another rank's part when it
comes to it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

import ditron
import ditron.host as dh
import ditron.language as dl
from ditron.distributed.torch_groups import AnyGroup
from ditron.kernels.all_to_all import all_to_all
from ditron.kernels.dispatch import torch_operator
from ditron.kernels.gathered_product import (
    PUSH_REGISTERS,
    prefers_stores,
    push_rows_of_piece,
    registers_beside_pushers,
)
from ditron.kernels.gemm_a2a import exchanged_dims
from ditron.kernels.operands import (
    aligned,
    bias_of,
    capacity_for,
    in_group,
    matrices,
    require_tensor,
    result,
    weight_layout,
)
from ditron.kernels.pushes import copy_streams_for, with_copy_streams
from ditron.kernels.schedules import (
    SMALL_TILE,
    check_schedule,
    fits_tile_kernel,
    has_tiles,
    overlaps,
    product_rule,
    schedule_for,
    tile_candidates,
)
from ditron.kernels.tiles import (
    PIECE,
    accumulator,
    add_bias,
    dot_between,
    growing_piece_of,
    growing_piece_rows,
    rows_of_growing_piece,
    shards_descriptor,
    store_tile,
    tile_position,
)
from ditron.tuning.lookup import tuned
from ditron.tuning.problem import Options, Problem
from ditron.tuning.registry import Rule, tunable
from ditron_compiler.errors import DitronError

__all__ = ["a2a_gemm", "a2a_gemm_program"]

#: Bytes for each rank from which on they travel in 8 pieces between two ranks: copies of less than some MB are slow.
MANY_BYTES = 24 << 20

#: Up to so many bytes for each rank, where each sends ``LEAST_STORED`` or more and the product takes not much longer
#: than they travel, stores of programs are ahead of copies, and of an exchange and a product one after the other. That
#: is by the columns of the product, for the part of A that leaves a rank (docs/results/all-to-all.md).
MOST_STORED, LEAST_STORED, MOST_COLUMNS = 12 << 20, 8 << 20, 3072

_ALL_PROGRAMS = tl.constexpr(PIECE)


@ditron.jit
def push_parts_kernel(
    a_ptr,
    inbox_ptr,
    arrived_ptr,
    rows,
    K,
    BM: tl.constexpr,
    PIECES: tl.constexpr,
    COUNT: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Store each other rank's rows of ``a`` [ranks, rows, K] in its ``inbox`` [ranks, rows, K], and count each piece.

    The programs are divided among the other ranks: while those of one wait for their stores to complete, before they
    count a piece, those of others store. What a rank's programs count for a piece is ``COUNT`` together.
    """
    own = dl.rank()
    ranks = dl.num_ranks()
    others = ranks - 1
    programs = tl.num_programs(0) // others
    index = tl.program_id(0) // others
    peer = (own + ranks - 1 - tl.program_id(0) % others) % ranks
    share = tl.where(index == 0, COUNT - programs + 1, 1)
    tiles_m = tl.cdiv(rows, BM)
    part_ptr = a_ptr + peer.to(tl.int64) * rows * K
    theirs_ptr = dl.symm_at(inbox_ptr + own.to(tl.int64) * rows * K, peer)
    for piece in range(PIECES):
        first, last = rows_of_growing_piece(piece, rows, tiles_m, BM, PIECES)
        push_rows_of_piece(part_ptr, theirs_ptr, first, last, K, index, programs, BLOCK)
        dl.notify(arrived_ptr + own * PIECES + piece, peer, share, op="add")


@ditron.jit
def tell_senders(done_ptr, RANKS: tl.constexpr):
    """Tell all other ranks that this program reads no more of what they have sent: once, with its last tile.

    ``done`` [RANKS] of each rank counts the programs of every other one: ``_ALL_PROGRAMS`` a call, whatever the grid.
    """
    own = dl.rank()
    is_last = tl.program_id(0) == tl.num_programs(0) - 1
    share = tl.where(is_last, _ALL_PROGRAMS - tl.num_programs(0) + 1, 1)
    for step in tl.static_range(1, RANKS):
        dl.notify(done_ptr + own, (own + step) % RANKS, share, op="add")


@ditron.jit
def await_readers(done_ptr, epoch, RANKS: tl.constexpr):
    """Let the last program wait until the programs of all ranks have finished reading (:func:`tell_senders`).

    So the next call writes to them at once. A handshake before its first copy takes 15 to 17 us in a CUDA graph
    (docs/decisions/0024-ranks-end-a-call-together.md).
    """
    own = dl.rank()
    if tl.program_id(0) == tl.num_programs(0) - 1:  # none that it waits for is to be scheduled behind it
        for step in tl.static_range(1, RANKS):
            dl.wait(done_ptr + (own + step) % RANKS, 1, epoch * _ALL_PROGRAMS)


@ditron.jit(do_not_specialize=["epoch"])
def a2a_gemm_kernel(
    a_desc,
    inbox_desc,
    b_desc,
    bias_ptr,
    c_desc,
    arrived_ptr,
    done_ptr,
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
    B_IS_KN: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    RANKS: tl.constexpr,
    COUNT: tl.constexpr,
):
    """Tiles of C [rows, N]; a tile's ``RANKS`` parts of K, of ``K`` elements, follow each other from the own one on.

    The signal of a piece that has arrived is ``COUNT`` times the epoch. The kernel ends when all ranks have read what
    this one has sent.
    """
    own = dl.rank()
    tiles_m = tl.cdiv(rows, BM)
    tiles_n = tl.cdiv(N, BN)
    k_steps = tl.cdiv(K, BK)
    goal = epoch * COUNT
    token = dl.wait(arrived_ptr, 0, goal)
    tiles = tiles_m * tiles_n
    for tile in tl.range(tl.program_id(0), tiles, PROGRAMS, flatten=True):
        _, m, n = tile_position(tile, tiles_m, tiles_n, 0, 1, GROUP)
        piece, first = growing_piece_of(m, tiles_m, PIECES)
        # Computed anew: what a loop carries from tile to tile makes Triton give up the pipeline across tiles.
        _, m_before, _ = tile_position(tl.maximum(tile - PROGRAMS, 0), tiles_m, tiles_n, 0, 1, GROUP)
        waits_at = tl.where((tile < PROGRAMS) | (m_before < first), 0, -1)
        acc = accumulator(a_desc, BM, BN, "none")
        for step in range(RANKS * k_steps):
            part = 0  # no division: one in the loop over K takes longer than the tensor cores leave
            for other in tl.static_range(1, RANKS):
                part += (step >= other * k_steps).to(tl.int32)
            k = step - part * k_steps
            sender = (own + part) % RANKS
            if part == 0:
                source = a_desc
                row = m * BM
            else:
                source = inbox_desc
                if k == waits_at:
                    token = dl.wait(arrived_ptr + sender * PIECES + piece, 1, goal)
                row = dl.consume_token(m * BM, token)
            acc = dot_between(source, b_desc, sender, row, k * BK, n * BN, sender * K + k * BK, acc, BM, BK, B_IS_KN)
        acc = add_bias(acc, bias_ptr, n * BN, N, BN, HAS_BIAS)
        if tile + PROGRAMS >= tiles:  # before the store, which a signal behind it would wait for
            tell_senders(done_ptr, RANKS)
        store_tile(c_desc, 0, m * BM, n * BN, acc, 2)
    await_readers(done_ptr, epoch, RANKS)


@ditron.program(
    example={
        "a": "bf16[65536, 1024]",
        "b": "bf16[4096, 4096]",
        "bias": "bf16[4096]",
        "out": "bf16[16384, 4096]",
        "capacity": 16384,
        "num_ranks": 4,
    },
    sample_args=lambda ranks: {
        "a": f"bf16[{40 * ranks}, 48]",
        "b": f"bf16[80, {48 * ranks}]",
        "bias": "bf16[80]",
        "out": "bf16[40, 80]",
        "capacity": 64,
        "num_ranks": ranks,
        "has_bias": True,
        "pieces": 2,
        "block": (16, 32, 32),
        "programs": 3,
    },
    max_nodes=1,
)
def a2a_gemm_program(
    a,
    b,
    bias,
    out,
    capacity,
    *,
    num_ranks,
    b_is_kn=False,
    has_bias=False,
    pieces=8,
    programs=132,
    block=(128, 256, 64),
    group_m=8,
    num_warps=8,
    stages=4,
    maxnreg=None,
    copy_streams=1,
    pushers=0,
    push_block=16384,
    push_warps=16,
):
    """``out`` [rows, N] = this rank's rows of all ranks' ``a`` [ranks * rows, K], side by side, times ``b`` transposed.

    ``b`` is ``[N, ranks * K]``, or ``[ranks * K, N]`` if b_is_kn; ``bias`` [N] counts if has_bias. ``num_ranks`` is the
    group's. Memory is kept for up to ``capacity`` rows. What goes to a rank travels in ``pieces``: by copy engines on
    ``copy_streams``, or with ``pushers`` by stores of so many programs of another kernel, equally many for each rank,
    ``push_block`` elements at a time.
    """
    rank, ranks, epoch = dh.rank(), dh.num_ranks(), dh.epoch()
    (rows, N), K = out.shape, a.shape[1]
    inbox = dh.symm_empty(ranks * capacity, K, dtype=a.dtype, name="inbox")
    arrived = dh.symm_zeros(ranks * pieces, dtype=torch.int64, name="arrived")
    done = dh.symm_zeros(ranks, dtype=torch.int64, name="done")
    BM, BN, BK = block
    if pushers:
        maxnreg = registers_beside_pushers(num_warps, push_warps, maxnreg)

    # The rank before this one comes to its part first.
    copies = [(piece, step) for piece in range(pieces) for step in range(1, num_ranks)]

    def copy(copier: int) -> None:
        for piece, step in copies[copier::copy_streams]:
            first, last = growing_piece_rows(rows, BM, piece, pieces)
            peer = (rank - step) % ranks
            dh.rank_copy(
                a[peer * rows + first : peer * rows + last], inbox[rank * rows + first : rank * rows + last], peer
            )
            dh.signal_write(arrived[rank * pieces + piece], epoch, peer)

    with dh.stream("copy"):
        if pushers and num_ranks > 1:
            push_parts_kernel[(_divided(pushers, num_ranks),)](
                a,
                inbox,
                arrived,
                rows,
                K,
                BM=BM,
                PIECES=pieces,
                COUNT=PIECE,
                BLOCK=push_block,
                num_warps=push_warps,
                maxnreg=PUSH_REGISTERS,
            )
        else:
            copy(0)
    # On one stream, the latency of a signal's write and of the next copy's start is between two copies.
    for copier in range(1, 1 if pushers else copy_streams):
        with dh.stream(f"copy{copier}"):
            copy(copier)
    tiles = dh.cdiv(rows, BM) * dh.cdiv(N, BN)
    a2a_gemm_kernel[(dh.minimum(programs, tiles),)](
        shards_descriptor(a, ranks, rows, K, (BM, BK)),
        shards_descriptor(inbox, ranks, rows, K, (BM, BK)),
        TensorDescriptor.from_tensor(b, [BK, BN] if b_is_kn else [BN, BK]),
        bias,
        shards_descriptor(out, 1, rows, N, (BM, BN // 2)),
        arrived,
        done,
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
        B_IS_KN=b_is_kn,
        HAS_BIAS=has_bias,
        RANKS=num_ranks,
        COUNT=PIECE if pushers else 1,
        num_warps=num_warps,
        num_stages=stages,
        **({} if maxnreg is None else {"maxnreg": maxnreg}),
    )


def _most_pieces(ranks: int, part: int) -> int:
    """Pieces of the ``part`` bytes that go to a rank (docs/results/all-to-all.md)."""
    return 8 if part >= MANY_BYTES and ranks == 2 else 4


def _divided(pushers: int, ranks: int) -> int:
    """As many for each other rank, and one at least."""
    others = max(1, ranks - 1)
    return max(1, pushers // others) * others


def stored_schedule(ranks: int, rows: int, N: int, row_bytes: int, pushers: int = 12) -> Options:
    """Where programs store ``rows`` rows of ``row_bytes`` bytes for each rank; empty elsewhere."""
    part = capacity_for(rows) * row_bytes
    if N * ranks > MOST_COLUMNS * (ranks - 1) or part > MOST_STORED or part * (ranks - 1) < LEAST_STORED:
        return {}
    return {"block": SMALL_TILE, "pieces": 4, "group_m": 4, "stages": 5, "pushers": _divided(pushers, ranks)}


def _stored(problem: Problem, pushers: int = 12) -> Options:
    return stored_schedule(
        problem.ranks, problem.rows, problem.N, problem.K // problem.ranks * problem.itemsize, pushers
    )


def a2a_gemm_rule(problem: Problem) -> Rule:
    """What :func:`a2a_gemm` runs where nothing is measured, on a GPU with ``FEWEST_SMS`` SMs or more."""
    part = problem.sent_bytes // max(1, problem.ranks - 1)
    if has_tiles(problem) and (schedule := _stored(problem)):
        why = f"{part / 2**20:.1f} MB for each rank are stored, which takes as long as so few columns"
        return Rule({"algorithm": "overlapped"} | schedule, why)
    return with_copy_streams(product_rule(problem, _most_pieces(problem.ranks, part)), problem.ranks)


@tunable("a2a_gemm", rule=a2a_gemm_rule)
def a2a_gemm_candidates(problem: Problem) -> Iterator[Options]:
    """Schedules of :func:`a2a_gemm`."""
    for options in tile_candidates(problem, (8, 4, 2)):
        yield options
        if problem.ranks > 2 and options["pieces"] in (2, 4):
            yield options | {"copy_streams": 2}
    if has_tiles(problem):
        for pushers in (8, 12, 16):
            if schedule := _stored(problem, pushers):
                yield {"algorithm": "overlapped"} | schedule
    yield {"algorithm": "sequential"}
    yield {"algorithm": "nccl"}


@torch_operator("x", "w", "bias", "scatter_dim", "gather_dim")
def a2a_gemm(
    x: torch.Tensor,
    w: torch.Tensor,
    bias: torch.Tensor | None = None,
    *,
    scatter_dim: int = 0,
    gather_dim: int = -1,
    out: torch.Tensor | None = None,
    group: AnyGroup = None,
    algorithm: str | None = None,
    **schedule: Any,
) -> torch.Tensor:
    """All of a sequence with some heads, exchanged and multiplied with a whole weight: some of the sequence, all heads.

    Args:
        x: ``[sequence, ..., K / num_ranks]``, the same shape on every rank. w: ``[N, K]``, row-major or the transpose
            of a row-major ``[K, N]``. bias: ``[N]``. All bfloat16, float16 or float32.
        scatter_dim: of the sequence, of which every rank gets a part, in rank order; any other than 0 costs a copy.
        gather_dim: the last one: the columns, which are put side by side in rank order.
        out: written if given. group: the ranks; default the current group. One node.
        algorithm: ``"overlapped"``, ``"sequential"`` for an exchange and a product one after the other, or ``"nccl"``
            for the same with NCCL's, instead of the one that is chosen by size.
        schedule: keyword-only arguments of :func:`a2a_gemm_program`, instead of those that would be chosen.

    Returns ``[sequence / num_ranks, ..., N]``. Collective over the group. Raises DitronError for tensors that do not
    fit.

        y = ditron.kernels.a2a_gemm(attention, w_out)  # attention: all tokens, some heads; y: some tokens
    """
    with in_group(group, "a2a_gemm") as group:
        require_tensor("a2a_gemm", "x", x)
        if x.ndim < 2 or x.numel() == 0:
            raise DitronError(f"a2a_gemm: x must have two dimensions or more and elements, got shape {tuple(x.shape)}")
        dims = {"scatter_dim": scatter_dim, "gather_dim": gather_dim}
        scatter_dim = exchanged_dims("a2a_gemm", x, "gather_dim", "scatter_dim", dims)
        ranks = group.num_ranks
        if x.shape[scatter_dim] % ranks:
            raise DitronError(
                f"a2a_gemm: x is {list(x.shape)}, and {ranks} ranks cannot share dimension {scatter_dim} evenly"
            )
        shape = list(x.shape[:-1])
        shape[scatter_dim] //= ranks
        by_owner = x.view(*x.shape[:scatter_dim], ranks, -1, *x.shape[scatter_dim + 1 :]).movedim(scatter_dim, 0)
        flat = by_owner.reshape(-1, x.shape[-1])
        matrices("a2a_gemm", group, x=flat, w=w)
        (N, whole), K = w.shape, flat.shape[1]
        if whole != ranks * K:
            raise DitronError(
                f"a2a_gemm: x is {list(x.shape)} and w is {list(w.shape)}: expected w to be [N, {ranks * K}]"
            )
        rows = flat.shape[0] // ranks
        out = result("a2a_gemm", (*shape, N), x, out, x=x, w=w, bias=bias)
        bias_of("a2a_gemm", out, N, bias)
        flat, product = aligned(flat), out.view(rows, N)
        b, b_is_kn = weight_layout(w)
        algorithm, schedule = tuned("a2a_gemm", group, algorithm, schedule, flat.dtype, rows, N, w.shape[1])
        check_schedule("a2a_gemm", schedule, a2a_gemm_program)
        if schedule.keys() >= {"pushers", "copy_streams"}:
            raise DitronError("a2a_gemm: pushers= store what copy_streams= would copy: give one of both")
        part = flat.nbytes // ranks
        if "pushers" in schedule:
            schedule = schedule | {"pushers": _divided(schedule["pushers"], ranks)}
        is_free = algorithm in (None, "overlapped") and not schedule
        if is_free and prefers_stores(group) and fits_tile_kernel(group, flat, b, product):
            if schedule := stored_schedule(ranks, rows, N, K * flat.element_size()):
                algorithm = "overlapped"
        if overlaps("a2a_gemm", group, algorithm, part * (ranks - 1), flat, b, product):
            pieces = 8 if group.small_shapes else _most_pieces(ranks, part)
            chosen = schedule_for("a2a_gemm", group, rows, pieces, schedule, whole_pieces=False)
            if not schedule and not group.small_shapes:
                chosen |= copy_streams_for(ranks)
            a2a_gemm_program(
                flat,
                b,
                b if bias is None else aligned(bias),
                product,
                capacity_for(rows),
                num_ranks=ranks,
                b_is_kn=b_is_kn,
                has_bias=bias is not None,
                **chosen,
            )
            return out
        parts = all_to_all(flat, algorithm="nccl" if algorithm == "nccl" else None).view(ranks, rows, K)
        torch.matmul(parts.transpose(0, 1).reshape(rows, -1), b if b_is_kn else b.t(), out=product)
        return out if bias is None else out.add_(bias)
