"""All-gather: a kernel stores this rank's elements at every rank; copy engines push them where they are many."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents

import ditron
import ditron.host as dh
import ditron.language as dl
from ditron.distributed.torch_groups import AnyGroup
from ditron.kernels.dispatch import torch_operator
from ditron.kernels.exchange import (
    block_bytes,
    packet_boxes,
    receive_block,
    receive_packets,
    send_block,
    send_packets_to_all,
)
from ditron.kernels.nccl import run_by_nccl
from ditron.kernels.operands import aligned, capacity_for, in_group, result, vector_operand
from ditron.kernels.pushes import ShardPushes
from ditron.kernels.repeated import repeatable, run_step
from ditron.kernels.schedules import (
    by_size,
    check_schedule,
    collective_node_rule,
    collective_rule,
    collective_schedule,
    sent_bytes,
    stored_candidates,
)
from ditron.kernels.words import launch_words, load_words, send_to_all, store_from_all
from ditron.tuning.lookup import tuned
from ditron.tuning.problem import Options, Problem
from ditron.tuning.registry import tunable
from ditron_compiler.errors import DitronError

__all__ = [
    "all_gather",
    "all_gather_program",
    "ll128_gather_kernel",
    "ll128_gather_program",
    "ll_gather_kernel",
    "ll_gather_program",
    "own_part",
    "put_gather_program",
    "stored_gather_program",
]


@ditron.program(
    example={"x": "bf16[1048576]", "out": "bf16[4, 1048576]", "capacity": 1048576},
    sample_args=lambda ranks: {"x": "bf16[80]", "out": f"bf16[{ranks}, 80]", "capacity": 128},
    max_nodes=1,
)
def all_gather_program(x, out, capacity):
    """``out`` [ranks, n] = all ranks' ``x`` [n]. Memory is kept for up to ``capacity`` elements of a rank."""
    rank, ranks = dh.rank(), dh.num_ranks()
    shards = ShardPushes(x, capacity)
    with dh.stream("copy"):
        shards.push()
    dh.copy(x, out[rank])
    for step in dh.range(1, ranks):
        sender = (rank + step) % ranks
        shards.await_one(step)
        dh.copy(shards.of(sender), out[sender])


@ditron.jit(do_not_specialize=["epoch"])
def stored_gather_kernel(x_ptr, out_ptr, inbox_ptr, arrived_ptr, n, capacity, epoch, BLOCK: tl.constexpr):
    """A program for each block: stores it in every rank's inbox, and copies what every rank stored here to ``out``."""
    own = dl.rank()
    ranks = dl.num_ranks()
    block = tl.program_id(0)
    at = block * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
    inbox_ptr += (epoch % 2).to(tl.int64) * ranks * capacity
    mine = tl.load(x_ptr + at, mask=mask)
    for step in range(1, ranks):
        send_block(mine, inbox_ptr, arrived_ptr, block, at, mask, (own + step) % ranks, capacity, epoch)
    tl.store(out_ptr + own.to(tl.int64) * n + at, mine, mask=mask)
    for step in range(1, ranks):
        sender = (own + step) % ranks
        part = receive_block(inbox_ptr, arrived_ptr, block, at, mask, sender, capacity, epoch)
        tl.store(out_ptr + sender.to(tl.int64) * n + at, part, mask=mask)


