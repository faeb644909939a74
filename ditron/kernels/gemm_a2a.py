"""GEMM + AllToAll: a product whose columns are scattered and whose rows are gathered: Ulysses before attention.

One persistent kernel computes the other ranks' columns first, those of the rank after it at the beginning, and counts
finished tiles at their owner, whose copy engine pulls each piece into its result when all its tiles are counted. The
own columns come last, straight to the result: the last pull is hidden under them.
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
from ditron.kernels.schedules import check_schedule, overlaps, product_rule, schedule_for, tile_candidates
from ditron.kernels.tiles import (
    MAX_REGISTERS,
    PIECE,
    accumulator,
    add_bias,
    dot_step,
    piece_of,
    piece_rows,
    shards_descriptor,
    store_tile,
    tile_position,
)
from ditron.tuning.lookup import tuned
from ditron.tuning.problem import Options, Problem
from ditron.tuning.registry import Rule, tunable
from ditron_compiler.errors import DitronError

__all__ = ["exchanged_dims", "gemm_a2a", "gemm_a2a_program"]

#: Bytes for each rank from which on they travel in 4 pieces.
MANY_BYTES = 64 << 20


@ditron.jit(do_not_specialize=["epoch"])
def gemm_a2a_kernel(
    a_desc,
    b_desc,
    bias_ptr,
    out_desc,
    outbox_desc,
    started_ptr,
    finished_ptr,
    taken_ptr,
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
    HAS_BIAS: tl.constexpr,
    RANKS: tl.constexpr,
    PARTS: tl.constexpr,
    COPY_STREAMS: tl.constexpr,
):
    """Tiles of A @ B.T by owner of their columns: others' to the outbox [ranks, rows, N], own ones to ``out``."""
    own = dl.rank()
    dl.notify(started_ptr, own, 1, op="add", scope="gpu")
    tiles_m = tl.cdiv(rows, BM)
    tiles_n = tl.cdiv(N, BN)
    k_steps = tl.cdiv(K, BK)
    publish_at = tl.minimum(4, k_steps - 1)  # by then the stores of the tile before have completed: nothing waits
    counted = -1  # piece of the tile before, which is not published yet, and what it counts
    share = 0
    # The others have pulled what the call before left in the outbox.
    dl.wait(taken_ptr, own * COPY_STREAMS, epoch - 1)
    dl.wait(taken_ptr + (own + 1) * COPY_STREAMS, (RANKS - 1 - own) * COPY_STREAMS, epoch - 1)
    for tile in tl.range(tl.program_id(0), RANKS * tiles_m * tiles_n, PROGRAMS, flatten=True):
        shard, m, n = tile_position(tile, tiles_m, tiles_n, (own + 1) % RANKS, RANKS, GROUP)
        piece, first, tile_rows = piece_of(m, tiles_m, PIECES)
        before = counted
        before_share = share
        counted = tl.where(shard == own, -1, shard * PIECES + piece)
        share = tl.where((m == first) & (n == 0), PIECE - tile_rows * tiles_n + 1, 1)
        acc = accumulator(a_desc, BM, BN, "none")
        for k in range(k_steps):
            acc = dot_step(a_desc, b_desc, 0, m * BM, shard * N + n * BN, k * BK, acc, BM, BK, B_IS_KN)
            if (k == publish_at) & (before >= 0):
                counter_ptr = finished_ptr + own * PIECES + before % PIECES
                dl.notify(counter_ptr, before // PIECES, before_share, op="add")
        acc = add_bias(acc, bias_ptr + shard * N, n * BN, N, BN, HAS_BIAS)
        if shard == own:
            store_tile(out_desc, own, m * BM, n * BN, acc, PARTS)
        else:
            store_tile(outbox_desc, shard, m * BM, n * BN, acc, PARTS)
    if counted >= 0:
        dl.notify(finished_ptr + own * PIECES + counted % PIECES, counted // PIECES, share, op="add")


@ditron.program(
    example={
        "a": "bf16[16384, 4096]",
        "b": "bf16[12288, 4096]",
        "bias": "bf16[12288]",
        "out": "bf16[65536, 3072]",
        "capacity": 16384,
        "num_ranks": 4,
    },
    sample_args=lambda ranks: {
        "a": "bf16[40, 32]",
        "b": f"bf16[{48 * ranks}, 32]",
        "bias": f"bf16[{48 * ranks}]",
        "out": f"bf16[{40 * ranks}, 48]",
        "capacity": 64,
        "num_ranks": ranks,
        "has_bias": True,
        "pieces": 2,
        "block": (16, 32, 32),
        "programs": 3,
    },
    max_nodes=1,
)
def gemm_a2a_program(
    a,
    b,
    bias,
    out,
    capacity,
    *,
    num_ranks,
    b_is_kn=False,
    has_bias=False,
    pieces=4,
    programs=132,
    block=(128, 256, 64),
    group_m=8,
    num_warps=8,
    stages=4,
    parts=2,
    maxnreg=MAX_REGISTERS,
    copy_streams=1,
):
    """``out`` [ranks * rows, N] = this rank's N columns of all ranks' ``a`` [rows, K] times ``b`` transposed.

    ``b`` is ``[ranks * N, K]``, or ``[K, ranks * N]`` if b_is_kn; ``bias`` [ranks * N] is added if has_bias.
    ``num_ranks`` is the group's. Memory is kept for up to ``capacity`` rows. A block of rows and columns travels in
    ``pieces``, at most as many as it has rows of tiles, by ``copy_streams``.
    """
    rank, ranks, epoch = dh.rank(), dh.num_ranks(), dh.epoch()
    (rows, K), N = a.shape, out.shape[1]
    outbox = dh.symm_empty(ranks * capacity, N, dtype=out.dtype, name="outbox")
    started = dh.symm_zeros(1, dtype=torch.int64, name="started")
    finished = dh.symm_zeros(ranks * pieces, dtype=torch.int64, name="finished")
    streams = min(copy_streams, pieces)
    taken = dh.symm_zeros(ranks * streams, dtype=torch.int64, name="taken")
    BM, BN, BK = block
    columns = (BM, BN // parts)

    gemm_a2a_kernel[(programs,)](
        shards_descriptor(a, 1, rows, K, (BM, BK)),
        TensorDescriptor.from_tensor(b, [BK, BN] if b_is_kn else [BN, BK]),
        bias,
        shards_descriptor(out, ranks, rows, N, columns),
        shards_descriptor(outbox, ranks, rows, N, columns),
        started,
        finished,
        taken,
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
        HAS_BIAS=has_bias,
        RANKS=num_ranks,
        PARTS=parts,
        COPY_STREAMS=streams,
        num_warps=num_warps,
        num_stages=stages,
        **({} if maxnreg is None else {"maxnreg": maxnreg}),
    )

    def pull(copier: int) -> None:
        for step in dh.range(1, ranks):
            sender = (rank - step) % ranks  # which computes these columns as its block number ``step``
            for piece in range(copier, pieces, streams):
                first, last = piece_rows(rows, BM, piece, pieces)
                dh.signal_wait(finished[sender * pieces + piece], epoch * PIECE)
                source = outbox[rank * rows + first : rank * rows + last]
                dh.rank_copy(source, out[sender * rows + first : sender * rows + last], sender, pull=True)
            dh.signal_write(taken[rank * streams + copier], epoch, sender)

    with dh.stream("copy"):
        # In a CUDA graph the waits below are kernels: on an SM before a program is, one would keep that program away.
        dh.signal_wait(started[0], epoch * programs)
        begun = dh.record() if streams > 1 else None
        pull(0)
    for copier in range(1, streams):  # of one, the steps between two copies are exposed
        with dh.stream(f"copy{copier}"):
            dh.await_event(begun)
            pull(copier)


def exchanged_dims(what: str, x: torch.Tensor, columns: str, rows: str, dims: dict[str, Any]) -> int:
    """Dimension of the rows, normalized. The other one has to be the last. Raises DitronError for other ones."""
    for name, dim in dims.items():
        if type(dim) is not int or not -x.ndim <= dim < x.ndim:
            raise DitronError(f"{what}: {name} must be a dimension of {list(x.shape)}, got {dim!r}")
    if dims[columns] % x.ndim != x.ndim - 1 or dims[rows] % x.ndim == x.ndim - 1:
        raise DitronError(
            f"{what}: {columns} must be the last dimension and {rows} another one of {x.ndim}, got {dims[columns]} "
            f"and {dims[rows]}"
        )
    return dims[rows] % x.ndim


def _most_pieces(part: int) -> int:
    """Pieces of the ``part`` bytes that go to a rank (docs/results/all-to-all.md)."""
    return 4 if part >= MANY_BYTES else 2


def gemm_a2a_rule(problem: Problem) -> Rule:
    """What :func:`gemm_a2a` runs where nothing is measured."""
    pieces = _most_pieces(problem.sent_bytes // max(1, problem.ranks - 1))
    return with_copy_streams(product_rule(problem, pieces), problem.ranks)


@tunable("gemm_a2a", rule=gemm_a2a_rule)
def gemm_a2a_candidates(problem: Problem) -> Iterator[Options]:
    """Schedules of :func:`gemm_a2a`."""
    for options in tile_candidates(problem, (4, 2, 8)):
        yield options
        if problem.ranks > 2 and options["pieces"] in (2, 4):
            yield options | {"copy_streams": 2}
    yield {"algorithm": "sequential"}
    yield {"algorithm": "nccl"}


@torch_operator("x", "w", "bias", "scatter_dim", "gather_dim")
def gemm_a2a(
    x: torch.Tensor,
    w: torch.Tensor,
    bias: torch.Tensor | None = None,
    *,
    scatter_dim: int = -1,
    gather_dim: int = 0,
    out: torch.Tensor | None = None,
    group: AnyGroup = None,
    algorithm: str | None = None,
    **schedule: Any,
) -> torch.Tensor:
    """The product with a whole weight of this rank's part of a sequence, exchanged: all of the sequence, some heads.

    Args:
        x: ``[sequence / num_ranks, ..., K]``, the same shape on every rank. w: ``[N, K]``, row-major or the transpose
            of a row-major ``[K, N]``, N a multiple of the number of ranks: rows for rank 0 first. Of q, k and v in one
            weight, that is each rank's heads of all three. bias: ``[N]``. All bfloat16, float16 or float32.
        scatter_dim: the last one: the N columns of the product, of which every rank gets a part.
        gather_dim: of the sequence, which is gathered; any other than 0 costs a copy, and nothing is hidden.
        out: written if given. group: the ranks; default the current group. One node.
        algorithm: ``"overlapped"``, ``"sequential"`` for a product and an exchange one after the other, or ``"nccl"``
            for the same with NCCL's, instead of the one that is chosen by size.
        schedule: keyword-only arguments of :func:`gemm_a2a_program`, instead of those that would be chosen.

    Returns ``[sequence, ..., N / num_ranks]``. Collective over the group. Raises DitronError for tensors that do not
    fit.

        qkv = ditron.kernels.gemm_a2a(x, w_qkv)  # x: some tokens; qkv: all tokens, some heads
    """
    with in_group(group, "gemm_a2a") as group:
        require_tensor("gemm_a2a", "x", x)
        if x.ndim < 2 or x.numel() == 0:
            raise DitronError(f"gemm_a2a: x must have two dimensions or more and elements, got shape {tuple(x.shape)}")
        dims = {"scatter_dim": scatter_dim, "gather_dim": gather_dim}
        gather_dim = exchanged_dims("gemm_a2a", x, "scatter_dim", "gather_dim", dims)
        flat = x.reshape(-1, x.shape[-1])
        matrices("gemm_a2a", group, x=flat, w=w)
        (rows, K), N, ranks = flat.shape, w.shape[0], group.num_ranks
        if w.shape[1] != K:
            raise DitronError(f"gemm_a2a: x is {list(x.shape)} and w is {list(w.shape)}: expected w to be [N, {K}]")
        if N % ranks:
            raise DitronError(f"gemm_a2a: w has {N} rows, which {ranks} ranks cannot share evenly")
        shape = list(x.shape[:-1]) + [N // ranks]
        shape[gather_dim] *= ranks
        out = result("gemm_a2a", tuple(shape), x, out, x=x, w=w, bias=bias)
        bias_of("gemm_a2a", out, N, bias)
        flat = aligned(flat)
        b, b_is_kn = weight_layout(w)
        algorithm, schedule = tuned("gemm_a2a", group, algorithm, schedule, flat.dtype, rows, N, w.shape[1])
        check_schedule("gemm_a2a", schedule, gemm_a2a_program)
        received = out.view(ranks * rows, -1) if gather_dim == 0 else out.new_empty(ranks * rows, N // ranks)
        sent = received.nbytes // ranks * (ranks - 1)
        if overlaps("gemm_a2a", group, algorithm, sent, flat, b, received):
            pieces = 4 if group.small_shapes else _most_pieces(received.nbytes // ranks)
            chosen = schedule_for("gemm_a2a", group, rows, pieces, schedule, whole_pieces=True)
            if not schedule and not group.small_shapes:
                chosen |= copy_streams_for(ranks)
            offsets = b if bias is None else aligned(bias)
            gemm_a2a_program(
                flat,
                b,
                offsets,
                received,
                capacity_for(rows),
                num_ranks=ranks,
                b_is_kn=b_is_kn,
                has_bias=bias is not None,
                **chosen,
            )
        else:
            by_owner = w.reshape(ranks, N // ranks, K)
            product = torch.matmul(flat, by_owner.transpose(1, 2))
            if bias is not None:
                product += bias.view(ranks, 1, -1)
            all_to_all(product.view(ranks * rows, -1), out=received, algorithm="nccl" if algorithm == "nccl" else None)
        if gather_dim:
            by_sender = received.view(ranks, *x.shape[:-1], -1)
            out.view(*x.shape[:gather_dim], ranks, *x.shape[gather_dim:-1], -1).copy_(by_sender.movedim(0, gather_dim))
        return out
