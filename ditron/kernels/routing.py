"""Routing tables of mixture-of-experts layers (moe_plan.py makes them): their form and sizes, and plain loops for them.

A route is a token's way to one of its experts. Every rank sees the routes of all ranks and keeps those to its own
experts, sorted by expert, then by stage, the order in which the tokens' rows arrive (stage 0 is this rank's own), then
by token: a stable counting sort. Each expert's rows are padded to whole tiles.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
import triton

from ditron_compiler.errors import DitronError

__all__ = [
    "MAX_RANKS",
    "TILE_FIELDS",
    "Plan",
    "Sizes",
    "check_block_m",
    "empty_plan",
    "max_rows",
    "ranks_of_tokens",
    "sample_plan",
    "tables_on_host",
]

#: Of a row of tiles, in the order in which they are computed: its expert; of its run, the rows of tiles of that expert
#: that follow each other in this order, the position, the first row of tiles and how many there are; and the first and
#: the last stage of the run's rows.
TILE_FIELDS = 6
MAX_RANKS = 64


@dataclass(frozen=True)
class Sizes:
    """How the routes of ``ranks`` times ``tokens`` tokens are divided (routing_kernels.py).

    Attributes:
        C: places of a segment. E: columns of counts. at_once: whether one kernel does everything, and a rank has one
            segment. experts_at_once: whose rows a program finds, if not at_once. makers: programs that make tiles.
    """

    ranks: int
    tokens: int
    top_k: int
    experts: int
    C: int
    E: int
    at_once: bool
    experts_at_once: int
    makers: int

    @classmethod
    def of(cls, ranks: int, tokens: int, top_k: int, experts: int, at_once: bool, places: int) -> Sizes:
        """With so many ``places`` in a segment, or ``at_once`` no fewer."""
        E = max(16, triton.next_power_of_2(experts))
        TK = triton.next_power_of_2(top_k)
        if at_once:
            C = max(places, triton.next_power_of_2(tokens) * TK)
            return cls(ranks, tokens, top_k, experts, C, E, True, min(E, 128), 4)
        return cls(ranks, tokens, top_k, experts, max(places, TK), E, False, min(E, 128), 8)

    @property
    def segments(self) -> int:
        """Of a rank."""
        return -(-self.tokens // (self.C // triton.next_power_of_2(self.top_k)))


@dataclass(frozen=True)
class Plan:
    """The rows of this rank's experts: which token each is, and which tiles they make. Tables are int32.

    Attributes:
        row_slot: ``[max_rows]``, of each row its token in order of arrival, ``stage * tokens + token``; -1 for padding.
        row_route: ``[max_rows]``, of each row its index into ``topk_ids`` of all ranks, flat; -1 for padding.
        route_row: ``[tokens of all ranks, top_k]``, the row of each route; -1 if its expert is another rank's.
        route_weight: ``[tokens of all ranks, top_k]`` float32, what each route's row counts for in its token's sum.
        tiles: ``[max_rows / block_m, TILE_FIELDS]``, by group of stages, then by expert.
        expert_tiles: ``[max_rows / block_m, TILE_FIELDS]``, by expert alone; of no rows with one group, where
            ``tiles`` are that.
        num_tiles: ``[1]``, how many rows of tiles there are. What lies behind them in the others is not written.
        block_m: rows in a tile.
        experts: of this rank, or of the rank that has most.
        expert_rows: ``[experts + 1]``, the first row of each expert, and how many there are with padding.
        errors: ``[tokens, 2]``, of each of this rank's tokens how many routes were to experts that do not exist, and
            how many to one that it had already. They go to no expert.
        token_ranks: ``[tokens, 2]``, of each of this rank's tokens the ranks that have one of its experts: rank r is
            bit ``r % 32`` of column ``r // 32``.
        dropped: ``[tokens]``, of each of this rank's tokens how many routes are beyond ``capacity=`` or
            ``rank_capacity=``; None without these.
        num_experts: of all ranks together; 0 where it is not known, and no schedule is looked up.
    """

    row_slot: torch.Tensor
    row_route: torch.Tensor
    route_row: torch.Tensor
    route_weight: torch.Tensor
    tiles: torch.Tensor
    expert_tiles: torch.Tensor
    num_tiles: torch.Tensor
    block_m: int
    experts: int
    expert_rows: torch.Tensor
    errors: torch.Tensor
    token_ranks: torch.Tensor
    dropped: torch.Tensor | None = None
    num_experts: int = 0

    def check(self) -> None:
        """Wait for the plan, and raise DitronError if routes of this rank were to experts that do not exist, or to one
        twice.
        """
        wrong, repeated = self.errors.sum(0).tolist()
        if wrong or repeated:
            raise DitronError(
                f"moe_plan: {wrong} of topk_ids are neither -1 nor the number of an expert, and {repeated} repeat an "
                "expert of their token: these routes go nowhere"
            )

    @property
    def tables(self) -> list[torch.Tensor]:
        """All tensors, the weights first."""
        of_routes = [self.route_weight, self.row_slot, self.row_route, self.route_row]
        of_tiles = [self.tiles, self.expert_tiles, self.num_tiles]
        return [*of_routes, *of_tiles, self.expert_rows, self.errors, self.token_ranks]

    @classmethod
    def of(cls, tables: list[torch.Tensor], dropped: torch.Tensor | None = None, num_experts: int = 0) -> Plan:
        """The plan that has these :attr:`tables`."""
        route_weight, row_slot, row_route, route_row, tiles, expert_tiles, num_tiles, expert_rows, *of_tokens = tables
        block_m, experts = row_slot.shape[0] // tiles.shape[0], expert_rows.shape[0] - 1
        of_routes = row_slot, row_route, route_row, route_weight
        of_tiles = tiles, expert_tiles, num_tiles
        return cls(*of_routes, *of_tiles, block_m, experts, expert_rows, *of_tokens, dropped, num_experts)

    @property
    def tiles_by_expert(self) -> torch.Tensor:
        """The order for products whose rows are all there, which read each expert's matrix once."""
        return self.expert_tiles if len(self.expert_tiles) else self.tiles

    @property
    def max_rows(self) -> int:
        """Rows that there are with other routes than these."""
        return len(self.row_slot)


