"""Expert parallelism without its products: tokens to the ranks of their experts, and what these made of them back.

The ranks tell each other which of their tokens they need, a block of them in a message of packets, so that a row is
stored once at each rank that has one of the token's experts. Memory that peers write to has two halves, used in turns,
as exchange.py explains: in each call every rank gets a signal from all others.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

import ditron
import ditron.host as dh
import ditron.language as dl
from ditron.distributed.group import Group
from ditron.distributed.torch_groups import AnyGroup
from ditron.kernels.combine import sum_chunk
from ditron.kernels.dispatch import torch_operator
from ditron.kernels.ep_nodes import dispatch_sample, ep_combine_nodes_program, ep_dispatch_nodes_program
from ditron.kernels.exchange import packet_boxes, receive_packets, send_packets
from ditron.kernels.operands import DTYPES, QUANTIZED, aligned, capacity_for, in_group, require_tensor, result
from ditron.kernels.routing import Plan
from ditron.kernels.schedules import check_schedule
from ditron_compiler.errors import DitronError

__all__ = [
    "ep_combine",
    "ep_combine_program",
    "ep_combine_rows",
    "ep_dispatch",
    "ep_dispatch_program",
    "ep_dispatch_rows",
]


@ditron.jit
def push_tokens(
    x_ptr,
    inbox_ptr,
    arrived_ptr,
    needs_ptr,
    boxes_ptr,
    route_row_ptr,
    tokens,
    capacity,
    first,
    programs,
    epoch,
    H: tl.constexpr,
    TB: tl.constexpr,
    TOP_K: tl.constexpr,
    RANKS: tl.constexpr,
):
    """Each token of ``x`` [tokens, H] to ``inbox`` [ranks, capacity, H] of the ranks that need it, and, of each block
    of ``TB`` tokens, a signal to all of them.

    ``needs`` is [2, ranks, capacity]: which tokens of each rank are needed here, and which of this rank's there. Of
    ``programs`` that share the blocks this is number ``first``.
    """
    own = dl.rank()
    blocks = tl.cdiv(capacity, TB)
    k = tl.arange(0, triton.next_power_of_2(TOP_K))
    within = tl.arange(0, TB)
    for block in range(first, tl.cdiv(tokens, TB), programs):
        token = block * TB + within
        count = tl.minimum(tokens - block * TB, TB)
        for step in range(1, RANKS):
            peer = (own + step) % RANKS
            at = (peer * tokens + token)[:, None] * TOP_K + k[None, :]
            row = tl.load(route_row_ptr + at, mask=(token < tokens)[:, None] & (k < TOP_K)[None, :], other=-1)
            needed_ptr = needs_ptr + peer * capacity + block * TB
            tl.store(needed_ptr + within, (tl.max(row, 1) >= 0).to(tl.int32), mask=within < count)
            send_packets(needed_ptr, count, boxes_ptr, block, blocks, peer, epoch, TB, "ll")
    column = tl.arange(0, triton.next_power_of_2(H))
    needs_ptr += RANKS * capacity
    to = ()
    for n in tl.static_range(RANKS - 1):
        to = to + (dl.symm_at(inbox_ptr + own.to(tl.int64) * capacity * H, (own + n + 1) % RANKS),)
    for block in range(first, tl.cdiv(tokens, TB), programs):
        count = tl.minimum(tokens - block * TB, TB)
        theirs = ()
        for n in tl.static_range(RANKS - 1):
            other = (own + n + 1) % RANKS
            box_ptr = needs_ptr + other * capacity + block * TB
            theirs = theirs + (receive_packets(box_ptr, count, boxes_ptr, block, blocks, other, epoch, TB, "ll"),)
        for i in range(count):
            at = (block * TB + i).to(tl.int64) * H + column
            row = tl.load(x_ptr + at, mask=column < H)
            for n in tl.static_range(RANKS - 1):
                if tl.load(theirs[n] + i) != 0:
                    tl.store(to[n] + at, row, mask=column < H)
        for step in range(1, RANKS):
            dl.notify(arrived_ptr + own * blocks + block, (own + step) % RANKS, epoch)


@ditron.jit
def place_tokens(x_ptr, rows_ptr, route_row_ptr, count, H: tl.constexpr, TOP_K: tl.constexpr):
    """``count`` tokens of ``x`` to those of ``rows`` that ``route_row`` [count, TOP_K] says, none where negative."""
    column = tl.arange(0, triton.next_power_of_2(H))
    for i in range(count):
        places = ()
        last = -1
        for k in tl.static_range(TOP_K):
            place = tl.load(route_row_ptr + i * TOP_K + k)
            places = places + (place,)
            last = tl.maximum(last, place)
        if last >= 0:
            value = tl.load(x_ptr + i * H + column, mask=column < H)
            for k in tl.static_range(TOP_K):
                if places[k] >= 0:
                    tl.store(rows_ptr + places[k].to(tl.int64) * H + column, value, mask=column < H)


@ditron.jit
def clear_padding(
    rows_ptr, row_slot_ptr, num_tiles, first, programs, H: tl.constexpr, BM: tl.constexpr
):
    """Zeros to the rows of tiles of ``BM`` rows that are no token's."""
    column = tl.arange(0, triton.next_power_of_2(H))
    within = tl.arange(0, triton.next_power_of_2(BM))
    zeros = tl.zeros((triton.next_power_of_2(H),), rows_ptr.dtype.element_ty)
    for tile in range(first, num_tiles, programs):
        slot = tl.load(row_slot_ptr + tile * BM + within, mask=within < BM, other=0)
        if tl.min(slot, 0) < 0:
            for row in range(tile * BM, (tile + 1) * BM):
                if tl.load(row_slot_ptr + row) < 0:
                    tl.store(rows_ptr + row.to(tl.int64) * H + column, zeros, mask=column < H)


