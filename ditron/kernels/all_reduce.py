"""All-reduce by stores to peers: everybody adds everything (one-shot), or each a part (two-shot), as words or not.

exchange.py says why nobody waits before it stores. More programs than fit on a GPU at once wait for the same programs
of the peers: GPUs start them in the order of their numbers.
"""

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
from ditron.kernels.exchange import receive_block, send_block
from ditron.kernels.nccl import run_by_nccl
from ditron.kernels.operands import aligned, capacity_for, in_group, result, vector_operand
from ditron.kernels.repeated import repeatable, run_step
from ditron.kernels.schedules import (
    BLOCKS,
    LL_BYTES,
    TWO_SHOT_SAVED_BYTES,
    collective_schedule,
    saves_by_two_shots,
    sent_bytes,
)
from ditron.kernels.words import (
    WordBlock,
    gather_parts,
    launch_words,
    load_words,
    places_of,
    places_of_block,
    send_to_all,
    sum_from_all,
    sum_of_own_part,
    word_boxes,
)
from ditron.tuning.lookup import tuned
from ditron.tuning.problem import Options, Problem
from ditron.tuning.registry import Rule, tunable
from ditron_compiler.errors import DitronError

__all__ = [
    "all_reduce",
    "ll_program",
    "one_shot_program",
    "two_shot_ll_program",
    "two_shot_program",
]


@ditron.jit(do_not_specialize=["epoch"])
def ll_kernel(x_ptr, out_ptr, boxes_ptr, n, kept, epoch, WORDS: tl.constexpr, BITS: tl.constexpr, RANKS: tl.constexpr):
    """A program for each ``WORDS`` words: sends them to every rank, and adds what every rank sent.

    ``kept`` words of memory are for each message.
    """
    DTYPE: tl.constexpr = x_ptr.dtype.element_ty
    word = tl.program_id(0) * WORDS + tl.arange(0, WORDS)
    send_to_all(load_words(x_ptr, word, n, BITS), word, boxes_ptr, kept, epoch, BITS, RANKS)
    total = sum_from_all(word, boxes_ptr, kept, epoch, DTYPE, BITS, RANKS)
    place = places_of(word, DTYPE, BITS)
    tl.store(out_ptr + place, total.to(DTYPE), mask=place < n)


@ditron.program(
    example={"x": "bf16[8192]", "out": "bf16[8192]", "capacity": 8192, "num_ranks": 4},
    sample_args=lambda ranks: {"x": "bf16[20]", "out": "bf16[20]", "capacity": 32, "num_ranks": ranks, "block": 16},
    max_nodes=1,
)
def ll_program(x, out, capacity, *, num_ranks, block=256):
    """As :func:`one_shot_program`, by words: no signal, no fence, no memory between."""
    launch_words(ll_kernel, x, out, x.shape[0], capacity, num_ranks, block, 64)


@ditron.jit(do_not_specialize=["epoch"])
def one_shot_kernel(x_ptr, out_ptr, inbox_ptr, arrived_ptr, n, capacity, epoch, BLOCK: tl.constexpr):
    """A program for each block: sends it to every rank, adds what every rank sent, in rank order and in fp32."""
    own = dl.rank()
    ranks = dl.num_ranks()
    block = tl.program_id(0)
    at = block * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
    inbox_ptr += (epoch % 2).to(tl.int64) * ranks * capacity
    mine = tl.load(x_ptr + at, mask=mask, other=0.0)
    for step in range(1, ranks):
        send_block(mine, inbox_ptr, arrived_ptr, block, at, mask, (own + step) % ranks, capacity, epoch)
    total = tl.zeros((BLOCK,), tl.float32)
    for sender in range(ranks):
        if sender == own:
            total += mine.to(tl.float32)
        else:
            part = receive_block(inbox_ptr, arrived_ptr, block, at, mask, sender, capacity, epoch)
            total += part.to(tl.float32)
    tl.store(out_ptr + at, total.to(out_ptr.dtype.element_ty), mask=mask)


