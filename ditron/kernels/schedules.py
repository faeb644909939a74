"""Which schedule an operator uses where the caller names none."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch

from ditron._program.program import Program
from ditron.distributed.group import Group
from ditron.kernels.operands import capacity_for, reaches_by_tma
from ditron.kernels.scales import Scales, has_product, prefers_product, prefers_products_by_rank, tiles_of
from ditron.kernels.words import BYTES_OF_WARP
from ditron.tuning.problem import Options, Problem
from ditron.tuning.registry import Rule
from ditron.tuning.search import Space
from ditron_compiler.errors import DitronError

__all__ = [
    "BLOCKS",
    "LL128_BYTES",
    "LL_BYTES",
    "STORED_BYTES",
    "block_for",
    "by_rank_candidates",
    "by_size",
    "check_schedule",
    "check_tile_rows",
    "check_word_block",
    "collective_node_rule",
    "collective_rule",
    "collective_schedule",
    "fits_tile_kernel",
    "has_tiles",
    "is_large",
    "least_word_block",
    "overlaps",
    "product_node_rule",
    "product_rule",
    "saves_by_two_shots",
    "schedule_for",
    "sent_bytes",
    "stored_candidates",
    "tile_candidates",
    "tile_space",
    "warps_of",
]

#: From so many bytes sent by each rank on, communication is hidden under the persistent kernel: below, its signals and
#: last tiles take longer than what they hide (docs/results/tuning.md).
OVERLAPPED_BYTES = 14 << 20

#: Up to so many bytes for each other rank, a library's product of each rank's rows hides communication, where these
#: have ``BY_RANK_BYTES``; with less, a product and a collective one after the other take less than the copies' signals
#: (docs/results/tuning.md). The second limit is of ``ag_gemm`` among more than two (docs/results/tensor-parallel.md).
MOST_BY_RANK_BYTES, MOST_GATHERED_BY_RANK_BYTES, BY_RANK_BYTES, BY_RANK_ROWS = 14 << 20, 9 << 20, 3 << 20, 128

#: Rows of tiles of a piece that a copy engine moves: with fewer, its signals and the ends of pieces cost more than an
#: earlier beginning brings (docs/results/tuning.md).
PIECE_TILES = 8

#: Up to so many bytes that each rank sends to every other one, a collective sends words, of twice the bytes if they are
#: flagged, and up to so many sent by each rank, by NVLink, packets, of 1/15 more: neither needs a fence and a signal
#: (docs/results/links.md).
LL_BYTES, LL128_BYTES = 128 << 10, 8 << 20

#: More than two ranks add in two shots of words where these send so many bytes less: below, the second way takes longer
#: (docs/results/links.md).
TWO_SHOT_SAVED_BYTES = 384 << 10

#: Up to so many bytes sent by each rank, a collective is stores of a kernel, sums are data words: faster than copy
#: engines and a copy out of the workspace, which is smaller (docs/results/tensor-parallel-collectives.md, links.md).
STORED_BYTES = 192 << 20

#: Elements that a program of a collective sends to each rank at once, on GPUs.
BLOCKS = {
    "ll": 256,
    "ll128": 960,
    "stored": 8192,
    "copied": 4096,
    "put": 4096,
    "one_shot": 4096,
    "two_shot": 8192,
    "two_shot_ll": 256,
}

#: Rows, columns and depth of the persistent kernel's tile: as fast as cuBLAS where tiles are many
#: (docs/results/tensor-parallel.md), and one that leaves programs idle for less time where they are few.
TILE, SMALL_TILE = (128, 256, 64), (128, 128, 64)

#: Elements of a tile up to which its products are issued by four warps: 2 to 3 % faster than by eight, where nothing
#: is scaled (docs/results/tensor-parallel-experiments.md).
FOUR_WARPS = 128 * 128

#: Those that a search tries, each like the ones beside it.
BLOCKS_OF_TILES = ((64, 128, 64), (64, 256, 64), (128, 128, 64), (128, 128, 128), (128, 256, 64), (256, 128, 64))

#: Of a program, from Hopper on.
SHARED_BYTES = 227 << 10

#: More than what a program has there beside tiles: barriers, and columns of a bias.
_BESIDE_TILES = 1 << 10


def warps_of(block: tuple[int, ...]) -> int:
    """Warps of a program by its tile, where nothing is scaled."""
    return 4 if block[0] * block[1] <= FOUR_WARPS else 8


def fits_tile_kernel(group: Group, *matrices: torch.Tensor) -> bool:
    """Whether the persistent kernel can address the matrices, and is at home on the device (TMA: from Hopper on)."""
    if not reaches_by_tma(*matrices) or any(matrix.dtype == torch.float32 for matrix in matrices):
        return False
    return group.has_tma


def sent_bytes(group: Group, part: torch.Tensor) -> int:
    """Bytes that a rank sends when every other one gets a tensor like ``part``."""
    return part.nbytes * (group.num_ranks - 1)


def by_size(nbytes: int, ranks: int, has_nvlink: bool, is_sum: bool = False) -> str:
    """The algorithm of an all-gather, or of a reduce-scatter, in which each of ``ranks`` ranks sends ``nbytes``."""
    if nbytes <= LL_BYTES * (ranks - 1) or (is_sum and has_nvlink and nbytes <= STORED_BYTES):
        return "ll"
    if nbytes <= LL128_BYTES and has_nvlink:
        return "ll128"
    return "stored" if nbytes <= STORED_BYTES else "copied"


def block_for(group: Group, algorithm: str) -> Options:
    """Elements that a program of a collective sends to each rank at once, small ones on the simulator."""
    if algorithm.endswith("ll128"):  # a line of 128 bytes has 120 of a message: each of 128 threads has 16 of a block
        return {"block": 240 if group.small_shapes else BLOCKS[algorithm]}
    return {"block": 256 if group.small_shapes else BLOCKS[algorithm]}


def collective_rule(problem: Problem) -> Rule:
    """What :func:`by_size` and :func:`block_for` say on GPUs."""
    sent = problem.rows * problem.itemsize * (problem.ranks - 1)
    is_sum = problem.operator == "reduce_scatter"
    algorithm = by_size(sent, problem.ranks, True, is_sum)
    options: Options = {"algorithm": algorithm} | ({} if algorithm == "copied" else {"block": BLOCKS[algorithm]})
    limits = f"packets are taken up to {LL128_BYTES >> 20} MB, and stores up to {STORED_BYTES >> 20} MB"
    if is_sum:
        limits = f"words are taken up to {STORED_BYTES >> 20} MB"
    return Rule(options, f"a rank sends {sent / 2**20:.3g} MB; {limits}")


def collective_node_rule(problem: Problem) -> Rule:
    """What an all-gather or reduce-scatter runs in a group on several nodes."""
    return Rule({"algorithm": "put", "block": BLOCKS["put"]}, "in a group on several nodes it is by puts")


def stored_candidates(problem: Problem) -> Iterator[Options]:
    """What is worth measuring of an all-gather or reduce-scatter: small blocks are more signals, large ones few SMs."""
    sent = problem.rows * problem.itemsize * (problem.ranks - 1)
    is_sum = problem.operator == "reduce_scatter"
    if sent <= 1 << 20:
        yield from ({"algorithm": "ll", "block": block} for block in (256, 512))
    elif is_sum:
        yield {"algorithm": "ll", "block": 256}
    if 64 << 10 <= sent <= 8 << 20 and not is_sum:
        yield from ({"algorithm": "ll128", "block": block} for block in (960, 1920))
    if sent >= 32 << 10:
        for block, warps in ((4096, 16), (2048, 16), (2048, 8), (8192, 16)):
            yield {"algorithm": "stored", "block": block} | ({"num_warps": warps} if warps != 16 else {})
    if sent >= 16 << 20:
        yield {"algorithm": "copied"}
    yield {"algorithm": "nccl"}


def saves_by_two_shots(nbytes: int, ranks: int, saved: int = TWO_SHOT_SAVED_BYTES) -> bool:
    """Whether ranks that would send ``nbytes`` each in one shot send ``saved`` less in two, which is 2 / ranks."""
    return ranks > 2 and nbytes - nbytes * 2 // ranks > saved


def is_large(group: Group, nbytes: int) -> bool:
    """Whether hiding what each rank sends, ``nbytes``, pays; on the simulator always, where sizes are small."""
    return group.small_shapes or nbytes >= OVERLAPPED_BYTES


def goes_by_rank(
    what: str, group: Group, rows: int, nbytes: int, *matrices: torch.Tensor, scales: Scales | None = None
) -> bool:
    """Whether ``what``, ag_gemm or gemm_rs, runs a library's product for each rank's rows where nothing is measured.

    Each rank sends ``nbytes``, those of one rank's ``rows`` to every other. The ``matrices`` are A, B and the result.
    """
    if group.small_shapes or not _fills_products(group.num_ranks, rows, nbytes):
        return False
    if scales is not None:
        return prefers_products_by_rank(scales, nbytes, *matrices)
    return nbytes < _most_by_rank(what, group.num_ranks) or not fits_tile_kernel(group, *matrices)


def _most_by_rank(what: str, ranks: int) -> int:
    """Bytes from which on the persistent kernel hides them better than products by rank, where TMA reaches them."""
    of_each = MOST_GATHERED_BY_RANK_BYTES if what == "ag_gemm" and ranks > 2 else MOST_BY_RANK_BYTES
    return of_each * (ranks - 1)


def _fills_products(ranks: int, rows: int, nbytes: int) -> bool:
    """Whether a product of one rank's rows fills a GPU, and copies of them are at the rate of a link."""
    return ranks > 1 and rows >= BY_RANK_ROWS and nbytes >= BY_RANK_BYTES * (ranks - 1)


