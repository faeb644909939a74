"""Reduce-scatter: each rank's part is pushed to it, by copy engines or by stores, and a kernel adds in fp32."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist
import triton.language as tl

import ditron
import ditron.host as dh
import ditron.language as dl
from ditron.distributed.torch_groups import AnyGroup
from ditron.kernels.dispatch import torch_operator
from ditron.kernels.exchange import (
    block_bytes,
    receive_block,
    send_block,
)
from ditron.kernels.nccl import run_by_nccl
from ditron.kernels.operands import aligned, capacity_for, in_group, result, vector_operand
from ditron.kernels.pushes import handshake
from ditron.kernels.repeated import repeatable, run_step
from ditron.kernels.schedules import (
    by_size,
    collective_node_rule,
    collective_rule,
    collective_schedule,
    sent_bytes,
    stored_candidates,
)
from ditron.kernels.words import launch_words, places_of, send_parts, sum_from_all
from ditron.tuning.lookup import tuned
from ditron.tuning.problem import Options, Problem
from ditron.tuning.registry import tunable
from ditron_compiler.errors import DitronError

__all__ = [
    "ll_scatter_program",
    "put_scatter_program",
    "reduce_scatter",
    "reduce_scatter_program",
    "stored_scatter_program",
]


@ditron.jit
def add_parts_kernel(x_ptr, inbox_ptr, out_ptr, n, own, ranks, BLOCK: tl.constexpr):
    """``out`` = sum over ranks of their part, in rank order; the own part from ``x``, the others from ``inbox``."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for part in range(ranks):
        part_ptr = tl.where(part == own, x_ptr, inbox_ptr + part * tl.cast(n, tl.int64))
        total += tl.load(part_ptr + at, mask=mask, other=0.0).to(tl.float32)
    tl.store(out_ptr + at, total.to(out_ptr.dtype.element_ty), mask=mask)


@ditron.program(
    example={"x": "bf16[4, 1048576]", "out": "bf16[1048576]", "capacity": 1048576},
    sample_args=lambda ranks: {"x": f"bf16[{ranks}, 80]", "out": "bf16[80]", "capacity": 128, "block": 32},
    max_nodes=1,
)
def reduce_scatter_program(x, out, capacity, *, block=4096, num_warps=8):
    """``out`` [n] = this rank's row of the sum over ranks of ``x`` [ranks, n], added in fp32 and in rank order.

    Memory is kept for up to ``capacity`` elements of a rank.
    """
    rank, ranks, epoch = dh.rank(), dh.num_ranks(), dh.epoch()
    n = out.shape[0]
    inbox = dh.symm_empty(ranks * capacity, dtype=x.dtype, name="inbox")
    arrived = dh.symm_zeros(ranks, dtype=torch.int64, name="arrived")
    done = dh.symm_zeros(ranks, dtype=torch.int64, name="done")
    with dh.stream("copy"):
        handshake(done)
        for step in dh.range(1, ranks):
            owner = (rank + step) % ranks
            dh.rank_copy(x[owner], inbox[rank * n : (rank + 1) * n], owner)
            dh.signal_write(arrived[rank], epoch, owner)
    for step in dh.range(1, ranks):
        dh.signal_wait(arrived[(rank + step) % ranks], epoch)
    add_parts_kernel[(dh.cdiv(n, block),)](x[rank], inbox, out, n, rank, ranks, BLOCK=block, num_warps=num_warps)


@ditron.jit
def add_blocks(x_ptr, out_ptr, inbox_ptr, arrived_ptr, block, at, mask, n, capacity, epoch, BLOCK: tl.constexpr):
    """Block ``block`` of ``out`` [n] = what all ranks have sent here and the own ones of ``x`` [ranks, n], in fp32."""
    own = dl.rank()
    total = tl.zeros((BLOCK,), tl.float32)
    for sender in range(dl.num_ranks()):
        if sender == own:
            total += tl.load(x_ptr + own.to(tl.int64) * n + at, mask=mask, other=0.0).to(tl.float32)
        else:
            part = receive_block(inbox_ptr, arrived_ptr, block, at, mask, sender, capacity, epoch)
            total += part.to(tl.float32)
    tl.store(out_ptr + at, total.to(out_ptr.dtype.element_ty), mask=mask)


