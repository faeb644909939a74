"""Collective calls of host code: barriers, allocations, gathering of objects."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ditron_compiler.errors import SimulationError

__all__ = ["RankGroup", "Rendezvous", "require_equal"]


@dataclass
class Rendezvous:
    """A collective call in progress in a group: complete when every rank has arrived, each with its payload."""

    ranks: Sequence[int]
    kind: str
    payloads: dict[int, Any] = field(default_factory=dict)
    result: Any = None

    def arrive(self, rank: int, kind: str, payload: Any) -> None:
        """Add a rank. Raises SimulationError when the others are in another call."""
        if kind != self.kind:
            others = ", ".join(str(r) for r in sorted(self.payloads))
            raise SimulationError(
                f"rank {rank} calls {kind}() while rank {others} of the same group is in {self.kind}(): every rank "
                f"must make the same collective calls in the same order; look for one under an `if rank == ...`"
            )
        self.payloads[rank] = payload

    def is_complete(self) -> bool:
        return len(self.payloads) == len(self.ranks)

    def finish(self, compute: Callable[[list], Any]) -> None:
        """Compute the result from the payloads, in group order."""
        self.result = compute([self.payloads[rank] for rank in self.ranks])


@dataclass
class RankGroup:
    """World ranks that are numbered together: rank ``i`` of the group is world rank ``ranks[i]``."""

    ranks: tuple[int, ...]
    rendezvous: Rendezvous | None = None


def require_equal(
    what: str, ranks: Sequence[int], asked: Sequence[Hashable], describe: Callable[[Any], str], hint: str
) -> None:
    """Raise SimulationError, saying which rank asked for what, unless all ask for the same."""
    if any(one != asked[0] for one in asked):
        lines = "; ".join(f"rank {rank} asked for {describe(one)}" for rank, one in zip(ranks, asked, strict=True))
        raise SimulationError(f"{what}: expected every rank of the group to ask for the same: {lines}; {hint}")