def overlaps(
    what: str,
    group: Group,
    algorithm: str | None,
    nbytes: int,
    *matrices: torch.Tensor,
    scales: Scales | None = None,
) -> bool:
    """Whether an operator runs its persistent kernel, and not a matrix product and a collective, one by one.

    Each rank sends ``nbytes``. The ``matrices`` of quantized operands are A, B and the result.

    Raises DitronError when ``algorithm`` is neither of them, or cannot address the matrices.
    """
    fits = fits_tile_kernel(group, *matrices)
    if algorithm is None:
        if scales is None:
            return fits and is_large(group, nbytes)
        a, b, out = matrices
        pays = is_large(group, nbytes) or not has_product(a, b, scales)
        return fits and pays and not prefers_product(scales, nbytes, a, b, out)
    if algorithm not in ("overlapped", "sequential", "nccl"):
        others = {"ag_gemm": "'split_k', 'k_slices', 'by_rank', ", "gemm_rs": "'by_rank', "}.get(what, "")
        raise DitronError(
            f"{what}: unknown algorithm {algorithm!r}: expected 'overlapped', {others}'sequential' or 'nccl'"
        )
    if algorithm == "overlapped" and not fits:
        raise DitronError(
            f"{what}: algorithm='overlapped' takes bfloat16 or float16 matrices with rows of a multiple of 16 bytes, "
            "or quantized ones with such a result, on GPUs from Hopper on: leave algorithm= out, or pad them"
        )
    return algorithm == "overlapped"


