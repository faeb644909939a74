"""Routing tables of mixture-of-experts layers, made on the device without atomics or a host synchronization.

A route is a token's way to one of its experts. Every rank sees the routes of all ranks and keeps those to its own
experts, sorted by expert, then by stage, the order in which the tokens' rows arrive (stage 0 is this rank's own), then
by token: a stable counting sort. Each expert's rows are padded to whole tiles.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

import ditron
from ditron_compiler.errors import DitronError

__all__ = ["TILE_FIELDS", "Plan", "max_rows", "routing_tables", "tables_on_host"]

#: Of a row of tiles, in the order in which they are computed: its expert; of its run, the rows of tiles of that expert
#: that follow each other in this order, the position, the first row of tiles and how many there are; and the first and
#: the last stage of the run's rows.
TILE_FIELDS = 6
_MAX_PROGRAMS = 128  # whose counts each program adds up
_MAX_RANKS = 15


@dataclass(frozen=True)
class Plan:
    """The rows of this rank's experts: which token each is, and which tiles they make. Tables are int32.

    Attributes:
        row_slot: ``[max_rows]``, of each row its token in order of arrival, ``stage * tokens + token``; -1 for padding.
        row_route: ``[max_rows]``, of each row its index into ``topk_ids`` of all ranks, flat; -1 for padding.
        route_row: ``[tokens of all ranks, top_k]``, the row of each route; -1 if its expert is another rank's.
        route_weight: ``[tokens of all ranks, top_k]`` float32, what each route's row counts for in its token's sum.
        tiles: ``[max_rows / block_m, TILE_FIELDS]``, by group of stages, then by expert.
        num_tiles: ``[1]``, how many rows of tiles there are. What lies behind them in the others is not written.
        block_m: rows in a tile.
        experts: of this rank.
    """

    row_slot: torch.Tensor
    row_route: torch.Tensor
    route_row: torch.Tensor
    route_weight: torch.Tensor
    tiles: torch.Tensor
    num_tiles: torch.Tensor
    block_m: int
    experts: int

    @property
    def max_rows(self) -> int:
        """Rows that there are with other routes than these."""
        return len(self.row_slot)


def max_rows(tokens: int, top_k: int, experts: int, block_m: int) -> int:
    """Rows, with padding, that routes of so many tokens to distinct ones of ``experts`` can take, whatever they are."""
    routes = tokens * min(top_k, experts)
    tiles = min(routes, (routes + experts * (block_m - 1)) // block_m)
    return tiles * block_m


@ditron.jit
def stage_routes(
    ids_ptr, stage, offset, first_rank, ranks, count, first_expert, experts, E: tl.constexpr, B: tl.constexpr
):
    """``B`` routes of a stage from ``offset`` on, of ``count``: indices into ``ids``, and [B, E] whether each goes to
    an expert from ``first_expert`` on.
    """
    within = offset + tl.arange(0, B)
    index = (first_rank + stage) % ranks * count + within
    expert = tl.load(ids_ptr + index, mask=within < count, other=-1).to(tl.int32) - first_expert
    expert = tl.where(expert < experts, expert, -1)
    return index, (expert[:, None] == tl.arange(0, E)[None, :]).to(tl.int32)


@ditron.jit
def count_routes_kernel(
    ids_ptr,
    counts_ptr,
    first_rank,
    ranks,
    count,
    first_expert,
    experts,
    E: tl.constexpr,
    BLOCK: tl.constexpr,
    CHUNK: tl.constexpr,
):
    """``counts`` [ranks * chunks, E] = how many of a chunk's routes go to each expert; stages do not share chunks."""
    chunks = tl.cdiv(count, CHUNK)
    stage = tl.program_id(0) // chunks
    begin = tl.program_id(0) % chunks * CHUNK
    counts = tl.zeros((E,), tl.int32)
    for offset in range(0, CHUNK, BLOCK):
        _, chosen = stage_routes(
            ids_ptr, stage, begin + offset, first_rank, ranks, count, first_expert, experts, E, BLOCK
        )
        counts += tl.sum(chosen, 0)
    tl.store(counts_ptr + tl.program_id(0) * E + tl.arange(0, E), counts)


