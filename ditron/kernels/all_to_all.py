"""All-to-all: a kernel stores each rank's part in that rank's inbox, or sends it as words or packets."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist
import triton
import triton.language as tl

import ditron
import ditron.host as dh
import ditron.language as dl
from ditron.distributed.torch_groups import AnyGroup
from ditron.kernels.dispatch import torch_operator
from ditron.kernels.exchange import packet_boxes, receive_block, receive_packets, send_block, send_packets_to_all
from ditron.kernels.nccl import run_by_nccl
from ditron.kernels.operands import aligned, capacity_for, in_group, result, vector_operand
from ditron.kernels.repeated import repeatable, run_step
from ditron.kernels.schedules import BLOCKS, LL128_BYTES, by_size, collective_schedule, stored_candidates
from ditron.kernels.words import launch_words, send_parts, store_from_all
from ditron.tuning.lookup import tuned
from ditron.tuning.problem import Options, Problem
from ditron.tuning.registry import Rule, tunable
from ditron_compiler.errors import DitronError

__all__ = ["all_to_all", "ll128_all_to_all_program", "ll_all_to_all_program", "stored_all_to_all_program"]


#: Elements that a program stores at each rank at once, on GPUs: level with half of it but for the largest messages.
BLOCK = 8192


@ditron.jit(do_not_specialize=["epoch"])
def stored_all_to_all_kernel(x_ptr, out_ptr, inbox_ptr, arrived_ptr, n, capacity, epoch, BLOCK: tl.constexpr):
    """A program for each block of a part: stores every rank's at that rank, and copies what every rank stored here."""
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
    mine = own.to(tl.int64) * n
    tl.store(out_ptr + mine + at, tl.load(x_ptr + mine + at, mask=mask), mask=mask)
    for step in range(1, ranks):
        sender = (own + ranks - step) % ranks
        part = receive_block(inbox_ptr, arrived_ptr, block, at, mask, sender, capacity, epoch)
        tl.store(out_ptr + sender.to(tl.int64) * n + at, part, mask=mask)


