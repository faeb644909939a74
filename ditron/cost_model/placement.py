"""Which loop of a chain to divide among ranks, what to gather then, and whether to keep it: peers' memory as a level.

Every rank runs its part of one loop. A tensor that is stored in shards along another loop makes of that loop two: the
rank loop, in each iteration of which another rank's shard is in use, and a loop within a shard. What a rank moves over
the link is then what a blocking of these loops moves, but for its own shard, 1 / ranks of every pass.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ditron.cost_model.blocking import Blocking, block, optimal_blocking
from ditron.cost_model.chain import Chain
from ditron.cost_model.intrinsics import link_rate
from ditron.machines import Machine
from ditron_compiler.errors import DitronError

__all__ = ["Capacities", "Level", "Placement", "link_blocking", "placements", "what_to_gather"]

_MB = 2**20


@dataclass(frozen=True)
class Capacities:
    """Bytes of fast memories: of Hopper.

    Attributes:
        shared: a program's shared memory. l2: the L2 cache. workspace: a GPU's memory for what is gathered and what is
            between products (None: without end).
    """

    shared: int = 227 << 10
    l2: int = 50 << 20
    workspace: int | None = None


@dataclass(frozen=True)
class Level:
    """How long a level takes: ``amount`` bytes (of ``products``: operations), and the blocking that moves them."""

    name: str
    amount: float
    us: float
    blocking: Blocking | None = None


@dataclass(frozen=True)
class Placement:
    """A chain on several ranks.

    Attributes:
        divided: the loop of which each rank runs a part. moves: by tensor, what is done with it between ranks:
            ``gather``, ``all-to-all``, ``reduce-scatter``, ``all-gather`` or ``all-reduce``.
        kept: whether what is gathered is kept in the GPU's memory, or each tile is loaded from peers, every time again.
        levels: of the link (and the NIC), of memory, of the L2 cache, and of the products.
    """

    divided: str
    moves: Mapping[str, str]
    kept: bool
    levels: tuple[Level, ...]

    @property
    def us(self) -> float:
        """At least so long: levels work at the same time, and the slowest bounds."""
        return self.bound.us

    @property
    def bound(self) -> Level:
        """The slowest level."""
        return max(self.levels, key=lambda level: level.us)

    @property
    def sent(self) -> float:
        """Bytes that a rank gets from peers, or adds at peers."""
        return sum(level.amount for level in self.levels if level.name in ("link", "nic"))

    @property
    def what(self) -> str:
        """In words."""
        moves: dict[str, list[str]] = {}
        for name, move in self.moves.items():
            moves.setdefault(move, []).append(name)
        named = ", ".join(f"{move} {' and '.join(names)}" for move, names in moves.items()) or "nothing moves"
        return named if self.kept or not self.moves else f"{named}, by each tile"

    def __str__(self) -> str:
        levels = ", ".join(f"{level.name} {level.us:.1f}" for level in self.levels)
        return (
            f"divide {self.divided}: {self.what}: {self.sent / _MB:.4g} MB, {self.us:.1f} us by {self.bound.name} "
            f"({levels})"
        )


def placements(
    chain: Chain,
    machine: Machine,
    ranks: int,
    stored: Mapping[str, str | None],
    *,
    capacities: Capacities = Capacities(),
    multiple_of: int | Mapping[str, int] | None = None,
) -> list[Placement]:
    """Every loop that ranks can divide, with what then moves kept and not kept, the fastest first.

    A loop that an intermediate is summed over cannot be divided: what is between products need not be linear.

    Args:
        stored: by tensor, the loop along which it lies in shards; None: every rank has all of it. Operands that are not
            named lie on every rank, and a result that is not named may lie as it is computed.
        multiple_of: of what tiles in shared memory and the L2 cache are multiples, of all loops or by loop; default 16,
            which matrix units need, but for short loops and for those that every tensor has.

    Raises DitronError for ranks that the machine has not, a loop without equal shards, or capacities that hold no tile.
    """
    if type(ranks) is not int or not 1 <= ranks <= machine.size:
        raise DitronError(f"the machine {machine.name} has {machine.size} ranks, and {ranks} were asked for")
    _require_stored(chain, stored)
    found = []
    if multiple_of is None:
        batch = frozenset(chain.loops).intersection(*map(frozenset, chain.loops_of.values()))
        multiple_of = {loop: 16 for loop in chain.loops if chain.extents[loop] >= 16 * ranks and loop not in batch}
    units = dict.fromkeys(chain.loops, multiple_of) if isinstance(multiple_of, int) else dict(multiple_of)
    for loop in chain.loops:
        if chain.extents[loop] % ranks or _sums_an_intermediate(chain, loop):
            continue
        plan = _Plan.of(chain, ranks, loop, stored)
        found.append(_kept(plan, machine, capacities, units))
        if plan.remote:
            found.append(_again(plan, machine, capacities, units))
    if not found:
        raise DitronError(f"no loop of {chain} has {ranks} equal parts: pad one to a multiple of {ranks}")
    return sorted(found, key=lambda one: (one.us, one.sent))


def link_blocking(
    chain: Chain,
    ranks: int,
    divided: str,
    stored: Mapping[str, str | None],
    workspace: int | None = None,
    steps: Sequence[str] = (),
) -> tuple[Blocking, float]:
    """The blocking, with rank loops, that moves least between a rank and its peers, and how many bytes.

    Each rank runs its part of the loop ``divided``; ``stored`` is as of :func:`placements`, ``steps`` as of
    :func:`optimal_blocking`.
    It is the least over all orders and integer tile sizes, as of :func:`optimal_blocking`; ``workspace`` bytes of the
    rank's memory hold tiles of what comes from peers, and intermediates.

    Raises DitronError for a loop that has no equal shards, or a workspace that holds no tile.
    """
    _require_stored(chain, stored)
    if _sums_an_intermediate(chain, divided):
        raise DitronError(
            f"loop {divided} is summed for the next product, which needs the whole sum: divide another one"
        )
    plan = _Plan.of(chain, ranks, divided, stored)
    blocking = optimal_blocking(plan.split, workspace, moved=plan.remote, resident=plan.local, steps=steps)
    return blocking, plan.sent(blocking)


def what_to_gather(chain: Chain, machine: Machine, ranks: int, stored: Mapping[str, str | None]) -> str:
    """The fastest placement in a line, and the two next ones that move something else."""
    best, *others = placements(chain, machine, ranks, stored)
    different: dict[str, Placement] = {}
    for other in others:
        if other.moves != best.moves and all(other.moves != known.moves for known in different.values()):
            different[other.what] = other
    rest = "; ".join(f"{what}: {other.us:.1f} us" for what, other in list(different.items())[:2])
    crosses = ranks > machine.ranks and best.kept and {*best.moves.values()} - {"all-to-all"}
    return (
        f"{best.what}: {best.sent / _MB:.4g} MB, at least {best.us:.1f} us by {best.bound.name}"
        + (", if each shard crosses to a node once by NIC, and the rest is by link" if crosses else "")
        + (f" ({rest})" if rest else "")
    )


def _require_stored(chain: Chain, stored: Mapping[str, str | None]) -> None:
    for name, loop in stored.items():
        if name not in (*chain.operands, chain.result):
            raise DitronError(
                f"the chain stores no tensor {name!r}: it has {', '.join((*chain.operands, chain.result))}"
            )
        if loop is not None and loop not in chain.loops_of[name]:
            raise DitronError(f"{name} has no loop {loop!r}: it has {', '.join(chain.loops_of[name])}")


def _sums_an_intermediate(chain: Chain, loop: str) -> bool:
    if loop not in chain.extents:
        raise DitronError(f"the chain has no loop {loop!r}: it has {', '.join(chain.loops)}")
    return any(loop in p.loops and loop not in chain.loops_of[p.result] for p in chain.products[:-1])


@dataclass(frozen=True)
class _Plan:
    """A rank's part of a chain, the same with rank loops, and the tensors of which peers have a part."""

    ranks: int
    divided: str
    part: Chain
    split: Chain
    moves: dict[str, str]
    remote: tuple[str, ...]
    once: float  # bytes that move whatever the blocking

    @property
    def local(self) -> tuple[str, ...]:
        return tuple(name for name in (*self.part.operands, self.part.result) if name not in self.remote)

    def amounts(self, blocking: Blocking) -> dict[str, float]:
        """Bytes by tensor: a pass moves all but the own shard."""
        amounts = {name: blocking.volume[name] * (self.ranks - 1) / self.ranks for name in self.remote}
        if self.once:
            amounts[self.part.result] = amounts.get(self.part.result, 0.0) + self.once
        return amounts

    def sent(self, blocking: Blocking) -> float:
        return sum(self.amounts(blocking).values())

    @classmethod
    def of(cls, chain: Chain, ranks: int, divided: str, stored: Mapping[str, str | None]) -> _Plan:
        part = chain.divided(divided, ranks)
        moves: dict[str, str] = {}
        shards: dict[str, str] = {}
        once = 0.0
        if ranks > 1:
            for name in chain.operands:
                loop = stored.get(name)
                if loop is not None and loop != divided:
                    shards[name] = loop
                    moves[name] = "all-to-all" if divided in chain.loops_of[name] else "gather"
            result, loops = chain.result, chain.loops_of[chain.result]
            loop = stored.get(result, divided if divided in loops else _divisible(chain, ranks))
            everywhere = loop is None
            if divided not in loops:
                shards[result] = loop or _divisible(chain, ranks)
                moves[result] = "all-reduce" if everywhere else "reduce-scatter"
            elif everywhere:
                moves[result] = "all-gather"
            elif loop != divided:
                shards[result] = loop or divided
                moves[result] = "all-to-all"
            if everywhere:
                once = chain.nbytes(result) * (ranks - 1) / ranks
        split = part
        for loop in dict.fromkeys(shards.values()):
            split = split.sharded(loop, ranks)
        return cls(ranks, divided, part, split, moves, tuple(shards), once)


