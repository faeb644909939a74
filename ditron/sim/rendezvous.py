"""What the scripts of a group's ranks do together: barriers, allocations, gathering objects."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ditron_compiler.errors import SimulationError

__all__ = ["Meeting", "check_alike"]


@dataclass
class Meeting:
    """One collective call under way in a group: complete when every rank has come, each with its payload."""

    ranks: Sequence[int]
    kind: str
    payloads: dict[int, Any] = field(default_factory=dict)
    result: Any = None

    def join(self, rank: int, kind: str, payload: Any) -> None:
        """Come to the meeting. Raises SimulationError when the others are in another call."""
        if kind != self.kind:
            others = ", ".join(str(r) for r in sorted(self.payloads))
            raise SimulationError(
                f"rank {rank} calls {kind}() while rank {others} of the same group is in {self.kind}(): every rank "
                f"must make the same collective calls in the same order; look for one under an `if rank == ...`"
            )
        self.payloads[rank] = payload

    def complete(self) -> bool:
        return len(self.payloads) == len(self.ranks)

    def conclude(self, finish: Callable[[list], Any]) -> None:
        """Compute the result from the payloads, in group order."""
        self.result = finish([self.payloads[rank] for rank in self.ranks])


def check_alike(
    what: str, ranks: Sequence[int], asked: Sequence[Hashable], describe: Callable[[Any], str], hint: str
) -> None:
    """Raise SimulationError, saying which rank asked for what, unless all ask for the same."""
    if any(one != asked[0] for one in asked):
        lines = "; ".join(f"rank {rank} asked for {describe(one)}" for rank, one in zip(ranks, asked, strict=True))
        raise SimulationError(f"{what}: expected every rank of the group to ask for the same: {lines}; {hint}")
