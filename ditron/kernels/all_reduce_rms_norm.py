"""All-reduce, residual add and RMSNorm: what follows a row-parallel layer in a transformer block, in one kernel."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

import ditron
import ditron.host as dh
import ditron.language as dl
from ditron._program.program import Program
from ditron.distributed.torch_groups import AnyGroup
from ditron.kernels.all_reduce import ONE_SHOT_BYTES, all_reduce
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
from ditron.kernels.operands import aligned, capacity_for, in_group, result, vector_operand
from ditron.kernels.repeated import repeatable, run_step
from ditron.kernels.schedules import BLOCKS, LL_BYTES, saves_by_two_shots, sent_bytes
from ditron.kernels.words import (
    WORDS_OF_THREAD,
    WordBlock,
    gather_parts,
    load_words,
    places_of,
    places_of_block,
    receive_words,
    send_to_all,
    send_words,
    sum_from_all,
    sum_of_own_part,
    word_boxes,
)
from ditron.tuning.problem import Options
from ditron_compiler.errors import DitronError

__all__ = [
    "all_reduce_rms_norm",
    "all_reduce_rms_norm_program",
    "ll_rms_norm_program",
    "two_shot_ll_rms_norm_program",
    "two_shot_rms_norm_program",
]


@ditron.jit
def sum_of_squares(rounded):
    total = rounded.to(tl.float32)
    return tl.sum(total * total)


@ditron.jit
def store_scaled(out_ptr, at, mask, rounded, square, weight, N, eps):
    """To ``out`` the RMSNorm of ``rounded``, columns of a row whose sum of squares is ``square``."""
    scale = tl.rsqrt(square / N + eps)
    tl.store(out_ptr + at, (rounded.to(tl.float32) * scale * weight).to(out_ptr.dtype.element_ty), mask=mask)


@ditron.jit(do_not_specialize=["epoch"])
def all_reduce_rms_norm_kernel(
    x_ptr,
    residual_ptr,
    weight_ptr,
    out_ptr,
    sum_ptr,
    inbox_ptr,
    arrived_ptr,
    N,
    capacity,
    eps,
    epoch,
    BLOCK: tl.constexpr,
):
    """A program for each row: sends it to every rank, adds what every rank sent and the residual, normalizes."""
    own = dl.rank()
    ranks = dl.num_ranks()
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    mask = cols < N
    at = row.to(tl.int64) * N + cols
    inbox_ptr += (epoch % 2).to(tl.int64) * ranks * capacity
    mine = tl.load(x_ptr + at, mask=mask, other=0.0)
    for step in range(1, ranks):
        send_block(mine, inbox_ptr, arrived_ptr, row, at, mask, (own + step) % ranks, capacity, epoch)
    # Neither depends on the peers: loaded while their rows are on the way.
    residual = tl.load(residual_ptr + at, mask=mask, other=0.0).to(tl.float32)
    weight = tl.load(weight_ptr + cols, mask=mask, other=0.0).to(tl.float32)
    total = tl.zeros((BLOCK,), tl.float32)
    for sender in range(ranks):
        if sender == own:
            total += mine.to(tl.float32)
        else:
            part = receive_block(inbox_ptr, arrived_ptr, row, at, mask, sender, capacity, epoch)
            total += part.to(tl.float32)
    rounded = (total + residual).to(sum_ptr.dtype.element_ty)
    tl.store(sum_ptr + at, rounded, mask=mask)
    store_scaled(out_ptr, at, mask, rounded, sum_of_squares(rounded), weight, N, eps)


@ditron.jit
def sum_over_parts(value, words_ptr, part, epoch, PARTS: tl.constexpr, POLLED: tl.constexpr):
    """The sum of the ``value`` of each of the ``PARTS`` programs that call it with one ``words``: the same bits in all.

    A rank's own memory needs one half: calls of a rank follow each other. ``POLLED`` words are loaded, some of them
    many times, as :func:`receive_words` asks.
    """
    tl.static_assert(PARTS <= POLLED, "a row has more programs than a program has words to poll")
    send_words(words_ptr + part, value.to(tl.int32, bitcast=True), epoch)
    at = tl.arange(0, POLLED)
    words = receive_words(words_ptr + at % PARTS, epoch)
    return tl.sum(tl.where(at < PARTS, words.to(tl.float32, bitcast=True), 0.0), 0)


@ditron.jit
def square_of_row(rounded, squares_ptr, row, part, epoch, PARTS: tl.constexpr, POLLED: tl.constexpr):
    """The sum of squares of a row of which this program has the part ``rounded``."""
    square = sum_of_squares(rounded)
    if PARTS > 1:
        square = sum_over_parts(square, squares_ptr + row * PARTS, part, epoch, PARTS, POLLED)
    return square


@ditron.jit(do_not_specialize=["epoch"])
def ll_kernel(
    x_ptr,
    residual_ptr,
    weight_ptr,
    out_ptr,
    sum_ptr,
    boxes_ptr,
    squares_ptr,
    N,
    kept,
    eps,
    epoch,
    WORDS: tl.constexpr,
    PARTS: tl.constexpr,
    POLLED: tl.constexpr,
    RANKS: tl.constexpr,
):
    """As :func:`all_reduce_rms_norm_kernel`, by words; ``kept`` words of memory are for each message.

    A row is that of ``PARTS`` programs, each with ``WORDS`` of its words, which tell each other sums of squares.
    """
    DTYPE: tl.constexpr = x_ptr.dtype.element_ty
    row = tl.program_id(0) // PARTS
    part = tl.program_id(0) % PARTS
    word = part * WORDS + tl.arange(0, WORDS)
    message = row * PARTS * WORDS + word
    first = row.to(tl.int64) * N
    send_to_all(load_words(x_ptr + first, word, N, 64), message, boxes_ptr, kept, epoch, 64, RANKS)
    cols = places_of(word, DTYPE, 64)
    mask = cols < N
    # Neither depends on the peers: loaded while their rows are on the way.
    residual = tl.load(residual_ptr + first + cols, mask=mask, other=0.0).to(tl.float32)
    weight = tl.load(weight_ptr + cols, mask=mask, other=0.0).to(tl.float32)
    total = sum_from_all(message, boxes_ptr, kept, epoch, DTYPE, 64, RANKS)
    rounded = (total + residual).to(DTYPE)
    tl.store(sum_ptr + first + cols, rounded, mask=mask)
    square = square_of_row(rounded, squares_ptr, row, part, epoch, PARTS, POLLED)
    store_scaled(out_ptr, first + cols, mask, rounded, square, weight, N, eps)


@ditron.jit(do_not_specialize=["epoch"])
def two_shot_ll_kernel(
    x_ptr,
    residual_ptr,
    weight_ptr,
    out_ptr,
    sum_ptr,
    parts_ptr,
    sums_ptr,
    squares_ptr,
    N,
    kept,
    eps,
    epoch,
    WORDS: tl.constexpr,
    PARTS: tl.constexpr,
    POLLED: tl.constexpr,
    RANKS: tl.constexpr,
):
    """As :func:`ll_kernel`, of a part of a row each rank adds ``WORDS`` words, and the residual, and sends the sums."""
    DTYPE: tl.constexpr = x_ptr.dtype.element_ty
    row = tl.program_id(0) // PARTS
    part = tl.program_id(0) % PARTS
    first = row.to(tl.int64) * N
    own = (part * RANKS + dl.rank()) * WORDS + tl.arange(0, WORDS)
    place = places_of(own, DTYPE, 64)
    residual = tl.load(residual_ptr + first + place, mask=place < N, other=0.0).to(tl.float32)
    cols = places_of_block(part, N, DTYPE, WORDS, RANKS)
    mask = cols < N
    weight = tl.load(weight_ptr + cols, mask=mask, other=0.0).to(tl.float32)
    parts_ptr += row * PARTS * WORDS
    sums_ptr += row * PARTS * WORDS
    total = sum_of_own_part(x_ptr + first, part, N, parts_ptr, kept, epoch, WORDS, RANKS)
    rounded = gather_parts((total + residual).to(DTYPE), part, sums_ptr, kept, epoch, RANKS)
    rounded = tl.where(mask, rounded, 0.0)
    tl.store(sum_ptr + first + cols, rounded, mask=mask)
    square = square_of_row(rounded, squares_ptr, row, part, epoch, PARTS, POLLED)
    store_scaled(out_ptr, first + cols, mask, rounded, square, weight, N, eps)


@ditron.jit(do_not_specialize=["epoch"])
def two_shot_kernel(
    x_ptr,
    residual_ptr,
    weight_ptr,
    out_ptr,
    sum_ptr,
    parts_ptr,
    sums_ptr,
    squares_ptr,
    N,
    eps,
    epoch,
    BLOCK: tl.constexpr,
    PARTS: tl.constexpr,
    POLLED: tl.constexpr,
):
    """Rows that one rank adds: the others send it theirs as packets, and get the sum as packets.

    A row is that of ``PARTS`` programs, as in :func:`ll_kernel`. Memory has one half, which exchange.py explains.
    """
    own = dl.rank()
    ranks = dl.num_ranks()
    row = tl.program_id(0) // PARTS
    part = tl.program_id(0) % PARTS
    place = row // ranks
    adder = (row + place) % ranks  # each adds one of ``ranks`` rows, not always the one at the same place
    box = place * PARTS + part
    count = tl.minimum(N - part * BLOCK, BLOCK)
    cols = tl.arange(0, triton.next_power_of_2(BLOCK))
    mask = cols < count
    first = row.to(tl.int64) * N + part * BLOCK
    x_ptr += first
    sum_ptr += first
    weight = tl.load(weight_ptr + part * BLOCK + cols, mask=mask, other=0.0)
    if adder == own:
        residual = tl.load(residual_ptr + first + cols, mask=mask, other=0.0).to(tl.float32)
        total = sum_of_packets(x_ptr, sum_ptr, count, parts_ptr, box, 0, epoch, BLOCK, "ll128")
        rounded = (total + residual).to(sum_ptr.dtype.element_ty)
        tl.store(sum_ptr + cols, rounded, mask=mask)
        # A put begins with a barrier: each thread sends what others have stored.
        send_packets_to_all(sum_ptr, 0, count, sums_ptr, box, 0, epoch, BLOCK, "ll128")
    else:
        send_packets(x_ptr, count, parts_ptr, box, 0, adder, epoch, BLOCK, "ll128")
        row_ptr = receive_packets(sum_ptr, count, sums_ptr, box, 0, adder, epoch, BLOCK, "ll128")
        rounded = tl.load(row_ptr + cols, mask=mask, other=0.0)
    # By the same instructions, in the same order, whichever rank has added the row: the bits are the same.
    square = square_of_row(rounded, squares_ptr, row, part, epoch, PARTS, POLLED)
    store_scaled(out_ptr, first + cols, mask, rounded, square, weight.to(tl.float32), N, eps)


def _rows(shape: str) -> dict[str, Any]:
    return dict.fromkeys(("x", "residual", "out", "total"), shape)


EXAMPLE = _rows("bf16[16, 8192]") | {"weight": "bf16[8192]", "capacity": 16, "eps": 1e-5, "block": 8192}
SAMPLE = _rows("bf16[3, 40]") | {"weight": "bf16[40]", "capacity": 4, "eps": 1e-5, "block": 64}
ROWS = _rows("bf16[7, 40]")


@ditron.program(example=EXAMPLE, sample_args=lambda ranks: SAMPLE, max_nodes=1)
def all_reduce_rms_norm_program(x, residual, weight, out, total, capacity, eps, *, block, num_warps=16):
    """``total`` = ``residual`` + sum over ranks of ``x``; ``out`` = its RMSNorm with ``weight``.

    All but ``weight`` [N] are ``[rows, N]``; N is at most ``block``. Memory is kept for up to ``capacity`` rows. The
    inbox has two halves, used in turns, as exchange.py explains.
    """
    rows, N = x.shape
    inbox = dh.symm_empty(2, dh.num_ranks() * capacity * N, dtype=x.dtype, name="inbox")
    arrived = dh.symm_zeros(dh.num_ranks() * capacity, dtype=torch.int64, name="arrived")
    all_reduce_rms_norm_kernel[(rows,)](
        x,
        residual,
        weight,
        out,
        total,
        inbox,
        arrived,
        N,
        capacity * N,
        eps,
        dh.epoch(),
        BLOCK=block,
        num_warps=num_warps,
    )


@ditron.program(
    example=EXAMPLE | {"num_ranks": 4, "block": 256, "parts": 32},
    sample_args=lambda ranks: SAMPLE | {"num_ranks": ranks, "block": 16, "parts": 3},
    max_nodes=1,
)
def ll_rms_norm_program(x, residual, weight, out, total, capacity, eps, *, num_ranks, block=256, parts=1):
    """As :func:`all_reduce_rms_norm_program`, by words; a row has ``parts`` programs, each ``block`` of its columns.

    ``parts`` must be N / block, rounded up. Programs of a row wait for each other: the GPU must run ``parts`` of them
    at once.
    """
    (rows, N), by = x.shape, WordBlock.of(block, x.dtype, 64)
    kept = capacity * parts * by.words
    ll_kernel[(rows * parts,)](
        x,
        residual,
        weight,
        out,
        total,
        word_boxes(kept),
        dh.zeros(capacity * parts, dtype=torch.int64, name="squares"),
        N,
        kept,
        eps,
        dh.epoch(),
        WORDS=by.words,
        PARTS=parts,
        POLLED=WORDS_OF_THREAD * 32 * by.num_warps,
        RANKS=num_ranks,
        num_warps=by.num_warps,
    )


@ditron.program(
    example=EXAMPLE | {"num_ranks": 4, "block": 256, "parts": 8},
    sample_args=lambda ranks: (
        SAMPLE | ROWS | {"capacity": 8, "num_ranks": ranks, "block": 16, "parts": -(-40 // (16 * ranks))}
    ),
    max_nodes=1,
)
def two_shot_ll_rms_norm_program(x, residual, weight, out, total, capacity, eps, *, num_ranks, block=256, parts=1):
    """As :func:`ll_rms_norm_program`, each rank adding ``block`` of the columns of each of the ``parts``, which must be
    N / (num_ranks * block), rounded up.
    """
    (rows, N), by = x.shape, WordBlock.of(block, x.dtype, 64)
    kept = capacity * parts * by.words
    two_shot_ll_kernel[(rows * parts,)](
        x,
        residual,
        weight,
        out,
        total,
        word_boxes(kept, "parts"),
        word_boxes(kept, "sums"),
        dh.zeros(capacity * parts, dtype=torch.int64, name="squares"),
        N,
        kept,
        eps,
        dh.epoch(),
        WORDS=by.words,
        PARTS=parts,
        POLLED=WORDS_OF_THREAD * 32 * by.num_warps,
        RANKS=num_ranks,
        num_warps=by.num_warps,
    )


@ditron.program(
    example=EXAMPLE,
    sample_args=lambda ranks: SAMPLE | ROWS | {"capacity": 8, "block": 16, "parts": 3, "num_warps": 1},
    max_nodes=1,
)
def two_shot_rms_norm_program(x, residual, weight, out, total, capacity, eps, *, block, parts=1, num_warps=None):
    """As :func:`all_reduce_rms_norm_program`, by ``"ll128"`` packets, each rank adding its rows.

    By default wide rows have twice the warps: a message is polled in rounds of 16 bytes of each thread.
    """
    rows, N = x.shape
    places = dh.cdiv(capacity, dh.num_ranks()) * parts
    inbox = packet_boxes(places, block, x.dtype, "parts", halves=1)
    sums = packet_boxes(places, block, x.dtype, "sums", halves=1)
    squares = dh.zeros(capacity * parts, dtype=torch.int64, name="squares")
    num_warps = num_warps or (32 if block * x.dtype.itemsize >= 16 << 10 else 16)
    two_shot_kernel[(rows * parts,)](
        x,
        residual,
        weight,
        out,
        total,
        inbox,
        sums,
        squares,
        N,
        eps,
        dh.epoch(),
        BLOCK=block,
        PARTS=parts,
        POLLED=WORDS_OF_THREAD * 32 * num_warps,
        num_warps=num_warps,
    )


@torch_operator("x", "residual", "weight", "eps")
@repeatable
def all_reduce_rms_norm(
    x: torch.Tensor,
    residual: torch.Tensor,
    weight: torch.Tensor,
    eps: float = 1e-6,
    *,
    out: torch.Tensor | None = None,
    total: torch.Tensor | None = None,
    group: AnyGroup = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """RMSNorm of the residual plus the sum over ranks of ``x``.

    Args:
        x, residual: ``[..., N]``, the same shape on every rank. weight: ``[N]``. One dtype,
            bfloat16, float16 or float32. ``residual`` is the same on every rank: of many rows, only the rank that
            adds a row, or some of its columns, adds its own.
        eps: added to the mean square. out, total: like ``x``, written if given.
        group: the ranks; default the current group. One node.

    Returns the normalized rows and ``total``, residual plus sum, which is rounded to the dtype before it is normalized
    (Zhang and Sennrich, Root Mean Square Layer Normalization, 2019, eq. 4). Both are bitwise the same on every rank,
    and their gradients are taken to be so; a row's last bits may depend on how many rows there are. Collective over the
    group. Raises DitronError for tensors that do not fit.

        y, residual = ditron.kernels.all_reduce_rms_norm(partial_sum, residual, norm.weight)
    """
    what = "all_reduce_rms_norm"
    with in_group(group, what) as group:
        vector_operand(what, group, x)
        N = x.shape[-1]
        if residual.shape != x.shape or tuple(weight.shape) != (N,):
            raise DitronError(
                f"{what}: x is {tuple(x.shape)}: expected a residual like it and a weight of [{N}], got "
                f"{tuple(residual.shape)} and {tuple(weight.shape)}"
            )
        if residual.dtype != x.dtype or weight.dtype != x.dtype:
            raise DitronError(f"{what}: expected one dtype, got {x.dtype}, {residual.dtype} and {weight.dtype}")
        if not isinstance(eps, (int, float)):
            raise DitronError(f"{what}: eps must be a number, got {eps!r}; torch's None is torch.finfo({x.dtype}).eps")
        inputs = {"x": x, "residual": residual, "weight": weight}
        out = result(what, tuple(x.shape), x, out, total=total, **inputs)
        total = result(what, tuple(x.shape), x, total, **inputs)
        program = by_size(sent_bytes(group, x), group.num_ranks, group.has_nvlink) if N <= 16384 else None
        if program is None:
            torch.add(all_reduce(x), residual, out=total)
            out.copy_(torch.nn.functional.rms_norm(total, (N,), weight, eps))
            return out, total
        rows = x.numel() // N
        run_step(
            program,
            *(aligned(tensor).view(-1, N) for tensor in (x, residual)),
            aligned(weight),
            out.view(-1, N),
            total.view(-1, N),
            capacity_for(rows),
            float(eps),
            **row_schedule(program, N, group.num_ranks),
        )
        return out, total


#: Of more than two ranks, as those of schedules.py: the second way is longer by what a row's programs tell each other.
TWO_SHOT_SAVED_BYTES = 640 << 10

#: Up to so many bytes of a tensor, more than two ranks add in two shots of words, and up to so many one kernel does all
#: (docs/results/links.md).
TWO_SHOT_LL_BYTES, FUSED_BYTES = 1 << 20, 8 << 20


def row_schedule(program: Program, N: int, ranks: int) -> Options:
    """Keyword arguments of ``program`` (docs/results/links.md)."""
    if program in (ll_rms_norm_program, two_shot_ll_rms_norm_program):
        block = BLOCKS["ll"]
        columns = block * (ranks if program is two_shot_ll_rms_norm_program else 1)
        return {"num_ranks": ranks, "block": block, "parts": -(-N // columns)}
    columns = BLOCKS["ll128"]
    if program is all_reduce_rms_norm_program or N <= columns:
        return {"block": triton.next_power_of_2(N)}
    return {"block": columns, "parts": -(-N // columns), "num_warps": 4}


def by_size(nbytes: int, ranks: int, has_nvlink: bool) -> Program | None:
    """The program where each rank would send ``nbytes`` in one shot; None if it is none of them."""
    if has_nvlink:
        if not saves_by_two_shots(nbytes, ranks, TWO_SHOT_SAVED_BYTES):
            return ll_rms_norm_program if nbytes <= FUSED_BYTES * (ranks - 1) else None
        if nbytes <= TWO_SHOT_LL_BYTES * (ranks - 1):
            return two_shot_ll_rms_norm_program
        return two_shot_rms_norm_program if nbytes <= FUSED_BYTES * (ranks - 1) else None
    if nbytes > ONE_SHOT_BYTES:
        return None
    return ll_rms_norm_program if nbytes <= LL_BYTES * (ranks - 1) else all_reduce_rms_norm_program
