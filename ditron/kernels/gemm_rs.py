"""GEMM + ReduceScatter: every rank gets its rows of the sum over ranks of A times the transpose of B.

One persistent kernel computes the other ranks' rows first, those of the rank after it at the beginning, and counts
finished tiles; a copy engine pushes each piece to its owner when all its tiles are counted. The own rows come last:
their tiles wait for the others' parts and add them in fp32.
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
from ditron.kernels.dispatch import SCALING, torch_operator
from ditron.kernels.gemm_rs_nodes import gemm_rs_nodes_program
from ditron.kernels.node_pushes import algorithm_on_nodes
from ditron.kernels.operands import aligned, capacity_for, in_group, matrices, result, weight_layout
from ditron.kernels.pushes import copy_streams_for
from ditron.kernels.rank_products import gemm_rs_by_rank_program
from ditron.kernels.reduce_scatter import reduce_scatter
from ditron.kernels.repeated import repeatable, run_step
from ditron.kernels.scales import promote_every, scaled_product, scales_of
from ditron.kernels.schedules import (
    by_rank_candidates,
    check_schedule,
    goes_by_rank,
    overlaps,
    product_node_rule,
    product_rule,
    schedule_for,
    sent_bytes,
    tile_candidates,
    tile_space,
)
from ditron.kernels.tiles import (
    MAX_REGISTERS,
    PIECE,
    accumulator,
    block_scaled_dot_step,
    columns_of,
    dot_step,
    load_rows,
    piece_of,
    piece_rows,
    promoted,
    scale_tile,
    shards_descriptor,
    store_columns,
    store_tile,
    tile_position,
)
from ditron.tuning.lookup import tuned
from ditron.tuning.problem import Options, Problem
from ditron.tuning.registry import Rule, tunable
from ditron_compiler.errors import DitronError

__all__ = ["gemm_rs", "gemm_rs_program"]


@ditron.jit
def publish_tile(
    counts_ptr, arrived_ptr, tile, tiles_m, tiles_n, PIECES: tl.constexpr, PIECE: tl.constexpr, STORES: tl.constexpr
):
    """Count a stored tile, at its owner or for the copy stream: those of a piece add up to ``PIECE``.

    ``tile`` is twice the number of its piece among those of all shards, and 1 for the piece's first tile.
    """
    own = dl.rank()
    piece = tile // 2 % PIECES
    rows_of_tiles = tiles_m * (piece + 1) // PIECES - tiles_m * piece // PIECES
    share = tl.where(tile % 2 == 1, PIECE - rows_of_tiles * tiles_n + 1, 1)
    if STORES:
        dl.notify(arrived_ptr + own * PIECES + piece, tile // 2 // PIECES, share, op="add")
    else:
        dl.notify(counts_ptr + tile // 2, own, share, op="add", scope="gpu")


@ditron.jit
def scaled_columns(
    result,
    part: tl.constexpr,
    scale_a_ptr,
    scale_b_ptr,
    shard,
    row,
    col,
    rows,
    N,
    BM: tl.constexpr,
    BN: tl.constexpr,
    PARTS: tl.constexpr,
    SCALE_A: tl.constexpr,
    SCALE_B: tl.constexpr,
):
    """One of ``PARTS`` ranges of a tile's columns, times the scales of its rows in ``shard`` and of the columns."""
    columns = columns_of(result, part, PARTS)
    if SCALE_A != "none":
        scale_a_ptr += shard * rows if SCALE_A == "row" else 0
        columns = scale_tile(columns, scale_a_ptr, scale_b_ptr, row, col, rows, N, BM, BN // PARTS, SCALE_A, SCALE_B)
    return columns


@ditron.jit(do_not_specialize=["epoch"])
def gemm_rs_kernel(
    a_desc,
    b_desc,
    scale_a_ptr,
    scale_b_ptr,
    out_desc,
    outbox_desc,
    inbox_ptr,
    counts_ptr,
    arrived_ptr,
    rows,
    N,
    K,
    capacity,
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
    PARTS: tl.constexpr,
    SCALE_A: tl.constexpr,
    SCALE_B: tl.constexpr,
    PROMOTE: tl.constexpr,
    STORES: tl.constexpr,
    PUBLISH_AT: tl.constexpr,
):
    """Other ranks' tiles to the outbox ``[ranks, rows, N]``, the own ones plus the inbox's to ``out`` [rows, N].

    With ``STORES`` there is no outbox: a tile is stored in its owner's inbox ``[2, ranks, rows, N]``, whose halves are
    used in turns as exchange.py explains, and counted there.
    """
    own = dl.rank()
    half = (epoch % 2).to(tl.int32)
    tiles_m = tl.cdiv(rows, BM)
    tiles_n = tl.cdiv(N, BN)
    k_steps = tl.maximum(tl.cdiv(K, BK), 2)  # beyond K are zeros
    # A tile is published in the loop over K of the next one: by then its stores have completed, and nothing waits. Not
    # in the last step, which Triton puts behind the epilogue, where own tiles wait for what other ranks publish.
    publish_at = tl.minimum(PUBLISH_AT, k_steps - 2)
    if STORES:
        place = half.to(tl.int64) * RANKS * capacity + own.to(tl.int64) * rows
        boxes = ()
        for other in tl.static_range(1, RANKS):
            owners_ptr = dl.symm_at(inbox_ptr + place * N, (own + other) % RANKS)
            boxes = boxes + (tl.make_tensor_descriptor(owners_ptr, [rows, N], [N, 1], [BM, BN // PARTS]),)
    stored = -1  # the tile before, which is not published yet (publish_tile)
    if PROMOTE:
        acc = tl.zeros((BM, BN), tl.float32)
    for tile in tl.range(tl.program_id(0), RANKS * tiles_m * tiles_n, PROGRAMS, flatten=True):
        shard, m, n = tile_position(tile, tiles_m, tiles_n, (own + 1) % RANKS, RANKS, GROUP)
        piece, first, _ = piece_of(m, tiles_m, PIECES)
        before = stored
        stored = tl.where(shard == own, -1, (shard * PIECES + piece) * 2 + ((m == first) & (n == 0)).to(tl.int32))
        if PROMOTE:
            sums = tl.zeros((BM, BN), tl.float32)
        else:
            acc = accumulator(a_desc, BM, BN, SCALE_A)
        for k in range(k_steps):
            if SCALE_A == "block":
                scales = scale_a_ptr + shard * rows
                acc = block_scaled_dot_step(
                    a_desc,
                    b_desc,
                    scales,
                    scale_b_ptr,
                    RANKS * rows,
                    shard,
                    m * BM,
                    n * BN,
                    k * BK,
                    acc,
                    rows,
                    K,
                    BM,
                    BN,
                    BK,
                )
            else:
                acc = dot_step(a_desc, b_desc, shard, m * BM, n * BN, k * BK, acc, BM, BK, B_IS_KN)
            if PROMOTE:
                sums, acc = promoted(sums, acc, k, k_steps, PROMOTE)
            if (k == publish_at) & (before >= 0):
                publish_tile(counts_ptr, arrived_ptr, before, tiles_m, tiles_n, PIECES, PIECE, STORES)
        result = sums if PROMOTE else acc
        if shard == own:  # each branch scales: Triton 3.6 cannot fuse the loops with more than the branches behind
            for part in tl.static_range(PARTS):
                col = n * BN + part * (BN // PARTS)
                total = scaled_columns(
                    result, part, scale_a_ptr, scale_b_ptr, shard, m * BM, col, rows, N, BM, BN, PARTS, SCALE_A, SCALE_B
                )
                box_ptr = inbox_ptr
                for other in tl.static_range(1, RANKS):  # all waits, then all loads: none is behind another
                    sender = (own + other) % RANKS
                    token = dl.wait(arrived_ptr + sender * PIECES + piece, 1, epoch * PIECE if STORES else epoch)
                    box_ptr = dl.consume_token(box_ptr, token)
                if STORES:
                    box_ptr += half.to(tl.int64) * RANKS * capacity * N
                for other in tl.static_range(1, RANKS):
                    sender = (own + other) % RANKS
                    theirs_ptr = box_ptr + sender.to(tl.int64) * rows * N
                    total += load_rows(theirs_ptr, m * BM, col, rows, N, BM, BN // PARTS).to(tl.float32)
                store_columns(out_desc, 0, m * BM, col, total)
        elif SCALE_A == "none" and not STORES:
            store_tile(outbox_desc, shard, m * BM, n * BN, result, PARTS)
        else:
            if STORES:
                box = boxes[0]
                for other in tl.static_range(2, RANKS):
                    if shard == (own + other) % RANKS:
                        box = boxes[other - 1]
            for part in tl.static_range(PARTS):
                col = n * BN + part * (BN // PARTS)
                columns = scaled_columns(
                    result, part, scale_a_ptr, scale_b_ptr, shard, m * BM, col, rows, N, BM, BN, PARTS, SCALE_A, SCALE_B
                )
                if STORES:
                    box.store([m * BM, col], columns.to(box.dtype))
                else:
                    store_columns(outbox_desc, shard, m * BM, col, columns)
    if stored >= 0:
        publish_tile(counts_ptr, arrived_ptr, stored, tiles_m, tiles_n, PIECES, PIECE, STORES)


@ditron.program(
    example={
        "a": "bf16[8192, 1024]",
        "b": "bf16[4096, 1024]",
        "out": "bf16[2048, 4096]",
        "scale_a": None,
        "scale_b": None,
        "capacity": 2048,
        "num_ranks": 4,
    },
    sample_args=lambda ranks: {
        "a": f"bf16[{40 * ranks}, 32]",
        "b": "bf16[48, 32]",
        "out": "bf16[40, 48]",
        "scale_a": None,
        "scale_b": None,
        "capacity": 64,
        "num_ranks": ranks,
        "pieces": 2,
        "block": (16, 32, 32),
        "programs": 3,
    },
    max_nodes=1,
)
def gemm_rs_program(
    a,
    b,
    out,
    scale_a,
    scale_b,
    capacity,
    *,
    num_ranks,
    b_is_kn=False,
    pieces=4,
    programs=132,
    block=(128, 256, 64),
    group_m=8,
    num_warps=8,
    stages=3,
    parts=2,
    scale_a_kind="none",
    scale_b_kind="none",
    use_fast_accum=False,
    maxnreg=MAX_REGISTERS,
    promoted_products=1024,
    stores=False,
    copy_streams=1,
    publish_at=4,
):
    """``out`` [rows, N] = own rows of the sum over ranks of ``a`` [ranks * rows, K] times ``b`` [N, K] transposed.

    ``num_ranks`` is the group's. ``b`` is ``[K, N]`` if b_is_kn. Memory is kept for up to ``capacity`` rows. A shard
    travels in ``pieces``, at most as many as it has rows of tiles, by ``copy_streams``; with ``stores``, tiles are
    stored in their owner's memory by the kernel. A tile is counted ``publish_at`` steps into the next one's loop over
    K. ``scale_a`` and ``scale_b`` are scales of the given kinds, flat (scales.py).
    """
    rank, ranks, epoch = dh.rank(), dh.num_ranks(), dh.epoch()
    (rows, N), K = out.shape, a.shape[1]
    BM, BN, BK = block
    columns = (BM, BN // parts)
    stores = stores and num_ranks > 1
    arrived = dh.symm_zeros(ranks * pieces, dtype=torch.int64, name="arrived")
    if stores:
        inbox = dh.symm_empty(2, ranks * capacity, N, dtype=out.dtype, name="inbox")
        outbox = counts = None
    else:
        inbox = dh.symm_empty(ranks * capacity, N, dtype=out.dtype, name="inbox")
        outbox = dh.empty(ranks * capacity, N, dtype=out.dtype, name="outbox")
        counts = dh.symm_zeros(ranks * pieces, dtype=torch.int64, name="counts")
        done = dh.symm_zeros(ranks, dtype=torch.int64, name="done")

    tiles = ranks * dh.cdiv(rows, BM) * dh.cdiv(N, BN)
    gemm_rs_kernel[(dh.minimum(programs, tiles),)](
        shards_descriptor(a, ranks, rows, K, (BM, BK)),
        TensorDescriptor.from_tensor(b, [BK, BN] if b_is_kn else [BN, BK]),
        scale_a,
        scale_b,
        shards_descriptor(out, 1, rows, N, columns),
        None if stores else shards_descriptor(outbox, ranks, rows, N, columns),
        inbox,
        counts,
        arrived,
        rows,
        N,
        K,
        capacity,
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
        PARTS=parts,
        SCALE_A=scale_a_kind,
        SCALE_B=scale_b_kind,
        PROMOTE=promote_every(a.dtype, scale_a_kind, BK, 0 if use_fast_accum else promoted_products),
        STORES=stores,
        PUBLISH_AT=publish_at,
        num_warps=num_warps,
        num_stages=stages,
        **({} if maxnreg is None else {"maxnreg": maxnreg}),
    )
    if stores:
        return
    streams = min(copy_streams, pieces)

    def push(copier: int) -> None:
        for step in dh.range(1, ranks):
            owner = (rank + step) % ranks
            dh.signal_wait(done[owner], epoch)
            for piece in range(copier, pieces, streams):
                first, last = piece_rows(rows, BM, piece, pieces)
                dh.signal_wait(counts[owner * pieces + piece], epoch * PIECE)
                source = outbox[owner * rows + first : owner * rows + last]
                dh.rank_copy(source, inbox[rank * rows + first : rank * rows + last], owner)
                dh.signal_write(arrived[rank * pieces + piece], epoch, owner)

    with dh.stream("copy"):
        for step in dh.range(1, ranks):  # what the call before sent to this rank has been added
            dh.signal_write(done[rank], epoch, (rank + step) % ranks)
        push(0)
    for copier in range(1, streams):  # of one, the steps between two copies are exposed
        with dh.stream(f"copy{copier}"):
            push(copier)


def gemm_rs_rule(problem: Problem) -> Rule:
    """What :func:`gemm_rs` runs where nothing is measured."""
    rule = product_rule(problem, 4)
    if rule.options["algorithm"] != "overlapped":
        return rule
    return Rule(rule.options | copy_streams_for(problem.ranks), rule.why)


@tunable(
    "gemm_rs",
    rule=gemm_rs_rule,
    on_nodes=lambda problem: product_node_rule(problem, 4),
    node_algorithms=("overlapped", "nccl"),
    one_node_arguments=("copy_streams", "stores"),
    named_only=("nccl",),
    space=lambda problem, sms: tile_space(problem, sms, (1, 2, 4, 8), stages=3, halves=2),
)
def gemm_rs_candidates(problem: Problem) -> Iterator[Options]:
    """Schedules of :func:`gemm_rs`; NCCL adds in the dtype of the tensors."""
    tiles = list(tile_candidates(problem, (4, 2, 8, 1), stages=5))
    yield from tiles
    if problem.ranks > 2:
        yield from (options | {"copy_streams": 2} for options in tiles if options["pieces"] in (2, 4))
    if problem.ranks > 2 and problem.sent_bytes <= 32 << 20:  # above, copies were ahead on every shape
        large = [options for options in tiles if options["block"][1] == 256 and options["pieces"] in (2, 4)]
        yield from (options | {"stores": True, "parts": 4, "publish_at": 16} for options in large)
    yield from by_rank_candidates(problem)
    if problem.sent_bytes <= 24 << 20:  # above, a sum that nothing hides is behind on every shape
        yield {"algorithm": "sequential"}
        yield {"algorithm": "nccl"}


@torch_operator("a", "b", *SCALING)
@repeatable
def gemm_rs(
    a: torch.Tensor,
    b: torch.Tensor,
    *,
    scale_a: torch.Tensor | None = None,
    scale_b: torch.Tensor | None = None,
    out_dtype: torch.dtype | None = None,
    use_fast_accum: bool = False,
    out: torch.Tensor | None = None,
    group: AnyGroup = None,
    algorithm: str | None = None,
    **schedule: Any,
) -> torch.Tensor:
    """This rank's rows of the sum over ranks of A times the transpose of B: a row-parallel linear layer.

    Args:
        a: ``[M, K]``, row-major, the same shape on every rank, M a multiple of the number of ranks. b: ``[N, K]``,
            row-major or the transpose of a row-major ``[K, N]``. bfloat16, float16 or float32; sums are in fp32. Or
            float8_e4m3fn, float8_e5m2 or int8, b row-major, with scales.
        scale_a: fp32, of a quantized a: one element, ``[M]`` or ``[M, 1]``, or ``[M, K / 128]``. scale_b: one element,
            ``[N]`` or ``[N, 1]``, or ``[N / 128, K / 128]`` if a's are blocks too.
        out_dtype: of the result of quantized operands, and of what ranks send each other; default bfloat16.
        use_fast_accum: of fp8, as of ``torch._scaled_mm``: Hopper's tensor cores add with 14 bits, faster than fp32.
        out: ``[M / num_ranks, N]``, written if given.
        group: the ranks; default the current group. Of several nodes: equally many on each; not quantized.
        algorithm: ``"overlapped"``, ``"by_rank"`` for a library's product of each rank's rows, which travel meanwhile,
            ``"sequential"`` for a product and a collective one after the other, instead of the one that was measured to
            be fastest or is chosen by size; or ``"nccl"`` for the same with NCCL's, which adds in the dtype of the
            tensors and is taken only if it is named. On several nodes there are only ``"nccl"`` and overlapped, which
            sends each node's sum once and is the default.
        schedule: keyword-only arguments of :func:`gemm_rs_program`, instead of those that would be chosen; of
            :func:`gemm_rs_by_rank_program` for ``"by_rank"``, and on several nodes of :func:`gemm_rs_nodes_program`.

    Returns ``[M / num_ranks, N]``. Collective over the group. Raises DitronError for tensors that do not fit.

        y = ditron.kernels.gemm_rs(x, weight)  # x: all rows, this rank's columns; y: this rank's rows, summed
    """
    with in_group(group, "gemm_rs") as group:
        matrices("gemm_rs", group, quantized=True, a=a, b=b)
        (M, K), N, ranks = a.shape, b.shape[0], group.num_ranks
        if b.shape[1] != K:
            raise DitronError(f"gemm_rs: a is [{M}, {K}] and b is [{N}, {b.shape[1]}]: expected b to be [N, {K}]")
        if M % ranks:
            raise DitronError(
                f"gemm_rs: a has {M} rows, which {ranks} ranks cannot share evenly: pad it to "
                f"{-(-M // ranks) * ranks} rows"
            )
        rows = M // ranks
        scales, dtype = scales_of("gemm_rs", group, a, b, scale_a, scale_b, out_dtype, use_fast_accum)
        out = result("gemm_rs", (rows, N), a, out, dtype, a=a, b=b)
        a = aligned(a)
        b, b_is_kn = weight_layout(b)
        has_nodes = len(group.nodes) > 1
        by_rank = gemm_rs_by_rank_program if algorithm == "by_rank" else gemm_rs_program
        check_schedule("gemm_rs", schedule, gemm_rs_nodes_program if has_nodes else by_rank)
        if has_nodes:
            algorithm = algorithm_on_nodes("gemm_rs", group, algorithm, a, b, out)
        elif scales is None:
            algorithm, schedule = tuned("gemm_rs", group, algorithm, schedule, a.dtype, rows, N, K)
        nbytes = sent_bytes(group, out)
        if algorithm is None and not schedule and not has_nodes:
            algorithm = "by_rank" if goes_by_rank(group, rows, nbytes, a, b, out, scales) else None
        if algorithm == "by_rank":
            if (block := schedule.get("block", 1)) & (block - 1):
                raise DitronError(f"gemm_rs: with algorithm='by_rank', block must be a power of two, got {block}")
            of_scales = (None, None) if scales is None else scales.for_products()
            known = {"b_is_kn": b_is_kn} | ({} if scales is None else scales.constants())
            run_step(gemm_rs_by_rank_program, a, b, out, *of_scales, capacity_for(rows), **known, **schedule)
            return out
        if overlaps("gemm_rs", group, algorithm, nbytes, a, b, out, scales=scales):
            chosen = schedule_for("gemm_rs", group, rows, 4, schedule, whole_pieces=True, scales=scales)
            if not schedule and not has_nodes and not group.small_shapes:
                chosen |= copy_streams_for(ranks)
            if has_nodes:
                local = ranks // len(group.nodes)
                known = {"num_ranks": ranks, "local_ranks": local, "b_is_kn": b_is_kn}
                gemm_rs_nodes_program(a, b, out, capacity_for(rows), **known, **chosen)
                return out
            flat = (None, None) if scales is None else scales.for_kernel()
            known = {"num_ranks": ranks, "b_is_kn": b_is_kn}
            run_step(gemm_rs_program, a, b, out, *flat, capacity_for(rows), **known, **chosen)
            return out
        if scales is None:
            product = torch.matmul(a, b if b_is_kn else b.t())
        else:
            product = scaled_product(a, b, scales, dtype)
        return reduce_scatter(product, out=out, algorithm="nccl" if algorithm == "nccl" else None)