def _divisible(chain: Chain, ranks: int) -> str:
    """A loop of the result by which its sums can be scattered."""
    for loop in chain.loops_of[chain.result]:
        if chain.extents[loop] % ranks == 0:
            return loop
    raise DitronError(f"the result {chain.result} has no loop of {ranks} equal shards: pad one to a multiple")


def _kept(plan: _Plan, machine: Machine, capacities: Capacities, units: Mapping[str, int]) -> Placement:
    """What peers have comes into the GPU's memory, and from there to the SMs like everything else."""
    blocking = optimal_blocking(plan.split, capacities.workspace, moved=plan.remote, resident=plan.local)
    sent = plan.sent(blocking)
    memory = optimal_blocking(plan.part, capacities.l2, reads_sums=True, recompute=False, multiple_of=units)
    l2 = optimal_blocking(plan.part, capacities.shared, reads_sums=True, recompute=False, multiple_of=units)
    levels = (
        *_between_ranks(plan, machine, blocking, kept=True),
        _level("memory", memory.moved + sent, machine["hbm.rate"], memory),
        _level("l2", l2.moved, machine["hbm.per_sm"] * machine["sm.count"], l2),
        _products(plan, machine, l2),
    )
    return Placement(plan.divided, plan.moves, True, levels)


def _again(plan: _Plan, machine: Machine, capacities: Capacities, units: Mapping[str, int]) -> Placement:
    """Every tile of what peers have comes over the link when it is needed, and so again in each pass.

    Of the blocking that moves least over the link, and the one that moves least in all, the faster one.
    """
    memory = optimal_blocking(
        plan.part, capacities.l2, moved=plan.local, reads_sums=True, recompute=False, multiple_of=units
    )
    found = []
    for moved in (plan.remote, None):
        least = optimal_blocking(plan.split, capacities.shared, moved=moved, recompute=False, multiple_of=units)
        remote = block(plan.split, least.order, least.tiles, moved=plan.remote)
        local = block(plan.split, least.order, least.tiles, moved=plan.local, reads_sums=True)
        levels = (
            *_between_ranks(plan, machine, remote, kept=False),
            _level("memory", memory.moved, machine["hbm.rate"], memory),
            _level("l2", local.moved, machine["hbm.per_sm"] * machine["sm.count"], local),
            _products(plan, machine, least),
        )
        found.append(Placement(plan.divided, plan.moves, False, levels))
    return min(found, key=lambda one: (one.us, one.sent))


