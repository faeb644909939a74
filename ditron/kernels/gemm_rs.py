"""GEMM + ReduceScatter: every rank gets its rows of the sum over ranks of A times the transpose of B.

One persistent kernel computes the other ranks' rows first, those of the rank after it at the beginning, and counts
finished tiles; a copy engine pushes each piece to its owner when all its tiles are counted. The own rows come last:
their tiles wait for the others' parts and add them in fp32.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from triton.tools.tensor_descriptor import TensorDescriptor

import ditron
import ditron.host as dh
from ditron.distributed.torch_groups import AnyGroup
from ditron.kernels.dispatch import SCALING, torch_operator
from ditron.kernels.gemm_rs_nodes import gemm_rs_nodes_program
from ditron.kernels.node_pushes import algorithm_on_nodes
from ditron.kernels.operands import aligned, capacity_for, in_group, matrices, result, weight_layout
from ditron.kernels.pushes import copy_streams_for, tell_done, with_copy_streams
from ditron.kernels.rank_products import gemm_rs_by_rank_program
from ditron.kernels.reduce_scatter import reduce_scatter
from ditron.kernels.repeated import repeatable, run_step
from ditron.kernels.scales import promote_every, scaled_product, scales_of
from ditron.kernels.scattered_product import gemm_rs_kernel
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
from ditron.kernels.tiles import MAX_REGISTERS, PIECE, narrow_parts, piece_rows, shards_descriptor
from ditron.tuning.lookup import tuned
from ditron.tuning.problem import Options, Problem
from ditron.tuning.registry import Rule, tunable
from ditron_compiler.errors import DitronError

__all__ = ["gemm_rs", "gemm_rs_program"]


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
        "b": "bf16[80, 32]",
        "out": "bf16[40, 80]",
        "scale_a": None,
        "scale_b": None,
        "capacity": 64,
        "num_ranks": ranks,
        "pieces": 2,
        "block": (16, 32, 32),
        "programs": 4,
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
    narrow = min(2, narrow_parts(BN))

    def of_b(columns: int) -> TensorDescriptor:
        return TensorDescriptor.from_tensor(b, [BK, columns] if b_is_kn else [columns, BK])

    gemm_rs_kernel[(dh.minimum(programs, narrow * tiles),)](
        shards_descriptor(a, ranks, rows, K, (BM, BK)),
        of_b(BN),
        of_b(BN // 2) if narrow == 2 else None,
        scale_a,
        scale_b,
        shards_descriptor(out, 1, rows, N, columns),
        shards_descriptor(out, 1, rows, N, (BM, BN // 2)) if narrow == 2 else None,
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
        STAGES=stages,
        NARROW=narrow,
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
        tell_done(done)
        push(0)
    for copier in range(1, streams):  # of one, the steps between two copies are exposed
        with dh.stream(f"copy{copier}"):
            push(copier)


def gemm_rs_rule(problem: Problem) -> Rule:
    """What :func:`gemm_rs` runs where nothing is measured."""
    return with_copy_streams(product_rule(problem, 4), problem.ranks)


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
            algorithm = "by_rank" if goes_by_rank("gemm_rs", group, rows, nbytes, a, b, out, scales=scales) else None
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