@ditron.program(
    example={"x": "bf16[8192]", "out": "bf16[8192]", "capacity": 8192},
    sample_args=lambda ranks: {"x": "bf16[80]", "out": "bf16[80]", "capacity": 128, "block": 32},
    max_nodes=1,
)
def one_shot_program(x, out, capacity, *, block=4096, num_warps=16):
    """``out`` [n] = sum over ranks of ``x`` [n]. Memory is kept for ``capacity`` elements, a multiple of block."""
    n = x.shape[0]
    inbox = dh.symm_empty(2, dh.num_ranks() * capacity, dtype=x.dtype, name="inbox")
    arrived = dh.symm_zeros(dh.num_ranks() * (capacity // block), dtype=torch.int64, name="arrived")
    one_shot_kernel[(dh.cdiv(n, block),)](
        x, out, inbox, arrived, n, capacity, dh.epoch(), BLOCK=block, num_warps=num_warps
    )


@ditron.jit(do_not_specialize=["epoch"])
def two_shot_kernel(
    x_ptr, out_ptr, inbox_ptr, sums_ptr, arrived_ptr, summed_ptr, n, capacity, epoch, BLOCK: tl.constexpr
):
    """Rank r adds part r of the elements and sends the sum to all; a program takes every P-th block of each part."""
    own = dl.rank()
    ranks = dl.num_ranks()
    first = tl.program_id(0)
    programs = tl.num_programs(0)
    half = epoch % 2
    part = tl.cdiv(tl.cdiv(n, ranks), BLOCK) * BLOCK  # elements of one rank's part
    inbox_ptr += half.to(tl.int64) * capacity
    sums_ptr += half.to(tl.int64) * capacity
    blocks = part // BLOCK
    for step in range(1, ranks):
        peer = (own + step) % ranks
        box_ptr = dl.symm_at(inbox_ptr, peer) + own * tl.cast(part, tl.int64)
        for block in range(first, blocks, programs):
            within = block * BLOCK + tl.arange(0, BLOCK)
            at = peer * tl.cast(part, tl.int64) + within
            tl.store(box_ptr + within, tl.load(x_ptr + at, mask=at < n, other=0.0))
        dl.notify(arrived_ptr + first * ranks + own, peer, epoch)
    token = dl.wait(arrived_ptr + first * ranks, own, epoch)
    before_ptr = dl.consume_token(inbox_ptr, token)
    token = dl.wait(arrived_ptr + first * ranks + own + 1, ranks - 1 - own, epoch)
    after_ptr = dl.consume_token(inbox_ptr, token)
    for block in range(first, blocks, programs):
        within = block * BLOCK + tl.arange(0, BLOCK)
        at = own * tl.cast(part, tl.int64) + within
        total = tl.zeros((BLOCK,), tl.float32)
        for sender in range(own):
            total += tl.load(before_ptr + sender * tl.cast(part, tl.int64) + within).to(tl.float32)
        total += tl.load(x_ptr + at, mask=at < n, other=0.0).to(tl.float32)
        for sender in range(own + 1, ranks):
            total += tl.load(after_ptr + sender * tl.cast(part, tl.int64) + within).to(tl.float32)
        result = total.to(out_ptr.dtype.element_ty)
        tl.store(out_ptr + at, result, mask=at < n)
        for step in range(1, ranks):
            tl.store(dl.symm_at(sums_ptr, (own + step) % ranks) + at, result)
    for step in range(1, ranks):
        dl.notify(summed_ptr + first * ranks + own, (own + step) % ranks, epoch)
    for step in range(1, ranks):
        sender = (own + ranks - step) % ranks
        token = dl.wait(summed_ptr + first * ranks + sender, 1, epoch)
        part_ptr = dl.consume_token(sums_ptr, token)
        for block in range(first, blocks, programs):
            at = sender * tl.cast(part, tl.int64) + block * BLOCK + tl.arange(0, BLOCK)
            tl.store(out_ptr + at, tl.load(part_ptr + at), mask=at < n)


@ditron.program(
    example={"x": "bf16[1048576]", "out": "bf16[1048576]", "capacity": 1048576},
    sample_args=lambda ranks: {"x": "bf16[200]", "out": "bf16[200]", "capacity": 256, "block": 16, "programs": 2},
    max_nodes=1,
)
def two_shot_program(x, out, capacity, *, block=4096, programs=128, num_warps=16):
    """As :func:`one_shot_program`, each rank adding its part; twice the latency, and 2 / ranks of the traffic."""
    n, ranks = x.shape[0], dh.num_ranks()
    room = capacity + ranks * block  # parts are rounded up to blocks
    inbox = dh.symm_empty(2, room, dtype=x.dtype, name="inbox")
    sums = dh.symm_empty(2, room, dtype=x.dtype, name="sums")
    arrived = dh.symm_zeros(programs * ranks, dtype=torch.int64, name="arrived")
    summed = dh.symm_zeros(programs * ranks, dtype=torch.int64, name="summed")
    grid = dh.minimum(programs, dh.cdiv(dh.cdiv(n, ranks), block))
    two_shot_kernel[(grid,)](
        x, out, inbox, sums, arrived, summed, n, room, dh.epoch(), BLOCK=block, num_warps=num_warps
    )


@ditron.jit(do_not_specialize=["epoch"])
def two_shot_ll_kernel(x_ptr, out_ptr, parts_ptr, sums_ptr, n, kept, epoch, WORDS: tl.constexpr, RANKS: tl.constexpr):
    """A program for each block of ``WORDS`` words of every rank, which adds its own: all get them, and send the sums.

    ``kept`` words of memory are for each message.
    """
    DTYPE: tl.constexpr = x_ptr.dtype.element_ty
    block = tl.program_id(0)
    total = sum_of_own_part(x_ptr, block, n, parts_ptr, kept, epoch, WORDS, RANKS)
    sums = gather_parts(total.to(DTYPE), block, sums_ptr, kept, epoch, RANKS)
    place = places_of_block(block, n, DTYPE, WORDS, RANKS)
    tl.store(out_ptr + place, sums, mask=place < n)


@ditron.program(
    example={"x": "bf16[1048576]", "out": "bf16[1048576]", "capacity": 1048576, "num_ranks": 4},
    sample_args=lambda ranks: {"x": "bf16[100]", "out": "bf16[100]", "capacity": 128, "num_ranks": ranks, "block": 16},
    max_nodes=1,
)
def two_shot_ll_program(x, out, capacity, *, num_ranks, block=256):
    """As :func:`two_shot_program`, by words: no signal, no fence, no memory between."""
    n, by = x.shape[0], WordBlock.of(block, x.dtype, 64)
    kept = by.words_for(dh.cdiv(capacity, num_ranks))
    two_shot_ll_kernel[(dh.cdiv(n, num_ranks * by.elements),)](
        x,
        out,
        word_boxes(kept, "parts"),
        word_boxes(kept, "sums"),
        n,
        kept,
        dh.epoch(),
        WORDS=by.words,
        RANKS=num_ranks,
        num_warps=by.num_warps,
    )


#: Up to so many bytes sent by each rank, everybody adds everything, where they are not words (docs/results/links.md).
ONE_SHOT_BYTES = 2 << 20

#: Ranks that NVLink links all-reduce tensors of up to so many bytes by words, which are the fastest of all that were
#: measured (docs/results/links.md): places in a tensor are counted in 32 bits.
WORDS_BYTES = 1 << 30


def by_size(nbytes: int, ranks: int, has_nvlink: bool) -> str:
    """The algorithm of an all-reduce of which each rank would send ``nbytes`` in one shot."""
    if nbytes <= (WORDS_BYTES if has_nvlink else LL_BYTES) * (ranks - 1):
        return "two_shot_ll" if saves_by_two_shots(nbytes, ranks) else "ll"
    return "one_shot" if nbytes <= ONE_SHOT_BYTES else "two_shot"


def all_reduce_rule(problem: Problem) -> Rule:
    sent = problem.rows * problem.itemsize * (problem.ranks - 1)
    algorithm = by_size(sent, problem.ranks, has_nvlink=True)
    limits = f"words are taken for tensors of up to {WORDS_BYTES >> 20} MB"
    if problem.ranks > 2:
        limits += f", in two shots where these send {TWO_SHOT_SAVED_BYTES >> 10} KB less"
    return Rule(
        {"algorithm": algorithm, "block": BLOCKS[algorithm]}, f"one shot sends {sent / 2**20:.3g} MB a rank; {limits}"
    )


@tunable("all_reduce", rule=all_reduce_rule, named_only=("nccl",))
def all_reduce_candidates(problem: Problem) -> Iterator[Options]:
    """Schedules of :func:`all_reduce`; NCCL adds in the dtype of the tensors."""
    nbytes = problem.rows * problem.itemsize
    if nbytes * (problem.ranks - 1) <= 1 << 20:
        yield from ({"algorithm": "ll", "block": block} for block in (256, 512))
    elif problem.ranks == 2:
        yield {"algorithm": "ll", "block": 256}
    if 32 << 10 <= nbytes * (problem.ranks - 1) <= 8 << 20:
        for block, warps in ((4096, 16), (2048, 8), (8192, 16)):
            yield {"algorithm": "one_shot", "block": block} | ({"num_warps": warps} if warps != 16 else {})
    if problem.ranks > 2 and nbytes >= 128 << 10:
        yield {"algorithm": "two_shot_ll", "block": 256}
    if nbytes >= 512 << 10:
        for block, programs in ((4096, 128), (2048, 128), (4096, 64), (8192, 128)):
            yield {"algorithm": "two_shot", "block": block} | ({"programs": programs} if programs != 128 else {})
    yield {"algorithm": "nccl"}


@torch_operator("x", "gradient")
@repeatable
def all_reduce(
    x: torch.Tensor,
    *,
    out: torch.Tensor | None = None,
    gradient: str = "replicate",
    group: AnyGroup = None,
    algorithm: str | None = None,
    **schedule: Any,
) -> torch.Tensor:
    """The sum over ranks of ``x``, added in fp32 and in rank order: bitwise the same on every rank.

    Args:
        x: any shape, the same on every rank. out: of the same shape, written if given; not ``x``.
        gradient: of the result. ``"replicate"``: every rank computes the same from it and has the same gradient, which
            is taken as it is (Megatron's g). ``"partial"``: each rank has a part of it, and they are added.
        group: the ranks; default the current group. One node.
        algorithm: ``"one_shot"`` or ``"two_shot"``, or as words ``"ll"`` or ``"two_shot_ll"``, instead of the one that
            was measured to be fastest or is chosen by size; or ``"nccl"``, which adds in the dtype of the tensors and
            is taken only if it is named.
        schedule: keyword-only arguments of its program, instead of those that would be chosen.

    Returns a tensor like ``x``. Collective over the group. Raises DitronError for tensors that do not fit.

        total = ditron.kernels.all_reduce(partial_sum)
    """
    with in_group(group, "all_reduce") as group:
        vector_operand("all_reduce", group, x)
        out = result("all_reduce", tuple(x.shape), x, out, x=x)
        algorithm, schedule = tuned("all_reduce", group, algorithm, schedule, x.dtype, x.numel())
        algorithm = algorithm or by_size(sent_bytes(group, x), group.num_ranks, group.has_nvlink)
        if algorithm == "nccl":
            sent = 2 * sent_bytes(group, x) / group.num_ranks
            run_by_nccl("all_reduce", group, sent, out, lambda by: dist.all_reduce(out.copy_(x), group=by))
            return out
        if algorithm not in _PROGRAMS:
            raise DitronError(
                f"all_reduce: unknown algorithm {algorithm!r}: expected 'll', 'one_shot', 'two_shot', 'two_shot_ll' or "
                "'nccl'"
            )
        program = _PROGRAMS[algorithm]
        chosen = collective_schedule("all_reduce", group, algorithm, program, x.dtype, schedule)
        capacity = max(capacity_for(x.numel()), chosen["block"])
        run_step(program, aligned(x).view(-1), out.view(-1), capacity, **chosen)
        return out


_PROGRAMS = {
    "ll": ll_program,
    "one_shot": one_shot_program,
    "two_shot": two_shot_program,
    "two_shot_ll": two_shot_ll_program,
}