def _between_ranks(plan: _Plan, machine: Machine, blocking: Blocking, kept: bool) -> tuple[Level, ...]:
    """By the link, and by the NIC from other nodes.

    What all ranks of a node need, or have partial sums of, passes between two nodes once if it is kept; what each rank
    needs for itself, or each tile loads, passes for each rank.
    """
    share = machine["copy_engine.share" if kept else "link.load_share"]
    rate = link_rate(max(min(plan.ranks, machine.ranks) - 1, 1), machine) * share
    sent = plan.sent(blocking)
    if plan.ranks <= machine.ranks:
        return (_level("link", sent, rate, blocking),)
    nodes = -(-plan.ranks // machine.ranks)
    once, each = (nodes - 1) / (plan.ranks - 1), (plan.ranks - machine.ranks) / (plan.ranks - 1)
    far = sum(
        nbytes * (once if kept and plan.moves[name] != "all-to-all" else each)
        for name, nbytes in plan.amounts(blocking).items()
    )
    return (
        _level("link", sent - far, rate, blocking),
        _level("nic", far, machine["nic.rate"], blocking),
    )


def _products(plan: _Plan, machine: Machine, blocking: Blocking) -> Level:
    widest = max(plan.part.itemsize[name] for name in plan.part.operands)
    rate = machine[f"sm.dot{8 * min(max(widest, 1), 4)}"] if widest in (1, 2, 4) else machine["sm.dot32"]
    return Level("products", blocking.flops, blocking.flops / (rate * 1e6))


def _level(name: str, nbytes: float, rate: float, blocking: Blocking) -> Level:
    return Level(name, nbytes, nbytes / (rate * 1e3), blocking)