@ditron.jit(do_not_specialize=["senders", "epoch"])
def dispatch_kernel(
    x_ptr,
    rows_ptr,
    inbox_ptr,
    arrived_ptr,
    needs_ptr,
    boxes_ptr,
    route_row_ptr,
    row_slot_ptr,
    num_tiles_ptr,
    tokens,
    capacity,
    senders,
    epoch,
    H: tl.constexpr,
    TB: tl.constexpr,
    BM: tl.constexpr,
    TOP_K: tl.constexpr,
    RANKS: tl.constexpr,
):
    """The first ``senders`` programs push tokens to the ranks that need them; the others put tokens in their rows of
    ``rows`` [max_rows, H]: this rank's, and a block of another rank's when it has arrived.
    """
    OTHERS: tl.constexpr = RANKS - 1 if RANKS > 1 else 1
    pid = tl.program_id(0)
    inbox_ptr += (epoch % 2).to(tl.int64) * RANKS * capacity * H
    if pid < senders:
        push_tokens(
            x_ptr,
            inbox_ptr,
            arrived_ptr,
            needs_ptr,
            boxes_ptr,
            route_row_ptr,
            tokens,
            capacity,
            pid,
            senders,
            epoch,
            H,
            TB,
            TOP_K,
            RANKS,
        )
    else:
        own = dl.rank()
        first = pid - senders
        takers = tl.num_programs(0) - senders
        blocks = tl.cdiv(tokens, TB)
        for block in range(first, blocks, takers):
            count = tl.minimum(tokens - block * TB, TB)
            at = block.to(tl.int64) * TB
            own_routes_ptr = route_row_ptr + (own * tokens + at) * TOP_K
            place_tokens(x_ptr + at * H, rows_ptr, own_routes_ptr, count, H, TOP_K)
        clear_padding(rows_ptr, row_slot_ptr, tl.load(num_tiles_ptr), first, takers, H, BM)
        # Blocks of all senders with the same number arrive at about the same time.
        for item in range(first, blocks * (RANKS - 1), takers):
            block = item // OTHERS
            source = (own + 1 + item % OTHERS) % RANKS
            count = tl.minimum(tokens - block * TB, TB)
            at = block.to(tl.int64) * TB
            token = dl.wait(arrived_ptr + source * tl.cdiv(capacity, TB) + block, 1, epoch)
            box_ptr = dl.consume_token(inbox_ptr + (source.to(tl.int64) * capacity + at) * H, token)
            place_tokens(box_ptr, rows_ptr, route_row_ptr + (source * tokens + at) * TOP_K, count, H, TOP_K)


