"""AllGather + GEMM: every rank gets all ranks' rows of A times the transpose of its own B.

Copy engines push this rank's rows to every rank, nearest needer first, and write a signal there after each piece. One
persistent kernel computes the own rows' tiles, then those of the ranks after this one, each when its piece has arrived.
On several nodes (node_pushes.py) NICs put the rows to one rank of each other node, whose copy engine sends them on.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import Any

import torch

import ditron
import ditron.host as dh
from ditron._program.program import Program
from ditron.distributed.torch_groups import AnyGroup
from ditron.kernels.ag_gemm_nodes import ag_gemm_nodes_program
from ditron.kernels.ag_gemm_slices import (
    ag_gemm_slices_program,
    prefers_slices,
    slices_candidates,
    slices_schedule,
)
from ditron.kernels.ag_gemm_small import (
    MOST_ROWS,
    ag_gemm_small_program,
    divides_k,
    split_k_candidates,
    split_k_schedule,
)
from ditron.kernels.all_gather import all_gather
from ditron.kernels.dispatch import SCALING, torch_operator
from ditron.kernels.gathered_product import (
    FEW_COLUMNS,
    PUSH_REGISTERS,
    few_columns_schedule,
    multiply_gathered,
    prefers_stores,
    push_pieces_kernel,
    registers_beside_pushers,
)
from ditron.kernels.node_pushes import algorithm_on_nodes
from ditron.kernels.operands import (
    aligned,
    bias_of,
    capacity_for,
    in_group,
    matrices,
    result,
    weight_layout,
)
from ditron.kernels.pushes import handshake
from ditron.kernels.rank_products import ag_gemm_by_rank_program
from ditron.kernels.repeated import repeatable, run_step, scratch
from ditron.kernels.scales import gathered_scales, promote_every, scaled_product, scales_in_shard, scales_of
from ditron.kernels.schedules import (
    by_rank_candidates,
    check_schedule,
    fits_tile_kernel,
    goes_by_rank,
    has_tiles,
    overlaps,
    product_node_rule,
    product_rule,
    schedule_for,
    sent_bytes,
    tile_candidates,
    tile_space,
)
from ditron.kernels.tiles import PIECE, piece_rows
from ditron.tuning.lookup import tuned
from ditron.tuning.problem import Options, Problem
from ditron.tuning.registry import Rule, tunable
from ditron_compiler.errors import DitronError

__all__ = ["ag_gemm", "ag_gemm_gathered", "ag_gemm_multi", "ag_gemm_program"]


@ditron.program(
    example={
        "a": "bf16[2048, 4096]",
        "b": "bf16[1792, 4096]",
        "bias": "bf16[1792]",
        "c": "bf16[8192, 1792]",
        "gathered_out": "bf16[1, 4096]",
        "scale_a": None,
        "scale_b": None,
        "capacity": 2048,
    },
    sample_args=lambda ranks: {
        "a": "bf16[40, 32]",
        "b": "bf16[48, 32]",
        "bias": "bf16[48]",
        "c": f"bf16[{40 * ranks}, 48]",
        "gathered_out": f"bf16[{40 * ranks}, 32]",
        "scale_a": None,
        "scale_b": None,
        "capacity": 64,
        "has_bias": True,
        "keep": True,
        "block": (16, 32, 32),
        "programs": 5,
    },
    max_nodes=1,
)
def ag_gemm_program(
    a,
    b,
    bias,
    c,
    gathered_out,
    scale_a,
    scale_b,
    capacity,
    *,
    b_is_kn=False,
    has_bias=False,
    keep=False,
    with_gathered=None,
    pieces=2,
    programs=132,
    block=(128, 256, 64),
    group_m=8,
    num_warps=8,
    stages=4,
    scale_a_kind="none",
    scale_b_kind="none",
    use_fast_accum=False,
    maxnreg=None,
    promoted_products=1024,
    pushers=0,
    push_block=16384,
    push_warps=16,
):
    """``c`` [ranks * rows, N] = all ranks' ``a`` [rows, K], times ``b`` [N, K] transposed, plus ``bias``.

    ``b`` is ``[K, N]`` if b_is_kn; ``bias`` [N] counts if has_bias. With ``keep``, all ranks' rows go to
    ``gathered_out``; ``with_gathered`` makes more steps, which read them where they are. Memory is kept for up to
    ``capacity`` rows. A shard travels in ``pieces``: by a copy engine, or with ``pushers`` by stores of so many
    programs of another kernel, ``push_block`` elements at a time. ``scale_a`` and ``scale_b`` are scales of the given
    kinds, flat (scales.py).
    """
    rank, ranks, epoch = dh.rank(), dh.num_ranks(), dh.epoch()
    rows, K = a.shape
    if pushers:
        maxnreg = registers_beside_pushers(num_warps, push_warps, maxnreg)
    gathered = dh.symm_empty(ranks * capacity, K, dtype=a.dtype, name="gathered")
    arrived = dh.symm_zeros(ranks * pieces, dtype=torch.int64, name="arrived")
    done = dh.symm_zeros(ranks, dtype=torch.int64, name="done")
    BM, _, BK = block
    scale_count = scales_in_shard(scale_a_kind, rows, K)
    gathered_scale = None
    if scale_a is not None:
        scale_capacity = ranks * scales_in_shard(scale_a_kind, capacity, K)
        gathered_scale = dh.symm_empty(scale_capacity, dtype=torch.float32, name="gathered_scale")

    def copy_scales(peer: Any) -> None:  # before the first piece: who has seen any piece's signal has the scales
        if scale_a is not None:
            dh.rank_copy(scale_a, gathered_scale[rank * scale_count : (rank + 1) * scale_count], peer)

    def copy() -> None:
        for step in dh.range(1, ranks):  # the rank before this one is the first to come to its rows
            peer = (rank - step) % ranks
            copy_scales(peer)
            for piece in range(pieces):
                first, last = piece_rows(rows, BM, piece, pieces)
                dh.rank_copy(a[first:last], gathered[rank * rows + first : rank * rows + last], peer)
                dh.signal_write(arrived[rank * pieces + piece], epoch, peer)

    def store() -> None:
        for step in dh.range(1, ranks):
            copy_scales((rank - step) % ranks)
        push_pieces_kernel[(pushers,)](
            a,
            gathered,
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

    with dh.stream("copy"):
        handshake(done)
        if pushers:
            store()
        else:
            copy()
    multiply_gathered(
        a,
        gathered,
        b,
        bias,
        c,
        arrived,
        epoch,
        scales=(scale_a, gathered_scale, scale_b),
        b_is_kn=b_is_kn,
        has_bias=has_bias,
        pieces=pieces,
        programs=programs,
        block=block,
        group_m=group_m,
        num_warps=num_warps,
        stages=stages,
        kinds=(scale_a_kind, scale_b_kind),
        promote=promote_every(a.dtype, scale_a_kind, BK, 0 if use_fast_accum else promoted_products),
        maxnreg=maxnreg,
        count=PIECE if pushers else 1,
    )
    goal, last = (epoch * PIECE, range(pieces)) if pushers else (epoch, (pieces - 1,))  # copies arrive in order
    if keep:
        dh.copy(a, gathered_out[rank * rows : (rank + 1) * rows])
        for step in dh.range(1, ranks):
            sender = (rank + step) % ranks
            for piece in last:
                dh.signal_wait(arrived[sender * pieces + piece], goal)
            rows_of_sender = slice(sender * rows, (sender + 1) * rows)
            dh.copy(gathered[rows_of_sender], gathered_out[rows_of_sender])
    if with_gathered is not None:
        dh.copy(a, gathered[rank * rows : (rank + 1) * rows])
        for step in dh.range(1, ranks):
            for piece in last:
                dh.signal_wait(arrived[(rank + step) % ranks * pieces + piece], goal)
        with_gathered(gathered[: ranks * rows])


def ag_gemm_rule(problem: Problem) -> Rule:
    """What :func:`ag_gemm` runs where nothing is measured, on a GPU with ``FEWEST_SMS`` SMs or more."""
    if divides_k(problem.M, problem.N, problem.K) and has_tiles(problem):
        return Rule({"algorithm": "split_k"}, f"{problem.M} rows take as long as the weight is read, with K divided")
    sent = problem.sent_bytes
    if problem.itemsize > 1 and has_tiles(problem) and prefers_slices(problem.ranks, problem.rows, problem.N, sent):
        why = f"a rank sends {sent / 2**20:.1f} MB to few tiles, which go on as slices of K arrive"
        return Rule({"algorithm": "k_slices"}, why)
    rule = product_rule(problem, 2)
    schedule = few_columns_schedule(problem.ranks, problem.rows, problem.N)
    if rule.options["algorithm"] != "overlapped" or not schedule or problem.itemsize == 1:
        return rule
    how = "rows are stored" if "pushers" in schedule else "tiles are smaller"
    return Rule(
        {"algorithm": "overlapped"} | schedule, f"{rule.why}; {how}, for a weight of up to {FEW_COLUMNS} columns"
    )


@tunable(
    "ag_gemm",
    rule=ag_gemm_rule,
    on_nodes=lambda problem: product_node_rule(problem, 2),
    node_algorithms=("overlapped", "nccl"),
    one_node_arguments=("pushers",),
    space=lambda problem, sms: tile_space(problem, sms, (1, 2, 4, 8), stages=4, halves=1),
)
def ag_gemm_candidates(problem: Problem) -> Iterator[Options]:
    """Schedules of :func:`ag_gemm`."""
    yield from split_k_candidates(problem)
    tiles = list(tile_candidates(problem, (2, 1, 4), stages=5))
    yield from tiles
    if tiles and problem.ranks > 2:
        for pushers in (12, 14, 16):
            if pushed := few_columns_schedule(problem.ranks, problem.rows, problem.N, 2 * FEW_COLUMNS, pushers):
                yield {"algorithm": "overlapped"} | pushed
    yield from slices_candidates(problem)
    yield from by_rank_candidates(problem)
    if problem.sent_bytes <= 24 << 20:  # above, a gather that nothing hides is behind on every shape
        yield {"algorithm": "sequential"}
        yield {"algorithm": "nccl"}


def _program_of(algorithm: str | None) -> Program:
    """Whose arguments the schedule of a caller is."""
    programs = {
        "split_k": ag_gemm_small_program,
        "k_slices": ag_gemm_slices_program,
        "by_rank": ag_gemm_by_rank_program,
    }
    return programs.get(algorithm or "", ag_gemm_program)


@torch_operator("a", "b", "bias", *SCALING)
@repeatable
def ag_gemm(
    a: torch.Tensor,
    b: torch.Tensor,
    bias: torch.Tensor | None = None,
    *,
    scale_a: torch.Tensor | None = None,
    scale_b: torch.Tensor | None = None,
    out_dtype: torch.dtype | None = None,
    use_fast_accum: bool = False,
    out: torch.Tensor | None = None,
    gathered: torch.Tensor | None = None,
    group: AnyGroup = None,
    algorithm: str | None = None,
    **schedule: Any,
) -> torch.Tensor:
    """All ranks' rows of A, in rank order, times the transpose of this rank's B: a column-parallel linear layer.

    Args:
        a: ``[rows, K]``, row-major, the same shape on every rank. b: ``[N, K]``, row-major or the transpose of a
            row-major ``[K, N]``, N the same on every rank. bias: ``[N]``. All bfloat16, float16 or float32; sums are in
            fp32. Or a and b (row-major) of float8_e4m3fn, float8_e5m2 or int8, with scales, and bias of the result's.
        scale_a: fp32, of this rank's quantized a: one element, ``[rows]`` or ``[rows, 1]``, or ``[rows, K / 128]``.
        scale_b: fp32: one element, ``[N]`` or ``[N, 1]``, or ``[N / 128, K / 128]`` if a's are blocks too.
        out_dtype: of the result of quantized operands; default bfloat16.
        use_fast_accum: of fp8, as of ``torch._scaled_mm``: Hopper's tensor cores add with 14 bits, faster than fp32.
        out: ``[num_ranks * rows, N]``, written if given.
        gathered: ``[num_ranks * rows, K]``, which gets all ranks' rows if given; NaNs may become other NaNs.
        group: the ranks; default the current group. Of several nodes: equally many on each; not quantized.
        algorithm: ``"overlapped"``, ``"split_k"`` for words and a product of few rows whose programs divide K,
            ``"k_slices"`` for tiles that go on along K with each slice of columns that arrives, ``"by_rank"`` for a
            library's product of each rank's rows as they arrive, ``"sequential"`` for a product and a collective one
            after the other, or ``"nccl"`` for the same with NCCL's, instead of the one that was measured to be fastest
            or is chosen by size. On several nodes there are only ``"nccl"`` and overlapped, which is the default.
        schedule: keyword-only arguments of :func:`ag_gemm_program`, instead of those that would be chosen; of
            :func:`ag_gemm_small_program` for ``"split_k"``, of :func:`ag_gemm_slices_program` for ``"k_slices"``, of
            :func:`ag_gemm_by_rank_program` for ``"by_rank"``, and on several nodes of :func:`ag_gemm_nodes_program`.

    Returns ``[num_ranks * rows, N]``. Collective over the group. Raises DitronError for tensors that do not fit.

        y = ditron.kernels.ag_gemm(x, weight)  # x: this rank's rows; y: all rows, this rank's columns
    """
    with in_group(group, "ag_gemm") as group:
        matrices("ag_gemm", group, quantized=True, a=a, b=b)
        (rows, K), N, ranks = a.shape, b.shape[0], group.num_ranks
        if b.shape[1] != K:
            raise DitronError(f"ag_gemm: a is [{rows}, {K}] and b is [{N}, {b.shape[1]}]: expected b to be [N, {K}]")
        scales, dtype = scales_of("ag_gemm", group, a, b, scale_a, scale_b, out_dtype, use_fast_accum)
        out = result("ag_gemm", (ranks * rows, N), a, out, dtype, a=a, b=b, bias=bias, gathered=gathered)
        bias_of("ag_gemm", out, N, bias)
        a = aligned(a)
        b, b_is_kn = weight_layout(b)
        has_nodes = len(group.nodes) > 1
        check_schedule("ag_gemm", schedule, ag_gemm_nodes_program if has_nodes else _program_of(algorithm))
        if has_nodes:
            algorithm = algorithm_on_nodes("ag_gemm", group, algorithm, a, b, out)
        elif scales is None:
            is_chosen = algorithm is None and not schedule
            algorithm, schedule = tuned("ag_gemm", group, algorithm, schedule, a.dtype, rows, N, K)
            if is_chosen and algorithm is None and fits_tile_kernel(group, a, b, out):
                if divides_k(ranks * rows, N, K):
                    algorithm = "split_k"
                elif prefers_stores(group) and prefers_slices(ranks, rows, N, sent_bytes(group, a)):
                    algorithm = "k_slices"
        nbytes = sent_bytes(group, a)
        if algorithm is None and not schedule and not has_nodes:
            algorithm = "by_rank" if goes_by_rank("ag_gemm", group, rows, nbytes, a, b, out, scales=scales) else None
        keep = gathered is not None
        if keep:
            gathered = result("ag_gemm (gathered)", (ranks * rows, K), a, gathered, a=a, b=b, bias=bias)
        if algorithm in ("split_k", "k_slices"):
            is_small = algorithm == "split_k"
            if scales is not None or (is_small and ranks * rows > MOST_ROWS) or not fits_tile_kernel(group, a, b, out):
                most = f"up to {MOST_ROWS} rows in all of " if is_small else ""
                raise DitronError(
                    f"ag_gemm: algorithm={algorithm!r} takes {most}bfloat16 or float16 matrices whose rows are a "
                    "multiple of 16 bytes, on GPUs from Hopper on: leave algorithm= out"
                )
        if algorithm == "split_k":
            whole = gathered if keep else scratch((ranks * rows, K), a)
            run_step(
                ag_gemm_small_program,
                a,
                b,
                b if bias is None else aligned(bias),
                whole.view(ranks, -1),
                out,
                capacity_for(a.numel()),
                b_is_kn=b_is_kn,
                has_bias=bias is not None,
                **split_k_schedule(group, ranks * rows, N, a, b_is_kn, schedule),
            )
            return out
        tensors = (a, b, b if bias is None else aligned(bias), out, gathered if keep else a)
        known = {"b_is_kn": b_is_kn, "has_bias": bias is not None, "keep": keep}
        if algorithm == "by_rank":
            of_scales = (None, None) if scales is None else scales.for_products()
            kinds = {} if scales is None else scales.constants()
            run_step(ag_gemm_by_rank_program, *tensors, *of_scales, capacity_for(rows), **known, **kinds, **schedule)
            return out
        if algorithm == "k_slices":
            known |= slices_schedule(group, rows, N, schedule)
            run_step(ag_gemm_slices_program, *tensors, capacity_for(rows), **known)
            return out
        if overlaps("ag_gemm", group, algorithm, nbytes, a, b, out, scales=scales):
            is_free = not schedule and not has_nodes and scales is None
            if is_free and prefers_stores(group):
                schedule = few_columns_schedule(ranks, rows, N)
            chosen = schedule_for("ag_gemm", group, rows, 2, schedule, whole_pieces=False, scales=scales)
            quantized = () if has_nodes else (None, None) if scales is None else scales.for_kernel()
            program = ag_gemm_nodes_program if has_nodes else ag_gemm_program
            run_step(program, *tensors, *quantized, capacity_for(rows), **known, **chosen)
            return out
        how = "nccl" if algorithm == "nccl" else None
        whole = all_gather(a, out=gathered, algorithm=how)
        if scales is None:
            torch.matmul(whole, b if b_is_kn else b.t(), out=out)
        else:
            gather = functools.partial(all_gather, algorithm=how)
            scaled_product(whole, b, gathered_scales(scales, rows, gather), dtype, out)
        return out if bias is None else out.add_(bias)


@torch_operator("a", "bs", "biases")
def ag_gemm_multi(
    a: torch.Tensor,
    bs: Sequence[torch.Tensor],
    biases: Sequence[torch.Tensor] = (),
    *,
    group: AnyGroup = None,
    algorithm: str | None = None,
    **schedule: Any,
) -> tuple[list[torch.Tensor], torch.Tensor]:
    """All ranks' rows of A, gathered once, times several matrices: Q, K and V, or gate and up.

    The gather is hidden under the largest product. For gradients the rows are gathered again, as of :func:`ag_gemm`.

    Args:
        a: ``[rows, K]``. bs: ``[N, K]`` each. biases: ``[N]`` for each, or none at all. As of ag_gemm, not quantized.
        group, algorithm, schedule: as of ag_gemm, of the largest product.

    Returns the products, ``[num_ranks * rows, N]`` each, and the gathered rows, ``[num_ranks * rows, K]``. Collective
    over the group. Raises DitronError for tensors that do not fit.

        (gate, up), whole = ditron.kernels.ag_gemm_multi(x, [w_gate, w_up])
    """
    with in_group(group, "ag_gemm_multi") as group:
        if not isinstance(bs, list | tuple) or not isinstance(biases, list | tuple):
            raise DitronError(
                "ag_gemm_multi: bs and biases must be lists of tensors, got "
                f"{type(bs).__name__} and {type(biases).__name__}"
            )
        matrices("ag_gemm_multi", group, a=a, **{f"b {i}": b for i, b in enumerate(bs)})
        if not bs or len(biases) not in (0, len(bs)) or any(b.shape[1] != a.shape[1] for b in bs):
            raise DitronError(
                f"ag_gemm_multi: a is {list(a.shape)}, bs are {[list(b.shape) for b in bs]} with {len(biases)} biases: "
                f"expected each to be [N, {a.shape[1]}], and a bias for each or none"
            )
        for b, bias in zip(bs, biases, strict=False):
            if not isinstance(bias, torch.Tensor):
                raise DitronError(f"ag_gemm_multi: biases must be tensors, one for each b or none, got {bias!r}")
            bias_of("ag_gemm_multi", a, b.shape[0], bias)
        offsets = biases or [None] * len(bs)
        gathered = a.new_empty(group.num_ranks * a.shape[0], a.shape[1])
        largest = max(range(len(bs)), key=lambda i: bs[i].shape[0])
        first = ag_gemm(
            a, bs[largest], offsets[largest], gathered=gathered, group=group, algorithm=algorithm, **schedule
        )
        products = [
            first if i == largest else torch.nn.functional.linear(gathered, b, bias)
            for i, (b, bias) in enumerate(zip(bs, offsets, strict=True))
        ]
        return products, gathered


@torch_operator("a", "b", "bias", "keep")
def ag_gemm_gathered(
    a: torch.Tensor,
    b: torch.Tensor,
    bias: torch.Tensor | None = None,
    *,
    keep: bool = True,
    group: AnyGroup = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """As :func:`ag_gemm`, and the rows of all ranks; with ``keep`` they are kept for the gradient of ``b``.

    Returns ``[num_ranks * rows, N]`` and ``[num_ranks * rows, K]``.

        y, whole = ditron.kernels.ag_gemm_gathered(x, weight)
    """
    with in_group(group, "ag_gemm_gathered") as group:
        matrices("ag_gemm_gathered", group, a=a)
        gathered = a.new_empty(group.num_ranks * a.shape[0], a.shape[1])
        return ag_gemm(a, b, bias, gathered=gathered, group=group), gathered