@ditron.jit(do_not_specialize=["epoch"])
def stored_scatter_kernel(x_ptr, out_ptr, inbox_ptr, arrived_ptr, n, capacity, epoch, BLOCK: tl.constexpr):
    """A program for each block of a part: stores every rank's at that rank, and adds what every rank stored here."""
    own = dl.rank()
    ranks = dl.num_ranks()
    block = tl.program_id(0)
    at = block * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
    inbox_ptr += (epoch % 2).to(tl.int64) * ranks * capacity
    for step in range(1, ranks):
        peer = (own + step) % ranks
        theirs = tl.load(x_ptr + peer.to(tl.int64) * n + at, mask=mask)
        send_block(theirs, inbox_ptr, arrived_ptr, block, at, mask, peer, capacity, epoch)
    add_blocks(x_ptr, out_ptr, inbox_ptr, arrived_ptr, block, at, mask, n, capacity, epoch, BLOCK)


@ditron.program(
    example={"x": "bf16[4, 8192]", "out": "bf16[8192]", "capacity": 8192},
    sample_args=lambda ranks: {"x": f"bf16[{ranks}, 80]", "out": "bf16[80]", "capacity": 128, "block": 32},
    max_nodes=1,
)
def stored_scatter_program(x, out, capacity, *, block=4096, num_warps=16):
    """As :func:`reduce_scatter_program`, by stores of one kernel; ``capacity`` is a multiple of block.

    The inbox has two halves, used in turns, as exchange.py explains.
    """
    n = out.shape[0]
    inbox = dh.symm_empty(2, dh.num_ranks() * capacity, dtype=x.dtype, name="inbox")
    arrived = dh.symm_zeros(dh.num_ranks() * (capacity // block), dtype=torch.int64, name="arrived")
    stored_scatter_kernel[(dh.cdiv(n, block),)](
        x, out, inbox, arrived, n, capacity, dh.epoch(), BLOCK=block, num_warps=num_warps
    )


@ditron.jit(do_not_specialize=["epoch"])
def ll_scatter_kernel(
    x_ptr, out_ptr, boxes_ptr, n, kept, epoch, WORDS: tl.constexpr, BITS: tl.constexpr, RANKS: tl.constexpr
):
    """A program for each ``WORDS`` words of a part: sends every rank's to it, and adds what every rank sent here.

    ``kept`` words of memory are for each message.
    """
    DTYPE: tl.constexpr = x_ptr.dtype.element_ty
    word = tl.program_id(0) * WORDS + tl.arange(0, WORDS)
    send_parts(x_ptr, word, n, boxes_ptr, kept, epoch, BITS, RANKS)
    total = sum_from_all(word, boxes_ptr, kept, epoch, DTYPE, BITS, RANKS)
    place = places_of(word, DTYPE, BITS)
    tl.store(out_ptr + place, total.to(DTYPE), mask=place < n)


@ditron.program(
    example={"x": "bf16[4, 8192]", "out": "bf16[8192]", "capacity": 8192, "num_ranks": 4},
    sample_args=lambda ranks: {
        "x": f"bf16[{ranks}, 20]",
        "out": "bf16[20]",
        "capacity": 32,
        "num_ranks": ranks,
        "block": 16,
    },
    max_nodes=1,
)
def ll_scatter_program(x, out, capacity, *, num_ranks, block=256):
    """As :func:`stored_scatter_program`, by words: no signal, no fence, no memory between."""
    launch_words(ll_scatter_kernel, x, out, out.shape[0], capacity, num_ranks, block, 64)


@ditron.jit(do_not_specialize=["epoch"])
def put_scatter_kernel(x_ptr, out_ptr, outbox_ptr, inbox_ptr, arrived_ptr, n, capacity, epoch, BLOCK: tl.constexpr):
    """A program for each block of a part: puts every rank's to it, and adds what every rank has put here."""
    own = dl.rank()
    ranks = dl.num_ranks()
    block = tl.program_id(0)
    at = block * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
    inbox_ptr += (epoch % 2).to(tl.int64) * ranks * capacity
    for step in range(1, ranks):
        peer = ((own + step) % ranks).to(tl.int64)
        tl.store(outbox_ptr + peer * capacity + at, tl.load(x_ptr + peer * n + at, mask=mask), mask=mask)
    nbytes = tl.minimum(n - block * BLOCK, BLOCK) * block_bytes(1, x_ptr.dtype.element_ty)
    for step in range(1, ranks):
        peer = (own + step) % ranks
        from_ptr = outbox_ptr + peer.to(tl.int64) * capacity + block * BLOCK
        to_ptr = inbox_ptr + own.to(tl.int64) * capacity + block * BLOCK
        dl.putmem_signal_nbi(to_ptr, from_ptr, nbytes, arrived_ptr + block * ranks + own, epoch, peer)
    add_blocks(x_ptr, out_ptr, inbox_ptr, arrived_ptr, block, at, mask, n, capacity, epoch, BLOCK)
    dl.quiet()  # the next call writes the send buffer anew


@ditron.program(
    example={"x": "bf16[16, 8192]", "out": "bf16[8192]", "capacity": 8192},
    sample_args=lambda ranks: {"x": f"bf16[{ranks}, 80]", "out": "bf16[80]", "capacity": 128, "block": 32},
)
def put_scatter_program(x, out, capacity, *, block=4096, num_warps=16):
    """As :func:`stored_scatter_program`, by puts that reach ranks on other nodes."""
    n, ranks = out.shape[0], dh.num_ranks()
    outbox = dh.symm_empty(ranks * capacity, dtype=x.dtype, name="outbox")
    inbox = dh.symm_empty(2, ranks * capacity, dtype=x.dtype, name="inbox")
    arrived = dh.symm_zeros(ranks * (capacity // block), dtype=torch.int64, name="arrived")
    put_scatter_kernel[(dh.cdiv(n, block),)](
        x, out, outbox, inbox, arrived, n, capacity, dh.epoch(), BLOCK=block, num_warps=num_warps
    )


@tunable("reduce_scatter", rule=collective_rule, named_only=("nccl",), on_nodes=collective_node_rule)
def reduce_scatter_candidates(problem: Problem) -> Iterator[Options]:
    """Schedules of :func:`reduce_scatter`; NCCL adds in the dtype of the tensors."""
    return stored_candidates(problem)


@torch_operator("x")
@repeatable
def reduce_scatter(
    x: torch.Tensor,
    *,
    out: torch.Tensor | None = None,
    group: AnyGroup = None,
    algorithm: str | None = None,
    **schedule: Any,
) -> torch.Tensor:
    """This rank's rows of the sum over ranks of ``x``, added in fp32 and in rank order.

    Args:
        x: ``[rows, ...]``, the same shape on every rank, rows a multiple of the number of ranks.
        out: ``[rows / num_ranks, ...]``, written if given. group: the ranks; default the current group.
        algorithm: ``"copied"`` by copy engines, ``"stored"`` by a kernel or ``"ll"`` as words, instead of the one that
            was measured to be fastest or is chosen by size; ``"put"``, which is taken where the ranks are on several
            nodes; or ``"nccl"``, which adds in the dtype of the tensors and is taken only if it is named.
        schedule: keyword-only arguments of its program, instead of those that would be chosen.

    Returns ``[rows / num_ranks, ...]``. Collective over the group. Raises DitronError for tensors that do not fit.

        mine = ditron.kernels.reduce_scatter(partial_sums)
    """
    with in_group(group, "reduce_scatter") as group:
        vector_operand("reduce_scatter", group, x)
        ranks = group.num_ranks
        if x.shape[0] % ranks:
            raise DitronError(f"reduce_scatter: {x.shape[0]} rows cannot be shared evenly by {ranks} ranks")
        out = result("reduce_scatter", (x.shape[0] // ranks, *x.shape[1:]), x, out, x=x)
        if algorithm is None and len(group.nodes) > 1:
            algorithm = "put"
        algorithm, schedule = tuned("reduce_scatter", group, algorithm, schedule, x.dtype, out.numel())
        algorithm = algorithm or by_size(sent_bytes(group, out), ranks, group.has_nvlink, is_sum=True)
        if algorithm == "nccl":
            every, mine = aligned(x).view(-1), out.view(-1)
            sent = sent_bytes(group, out)
            run_by_nccl(
                "reduce_scatter", group, sent, out, lambda by: dist.reduce_scatter_tensor(mine, every, group=by)
            )
            return out
        if algorithm not in _PROGRAMS:
            raise DitronError(
                f"reduce_scatter: unknown algorithm {algorithm!r}: expected 'copied', 'stored', 'll', 'put' or 'nccl'"
            )
        program = _PROGRAMS[algorithm]
        chosen = collective_schedule("reduce_scatter", group, algorithm, program, x.dtype, schedule)
        capacity = max(capacity_for(out.numel()), chosen["block"])
        run_step(program, aligned(x).view(ranks, -1), out.view(-1), capacity, **chosen)
        return out


_PROGRAMS = {
    "copied": reduce_scatter_program,
    "stored": stored_scatter_program,
    "ll": ll_scatter_program,
    "put": put_scatter_program,
}