@ditron.program(
    example={
        "x": "bf16[4096, 7168]",
        "rows": "bf16[33792, 7168]",
        "route_row": "i32[16384, 8]",
        "row_slot": "i32[33792]",
        "num_tiles": "i32[1]",
        "capacity": 4096,
        "width": 7168,
        "num_ranks": 4,
        "top_k": 8,
    },
    sample_args=dispatch_sample,
    max_nodes=1,
    do_not_specialize=("route_row", "row_slot"),
)
def ep_dispatch_program(
    x,
    rows,
    route_row,
    row_slot,
    num_tiles,
    capacity,
    *,
    width,
    num_ranks,
    top_k,
    block_m=128,
    block=16,
    senders=66,
    programs=264,
    num_warps=8,
):
    """``rows`` [max_rows, width] = the tokens of all ranks' ``x`` [tokens, width] that ``route_row`` says.

    ``route_row``, ``row_slot`` and ``num_tiles``: of a plan for ``block_m`` rows in a tile. Memory is kept for up to
    ``capacity`` tokens of a rank, a multiple of ``block``. ``senders`` programs store ``block`` tokens at a time at
    other ranks, ``programs`` put what has arrived in its rows.
    """
    blocks = capacity // block
    inbox = dh.symm_empty(2, num_ranks * capacity, width, dtype=x.dtype, name="inbox")
    arrived = dh.symm_zeros(num_ranks * blocks, dtype=torch.int64, name="arrived")
    needs = dh.empty(2 * num_ranks * capacity, dtype=torch.int32, name="needs")
    boxes = packet_boxes(blocks, block, torch.int32)
    dispatch_kernel[(senders + programs,)](
        x,
        rows,
        inbox,
        arrived,
        needs,
        boxes,
        route_row,
        row_slot,
        num_tiles,
        x.shape[0],
        capacity,
        senders,
        dh.epoch(),
        H=width,
        TB=block,
        BM=block_m,
        TOP_K=top_k,
        RANKS=num_ranks,
        num_warps=num_warps,
    )


@ditron.jit(do_not_specialize=["epoch"])
def combine_kernel(
    y_ptr,
    out_ptr,
    inbox_ptr,
    route_row_ptr,
    route_weight_ptr,
    sent_ptr,
    tokens,
    capacity,
    H,
    splits,
    epoch,
    TB: tl.constexpr,
    CB: tl.constexpr,
    TOP_K: tl.constexpr,
    RANKS: tl.constexpr,
):
    """``out`` [tokens, H] = the sums over routes and ranks of ``y`` [max_rows, H]."""
    pid = tl.program_id(0)
    sum_chunk(
        y_ptr,
        out_ptr,
        inbox_ptr + (epoch % 2).to(tl.int64) * RANKS * capacity * H,
        route_row_ptr,
        route_weight_ptr,
        sent_ptr + pid * (RANKS - 1),
        pid,
        tl.num_programs(0),
        tokens,
        capacity,
        0,
        H,
        splits,
        H,
        epoch,
        TB,
        CB,
        TOP_K,
        RANKS,
        False,
    )


def combine_sample(ranks: int, generator: torch.Generator) -> dict[str, Any]:
    """Arguments for the checker: as of ep_dispatch."""
    plan = dispatch_sample(ranks, generator)
    return {
        "y": plan["rows"],
        "out": "bf16[20, 16]",
        "route_row": plan["route_row"],
        "route_weight": f"f32[{20 * ranks}, 2]",
        "capacity": 64,
        "num_ranks": ranks,
        "top_k": 2,
        "sums": (8, 16),
        "programs": 2,
    }