@ditron.program(
    example={"x": "bf16[4, 8192]", "out": "bf16[4, 8192]", "capacity": 8192},
    sample_args=lambda ranks: {"x": f"bf16[{ranks}, 80]", "out": f"bf16[{ranks}, 80]", "capacity": 128, "block": 32},
    max_nodes=1,
)
def stored_all_to_all_program(x, out, capacity, *, block=4096, num_warps=16):
    """``out`` [ranks, n] = this rank's row of every rank's ``x`` [ranks, n], by stores of one kernel.

    Memory is kept for up to ``capacity`` elements of a row, a multiple of block. The inbox has two halves, used in
    turns, as exchange.py explains.
    """
    n = out.shape[1]
    inbox = dh.symm_empty(2, dh.num_ranks() * capacity, dtype=x.dtype, name="inbox")
    arrived = dh.symm_zeros(dh.num_ranks() * (capacity // block), dtype=torch.int64, name="arrived")
    stored_all_to_all_kernel[(dh.cdiv(n, block),)](
        x, out, inbox, arrived, n, capacity, dh.epoch(), BLOCK=block, num_warps=num_warps
    )


@ditron.jit(do_not_specialize=["epoch"])
def ll_all_to_all_kernel(
    x_ptr, out_ptr, boxes_ptr, n, kept, epoch, WORDS: tl.constexpr, BITS: tl.constexpr, RANKS: tl.constexpr
):
    """A program for each ``WORDS`` words of a part: sends every rank's to it, and stores what every rank sent here.

    ``kept`` words of memory are for each message.
    """
    word = tl.program_id(0) * WORDS + tl.arange(0, WORDS)
    send_parts(x_ptr, word, n, boxes_ptr, kept, epoch, BITS, RANKS)
    store_from_all(out_ptr, word, n, boxes_ptr, kept, epoch, BITS, RANKS)


@ditron.program(
    example={"x": "bf16[4, 8192]", "out": "bf16[4, 8192]", "capacity": 8192, "num_ranks": 4},
    sample_args=lambda ranks: {
        "x": f"bf16[{ranks}, 20]",
        "out": f"bf16[{ranks}, 20]",
        "capacity": 32,
        "num_ranks": ranks,
        "block": 16,
    },
    max_nodes=1,
)
def ll_all_to_all_program(x, out, capacity, *, num_ranks, block=256):
    """As :func:`stored_all_to_all_program`, by flagged words: no signal, fence or memory between, twice the bytes."""
    launch_words(ll_all_to_all_kernel, x, out, out.shape[1], capacity, num_ranks, block, 32)


@ditron.jit(do_not_specialize=["epoch"])
def ll128_all_to_all_kernel(x_ptr, out_ptr, boxes_ptr, n, blocks, epoch, BLOCK: tl.constexpr):
    """A program for each block of a part: sends every rank's to it as packets, and unpacks what every rank sent."""
    own = dl.rank()
    ranks = dl.num_ranks()
    block = tl.program_id(0)
    count = tl.minimum(n - block * BLOCK, BLOCK)
    x_ptr += block * BLOCK
    out_ptr += block * BLOCK
    send_packets_to_all(x_ptr, n, count, boxes_ptr, block, blocks, epoch, BLOCK, "ll128")
    within = tl.arange(0, triton.next_power_of_2(BLOCK))
    mine = own.to(tl.int64) * n + within
    tl.store(out_ptr + mine, tl.load(x_ptr + mine, mask=within < count), mask=within < count)
    for step in range(1, ranks):
        sender = (own + ranks - step) % ranks
        theirs_ptr = out_ptr + sender.to(tl.int64) * n
        receive_packets(theirs_ptr, count, boxes_ptr, block, blocks, sender, epoch, BLOCK, "ll128")


@ditron.program(
    example={"x": "bf16[4, 8192]", "out": "bf16[4, 8192]", "capacity": 8192},
    sample_args=lambda ranks: {"x": f"bf16[{ranks}, 80]", "out": f"bf16[{ranks}, 80]", "capacity": 128, "block": 60},
    max_nodes=1,
)
def ll128_all_to_all_program(x, out, capacity, *, block=960, num_warps=4):
    """As :func:`stored_all_to_all_program`, by ``"ll128"`` packets: no signal, no fence, and 1/15 more bytes."""
    n, blocks = out.shape[1], -(-capacity // block)
    boxes = packet_boxes(blocks, block, x.dtype)
    ll128_all_to_all_kernel[(dh.cdiv(n, block),)](
        x, out, boxes, n, blocks, dh.epoch(), BLOCK=block, num_warps=num_warps
    )


def _by_size(nbytes: int, ranks: int, has_nvlink: bool) -> str:
    """What ``nbytes`` of each rank go by: what copy engines push would have to be copied once more."""
    by = by_size(nbytes, ranks, has_nvlink)
    return "stored" if by == "copied" else by


def _rule(problem: Problem) -> Rule:
    algorithm = _by_size(problem.sent_bytes, problem.ranks, has_nvlink=True)
    options: Options = {"algorithm": algorithm, "block": BLOCK if algorithm == "stored" else BLOCKS[algorithm]}
    return Rule(
        options, f"a rank sends {problem.sent_bytes / 2**20:.3g} MB; packets are taken up to {LL128_BYTES >> 20} MB"
    )


@tunable("all_to_all", rule=_rule, named_only=("nccl",))
def all_to_all_candidates(problem: Problem) -> Iterator[Options]:
    """Schedules of :func:`all_to_all`."""
    yield from (options for options in stored_candidates(problem) if options["algorithm"] != "copied")
    yield {"algorithm": "stored", "block": BLOCK}


@torch_operator("x")
@repeatable
def all_to_all(
    x: torch.Tensor,
    *,
    out: torch.Tensor | None = None,
    group: AnyGroup = None,
    algorithm: str | None = None,
    **schedule: Any,
) -> torch.Tensor:
    """The parts of all ranks' ``x`` that are this rank's, in rank order: ``torch.distributed.all_to_all_single``.

    Args:
        x: ``[rows, ...]``, the same shape on every rank, rows a multiple of the number of ranks: equal parts, in rank
            order of those who get them; of a quantized dtype too, without gradients.
        out: like x, written if given. group: the ranks; default the current group. One node.
        algorithm: ``"stored"`` by a kernel, ``"ll"`` as words or ``"ll128"`` as packets or ``"nccl"``, instead of the
            one that is chosen by size.
        schedule: keyword-only arguments of its program, instead of those that would be chosen.

    Returns a tensor like ``x``; its gradient is exchanged in the same way. Collective over the group. Raises
    DitronError for tensors that do not fit.

        of_my_heads = ditron.kernels.all_to_all(of_all_heads)
    """
    with in_group(group, "all_to_all") as group:
        vector_operand("all_to_all", group, x, quantized=True)
        ranks = group.num_ranks
        if x.shape[0] % ranks:
            raise DitronError(f"all_to_all: {x.shape[0]} rows cannot be shared evenly by {ranks} ranks")
        out = result("all_to_all", tuple(x.shape), x, out, x=x)
        n = x.numel() // ranks
        algorithm, schedule = tuned("all_to_all", group, algorithm, schedule, x.dtype, n)
        algorithm = algorithm or _by_size(n * x.itemsize * (ranks - 1), ranks, group.has_nvlink)
        if algorithm == "nccl":
            mine, theirs = aligned(x).view(-1), out.view(-1)
            sent = x.nbytes * (group.num_ranks - 1) / group.num_ranks
            run_by_nccl("all_to_all", group, sent, out, lambda by: dist.all_to_all_single(theirs, mine, group=by))
            return out
        if algorithm not in _PROGRAMS:
            raise DitronError(
                f"all_to_all: unknown algorithm {algorithm!r}: expected 'stored', 'll', 'll128' or 'nccl'"
            )
        program = _PROGRAMS[algorithm]
        stored = {"block": BLOCK} if algorithm == "stored" and not group.small_shapes else {}
        schedule = collective_schedule("all_to_all", group, algorithm, program, x.dtype, stored | schedule)
        capacity = max(capacity_for(n), schedule["block"])
        parts, received = aligned(x).view(ranks, -1), out.view(ranks, -1)
        if x.itemsize == 1:  # one program moves bytes of any meaning
            parts, received = parts.view(torch.int8), received.view(torch.int8)
        run_step(program, parts, received, capacity, **schedule)
        return out


_PROGRAMS = {"stored": stored_all_to_all_program, "ll": ll_all_to_all_program, "ll128": ll128_all_to_all_program}
