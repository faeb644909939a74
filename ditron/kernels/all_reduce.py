"""All-reduce by stores to peers: everybody adds everything (one-shot), or each a part (two-shot), as packets or not.

exchange.py says why nobody waits before it stores. More programs than fit on a GPU at once wait for the same programs
of the peers: GPUs start them in the order of their numbers.
"""

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
from ditron.kernels.exchange import (
    packet_boxes,
    receive_block,
    receive_packets,
    send_block,
    send_packets,
    send_packets_to_all,
    sum_of_packets,
)
from ditron.kernels.nccl import run_by_nccl
from ditron.kernels.operands import aligned, capacity_for, in_group, result, vector_operand
from ditron.kernels.repeated import repeatable, run_step
from ditron.kernels.schedules import BLOCKS, LL128_BYTES, LL_BYTES, collective_schedule, sent_bytes
from ditron.kernels.words import launch_words, load_words, peer_boxes, places_of, send_words, sum_from_all
from ditron.tuning.lookup import tuned
from ditron.tuning.problem import Options, Problem
from ditron.tuning.registry import Rule, tunable
from ditron_compiler.errors import DitronError

__all__ = [
    "all_reduce",
    "ll128_program",
    "ll_program",
    "one_shot_program",
    "two_shot_ll128_program",
    "two_shot_program",
]


@ditron.jit(do_not_specialize=["epoch"])
def ll_kernel(x_ptr, out_ptr, boxes_ptr, n, kept, epoch, WORDS: tl.constexpr, RANKS: tl.constexpr):
    """A program for each ``WORDS`` words: sends them to every rank, and adds what every rank sent.

    ``kept`` words of memory are for each message.
    """
    DTYPE: tl.constexpr = x_ptr.dtype.element_ty
    word = tl.program_id(0) * WORDS + tl.arange(0, WORDS)
    to = peer_boxes(boxes_ptr, kept, epoch, RANKS)
    mine = load_words(x_ptr, word, n)
    for step in tl.static_range(RANKS):
        send_words(to[step] + word, mine, epoch)
    total = sum_from_all(word, boxes_ptr, kept, epoch, DTYPE, RANKS)
    place = places_of(word, DTYPE)
    tl.store(out_ptr + place, total.to(DTYPE), mask=place < n)


@ditron.program(
    example={"x": "bf16[8192]", "out": "bf16[8192]", "capacity": 8192, "num_ranks": 4},
    sample_args=lambda ranks: {"x": "bf16[20]", "out": "bf16[20]", "capacity": 32, "num_ranks": ranks, "block": 16},
    max_nodes=1,
)
def ll_program(x, out, capacity, *, num_ranks, block=256):
    """As :func:`one_shot_program`, by words: no signal, no fence, no memory between, and twice the bytes."""
    launch_words(ll_kernel, x, out, x.shape[0], capacity, num_ranks, block)


@ditron.jit(do_not_specialize=["epoch"])
def ll128_kernel(x_ptr, out_ptr, boxes_ptr, n, blocks, epoch, BLOCK: tl.constexpr):
    """A program for each block: sends it to every rank as packets, and adds what every rank sent."""
    block = tl.program_id(0)
    count = tl.minimum(n - block * BLOCK, BLOCK)
    x_ptr += block * BLOCK
    out_ptr += block * BLOCK
    send_packets_to_all(x_ptr, 0, count, boxes_ptr, block, blocks, epoch, BLOCK, "ll128")
    total = sum_of_packets(x_ptr, out_ptr, count, boxes_ptr, block, blocks, epoch, BLOCK, "ll128")
    within = tl.arange(0, triton.next_power_of_2(BLOCK))
    tl.store(out_ptr + within, total.to(out_ptr.dtype.element_ty), mask=within < count)