@ditron.program(
    example={
        "y": "bf16[33792, 7168]",
        "out": "bf16[4096, 7168]",
        "route_row": "i32[16384, 8]",
        "route_weight": "f32[16384, 8]",
        "capacity": 4096,
        "num_ranks": 4,
        "top_k": 8,
    },
    sample_args=combine_sample,
    max_nodes=1,
    do_not_specialize=("route_row", "route_weight"),
)
def ep_combine_program(
    y,
    out,
    route_row,
    route_weight,
    capacity,
    *,
    num_ranks,
    top_k,
    programs=528,
    sums=(1, 2048),
    splits=1,
    num_warps=8,
    maxnreg=64,
):
    """``out`` [tokens, H] = own tokens' part of the sum over ranks and routes of ``y`` [max_rows, H] by
    ``route_weight``.

    ``route_row`` and ``route_weight``: of a plan. Memory is kept for up to ``capacity`` tokens of a rank. A program
    adds ``sums`` tokens and columns at a time; ``splits`` programs share the columns of a token.
    """
    tokens, H = out.shape
    inbox = dh.symm_empty(2, num_ranks * capacity, H, dtype=out.dtype, name="inbox")
    sent = dh.symm_zeros(programs * num_ranks, dtype=torch.int64, name="sent")
    combine_kernel[(programs,)](
        y,
        out,
        inbox,
        route_row,
        route_weight,
        sent,
        tokens,
        capacity,
        H,
        splits,
        dh.epoch(),
        TB=sums[0],
        CB=sums[1],
        TOP_K=top_k,
        RANKS=num_ranks,
        num_warps=num_warps,
        maxnreg=maxnreg,
    )


def _operand(
    what: str, group: Group, name: str, tensor: torch.Tensor, rows: int, of: str, *, quantized: bool = False
) -> None:
    """Raise DitronError for what is no matrix of ``rows`` rows."""
    require_tensor(what, name, tensor)
    if tensor.ndim != 2 or tensor.numel() == 0 or tensor.dtype not in (DTYPES + QUANTIZED if quantized else DTYPES):
        with_quantized = ", float8_e4m3fn, float8_e5m2 or int8" if quantized else ""
        raise DitronError(
            f"{what}: {name} must be a matrix with elements, of bfloat16, float16 or float32{with_quantized}, got "
            f"{tuple(tensor.shape)} of {tensor.dtype}"
        )
    if tensor.device != group.device:
        raise DitronError(f"{what}: {name} is on {tensor.device}, and this rank's device is {group.device}")
    if tensor.shape[0] != rows:
        raise DitronError(f"{what}: {name} has {tensor.shape[0]} rows, and the plan is for {rows} {of}")


def _tables(what: str, plan: Plan) -> list[torch.Tensor]:
    if not isinstance(plan, Plan):
        raise DitronError(f"{what}: plan must be a Plan, got {type(plan).__name__}: make one with moe_plan")
    return plan.tables


def ep_dispatch(
    x: torch.Tensor,
    plan: Plan,
    *,
    out: torch.Tensor | None = None,
    group: AnyGroup = None,
    **schedule: Any,
) -> torch.Tensor:
    """The tokens of all ranks that this rank's experts compute, a row for each route, sorted by expert.

    Args:
        x: ``[tokens, H]``, this rank's tokens, as many as the plan is for. bfloat16, float16 or float32; or of a
            quantized dtype, whose scales, ``[tokens, ...]``, are dispatched by a second call.
        plan: of these tokens' experts (:func:`moe_plan`).
        out: ``[plan.max_rows, H]``, written if given.
        group: the ranks; default the current group. To other nodes rows go by puts.
        schedule: keyword-only arguments of :func:`ep_dispatch_program`, instead of those that would be chosen.

    Returns ``[plan.max_rows, H]``: row i is of route ``plan.row_route[i]``, zeros are padding. What lies behind the
    last tile is not written, and of the result's gradient not read. A token travels once to each rank that has one of
    its experts. Collective over the group. Raises DitronError for tensors that do not fit.

        rows = ditron.kernels.ep_dispatch(x, plan)
    """
    return ep_dispatch_rows(x, _tables("ep_dispatch", plan), out=out, group=group, **schedule)


