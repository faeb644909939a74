"""AllGather + GEMM by slices of K: a tile goes on along K with each slice of its rows that has arrived.

Tiles that are computed at one time wait for the rows of all of them, and begin when the last of these has come. By
slices they begin with the first columns, so that what is exposed is one slice and not all rows. In one kernel, a few
programs store the slices at the other ranks, and the others multiply.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

import ditron
import ditron.host as dh
import ditron.language as dl
from ditron.distributed.group import Group
from ditron.kernels.gathered_product import FEW_COLUMNS
from ditron.kernels.operands import capacity_for
from ditron.kernels.schedules import SMALL_TILE, TILE, has_tiles, warps_of
from ditron.kernels.tiles import add_bias, dot_step, shards_descriptor, store_tile, tile_position
from ditron.tuning.problem import Options, Problem
from ditron_compiler.errors import DitronError

__all__ = [
    "ag_gemm_slices_program",
    "prefers_slices",
    "slices_candidates",
    "slices_schedule",
]

#: Columns of the first slice and of the longest.
SLICE_K = (512, 2048)

#: Columns of a slice at most.
_MOST_OF_SLICE = 1 << 16


@ditron.jit
def slice_number(k, FIRST: tl.constexpr, WIDTH: tl.constexpr, DOUBLINGS: tl.constexpr):
    """The slice that column ``k`` is in. Slices end at ``FIRST``, twice that ... and at multiples of ``WIDTH``.

    The first ones are short, so that tiles begin soon; each is as long as all before it, up to ``WIDTH``, which is
    ``FIRST`` doubled ``DOUBLINGS`` times.
    """
    number = tl.maximum(k // WIDTH - 1, 0)
    for doubled in tl.static_range(DOUBLINGS + 1):
        number += (k >= FIRST << doubled).to(tl.int32)
    return number


@ditron.jit
def begins_slice(k, FIRST: tl.constexpr, WIDTH: tl.constexpr):
    """Whether a slice begins at column ``k``."""
    return (k % FIRST == 0) & ((k & (k - 1) == 0) | (k % WIDTH == 0))


@ditron.jit
def push_slices(
    a_ptr,
    inbox_ptr,
    arrived_ptr,
    rows,
    K,
    capacity,
    half,
    epoch,
    slices,
    FIRST: tl.constexpr,
    WIDTH: tl.constexpr,
    BY_PEER: tl.constexpr,
    IN_FLIGHT: tl.constexpr,
    PUSHERS: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Store ``a`` [rows, K], in ``slices``, in this rank's shard of other ranks' inboxes.

    ``PUSHERS`` programs store a slice, each a part of it, which it then signals to the peer; others store the next one,
    of ``IN_FLIGHT``: while some wait for what they have stored, as a signal must, others store. If ``BY_PEER``, these
    send all slices to one rank after the other, that which needs them first before others; else each rank has such
    programs of its own.
    """
    own = dl.rank()
    peers = dl.num_ranks() - 1
    program = tl.program_id(0)
    first_step = 0
    last_step = peers
    if not BY_PEER:
        first_step = program // (PUSHERS * IN_FLIGHT)
        last_step = first_step + 1
        program = program % (PUSHERS * IN_FLIGHT)
    turn = program // PUSHERS
    program = program % PUSHERS
    shard_ptr = inbox_ptr + (half * (peers + 1) + own).to(tl.int64) * capacity * K
    arrived_ptr += own * slices * PUSHERS + program
    within = tl.arange(0, ROWS)[:, None]
    across = tl.arange(0, COLUMNS)[None, :]
    for step in range(first_step, last_step):
        peer = (own + peers - step) % (peers + 1)
        theirs_ptr = dl.symm_at(shard_ptr, peer)
        begin = 0  # in units of COLUMNS: a multiple that the compiler knows, for loads of 16 bytes
        number = 0
        while begin * COLUMNS < K:
            end = tl.where(begin == 0, FIRST // COLUMNS, begin + tl.minimum(begin, WIDTH // COLUMNS))
            if number % IN_FLIGHT == turn:
                wide = tl.minimum(end, tl.cdiv(K, COLUMNS)) - begin
                for block in range(program, tl.cdiv(rows, ROWS) * wide, PUSHERS):
                    row = block // wide * ROWS + within
                    column = (begin + block % wide) * COLUMNS + across
                    at = row.to(tl.int64) * K + column
                    mask = (row < rows) & (column < K)
                    tl.store(theirs_ptr + at, tl.load(a_ptr + at, mask=mask), mask=mask)
                dl.notify(arrived_ptr + number * PUSHERS, peer, epoch)
            begin = end
            number += 1


@ditron.jit(do_not_specialize=["epoch"])
def ag_gemm_slices_kernel(
    a_ptr,
    inbox_ptr,
    gathered_ptr,
    a_desc,
    inbox_desc,
    b_desc,
    bias_ptr,
    c_desc,
    arrived_ptr,
    rows,
    N,
    K,
    capacity,
    epoch,
    senders,
    slices,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    GROUP: tl.constexpr,
    FIRST: tl.constexpr,
    WIDTH: tl.constexpr,
    DOUBLINGS: tl.constexpr,
    BY_PEER: tl.constexpr,
    IN_FLIGHT: tl.constexpr,
    PUSHERS: tl.constexpr,
    PROGRAMS: tl.constexpr,
    PUSH_ROWS: tl.constexpr,
    PUSH_COLUMNS: tl.constexpr,
    B_IS_KN: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    KEEP: tl.constexpr,
):
    """The first ``senders`` programs store ``a`` at other ranks; the rest compute tiles of C ``[ranks, rows, N]``.

    The inbox ``[2 * ranks, capacity, K]`` has two halves, used in turns, as exchange.py explains: every rank sends to
    every other one in each call, and no call ends before all of that has arrived.
    """
    ranks = dl.num_ranks()
    own = dl.rank()
    half = (epoch % 2).to(tl.int32)
    if tl.program_id(0) < senders:
        push_slices(
            a_ptr,
            inbox_ptr,
            arrived_ptr,
            rows,
            K,
            capacity,
            half,
            epoch,
            slices,
            FIRST,
            WIDTH,
            BY_PEER,
            IN_FLIGHT,
            PUSHERS,
            PUSH_ROWS,
            PUSH_COLUMNS,
        )
    else:
        tiles_m = tl.cdiv(rows, BM)
        tiles_n = tl.cdiv(N, BN)
        for tile in tl.range(tl.program_id(0) - senders, ranks * tiles_m * tiles_n, PROGRAMS, flatten=True):
            shard, m, n = tile_position(tile, tiles_m, tiles_n, own, ranks, GROUP)
            if shard == own:
                source = a_desc
                source_shard = 0
            else:
                source = inbox_desc
                source_shard = half * ranks + shard
            acc = tl.zeros((BM, BN), tl.float32)
            for step in range(tl.cdiv(K, BK)):
                k = step * BK
                row = m * BM
                if begins_slice(k, FIRST, WIDTH) & (shard != own):
                    number = shard * slices + slice_number(k, FIRST, WIDTH, DOUBLINGS)
                    row = dl.consume_token(row, dl.wait(arrived_ptr + number * PUSHERS, PUSHERS, epoch))
                acc = dot_step(source, b_desc, source_shard, row, n * BN, k, acc, BM, BK, B_IS_KN)
            acc = add_bias(acc, bias_ptr, n * BN, N, BN, HAS_BIAS)
            store_tile(c_desc, shard, m * BM, n * BN, acc, 2)
        if KEEP:
            used = slice_number(K - 1, FIRST, WIDTH, DOUBLINGS) + 1
            last = tl.minimum(used, IN_FLIGHT)  # of each program that stored some
            keep_rows(
                a_ptr,
                inbox_ptr,
                gathered_ptr,
                arrived_ptr + (used - last) * PUSHERS,
                last * PUSHERS,
                rows,
                K,
                capacity,
                half,
                epoch,
                senders,
                slices * PUSHERS,
                8192,
            )


@ditron.jit
def keep_rows(
    a_ptr,
    inbox_ptr,
    gathered_ptr,
    arrived_ptr,
    signals,
    rows,
    K,
    capacity,
    half,
    epoch,
    senders,
    stride,
    BLOCK: tl.constexpr,
):
    """All ranks' rows to ``gathered`` [ranks, rows, K], by all programs but the first ``senders``.

    ``signals`` signals at ``arrived_ptr``, those of the next rank ``stride`` further on, say that rows have arrived.
    """
    own = dl.rank()
    ranks = dl.num_ranks()
    elements = rows.to(tl.int64) * K
    for step in range(ranks):
        shard = (own + step) % ranks
        source_ptr = a_ptr
        if shard != own:
            token = dl.wait(arrived_ptr + shard * stride, signals, epoch)
            source_ptr = dl.consume_token(inbox_ptr + (half * ranks + shard).to(tl.int64) * capacity * K, token)
        for block in range(
            tl.program_id(0) - senders, tl.cdiv(elements, BLOCK).to(tl.int32), tl.num_programs(0) - senders
        ):
            at = block.to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
            mask = at < elements
            tl.store(gathered_ptr + shard * elements + at, tl.load(source_ptr + at, mask=mask), mask=mask)


def _columns_of_push(first: int) -> int:
    """Columns that a program stores at once, which divide every slice if the first one has ``first``."""
    return min(256, first)


@ditron.program(
    example={
        "a": "bf16[256, 8192]",
        "b": "bf16[3584, 8192]",
        "bias": "bf16[3584]",
        "c": "bf16[1024, 3584]",
        "gathered_out": "bf16[1, 8192]",
        "capacity": 256,
    },
    sample_args=lambda ranks: {
        "a": "bf16[40, 96]",
        "b": "bf16[48, 96]",
        "bias": "bf16[48]",
        "c": f"bf16[{40 * ranks}, 48]",
        "gathered_out": f"bf16[{40 * ranks}, 96]",
        "capacity": 64,
        "has_bias": True,
        "keep": True,
        "slice_k": (32, 64),
        "in_flight": 2,
        "pushers": 2,
        "programs": 8,
        "block": (16, 32, 32),
        "push_block": 512,
    },
    max_nodes=1,
)
def ag_gemm_slices_program(
    a,
    b,
    bias,
    c,
    gathered_out,
    capacity,
    *,
    b_is_kn=False,
    has_bias=False,
    keep=False,
    slice_k=SLICE_K,
    by_peer=False,
    in_flight=2,
    pushers=10,
    programs=112,
    block=(128, 256, 64),
    group_m=8,
    num_warps=8,
    stages=4,
    push_block=16384,
):
    """``c`` [ranks * rows, N] = all ranks' ``a`` [rows, K], times ``b`` [N, K] transposed, plus ``bias``.

    ``b`` is ``[K, N]`` if b_is_kn; ``bias`` [N] counts if has_bias. With ``keep``, all ranks' rows go to
    ``gathered_out``. ``slice_k``: columns of the first slice, of a block's depth or more, and of the longest one; each
    of the others is as long as all before it. ``pushers`` programs store a slice, ``push_block`` elements at a time,
    with ``in_flight`` slices at once to each rank, or to one rank after the other if by_peer; ``programs`` multiply.
    Memory is kept for up to ``capacity`` rows.
    """
    ranks, (rows, K), N = dh.num_ranks(), a.shape, c.shape[1]
    (BM, BN, BK), (first, width) = block, slice_k
    push_columns = _columns_of_push(first)
    inbox = dh.symm_empty(2 * ranks * capacity, K, dtype=a.dtype, name="inbox")
    doublings = (width // first).bit_length() - 1
    slices = doublings + dh.cdiv(K, width)  # or more than there are
    arrived = dh.symm_zeros(ranks * slices * pushers, dtype=torch.int64, name="arrived")
    tiles = ranks * dh.cdiv(rows, BM) * dh.cdiv(N, BN)
    senders = pushers * in_flight * (1 if by_peer else ranks - 1)
    ag_gemm_slices_kernel[(senders + dh.minimum(programs, tiles),)](
        a,
        inbox,
        gathered_out,
        shards_descriptor(a, 1, rows, K, (BM, BK)),
        TensorDescriptor(inbox, [2 * ranks, rows, K], [capacity * K, K, 1], [1, BM, BK]),
        TensorDescriptor.from_tensor(b, [BK, BN] if b_is_kn else [BN, BK]),
        bias,
        shards_descriptor(c, ranks, rows, N, (BM, BN // 2)),
        arrived,
        rows,
        N,
        K,
        capacity,
        dh.epoch(),
        senders,
        slices,
        BM=BM,
        BN=BN,
        BK=BK,
        GROUP=group_m,
        FIRST=first,
        WIDTH=width,
        DOUBLINGS=doublings,
        BY_PEER=by_peer,
        IN_FLIGHT=in_flight,
        PUSHERS=pushers,
        PROGRAMS=programs,
        PUSH_ROWS=push_block // push_columns,
        PUSH_COLUMNS=push_columns,
        B_IS_KN=b_is_kn,
        HAS_BIAS=has_bias,
        KEEP=keep,
        num_warps=num_warps,
        num_stages=stages,
    )


#: Rows, columns and depth of tiles, and their stages, from the largest on: the first that fills a GPU is taken.
_TILES = ((TILE, 4), (SMALL_TILE, 5), ((64, 128, 128), 4))

#: SMs of the GPUs that this was measured on, and tiles that fill one.
_SMS, _FILLING = 132, 88

#: Programs that store, of all that run at a time: these reach a link's rate, and the least that are left for it.
_SENDERS, _FEWEST_SENDERS = 20, 8

#: Without being asked for: bytes that a rank sends at least, tiles of a program at most where columns are few and ranks
#: two (else one), and rows of a rank whose product leaves SMs idle, where they are more (docs/results/
#: tensor-parallel-experiments.md).
_LEAST_BYTES, _MOST_ROUNDS, _FEW_ROWS = 3 << 20, 2, 256


def _tiles(ranks: int, rows: int, N: int, block: tuple[int, ...]) -> int:
    return ranks * -(-rows // block[0]) * -(-N // block[1])


def _tiles_of_program(tiles: int, sms: int) -> int:
    """Tiles for each of the programs that multiply."""
    return -(-tiles // max(1, sms - _FEWEST_SENDERS))


def _tiles_for(ranks: int, rows: int, N: int) -> list[Options]:
    """Those worth taking for ``rows`` rows of each rank, the best guess first."""
    options: list[Options] = []
    for block, stages in _TILES:
        options.append({"block": block, "num_warps": warps_of(block), "stages": stages})
        if _tiles(ranks, rows, N, block) >= _FILLING:
            break
    return options[::-1]


def prefers_slices(ranks: int, rows: int, N: int, nbytes: int) -> bool:
    """Whether this program is taken without being asked for: each rank sends ``nbytes`` in all, ``rows`` rows to each.

    Two and four ranks are what was measured.
    """
    if ranks not in (2, 4) or nbytes < _LEAST_BYTES:
        return False
    rows = capacity_for(rows)  # as its schedule is chosen
    rounds = _tiles_of_program(_tiles(ranks, rows, N, _tiles_for(ranks, rows, N)[0]["block"]), _SMS)
    if N > FEW_COLUMNS and rows > _FEW_ROWS:
        return False
    return rounds <= (_MOST_ROUNDS if N <= FEW_COLUMNS and ranks == 2 else 1)


def slices_candidates(problem: Problem) -> Iterator[Options]:
    """Schedules of this program that are worth measuring."""
    if not has_tiles(problem) or problem.itemsize == 1 or not 1 << 20 <= problem.sent_bytes <= 96 << 20:
        return
    yield {"algorithm": "k_slices"}
    tiles = _tiles_for(problem.ranks, problem.rows, problem.N)
    rounds = _tiles_of_program(_tiles(problem.ranks, problem.rows, problem.N, tiles[0]["block"]), _SMS)
    for tile in tiles[:2]:
        yield {"algorithm": "k_slices"} | tile | {"slice_k": (256, 1024)}
    if problem.ranks > 2 and rounds > 1:
        by_peer = {"algorithm": "k_slices", "by_peer": True}
        yield by_peer | tiles[0] | {"slice_k": SLICE_K}
        for block in (TILE, SMALL_TILE):  # the simulator's clock predicts these to be faster (docs/predicting.md)
            yield by_peer | {"block": block, "slice_k": (1024, 2048), "in_flight": 1}


def slices_schedule(group: Group, rows: int, N: int, given: Options) -> dict[str, Any]:
    """Keyword arguments of the program: ``given``, and others, which depend on the capacity of ``rows``.

    Raises DitronError for slices, as a caller has named them, that tiles cannot wait for.
    """
    ranks, rows = group.num_ranks, capacity_for(rows)
    if group.small_shapes:
        chosen: Options = {"block": (32, 32, 32), "slice_k": (32, 64), "pushers": 2, "push_block": 512}
        chosen["programs"] = group.sms
    else:
        chosen = _tiles_for(ranks, rows, N)[0] | {"slice_k": SLICE_K}
        if (block := given.get("block", chosen["block"])) != chosen["block"]:
            chosen |= {"num_warps": warps_of(block), "stages": 4}
    chosen |= {"in_flight": 2} | given
    _check_slices(chosen)
    tiles = _tiles(ranks, rows, N, chosen["block"])
    programs = chosen.get("programs", -(-tiles // _tiles_of_program(tiles, group.sms)))  # equally many tiles for each
    streams = chosen["in_flight"] * (1 if chosen.get("by_peer") else max(1, ranks - 1))
    chosen.setdefault("pushers", max(1, min(group.sms - programs, _SENDERS) // streams))
    chosen.setdefault("programs", max(1, min(programs, group.sms - chosen["pushers"] * streams)))
    return chosen


def _check_slices(chosen: Options) -> None:
    """Raise DitronError for slices that tiles cannot wait for, or programs cannot store."""
    first, longest = chosen["slice_k"]
    depth = chosen["block"][2]
    if not depth <= first <= longest <= _MOST_OF_SLICE:
        raise DitronError(
            f"ag_gemm: slice_k must begin with a block's depth, {depth}, or more, and end with as much or more, up to "
            f"{_MOST_OF_SLICE}, got {chosen['slice_k']}"
        )
    if chosen.get("push_block", first) < _columns_of_push(first):
        raise DitronError(
            f"ag_gemm: push_block must be {_columns_of_push(first)} or more, of which every slice of slice_k="
            f"{chosen['slice_k']} is a multiple, got {chosen['push_block']}"
        )
