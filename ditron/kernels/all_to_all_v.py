"""All-to-all of unequal parts, whose sizes are on the device: the ranks tell each other their splits, then send rows.

Every program of the kernel gets all ranks' splits, as packets, and does the same arithmetic on them: it knows where
rows begin at every rank without the host, and in a CUDA graph with other splits at each replay. Large parts are stored
where they will be, rows of all senders without gaps; packets have a place for each sender, so that they are sent at
once. The halves of memory are used in turns, as exchange.py explains: every rank gets splits from all in each call.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import triton
import triton.language as tl

import ditron
import ditron.host as dh
import ditron.language as dl
from ditron.distributed.torch_groups import AnyGroup
from ditron.kernels.all_to_all import BLOCK
from ditron.kernels.dispatch import torch_operator
from ditron.kernels.exchange import packet_boxes, receive_block, receive_packets, send_block, send_packets
from ditron.kernels.operands import aligned, capacity_for, in_group, require_tensor, result, vector_operand
from ditron.kernels.repeated import repeatable, run_step, scratch
from ditron.kernels.schedules import BLOCKS, LL128_BYTES, LL_BYTES, block_for, check_schedule, stored_candidates
from ditron.tuning.lookup import tuned
from ditron.tuning.problem import Options, Problem
from ditron.tuning.registry import Rule, tunable
from ditron_compiler.errors import DitronError

__all__ = ["all_to_all_v", "ll_all_to_all_v_program", "stored_all_to_all_v_program"]


@ditron.jit
def own_counts(splits_ptr, rows, RANKS: tl.constexpr):
    """Rows for each rank, and where they begin: ``splits``, without what is negative or behind the last row of x."""
    r = tl.arange(0, triton.next_power_of_2(RANKS + 1))  # the checker has no vectors of one element
    given = tl.maximum(tl.load(splits_ptr + r, mask=r < RANKS, other=0).to(tl.int64), 0)
    given = tl.minimum(given, rows)
    ends = tl.cumsum(given, 0)
    begins = tl.minimum(ends - given, rows)
    return (tl.minimum(ends, rows) - begins).to(tl.int32), begins.to(tl.int32)


@ditron.jit
def element_of(values, index):
    """One element of a small vector, a scalar."""
    at = tl.arange(0, values.shape[0])
    return tl.sum(tl.where(at == index, values, 0), 0)


@ditron.jit
def send_counts(counts, table_ptr, boxes_ptr, epoch, RANKS: tl.constexpr):
    """Tell every rank's program of this number this rank's ``counts``; the table is [programs, ranks, ranks]."""
    own = dl.rank()
    program = tl.program_id(0)
    r = tl.arange(0, counts.shape[0])
    mine_ptr = table_ptr + (program * RANKS + own) * RANKS
    tl.store(mine_ptr + r, counts, mask=r < RANKS)
    for step in range(1, RANKS):
        peer = (own + step) % RANKS
        send_packets(mine_ptr, RANKS, boxes_ptr, program, tl.num_programs(0), peer, epoch, RANKS, "ll")


@ditron.jit
def receive_counts(counts, table_ptr, boxes_ptr, epoch, RANKS: tl.constexpr):
    """What every rank has told: counts [senders, ranks], powers of two of them."""
    own = dl.rank()
    program = tl.program_id(0)
    r = tl.arange(0, counts.shape[0])
    sender_of = r[:, None]
    table = tl.where(sender_of == own, counts[None, :], 0)
    for step in range(1, RANKS):
        sender = (own + step) % RANKS
        row_ptr = table_ptr + (program * RANKS + sender) * RANKS
        row_ptr = receive_packets(row_ptr, RANKS, boxes_ptr, program, tl.num_programs(0), sender, epoch, RANKS, "ll")
        row = tl.load(row_ptr + r, mask=r < RANKS, other=0)
        table += tl.where(sender_of == sender, row[None, :], 0)
    return table


@ditron.jit
def column_of(table, index):
    """What all senders have for one rank."""
    at = tl.arange(0, table.shape[1])
    return tl.sum(tl.where(at[None, :] == index, table, 0), 1)


@ditron.jit
def places(table, own, max_rows):
    """Of every sender: how many of its rows have a place here, and where they begin."""
    given = column_of(table, own).to(tl.int64)
    begins = tl.minimum(tl.cumsum(given, 0) - given, max_rows)
    return tl.minimum(given, max_rows - begins).to(tl.int32), begins.to(tl.int32), tl.sum(given, 0)


@ditron.jit
def store_results(table, begins, total, splits_out_ptr, offsets_ptr, dropped_ptr, max_rows, RANKS: tl.constexpr):
    """One program writes what the ranks had for this one, where it begins, and adds how many rows have no place."""
    if tl.program_id(0) == 0:
        r = tl.arange(0, begins.shape[0])
        tl.store(splits_out_ptr + r, column_of(table, dl.rank()).to(splits_out_ptr.dtype.element_ty), mask=r < RANKS)
        tl.store(offsets_ptr + r, begins.to(offsets_ptr.dtype.element_ty), mask=r < RANKS)
        tl.store(offsets_ptr + RANKS, tl.minimum(total, max_rows).to(offsets_ptr.dtype.element_ty))
        tl.store(dropped_ptr, tl.load(dropped_ptr) + tl.maximum(total - max_rows, 0))


@ditron.jit(do_not_specialize=["epoch"])
def stored_all_to_all_v_kernel(
    x_ptr,
    splits_ptr,
    out_ptr,
    splits_out_ptr,
    offsets_ptr,
    dropped_ptr,
    inbox_ptr,
    arrived_ptr,
    table_ptr,
    boxes_ptr,
    rows,
    max_rows,
    capacity,
    epoch,
    WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
    RANKS: tl.constexpr,
):
    """A program takes every P-th block of what goes to each rank, and of what each rank stored here."""
    own = dl.rank()
    programs = tl.num_programs(0)
    counts, begins = own_counts(splits_ptr, rows, RANKS)
    send_counts(counts, table_ptr, boxes_ptr, epoch, RANKS)
    table = receive_counts(counts, table_ptr, boxes_ptr, epoch, RANKS)
    here, here_begins, total = places(table, own, max_rows)
    store_results(table, here_begins, total, splits_out_ptr, offsets_ptr, dropped_ptr, max_rows, RANKS)
    # Where this rank's rows begin at each rank: behind those of the ranks before it.
    r = tl.arange(0, counts.shape[0])
    there_begins = tl.minimum(tl.sum(tl.where(r[:, None] < own, table, 0).to(tl.int64), 0), max_rows)
    there = tl.minimum(counts, max_rows - there_begins).to(tl.int32)
    most = tl.cdiv(tl.maximum(tl.max(there, 0), tl.max(here, 0)).to(tl.int64) * WIDTH, BLOCK)
    inbox_ptr += (epoch % 2).to(tl.int64) * capacity
    within = tl.arange(0, BLOCK)
    first = tl.program_id(0)
    # The next block is sent before the one that was sent last is awaited. The first one has a signal even if empty:
    # it orders this call's stores behind what the ranks have read in the call before the last.
    for block in range(first, tl.maximum(most, first + 1) + programs, programs):
        at = block * BLOCK + within
        for step in range(1, RANKS):
            peer = (own + step) % RANKS
            n = element_of(there, peer).to(tl.int64) * WIDTH
            if (block * BLOCK < n) | (block == first):
                source = element_of(begins, peer).to(tl.int64) * WIDTH
                place = element_of(there_begins, peer).to(tl.int64) * WIDTH
                theirs = tl.load(x_ptr + source + at, mask=at < n)
                send_block(theirs, inbox_ptr + place, arrived_ptr, block, at, at < n, peer, 0, epoch)
        block -= programs
        if block >= 0:
            at = block * BLOCK + within
            n = element_of(here, own).to(tl.int64) * WIDTH
            source = element_of(begins, own).to(tl.int64) * WIDTH
            place = element_of(here_begins, own).to(tl.int64) * WIDTH
            tl.store(out_ptr + place + at, tl.load(x_ptr + source + at, mask=at < n), mask=at < n)
            for step in range(1, RANKS):
                sender = (own + RANKS - step) % RANKS
                n = element_of(here, sender).to(tl.int64) * WIDTH
                if (block * BLOCK < n) | (block == first):
                    place = element_of(here_begins, sender).to(tl.int64) * WIDTH
                    part = receive_block(inbox_ptr + place, arrived_ptr, block, at, at < n, sender, 0, epoch)
                    tl.store(out_ptr + place + at, part, mask=at < n)


def sample(ranks: int, generator: torch.Generator) -> dict[str, Any]:
    """Arguments for the checker: of every rank the same splits, some of them none."""
    splits = torch.randint(0, 8, (ranks,), generator=generator)
    splits[torch.randint(0, ranks, (1,), generator=generator)] = 0
    return {
        "x": f"bf16[{8 * ranks * 16}]",
        "splits": splits,
        "out": f"bf16[{6 * ranks * 16}]",
        "splits_out": f"i64[{ranks}]",
        "offsets": f"i64[{ranks + 1}]",
        "dropped": "i64[1]",
        "capacity": 128 * ranks,
        "width": 16,
        "num_ranks": ranks,
        "block": 32,
        "programs": 2,
    }


_EXAMPLE = {
    "x": "bf16[8388608]",
    "splits": "i64[4]",
    "out": "bf16[8388608]",
    "splits_out": "i64[4]",
    "offsets": "i64[5]",
    "dropped": "i64[1]",
    "capacity": 8388608,
    "width": 4096,
    "num_ranks": 4,
}


@ditron.program(example=_EXAMPLE, sample_args=sample, max_nodes=1)
def stored_all_to_all_v_program(
    x,
    splits,
    out,
    splits_out,
    offsets,
    dropped,
    capacity,
    *,
    width,
    num_ranks,
    block=4096,
    programs=528,
    num_warps=8,
):
    """``out`` = the rows of ``width`` elements that all ranks' ``x`` have for this one, in rank order, by stores.

    Both are flat. ``splits`` [ranks]: rows for each rank. ``splits_out`` [ranks]: rows that each rank had for this one,
    ``offsets`` [ranks + 1]: where they begin in ``out``, and where the last ones end. Rows behind the end of ``out``
    are not sent, and their number is added to ``dropped``. Memory is kept for ``capacity`` elements, a
    multiple of block.
    """
    rows, max_rows = x.shape[0] // width, out.shape[0] // width
    inbox = dh.symm_empty(2, capacity, dtype=x.dtype, name="inbox")
    arrived = dh.symm_zeros(num_ranks * (capacity // block), dtype=torch.int64, name="arrived")
    table = dh.empty(programs * num_ranks * num_ranks, dtype=torch.int32, name="table")
    boxes = packet_boxes(programs, num_ranks, torch.int32)
    stored_all_to_all_v_kernel[(dh.minimum(programs, capacity // block),)](
        x,
        splits,
        out,
        splits_out,
        offsets,
        dropped,
        inbox,
        arrived,
        table,
        boxes,
        rows,
        max_rows,
        capacity,
        dh.epoch(),
        WIDTH=width,
        BLOCK=block,
        RANKS=num_ranks,
        num_warps=num_warps,
    )


@ditron.jit(do_not_specialize=["epoch"])
def ll_all_to_all_v_kernel(
    x_ptr,
    splits_ptr,
    out_ptr,
    splits_out_ptr,
    offsets_ptr,
    dropped_ptr,
    table_ptr,
    boxes_ptr,
    data_boxes_ptr,
    scratch_ptr,
    rows,
    max_rows,
    blocks,
    epoch,
    WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
    RANKS: tl.constexpr,
    PROTOCOL: tl.constexpr,
):
    """As the kernel with stores, by messages of a block, which have a place for each sender."""
    own = dl.rank()
    first = tl.program_id(0)
    programs = tl.num_programs(0)
    counts, begins = own_counts(splits_ptr, rows, RANKS)
    send_counts(counts, table_ptr, boxes_ptr, epoch, RANKS)
    for step in range(1, RANKS):
        peer = (own + step) % RANKS
        n = element_of(counts, peer).to(tl.int64) * WIDTH
        theirs_ptr = x_ptr + element_of(begins, peer).to(tl.int64) * WIDTH
        for block in range(first, tl.cdiv(n, BLOCK).to(tl.int32), programs):
            size = tl.minimum(n - block * BLOCK, BLOCK).to(tl.int32)
            send_packets(theirs_ptr + block * BLOCK, size, data_boxes_ptr, block, blocks, peer, epoch, BLOCK, PROTOCOL)
    table = receive_counts(counts, table_ptr, boxes_ptr, epoch, RANKS)
    here, here_begins, total = places(table, own, max_rows)
    store_results(table, here_begins, total, splits_out_ptr, offsets_ptr, dropped_ptr, max_rows, RANKS)
    sent = column_of(table, own)
    within = tl.arange(0, triton.next_power_of_2(BLOCK))
    scratch_ptr += first * BLOCK
    for step in range(RANKS):
        sender = (own + RANKS - step) % RANKS
        n = element_of(sent, sender).to(tl.int64) * WIDTH
        kept = element_of(here, sender).to(tl.int64) * WIDTH
        place_ptr = out_ptr + element_of(here_begins, sender).to(tl.int64) * WIDTH
        for block in range(first, tl.cdiv(n, BLOCK).to(tl.int32), programs):
            size = tl.minimum(n - block * BLOCK, BLOCK).to(tl.int32)
            keep = tl.minimum(tl.maximum(kept - block * BLOCK, 0), BLOCK).to(tl.int32)
            if sender == own:
                mine_ptr = x_ptr + element_of(begins, own).to(tl.int64) * WIDTH + block * BLOCK
                tl.store(
                    place_ptr + block * BLOCK + within, tl.load(mine_ptr + within, mask=within < keep), within < keep
                )
            elif keep == size:
                theirs_ptr = place_ptr + block * BLOCK
                receive_packets(theirs_ptr, size, data_boxes_ptr, block, blocks, sender, epoch, BLOCK, PROTOCOL)
            else:  # a message is unpacked whole, and not all of it has a place
                part_ptr = receive_packets(
                    scratch_ptr, size, data_boxes_ptr, block, blocks, sender, epoch, BLOCK, PROTOCOL
                )
                part = tl.load(part_ptr + within, mask=within < keep)
                tl.store(place_ptr + block * BLOCK + within, part, mask=within < keep)


@ditron.program(example=_EXAMPLE, sample_args=sample, max_nodes=1)
def ll_all_to_all_v_program(
    x,
    splits,
    out,
    splits_out,
    offsets,
    dropped,
    capacity,
    *,
    width,
    num_ranks,
    block=512,
    programs=132,
    num_warps=4,
    protocol="ll",
):
    """As :func:`stored_all_to_all_v_program`, by packets; ``capacity``: of ``x``."""
    rows, max_rows, blocks = x.shape[0] // width, out.shape[0] // width, -(-capacity // block)
    table = dh.empty(programs * num_ranks * num_ranks, dtype=torch.int32, name="table")
    boxes = packet_boxes(programs, num_ranks, torch.int32)
    data_boxes = packet_boxes(blocks, block, x.dtype, "data_boxes")
    scratch = dh.empty(programs * block, dtype=x.dtype, name="scratch")
    ll_all_to_all_v_kernel[(dh.minimum(programs, blocks),)](
        x,
        splits,
        out,
        splits_out,
        offsets,
        dropped,
        table,
        boxes,
        data_boxes,
        scratch,
        rows,
        max_rows,
        blocks,
        dh.epoch(),
        WIDTH=width,
        BLOCK=block,
        RANKS=num_ranks,
        PROTOCOL=protocol,
        num_warps=num_warps,
    )


#: Elements of a block.
_BLOCKS = {"ll": 512, "ll128": BLOCKS["ll128"], "stored": BLOCK}


def _by_size(nbytes: int, has_nvlink: bool) -> str:
    if nbytes <= LL_BYTES:
        return "ll"
    return "ll128" if nbytes <= LL128_BYTES and has_nvlink else "stored"


def _rule(problem: Problem) -> Rule:
    nbytes = problem.ranks * problem.rows * problem.itemsize
    algorithm = _by_size(nbytes, has_nvlink=True)
    options: Options = {"algorithm": algorithm, "block": _BLOCKS[algorithm]}
    return Rule(options, f"x has {nbytes / 2**20:.3g} MB; packets are taken up to {LL128_BYTES >> 20} MB")


@tunable("all_to_all_v", rule=_rule, node_algorithms=())
def all_to_all_v_candidates(problem: Problem) -> Iterator[Options]:
    """Schedules of :func:`all_to_all_v`, of equal parts."""
    for options in stored_candidates(problem):
        if options["algorithm"] in ("ll", "ll128"):
            yield options
    if problem.sent_bytes <= 1 << 20:
        yield from ({"algorithm": "ll", "block": block} for block in (1024, 2048))
    if 1 << 20 <= problem.sent_bytes <= 16 << 20:
        yield from ({"algorithm": "ll128", "block": BLOCKS["ll128"], "programs": programs} for programs in (264, 528))
    if problem.sent_bytes >= 32 << 10:
        yield from ({"algorithm": "stored", "block": block} for block in (BLOCK, BLOCK // 2))
        yield from ({"algorithm": "stored", "block": BLOCK, "programs": programs} for programs in (132, 264))


@torch_operator("x", "splits", "max_rows")
@repeatable
def all_to_all_v(
    x: torch.Tensor,
    splits: torch.Tensor,
    *,
    max_rows: int,
    out: torch.Tensor | None = None,
    dropped: torch.Tensor | None = None,
    group: AnyGroup = None,
    algorithm: str | None = None,
    **schedule: Any,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The rows that all ranks' ``x`` have for this one, in rank order, without gaps; the host waits for nothing.

    In a CUDA graph the splits may be others at each replay.

    Args:
        x: ``[rows, ...]``, the same shape on every rank, rows for rank 0 first; of a quantized dtype too.
        splits: ``[num_ranks]``, int64 or int32, on the device: how many rows are for each rank. Together at most those
            of x: what is negative or behind its last row counts as none.
        max_rows: of the result, the same on every rank. Rows that have no place are not sent.
        out: ``[max_rows, ...]``, written if given. group: the ranks; default the current group. One node.
        dropped: int64 ``[1]``, to which the number of rows without a place is added, if given.
        algorithm: ``"stored"`` by a kernel, ``"ll"`` or ``"ll128"`` as packets, instead of the one that is chosen by
            the size of x.
        schedule: keyword-only arguments of its program, instead of those that would be chosen.

    Returns ``out``, of which the rows behind the last one are not written; how many rows each rank had for this one,
    ``[num_ranks]``; and where they begin in ``out``, and the last ones end, ``[num_ranks + 1]``: like splits. Rows were
    dropped where that end is less than the sum of all. Collective over the group. Raises DitronError for tensors that
    do not fit.

        rows, counts, offsets = ditron.kernels.all_to_all_v(x, splits, max_rows=4096)
    """
    with in_group(group, "all_to_all_v") as group:
        vector_operand("all_to_all_v", group, x, quantized=True)
        require_tensor("all_to_all_v", "splits", splits)
        ranks, rows = group.num_ranks, x.shape[0]
        if splits.shape != (ranks,) or splits.dtype not in (torch.int64, torch.int32) or splits.device != group.device:
            raise DitronError(
                f"all_to_all_v: splits must be [{ranks}] of int64 or int32 on {group.device}, got "
                f"{list(splits.shape)} of {splits.dtype} on {splits.device}"
            )
        if type(max_rows) is not int or max_rows < 1:
            raise DitronError(f"all_to_all_v: max_rows must be a number from 1, got {max_rows!r}")
        if group.is_sim and (min(given := splits.tolist()) < 0 or sum(given) > rows):
            raise DitronError(f"all_to_all_v: x has {rows} rows, and splits are {given}")
        if dropped is None:
            dropped = scratch((1,), splits, torch.int64)
        elif dropped.shape != (1,) or dropped.dtype != torch.int64 or dropped.device != x.device:
            raise DitronError(
                f"all_to_all_v: dropped must be [1] of int64 on {x.device}, got {list(dropped.shape)} of "
                f"{dropped.dtype} on {dropped.device}"
            )
        width = x.numel() // rows
        out = result("all_to_all_v", (max_rows, *x.shape[1:]), x, out, x=x)
        splits_out, offsets = splits.new_empty(ranks), splits.new_empty(ranks + 1)
        algorithm, schedule = tuned("all_to_all_v", group, algorithm, schedule, x.dtype, x.numel() // ranks)
        algorithm = algorithm or _by_size(x.nbytes, group.has_nvlink)
        if algorithm not in _PROGRAMS:
            raise DitronError(f"all_to_all_v: unknown algorithm {algorithm!r}: expected 'stored', 'll' or 'll128'")
        check_schedule("all_to_all_v", schedule, _PROGRAMS[algorithm])
        chosen: Options = {"block": _BLOCKS[algorithm]}
        if algorithm == "ll128":  # a program for each block, up to many: one that has several gets them in turns
            chosen |= {"protocol": "ll128", "programs": 8 * group.sms}
        if group.small_shapes:
            chosen |= {"block": block_for(group, algorithm)["block"], "programs": 4}
        schedule = chosen | schedule
        kept = max_rows * width if algorithm == "stored" else x.numel()
        flat, received = aligned(x).view(-1), out.view(-1)
        if x.itemsize == 1:  # one program moves bytes of any meaning
            flat, received = flat.view(torch.int8), received.view(torch.int8)
        run_step(
            _PROGRAMS[algorithm],
            flat,
            aligned(splits),
            received,
            splits_out,
            offsets,
            dropped,
            max(capacity_for(kept), schedule["block"]),
            width=width,
            num_ranks=ranks,
            **schedule,
        )
        return out, splits_out, offsets


_PROGRAMS = {
    "stored": stored_all_to_all_v_program,
    "ll": ll_all_to_all_v_program,
    "ll128": ll_all_to_all_v_program,
}