@torch_operator()
def ep_dispatch_rows(
    x: torch.Tensor,
    tables: list[torch.Tensor],
    *,
    out: torch.Tensor | None = None,
    group: AnyGroup = None,
    **schedule: Any,
) -> torch.Tensor:
    """:func:`ep_dispatch` with the tables of a plan."""
    plan = Plan.of(tables)
    with in_group(group, "ep_dispatch") as group:
        _operand("ep_dispatch", group, "x", x, len(plan.route_row) // group.num_ranks, "tokens", quantized=True)
        program = ep_dispatch_program if len(group.nodes) == 1 else ep_dispatch_nodes_program
        check_schedule("ep_dispatch", schedule, program)
        out = result("ep_dispatch", (plan.max_rows, x.shape[1]), x, out, x=x)
        chosen: dict[str, Any] = {"senders": 2 * group.sms, "programs": 4 * group.sms, "block": 16}
        if group.small_shapes:
            chosen |= {"senders": 3, "programs": 3, "num_warps": 4}
        chosen |= schedule
        tokens, rows = aligned(x), out
        if x.itemsize == 1:  # one program moves bytes of any meaning
            tokens, rows = tokens.view(torch.int8), rows.view(torch.int8)
        program(
            tokens,
            rows,
            plan.route_row,
            plan.row_slot,
            plan.num_tiles,
            max(capacity_for(len(x)), chosen["block"]),
            width=x.shape[1],
            num_ranks=group.num_ranks,
            top_k=plan.route_row.shape[1],
            block_m=plan.block_m,
            **chosen,
        )
        return out


def ep_combine(
    y: torch.Tensor,
    plan: Plan,
    *,
    out: torch.Tensor | None = None,
    group: AnyGroup = None,
    **schedule: Any,
) -> torch.Tensor:
    """This rank's tokens, each the weighted sum of its rows on all ranks.

    Args:
        y: ``[plan.max_rows, H]``, what the experts have made of the rows of :func:`ep_dispatch`. What lies between and
            behind the experts' rows counts for nothing. bfloat16, float16 or float32.
        plan: of these rows, with the weight of each route.
        out: ``[tokens, H]``, written if given.
        group: the ranks; default the current group. To other nodes rows go by puts.
        schedule: keyword-only arguments of :func:`ep_combine_program`, instead of those that would be chosen.

    Returns ``[tokens, H]``, as many as the plan is for. A rank adds a token's rows by weight in fp32, in order of its
    routes, and rounds once; the ranks' sums are added in fp32, in their order. The weights of :func:`moe_plan` have
    gradients too. Collective over the group. Raises DitronError for tensors that do not fit.

        y = ditron.kernels.ep_combine(experts(rows), plan)
    """
    return ep_combine_rows(y, _tables("ep_combine", plan), out=out, group=group, **schedule)


@torch_operator()
def ep_combine_rows(
    y: torch.Tensor,
    tables: list[torch.Tensor],
    *,
    out: torch.Tensor | None = None,
    group: AnyGroup = None,
    **schedule: Any,
) -> torch.Tensor:
    """:func:`ep_combine` with the tables of a plan."""
    plan = Plan.of(tables)
    with in_group(group, "ep_combine") as group:
        _operand("ep_combine", group, "y", y, plan.max_rows, "rows")
        program = ep_combine_program if len(group.nodes) == 1 else ep_combine_nodes_program
        check_schedule("ep_combine", schedule, program)
        tokens, H = len(plan.route_row) // group.num_ranks, y.shape[1]
        out = result("ep_combine", (tokens, H), y, out, y=y)
        chosen: dict[str, Any] = {"programs": 4 * group.sms, "splits": -(-H // 2048)}
        if program is ep_combine_nodes_program:
            chosen |= {"programs": 2 * group.sms, "adders": 4 * group.sms}
        if group.small_shapes:
            chosen = {"programs": 3, "sums": (8, 32), "num_warps": 4}
            if program is ep_combine_nodes_program:
                chosen["adders"] = 3
        program(
            aligned(y),
            out,
            plan.route_row,
            plan.route_weight,
            capacity_for(tokens),
            num_ranks=group.num_ranks,
            top_k=plan.route_row.shape[1],
            **chosen | schedule,
        )
        return out