@ditron.jit
def pick(sums, i):
    """Row ``i`` of a matrix in registers."""
    rows = tl.arange(0, sums.shape[0])[:, None]
    return tl.sum(tl.where(rows == i, sums, 0), 0)


@ditron.jit
def place_routes_kernel(
    ids_ptr,
    counts_ptr,
    row_slot_ptr,
    row_route_ptr,
    route_row_ptr,
    tiles_ptr,
    num_tiles_ptr,
    first_rank,
    ranks,
    count,
    top_k,
    first_expert,
    experts,
    E: tl.constexpr,
    BLOCK: tl.constexpr,
    CHUNK: tl.constexpr,
    PROGRAMS: tl.constexpr,
    BLOCK_M: tl.constexpr,
    RANKS: tl.constexpr,
    GROUPS: tl.constexpr,
    FIELDS: tl.constexpr,
):
    """Rows of routes, padding and tiles; every program adds up the counts of all, ``PROGRAMS`` rounded up."""
    pid = tl.program_id(0)
    chunks = tl.cdiv(count, CHUNK)
    column = tl.arange(0, E)
    program = tl.arange(0, PROGRAMS)
    counts = tl.load(
        counts_ptr + program[:, None] * E + column[None, :], mask=(program < ranks * chunks)[:, None], other=0
    )
    # Sums over programs, as products with ones: of those before this one, and of the first stages. Scans of so many
    # numbers are slow. Exact, as the products below: integers up to 2048 are in fp16.
    which = tl.arange(0, 16)[:, None]
    before = program[None, :] < tl.where(which == 0, pid, which * chunks)
    ones = before.to(tl.float16)
    sums = tl.dot(ones, (counts % 2048).to(tl.float16)).to(tl.int32)
    if CHUNK > 2048:
        sums += tl.dot(ones, (counts // 2048).to(tl.float16)).to(tl.int32) * 2048
    totals = pick(sums, RANKS)
    tiles_of = tl.cdiv(totals, BLOCK_M)
    last_tile = tl.cumsum(tiles_of, 0)  # and one more
    first_tile = last_tile - tiles_of
    if pid == 0:
        tl.store(num_tiles_ptr, tl.sum(tiles_of, 0))

    route = tl.arange(0, BLOCK)
    earlier_in_block = (route[None, :] < route[:, None]).to(tl.float16)
    next_row = first_tile * BLOCK_M + pick(sums, 0)
    for offset in range(0, CHUNK, BLOCK):
        begin = pid % chunks * CHUNK + offset
        index, chosen = stage_routes(
            ids_ptr, pid // chunks, begin, first_rank, ranks, count, first_expert, experts, E, BLOCK
        )
        earlier = tl.dot(earlier_in_block, chosen.to(tl.float16)).to(tl.int32)
        row = tl.sum(chosen * (next_row[None, :] + earlier), 1)
        own = tl.sum(chosen, 1) > 0
        tl.store(row_slot_ptr + row, (pid // chunks * count + begin + route) // top_k, mask=own)
        tl.store(row_route_ptr + row, index, mask=own)
        tl.store(route_row_ptr + index, tl.where(own, row, -1), mask=begin + route < count)
        next_row += tl.sum(chosen, 0)

    within = tl.arange(0, BLOCK_M)
    for one in range(pid, experts, tl.num_programs(0)):  # padding
        end = tl.sum(tl.where(column == one, first_tile * BLOCK_M + totals, 0), 0)
        padded = tl.sum(tl.where(column == one, last_tile * BLOCK_M, 0), 0)
        tl.store(row_slot_ptr + end + within, -1, mask=end + within < padded)
        tl.store(row_route_ptr + end + within, -1, mask=end + within < padded)

    begin = 0  # of a group's rows of tiles, in the order of computation
    tiles_before = tl.zeros((E,), tl.int32)
    for group in tl.static_range(GROUPS):  # a row of tiles belongs to the group of its last row
        arrived = pick(sums, (group + 1) * RANKS // GROUPS)
        tiles_so_far = tl.where(arrived == totals, tiles_of, arrived // BLOCK_M)
        run = tiles_so_far - tiles_before
        run_end = begin + tl.cumsum(run, 0)
        end = begin + tl.sum(run, 0)
        for block in range(begin + pid * 16, end, tl.num_programs(0) * 16):
            position = block + tl.arange(0, 16)
            expert = tl.sum((run_end[None, :] <= position[:, None]).to(tl.int32), 1)
            is_own = (expert[:, None] == column[None, :]).to(tl.int32)
            run_of = tl.sum(is_own * run[None, :], 1)
            skipped = tl.sum(is_own * tiles_before[None, :], 1)
            first_row = skipped * BLOCK_M
            last_row = tl.minimum(first_row + run_of * BLOCK_M, tl.sum(is_own * totals[None, :], 1)) - 1
            first_stage = tl.zeros((16,), tl.int32)
            last_stage = tl.zeros((16,), tl.int32)
            for stage in tl.static_range(RANKS - 1):
                rows = tl.sum(is_own * pick(sums, stage + 1)[None, :], 1)
                first_stage += (rows <= first_row).to(tl.int32)
                last_stage += (rows <= last_row).to(tl.int32)
            at = tiles_ptr + position * FIELDS
            exists = position < end
            tl.store(at, expert, mask=exists)
            tl.store(at + 1, tl.sum(is_own * (run_end - run)[None, :], 1), mask=exists)
            tl.store(at + 2, tl.sum(is_own * first_tile[None, :], 1) + skipped, mask=exists)
            tl.store(at + 3, run_of, mask=exists)
            tl.store(at + 4, first_stage, mask=exists)
            tl.store(at + 5, last_stage, mask=exists)
        begin = end
        tiles_before = tiles_so_far


def routing_tables(
    ids: torch.Tensor,
    rank: int,
    first_expert: int,
    experts: int,
    block_m: int,
    groups: int = 1,
    weights: torch.Tensor | None = None,
) -> Plan:
    """Tables of the routes to ``experts`` experts from ``first_expert`` on, which are this rank's.

    Args:
        ids: ``[ranks, tokens, top_k]`` int32 or int16, the experts that each token goes to; -1 for none. The same
            expert at most once for a token.
        rank: of stage 0; the ranks after it follow.
        block_m: rows in a tile, a power of two from 16 on.
        groups: into how many groups of stages the tiles are divided: those of the first are computed first, while the
            other stages' rows are on their way; each reads the experts' matrices again.
        weights: ``[ranks, tokens, top_k]`` float32, of the routes; default ones.

    Two launches, the same for all routes: fit for CUDA graphs. Raises DitronError for tensors that do not fit.
    """
    if ids.ndim != 3 or ids.numel() == 0 or ids.dtype not in (torch.int16, torch.int32):
        raise DitronError(
            f"routing_tables: expected ids [ranks, tokens, top_k], int16 or int32, got {tuple(ids.shape)} {ids.dtype}"
        )
    if len(ids) > _MAX_RANKS:
        raise DitronError(f"routing_tables: {len(ids)} ranks, and at most {_MAX_RANKS} are supported")
    if block_m < 16 or block_m & (block_m - 1):
        raise DitronError(f"routing_tables: block_m must be a power of two from 16 on, got {block_m}")
    ids = ids.contiguous()
    ranks, tokens, top_k = ids.shape
    count = tokens * top_k
    E = max(16, triton.next_power_of_2(experts))
    block = min(128, max(32, 8192 // E))
    chunk = max(block, triton.next_power_of_2(-(-count * ranks // _MAX_PROGRAMS)))
    programs = ranks * -(-count // chunk)
    rows = max_rows(ranks * tokens, top_k, experts, block_m)
    table = lambda *shape: torch.empty(shape, dtype=torch.int32, device=ids.device)  # noqa: E731
    counts = table(programs, E)
    plan = Plan(
        table(rows),
        table(rows),
        table(ranks * tokens, top_k),
        _weights_of(ids, weights),
        table(rows // block_m, TILE_FIELDS),
        table(1),
        block_m,
        experts,
    )
    shared = {"E": E, "BLOCK": block, "CHUNK": chunk}
    count_routes_kernel[(programs,)](ids, counts, rank, ranks, count, first_expert, experts, **shared)
    place_routes_kernel[(programs,)](
        ids,
        counts,
        plan.row_slot,
        plan.row_route,
        plan.route_row,
        plan.tiles,
        plan.num_tiles,
        rank,
        ranks,
        count,
        top_k,
        first_expert,
        experts,
        PROGRAMS=max(16, triton.next_power_of_2(programs)),
        BLOCK_M=block_m,
        RANKS=ranks,
        GROUPS=min(groups, ranks),
        FIELDS=TILE_FIELDS,
        num_warps=8,
        **shared,
    )
    return plan


def _weights_of(ids: torch.Tensor, weights: torch.Tensor | None) -> torch.Tensor:
    """The routes' weights in the form that a plan has them."""
    if weights is None:
        weights = torch.ones(ids.shape, dtype=torch.float32, device=ids.device)
    elif weights.shape != ids.shape or weights.dtype != torch.float32 or weights.device != ids.device:
        raise DitronError(
            f"routing_tables: expected float32 weights of the shape of ids, {tuple(ids.shape)}, on {ids.device}, got "
            f"{tuple(weights.shape)} of {weights.dtype} on {weights.device}"
        )
    return weights.reshape(-1, ids.shape[2])


def tables_on_host(
    ids: torch.Tensor,
    rank: int,
    first_expert: int,
    experts: int,
    block_m: int,
    groups: int = 1,
    weights: torch.Tensor | None = None,
) -> Plan:
    """The same tables by plain loops on the CPU, without what lies behind the rows: to test with, and to look at."""
    ranks, tokens, top_k = ids.shape
    groups = min(groups, ranks)
    routes: list[list[tuple[int, int, int]]] = [[] for _ in range(experts)]  # of each expert: stage, slot, route
    for stage in range(ranks):
        source = (rank + stage) % ranks
        for index, expert in enumerate(ids[source].reshape(-1).tolist()):
            if 0 <= expert - first_expert < experts:
                route = source * tokens * top_k + index
                routes[expert - first_expert].append((stage, stage * tokens + index // top_k, route))
    row_slot: list[int] = []
    row_route: list[int] = []
    runs: dict[tuple[int, int], list[tuple[int, int, int]]] = {}  # by group and expert: rows of tiles, their stages
    for expert, of_expert in enumerate(routes):
        for begin in range(0, len(of_expert), block_m):
            stages, slots, found = zip(*of_expert[begin : begin + block_m], strict=True)
            group = next(g for g in range(groups) if stages[-1] < (g + 1) * ranks // groups)
            runs.setdefault((group, expert), []).append((len(row_slot) // block_m, stages[0], stages[-1]))
            row_slot += [*slots, *[-1] * (block_m - len(slots))]
            row_route += [*found, *[-1] * (block_m - len(found))]
    tiles: list[list[int]] = []
    for (_, expert), run in sorted(runs.items()):
        tiles += [[expert, len(tiles), run[0][0], len(run), run[0][1], run[-1][2]]] * len(run)
    route_row = torch.full((ranks * tokens, top_k), -1, dtype=torch.int32)
    for row, route in enumerate(row_route):
        if route >= 0:
            route_row.view(-1)[route] = row
    table = lambda values: torch.tensor(values, dtype=torch.int32)  # noqa: E731
    of_routes = route_row, _weights_of(ids, weights)
    of_tiles = table(tiles).view(-1, TILE_FIELDS), table([len(tiles)])
    return Plan(table(row_slot), table(row_route), *of_routes, *of_tiles, block_m, experts)