def schedule_for(
    what: str,
    group: Group,
    rows: int,
    most_pieces: int,
    given: dict[str, Any],
    *,
    whole_pieces: bool,
    scales: Scales | None = None,
) -> dict[str, Any]:
    """Keyword arguments of a program with the persistent kernel, for ``rows`` rows per rank: ``given``, and others.

    The others depend on the capacity of ``rows`` rather than on themselves, and so do memory and code. Raises
    DitronError for more pieces than rows of tiles where each piece must have one (``whole_pieces``).
    """
    tiles = {"block": TILE} if scales is None else tiles_of(what, scales, given)
    if group.small_shapes:  # its matrices are small
        tiles["block"] = (32, 32, 32)
    block = given.get("block", tiles["block"])
    if group.small_shapes:
        default = min(most_pieces, _fewest_tiles(rows, block))
    else:
        default = _most_pieces(rows, most_pieces, block)
    pieces = given.get("pieces", default)
    if not group.small_shapes and given.get("pushers", 0) >= group.sms:
        most = group.sms - 1
        raise DitronError(
            f"{what}: pushers must be from 1 to {most}, to leave an SM to the product, got {given['pushers']}"
        )
    tile_rows = -(-rows // block[0])
    if pieces < 1 or whole_pieces and pieces > tile_rows:
        raise DitronError(f"{what}: pieces must be from 1 to {tile_rows}, the rows of tiles of a rank, got {pieces}")
    return (
        tiles
        | {
            "pieces": pieces,
            "group_m": _group_m(rows, block, pieces),
            "programs": max(1, group.sms - given.get("pushers", 0)),  # on the simulator there may be fewer
        }
        | ({"num_warps": warps_of(block)} if scales is None else {})
        | given
    )


#: Constants of programs that operators choose by what they are given.
_NOT_SCHEDULE = frozenset(
    "num_ranks local_ranks b_is_kn are_kn has_bias keep with_gathered scale_a_kind scale_b_kind use_fast_accum whole_k "
    "num_experts is_tp top_k to_all gated block_m groups columns has_weights has_map scales floats "
    "width".split()
)


#: Of arguments of schedules: a program's threads, elements of a tensor in its registers, streams of a device; a tile is
#: stored in halves or quarters; words, of which two ranks' are as many as a warp polls (words.py).
_LIMITS = {
    "push_warps": (1, 32),
    "push_block": (1, 1 << 16),
    "copy_streams": (1, 8),
    "in_flight": (1, 16),
    "parts": (2, 4),
    "words": (64, 1024),
}


def check_schedule(what: str, given: Mapping[str, Any], program: Program) -> None:
    """Raise DitronError unless ``given`` are values of a schedule of ``program``, which a caller has named."""
    for name, value in given.items():
        names = [constant for constant in program.constants if constant not in _NOT_SCHEDULE]
        if name not in names:
            has = f"a schedule has {', '.join(names)}" if names else "this algorithm has no schedule"
            raise DitronError(f"{what}: unknown argument {name!r}: {has}")
        if isinstance(program.constants[name], bool):
            if not isinstance(value, bool):
                raise DitronError(f"{what}: {name} must be True or False, got {value!r}")
            continue
        if name == "protocol":
            known = ("ll", "two_shot_ll") if what == "gemm_ar" else ("ll", "ll128")
            if value not in known:
                listed = " or ".join(map(repr, known))
                raise DitronError(f"{what}: protocol must be {listed}, got {value!r}")
            continue
        extents = value if isinstance(program.constants[name], tuple) and isinstance(value, tuple) else (value,)
        if any(type(extent) is not int or extent < 1 for extent in extents):
            raise DitronError(f"{what}: {name} must be of integers from 1 on, got {value!r}")
        default = program.constants[name]
        if isinstance(default, tuple) and (not isinstance(value, tuple) or len(value) != len(default)):
            raise DitronError(f"{what}: {name} must have {len(default)} extents, as {default}, got {value!r}")
        if isinstance(value, tuple) and any(extent & (extent - 1) for extent in extents):
            raise DitronError(f"{what}: {name} must be of powers of two, got {value!r}")
        if name in ("num_warps", "push_warps", "push_block", "parts", "words") and value & (value - 1):
            raise DitronError(f"{what}: {name} must be a power of two, got {value!r}")
        least, most = _LIMITS.get(name, (1, value))
        if not isinstance(value, tuple) and not least <= value <= most:
            raise DitronError(f"{what}: {name} must be from {least} to {most}, got {value!r}")


def collective_schedule(
    what: str, group: Group, algorithm: str, program: Program, dtype: torch.dtype, given: Mapping[str, Any]
) -> Options:
    """Keyword arguments of the program of a collective: ``given``, and others.

    Raises DitronError for what is no schedule of it.
    """
    check_schedule(what, given, program)
    chosen = block_for(group, algorithm) | given
    if algorithm in ("ll", "two_shot_ll"):
        if "block" not in given:
            chosen["block"] = max(least_word_block(dtype), chosen["block"])
        check_word_block(what, "block", chosen["block"], dtype)
        chosen["num_ranks"] = group.num_ranks
    return chosen


def least_word_block(dtype: torch.dtype) -> int:
    """Elements that a program exchanges by words at least."""
    return BYTES_OF_WARP // dtype.itemsize


def check_word_block(what: str, name: str, block: int, dtype: torch.dtype) -> None:
    """Raise DitronError unless a program can exchange ``block`` elements by words."""
    least = least_word_block(dtype)
    if block < least or block & (block - 1):
        kind = str(dtype).removeprefix("torch.")
        raise DitronError(f"{what}: {name} must be a power of two, of {least} or more elements of {kind}, got {block}")


def check_tile_rows(what: str, tile: int, rows: int) -> None:
    """Raise DitronError unless a tile of so many rows, which a caller has named, can be, and holds all ``rows``."""
    if tile < max(16, rows) or tile & (tile - 1):
        raise DitronError(
            f"{what}: rows, those of a tile, must be a power of two from 16 on that holds all {rows} rows, got {tile}"
        )


def _fewest_tiles(rows: int, block: tuple[int, ...]) -> int:
    """Rows of tiles of the smallest call that has the capacity of ``rows`` rows."""
    return -(-(capacity_for(rows) // 2 + 1 if rows > 64 else 1) // block[0])


def _capacity_tiles(rows: int, block: tuple[int, ...]) -> int:
    """Rows of tiles of the largest call that has the capacity of ``rows`` rows."""
    return -(-capacity_for(rows) // block[0])


def _most_pieces(rows: int, most: int, block: tuple[int, ...] = TILE) -> int:
    """Into how many pieces a shard is cut on GPUs."""
    return max(1, min(most, _capacity_tiles(rows, block) // PIECE_TILES))


def _group_m(rows: int, block: tuple[int, ...], pieces: int, most: int = 8) -> int:
    """A group of rows of tiles is of one piece."""
    return max(1, min(most, _capacity_tiles(rows, block) // pieces))


def product_rule(problem: Problem, most_pieces: int) -> Rule:
    """What :func:`overlaps` and :func:`schedule_for` say on a GPU from Hopper on, and :func:`goes_by_rank`."""
    sent = problem.sent_bytes // (2 if problem.operator == "gemm_ar" else 1)  # by the scatter
    peers = problem.ranks - 1
    goes_by_rank = problem.operator in ("ag_gemm", "gemm_rs")
    fills = goes_by_rank and _fills_products(problem.ranks, problem.rows, sent)
    if not has_tiles(problem):
        below = "by_rank" if fills else "sequential"
        return Rule({"algorithm": below}, "fp32, or rows that are no multiple of 16 bytes: TMA reaches no tiles")
    numbers = f"a rank sends {sent / 2**20:.1f} MB"
    if fills and sent < (most := _most_by_rank(problem.operator, problem.ranks)):
        limits = f"from {BY_RANK_BYTES * peers >> 20} MB on and below {most >> 20} MB"
        return Rule({"algorithm": "by_rank"}, f"{numbers}, and products for each rank's rows pay {limits}")
    numbers = f"{numbers}, and overlapping pays from {OVERLAPPED_BYTES >> 20} MB on"
    if sent < OVERLAPPED_BYTES:
        least = BY_RANK_BYTES * peers
        by_rank = f", by products for each rank's rows from {least >> 20} MB on"
        has_both = goes_by_rank and 0 < least < OVERLAPPED_BYTES
        return Rule({"algorithm": "sequential"}, numbers + (by_rank if has_both else ""))
    if problem.operator == "gemm_ar":
        return Rule({"algorithm": "overlapped"}, numbers)
    return Rule(_tiled(problem, TILE, _most_pieces(problem.rows, most_pieces)), numbers)


def product_node_rule(problem: Problem, most_pieces: int) -> Rule | None:
    """What ``algorithm_on_nodes`` and :func:`schedule_for` say: overlapped, or nothing where TMA reaches no tiles."""
    if not has_tiles(problem) or problem.itemsize == 1:
        return None
    options = _tiled(problem, TILE, _most_pieces(problem.rows, most_pieces))
    return Rule(options, "in a group on several nodes it is overlapped, whatever its size")


def tile_candidates(problem: Problem, pieces: tuple[int, ...], **stages: int) -> Iterator[Options]:
    """Overlapped schedules that are worth measuring; ``stages`` of the smaller tile."""
    if not has_tiles(problem) or problem.rows < 128 or problem.sent_bytes < 2 << 20:
        return  # signals and the last tiles take longer than what is hidden
    for number in pieces:
        if number <= _fewest_tiles(problem.rows, TILE):
            yield _tiled(problem, TILE, number)
    for number in pieces[:2]:
        if number <= _fewest_tiles(problem.rows, TILE) and _group_m(problem.rows, TILE, number) > 4:
            yield _tiled(problem, TILE, number) | {"group_m": 4}
    if _rounds(problem, SMALL_TILE) < 12:  # many tiles: the larger one loads less
        for number in pieces[:3]:
            if number <= _fewest_tiles(problem.rows, SMALL_TILE):
                yield _tiled(problem, SMALL_TILE, number) | stages


def by_rank_candidates(problem: Problem) -> Iterator[Options]:
    """A library's product for each rank's rows, where those fill a GPU.

    Below 2 MB the signals take longer than what they hide; beyond 128 MB the tile kernel was as fast.
    """
    if problem.ranks > 1 and problem.rows >= 128 and 2 << 20 <= problem.sent_bytes <= 128 << 20:
        yield {"algorithm": "by_rank"}


def tile_space(problem: Problem, sms: int, pieces: tuple[int, ...], stages: int, halves: int) -> Space | None:
    """Overlapped schedules that can run, for a search; None: there are none.

    Args:
        stages: where none are named.
        halves: of a tile of the result, which an epilogue has in shared memory at once: 1 of the one that is stored,
            2 with one that is read and added to it.
    """
    if next(tile_candidates(problem, pieces), None) is None:
        return None

    def is_valid(options: Options) -> bool:
        rows, columns, depth = options["block"]
        tiles = -(-problem.rows // rows)
        loaded = (rows + columns) * depth * options["stages"] * problem.itemsize
        # Four warps bring the half that is added to their registers by way of half as much shared memory.
        parts = 1 + (halves - 1) / 2 if warps_of(options["block"]) == 4 else halves
        epilogue = rows * columns // 2 * problem.itemsize * parts
        fits = loaded + epilogue + _BESIDE_TILES <= SHARED_BYTES
        in_bucket = options["pieces"] <= _fewest_tiles(problem.rows, options["block"])  # calls with fewer rows take it
        return fits and in_bucket and options["group_m"] * options["pieces"] <= max(1, tiles)

    parameters = {
        "block": BLOCKS_OF_TILES,
        "pieces": tuple(sorted(pieces)),
        "group_m": (1, 2, 4, 8, 16),
        "stages": (3, 4, 5),
        "programs": (sms - 16, sms - 4, sms),
    }
    return Space("overlapped", parameters, {"stages": stages, "programs": sms}, is_valid)


def has_tiles(problem: Problem) -> bool:
    """Whether TMA reaches tiles of the problem's matrices, of which an exchange divides the columns."""
    divided = {"a2a_gemm": problem.K, "gemm_a2a": problem.N}.get(problem.operator, 0) // problem.ranks
    extents = (problem.N, problem.K, divided)
    return problem.dtype != "fp32" and not any(extent * problem.itemsize % 16 for extent in extents)


def _tiled(problem: Problem, block: tuple[int, ...], pieces: int) -> Options:
    group_m = _group_m(problem.rows, block, pieces)
    return {"algorithm": "overlapped", "block": block, "pieces": pieces, "group_m": group_m}


def _rounds(problem: Problem, block: tuple[int, ...]) -> float:
    """How many tiles a program of the persistent kernel has, on 132 streaming multiprocessors."""
    return -(-problem.M // block[0]) * -(-problem.N // block[1]) / 132