def max_rows(
    tokens: int,
    top_k: int,
    experts: int,
    block_m: int,
    capacity: int | None = None,
    rank_capacity: int | None = None,
) -> int:
    """Rows, with padding, that routes of so many tokens to distinct ones of ``experts`` can take, whatever they are.

    At most ``capacity`` of them go to an expert, and ``rank_capacity`` to all of these.
    """
    capacity = tokens if capacity is None else min(capacity, tokens)
    routes = min(tokens * min(top_k, experts), experts * capacity)
    if rank_capacity is not None:
        routes = min(routes, rank_capacity)
    tiles = min(routes, (routes + experts * (block_m - 1)) // block_m, experts * -(-capacity // block_m))
    return tiles * block_m


def check_block_m(what: str, block_m: int) -> None:
    """Raise DitronError for what cannot be the number of rows in a tile."""
    if block_m < 16 or block_m & (block_m - 1):
        raise DitronError(f"{what}: block_m must be a power of two from 16 on, got {block_m}")


def empty_plan(weights: torch.Tensor, tokens: int, experts: int, block_m: int, groups: int, rows: int) -> Plan:
    """A plan whose tables are to be written, with these ``weights`` [tokens of all ranks, top_k], for at most ``rows``
    rows of ``experts``, with tiles in ``groups`` of stages.
    """
    table = lambda *shape: weights.new_empty(shape, dtype=torch.int32)  # noqa: E731
    of_routes = table(*weights.shape), weights
    tiles = table(rows // block_m, TILE_FIELDS), table(rows // block_m if groups > 1 else 0, TILE_FIELDS), table(1)
    others = table(experts + 1), table(tokens, 2), table(tokens, 2)
    return Plan(table(rows), table(rows), *of_routes, *tiles, block_m, experts, *others)


def ranks_of_tokens(ids: torch.Tensor, rank: int, num_experts: int | None) -> torch.Tensor:
    """:attr:`Plan.token_ranks` of the tokens of ``rank``; ``ids`` and ``num_experts`` as :func:`tables_on_host` has."""
    ranks = torch.arange(len(ids))
    own = ids[rank].long()
    expert = own[..., None]
    owner = ranks if num_experts is None else ((expert + 1) * len(ranks) - 1) // num_experts
    needed = ((expert >= 0) & (owner == ranks)).any(1)
    bits = torch.zeros(len(own), 2, dtype=torch.int64)
    bits.index_add_(1, ranks // 32, needed.long() << ranks % 32)
    return bits.to(torch.int32)


def tables_on_host(
    ids: torch.Tensor,
    rank: int,
    first_expert: int,
    experts: int,
    block_m: int,
    groups: int = 1,
    weights: torch.Tensor | None = None,
    num_experts: int | None = None,
) -> Plan:
    """The tables of a plan by plain loops on the CPU, without what lies behind the rows: to test with, and to look at.

    Args:
        ids: ``[ranks, tokens, top_k]``, the experts that each token goes to; -1 for none.
        rank: of stage 0; the ranks after it follow. It has ``experts`` experts from ``first_expert`` on.
        block_m: rows in a tile.
        groups: into how many groups of stages the tiles are divided: those of the first are computed first, while the
            other stages' rows are on their way; a product that goes by them reads the experts' matrices again for each.
        weights: ``[ranks, tokens, top_k]`` float32, of the routes; default ones.
        num_experts: that the ranks divide among them; default: each has them all, or a part of each.
    """
    ranks, tokens, top_k = ids.shape
    weights = torch.ones(ids.shape) if weights is None else weights
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
    expert_rows = [0]
    runs: dict[tuple[int, int], list[tuple[int, int, int]]] = {}  # by group and expert: rows of tiles, their stages
    for expert, of_expert in enumerate(routes):
        for begin in range(0, len(of_expert), block_m):
            stages, slots, found = zip(*of_expert[begin : begin + block_m], strict=True)
            group = next(g for g in range(groups) if stages[-1] < (g + 1) * ranks // groups)
            runs.setdefault((group, expert), []).append((len(row_slot) // block_m, stages[0], stages[-1]))
            row_slot += [*slots, *[-1] * (block_m - len(slots))]
            row_route += [*found, *[-1] * (block_m - len(found))]
        expert_rows.append(len(row_slot))
    tiles = _in_order(runs)
    whole: dict[tuple[int, int], list[tuple[int, int, int]]] = {}  # of an expert, in one group
    for (_, expert), run in sorted(runs.items()):
        whole.setdefault((0, expert), []).extend(run)
    route_row = torch.full((ranks * tokens, top_k), -1, dtype=torch.int32)
    for row, route in enumerate(row_route):
        if route >= 0:
            route_row.view(-1)[route] = row
    table = lambda values: torch.tensor(values, dtype=torch.int32)  # noqa: E731
    of_routes = route_row, weights.reshape(-1, top_k)
    by_expert = _in_order(whole) if groups > 1 else []
    of_tiles = table(tiles).view(-1, TILE_FIELDS), table(by_expert).view(-1, TILE_FIELDS), table([len(tiles)])
    others = table(expert_rows), torch.zeros(tokens, 2, dtype=torch.int32), ranks_of_tokens(ids, rank, num_experts)
    return Plan(table(row_slot), table(row_route), *of_routes, *of_tiles, block_m, experts, *others)


def _in_order(runs: dict[tuple[int, int], list[tuple[int, int, int]]]) -> list[list[int]]:
    """Rows of a table of tiles, of ``runs`` by group and expert: rows of tiles, their first and last stages."""
    tiles: list[list[int]] = []
    for (_, expert), run in sorted(runs.items()):
        tiles += [[expert, len(tiles), run[0][0], len(run), run[0][1], run[-1][2]]] * len(run)
    return tiles


def sample_plan(
    ranks: int, generator: torch.Generator, rank: int, *, tokens: int = 4, divided: bool = True, groups: int = 1
) -> Plan:
    """A small plan of ``rank`` for the protocol checker: two experts of each rank, or with ``divided`` False a part of
    two; tokens with no expert, one or two, and often a rank whose tokens have none. It is as large on all ranks.
    """
    experts = 2 * ranks if divided else 2
    ids = torch.rand(ranks, tokens, experts, generator=generator).topk(2).indices
    ids[torch.rand(ids.shape, generator=generator) < 0.3] = -1
    if torch.rand(1, generator=generator) < 0.5:
        ids[0] = -1
    first = 2 * rank if divided else 0
    groups = min(groups, ranks)
    plan = tables_on_host(ids, rank, first, 2, 16, groups, num_experts=experts if divided else None)
    rows = max_rows(ranks * tokens, 2, 2, 16)
    padded = {name: torch.zeros(rows, dtype=torch.int32) - 1 for name in ("row_slot", "row_route")}
    for name in ("tiles", "expert_tiles")[: min(groups, 2)]:
        padded[name] = torch.zeros(rows // 16, TILE_FIELDS, dtype=torch.int32)
    for name, table in padded.items():
        table[: len(getattr(plan, name))] = getattr(plan, name)
    return replace(plan, **padded)