@ditron.program(
    example={"x": "bf16[8192]", "out": "bf16[4, 8192]", "capacity": 8192},
    sample_args=lambda ranks: {"x": "bf16[80]", "out": f"bf16[{ranks}, 80]", "capacity": 128, "block": 32},
    max_nodes=1,
)
def stored_gather_program(x, out, capacity, *, block=4096, num_warps=16):
    """As :func:`all_gather_program`, by stores of a kernel; ``capacity`` is a multiple of block.

    The inbox has two halves, used in turns, as exchange.py explains.
    """
    n = x.shape[0]
    inbox = dh.symm_empty(2, dh.num_ranks() * capacity, dtype=x.dtype, name="inbox")
    arrived = dh.symm_zeros(dh.num_ranks() * (capacity // block), dtype=torch.int64, name="arrived")
    stored_gather_kernel[(dh.cdiv(n, block),)](
        x, out, inbox, arrived, n, capacity, dh.epoch(), BLOCK=block, num_warps=num_warps
    )


@ditron.jit(do_not_specialize=["epoch"])
def ll_gather_kernel(
    x_ptr,
    out_ptr,
    boxes_ptr,
    n,
    kept,
    epoch,
    WORDS: tl.constexpr,
    BITS: tl.constexpr,
    RANKS: tl.constexpr,
    TRIGGERS: tl.constexpr = False,
):
    """A program for each ``WORDS`` words: sends them to every rank, and stores what every rank sent to ``out``.

    ``kept`` words of memory are for each message. ``TRIGGERS``: the next kernel may begin, if it is launched so, and
    waits by itself for what this one writes.
    """
    if TRIGGERS:
        gdc_launch_dependents()
    word = tl.program_id(0) * WORDS + tl.arange(0, WORDS)
    send_to_all(load_words(x_ptr, word, n, BITS), word, boxes_ptr, kept, epoch, BITS, RANKS)
    store_from_all(out_ptr, word, n, boxes_ptr, kept, epoch, BITS, RANKS)


@ditron.program(
    example={"x": "bf16[8192]", "out": "bf16[4, 8192]", "capacity": 8192, "num_ranks": 4},
    sample_args=lambda ranks: {
        "x": "bf16[20]",
        "out": f"bf16[{ranks}, 20]",
        "capacity": 32,
        "num_ranks": ranks,
        "block": 16,
    },
    max_nodes=1,
)
def ll_gather_program(x, out, capacity, *, num_ranks, block=256):
    """As :func:`stored_gather_program`, by flagged words: no signal, fence or memory between, and twice the bytes."""
    launch_words(ll_gather_kernel, x, out, x.shape[0], capacity, num_ranks, block, 32)


@ditron.jit(do_not_specialize=["epoch"])
def ll128_gather_kernel(
    x_ptr, out_ptr, boxes_ptr, n, blocks, epoch, BLOCK: tl.constexpr, TRIGGERS: tl.constexpr = False
):
    """As :func:`ll_gather_kernel`, by packets: a program for each block."""
    if TRIGGERS:
        gdc_launch_dependents()
    own = dl.rank()
    ranks = dl.num_ranks()
    block = tl.program_id(0)
    count = tl.minimum(n - block * BLOCK, BLOCK)
    x_ptr += block * BLOCK
    out_ptr += block * BLOCK
    send_packets_to_all(x_ptr, 0, count, boxes_ptr, block, blocks, epoch, BLOCK, "ll128")
    within = tl.arange(0, triton.next_power_of_2(BLOCK))
    mine = tl.load(x_ptr + within, mask=within < count)
    tl.store(out_ptr + own.to(tl.int64) * n + within, mine, mask=within < count)
    for step in range(1, ranks):
        sender = (own + step) % ranks
        theirs_ptr = out_ptr + sender.to(tl.int64) * n
        receive_packets(theirs_ptr, count, boxes_ptr, block, blocks, sender, epoch, BLOCK, "ll128")


@ditron.program(
    example={"x": "bf16[8192]", "out": "bf16[4, 8192]", "capacity": 8192},
    sample_args=lambda ranks: {"x": "bf16[80]", "out": f"bf16[{ranks}, 80]", "capacity": 128, "block": 60},
    max_nodes=1,
)
def ll128_gather_program(x, out, capacity, *, block=960, num_warps=4):
    """As :func:`stored_gather_program`, by ``"ll128"`` packets: no signal, no fence, and 1/15 more bytes."""
    n, blocks = x.shape[0], -(-capacity // block)
    boxes = packet_boxes(blocks, block, x.dtype)
    ll128_gather_kernel[(dh.cdiv(n, block),)](x, out, boxes, n, blocks, dh.epoch(), BLOCK=block, num_warps=num_warps)


@ditron.jit(do_not_specialize=["epoch"])
def put_gather_kernel(x_ptr, out_ptr, outbox_ptr, inbox_ptr, arrived_ptr, n, capacity, epoch, BLOCK: tl.constexpr):
    """A program for each block: puts it to every rank, and copies what every rank has put here to ``out``."""
    own = dl.rank()
    ranks = dl.num_ranks()
    block = tl.program_id(0)
    at = block * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
    inbox_ptr += (epoch % 2).to(tl.int64) * ranks * capacity
    mine = tl.load(x_ptr + at, mask=mask)
    tl.store(outbox_ptr + at, mine, mask=mask)
    tl.store(out_ptr + own.to(tl.int64) * n + at, mine, mask=mask)
    nbytes = tl.minimum(n - block * BLOCK, BLOCK) * block_bytes(1, x_ptr.dtype.element_ty)
    to_ptr = inbox_ptr + own.to(tl.int64) * capacity + block * BLOCK
    has_arrived_ptr = arrived_ptr + block * ranks + own
    for step in range(1, ranks):
        peer = (own + step) % ranks
        dl.putmem_signal_nbi(to_ptr, outbox_ptr + block * BLOCK, nbytes, has_arrived_ptr, epoch, peer)
    for step in range(1, ranks):
        sender = (own + step) % ranks
        part = receive_block(inbox_ptr, arrived_ptr, block, at, mask, sender, capacity, epoch)
        tl.store(out_ptr + sender.to(tl.int64) * n + at, part, mask=mask)
    dl.quiet()  # the next call writes the send buffer anew


@ditron.program(
    example={"x": "bf16[8192]", "out": "bf16[16, 8192]", "capacity": 8192},
    sample_args=lambda ranks: {"x": "bf16[80]", "out": f"bf16[{ranks}, 80]", "capacity": 128, "block": 32},
)
def put_gather_program(x, out, capacity, *, block=4096, num_warps=16):
    """As :func:`stored_gather_program`, by puts that reach ranks on other nodes."""
    n, ranks = x.shape[0], dh.num_ranks()
    outbox = dh.symm_empty(capacity, dtype=x.dtype, name="outbox")
    inbox = dh.symm_empty(2, ranks * capacity, dtype=x.dtype, name="inbox")
    arrived = dh.symm_zeros(ranks * (capacity // block), dtype=torch.int64, name="arrived")
    put_gather_kernel[(dh.cdiv(n, block),)](
        x, out, outbox, inbox, arrived, n, capacity, dh.epoch(), BLOCK=block, num_warps=num_warps
    )


@tunable("all_gather", rule=collective_rule, on_nodes=collective_node_rule)
def all_gather_candidates(problem: Problem) -> Iterator[Options]:
    """Schedules of :func:`all_gather`."""
    return stored_candidates(problem)


@torch_operator("x", "gradient")
@repeatable
def all_gather(
    x: torch.Tensor,
    *,
    out: torch.Tensor | None = None,
    gradient: str = "partial",
    group: AnyGroup = None,
    algorithm: str | None = None,
    **schedule: Any,
) -> torch.Tensor:
    """All ranks' ``x``, concatenated along the first dimension in rank order.

    Args:
        x: ``[rows, ...]``, the same shape on every rank; of a quantized dtype too, without gradients.
        out: ``[num_ranks * rows, ...]``, written if given.
        gradient: of the result. ``"partial"``: each rank has a part of it, and they are added. ``"replicate"``: every
            rank computes the same from it and has the same gradient.
        group: the ranks; default the current group.
        algorithm: ``"copied"`` by copy engines, ``"stored"`` by a kernel, ``"ll"`` as words or ``"ll128"`` as packets
            or ``"nccl"``, instead of the one that was measured to be fastest or is chosen by size; ``"put"`` is taken
            where the ranks are on several nodes.
        schedule: keyword-only arguments of its program, instead of those that would be chosen.

    Returns ``[num_ranks * rows, ...]``. Collective over the group. Raises DitronError for tensors that do not fit.

        everything = ditron.kernels.all_gather(mine)
    """
    with in_group(group, "all_gather") as group:
        vector_operand("all_gather", group, x, quantized=True)
        out = result("all_gather", (group.num_ranks * x.shape[0], *x.shape[1:]), x, out, x=x)
        if algorithm is None and len(group.nodes) > 1:
            algorithm = "put"
        algorithm, schedule = tuned("all_gather", group, algorithm, schedule, x.dtype, x.numel())
        algorithm = algorithm or by_size(sent_bytes(group, x), group.num_ranks, group.has_nvlink)
        if algorithm == "nccl":
            mine, everything = aligned(x).view(-1), out.view(-1)
            sent = sent_bytes(group, x)
            run_by_nccl(
                "all_gather", group, sent, out, lambda by: dist.all_gather_into_tensor(everything, mine, group=by)
            )
            return out
        if algorithm not in _PROGRAMS:
            raise DitronError(
                f"all_gather: unknown algorithm {algorithm!r}: expected 'copied', 'stored', 'll', 'll128', 'put' or "
                "'nccl'"
            )
        program, capacity = _PROGRAMS[algorithm], capacity_for(x.numel())
        if algorithm == "copied":
            check_schedule("all_gather", schedule, program)
        else:
            schedule = collective_schedule("all_gather", group, algorithm, program, x.dtype, schedule)
            capacity = max(capacity, schedule["block"])
        mine, everything = aligned(x).view(-1), out.view(group.num_ranks, -1)
        if x.itemsize == 1:  # one program moves bytes of any meaning
            mine, everything = mine.view(torch.int8), everything.view(torch.int8)
        run_step(program, mine, everything, capacity, **schedule)
        return out


_PROGRAMS = {
    "copied": all_gather_program,
    "stored": stored_gather_program,
    "ll": ll_gather_program,
    "ll128": ll128_gather_program,
    "put": put_gather_program,
}


@torch_operator("x")
def own_part(x: torch.Tensor, *, group: AnyGroup = None) -> torch.Tensor:
    """This rank's rows of ``x``, which is the same on every rank: what :func:`all_gather` makes whole again.

    Args:
        x: ``[rows, ...]``, rows a multiple of the number of ranks. group: the ranks; default the current group.

    Returns a new tensor, ``[rows / num_ranks, ...]``; its gradient is gathered.

        mine = ditron.kernels.own_part(everything)
    """
    with in_group(group, "own_part") as group:
        if x.ndim == 0 or x.shape[0] % group.num_ranks:
            raise DitronError(f"own_part: a tensor of shape {tuple(x.shape)} has no {group.num_ranks} equal parts")
        return x.view(group.num_ranks, -1, *x.shape[1:])[group.rank].clone(memory_format=torch.contiguous_format)