@ditron.program(
    example={"x": "bf16[8192]", "out": "bf16[8192]", "capacity": 8192},
    sample_args=lambda ranks: {"x": "bf16[80]", "out": "bf16[80]", "capacity": 128, "block": 60},
    max_nodes=1,
)
def ll128_program(x, out, capacity, *, block=960, num_warps=4):
    """As :func:`one_shot_program`, by ``"ll128"`` packets: no signal, no fence, and 1/15 more bytes."""
    n, blocks = x.shape[0], -(-capacity // block)
    boxes = packet_boxes(blocks, block, x.dtype)
    ll128_kernel[(dh.cdiv(n, block),)](x, out, boxes, n, blocks, dh.epoch(), BLOCK=block, num_warps=num_warps)


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
def two_shot_ll128_kernel(x_ptr, out_ptr, parts_ptr, sums_ptr, n, epoch, BLOCK: tl.constexpr):
    """A program for each block, which one rank adds: the others send it theirs as packets, and get the sum as packets.

    No acknowledgement is sent, and memory has one half: a sum answers each part. exchange.py says why that is enough.
    """
    own = dl.rank()
    ranks = dl.num_ranks()
    block = tl.program_id(0)
    place = block // ranks
    # Each rank adds one of ``ranks`` blocks that follow each other, not always the one at the same place: an SM, whose
    # programs are some distance apart, would have only sums, or none.
    adder = (block + place) % ranks
    count = tl.minimum(n - block * BLOCK, BLOCK)
    x_ptr += block * BLOCK
    out_ptr += block * BLOCK
    if adder == own:
        total = sum_of_packets(x_ptr, out_ptr, count, parts_ptr, place, 0, epoch, BLOCK, "ll128")
        within = tl.arange(0, triton.next_power_of_2(BLOCK))
        tl.store(out_ptr + within, total.to(out_ptr.dtype.element_ty), mask=within < count)
        # A put begins with a barrier: each thread sends what others have stored.
        send_packets_to_all(out_ptr, 0, count, sums_ptr, place, 0, epoch, BLOCK, "ll128")
    else:
        send_packets(x_ptr, count, parts_ptr, place, 0, adder, epoch, BLOCK, "ll128")
        receive_packets(out_ptr, count, sums_ptr, place, 0, adder, epoch, BLOCK, "ll128")


@ditron.program(
    example={"x": "bf16[1048576]", "out": "bf16[1048576]", "capacity": 1048576},
    sample_args=lambda ranks: {"x": "bf16[200]", "out": "bf16[200]", "capacity": 256, "block": 16},
    max_nodes=1,
)
def two_shot_ll128_program(x, out, capacity, *, block=960, num_warps=4):
    """As :func:`two_shot_program`, by ``"ll128"`` packets: no signal, no fence, and 1/15 more bytes."""
    n = x.shape[0]
    places = dh.cdiv(capacity, dh.num_ranks() * block)
    parts = packet_boxes(places, block, x.dtype, "parts", halves=1)
    sums = packet_boxes(places, block, x.dtype, "sums", halves=1)
    two_shot_ll128_kernel[(dh.cdiv(n, block),)](x, out, parts, sums, n, dh.epoch(), BLOCK=block, num_warps=num_warps)


#: Up to so many bytes sent by each rank, everybody adds everything (docs/results/links.md). Of two ranks, each sends as
#: much in two shots.
ONE_SHOT_BYTES = 2 << 20

#: More than two ranks that NVLink links add tensors of so many bytes, from the first number to the second, in two shots
#: of packets: below, the second way takes longer than the bytes that it saves, and above, packets' flags take longer
#: than fences (docs/results/links.md).
TWO_SHOT_LL128_BYTES = 512 << 10, 8 << 20


def by_size(nbytes: int, ranks: int, has_nvlink: bool) -> str:
    """The algorithm of an all-reduce of which each rank would send ``nbytes`` in one shot."""
    if nbytes <= LL_BYTES * (ranks - 1):
        return "ll"
    if has_nvlink and ranks > 2:
        least, most = (size * (ranks - 1) for size in TWO_SHOT_LL128_BYTES)
        if nbytes < least and nbytes <= ONE_SHOT_BYTES:
            return "ll128"
        return "two_shot_ll128" if nbytes <= most else "two_shot"
    if has_nvlink and nbytes <= LL128_BYTES:
        return "ll128"
    return "one_shot" if nbytes <= ONE_SHOT_BYTES else "two_shot"


def all_reduce_rule(problem: Problem) -> Rule:
    sent = problem.rows * problem.itemsize * (problem.ranks - 1)
    algorithm = by_size(sent, problem.ranks, has_nvlink=True)
    limits = f"packets of two ranks are taken up to {LL128_BYTES >> 20} MB"
    if problem.ranks > 2:
        least, most = TWO_SHOT_LL128_BYTES
        limits = (
            f"two shots from {ONE_SHOT_BYTES >> 20} MB or tensors of {least >> 10} KB on, "
            f"as packets up to tensors of {most >> 20} MB"
        )
    return Rule(
        {"algorithm": algorithm, "block": BLOCKS[algorithm]}, f"one shot sends {sent / 2**20:.3g} MB a rank; {limits}"
    )


@tunable("all_reduce", rule=all_reduce_rule, named_only=("nccl",))
def all_reduce_candidates(problem: Problem) -> Iterator[Options]:
    """Schedules of :func:`all_reduce`; NCCL adds in the dtype of the tensors."""
    nbytes = problem.rows * problem.itemsize
    if nbytes * (problem.ranks - 1) <= 1 << 20:
        yield from ({"algorithm": "ll", "block": block} for block in (256, 512))
    if 64 << 10 <= nbytes * (problem.ranks - 1) <= 8 << 20:
        yield from ({"algorithm": "ll128", "block": block} for block in (960, 1920))
    if 32 << 10 <= nbytes * (problem.ranks - 1) <= 8 << 20:
        for block, warps in ((4096, 16), (2048, 8), (8192, 16)):
            yield {"algorithm": "one_shot", "block": block} | ({"num_warps": warps} if warps != 16 else {})
    if problem.ranks > 2 and 256 << 10 <= nbytes <= 16 << 20:
        for block, warps in ((960, 4), (1920, 4), (1920, 8)):
            yield {"algorithm": "two_shot_ll128", "block": block} | ({"num_warps": warps} if warps != 4 else {})
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
        algorithm: ``"ll"`` (words) or ``"ll128"`` (packets), in one shot, ``"one_shot"``, ``"two_shot"`` or
            ``"two_shot_ll128"`` (packets), instead of the one that was measured to be fastest or is chosen by size; or
            ``"nccl"``, which adds in the dtype of the tensors and is taken only if it is named.
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
                f"all_reduce: unknown algorithm {algorithm!r}: expected 'll', 'll128', 'one_shot', 'two_shot', "
                "'two_shot_ll128' or 'nccl'"
            )
        program = _PROGRAMS[algorithm]
        chosen = collective_schedule("all_reduce", group, algorithm, program, x.dtype, schedule)
        capacity = max(capacity_for(x.numel()), chosen["block"])
        run_step(program, aligned(x).view(-1), out.view(-1), capacity, **chosen)
        return out


_PROGRAMS = {
    "ll": ll_program,
    "ll128": ll128_program,
    "one_shot": one_shot_program,
    "two_shot": two_shot_program,
    "two_shot_ll128": two_shot_ll128_program,
}
