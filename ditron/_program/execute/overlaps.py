"""Arguments of one call that overlap in memory: an error where the program writes one of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ditron_compiler.analysis.buffer_effects import ProgramAccesses
from ditron_compiler.errors import DitronError
from ditron_compiler.host.overlap import overlap, span
from ditron_compiler.ir.dialects import ditron as dialect

if TYPE_CHECKING:
    import torch

__all__ = ["OverlapCheck", "written"]


def written(program: dialect.ProgramOp) -> frozenset[int]:
    """Which arguments of a ``ditron.program`` it may write: passes assume that those alias no other argument."""
    roots = {access.region.root for access in ProgramAccesses(program).all if access.writes and access.peer is None}
    return frozenset(index for index, argument in enumerate(program.block.arguments) if argument in roots)


class OverlapCheck:
    """Checks the arguments of each call: two comparisons of addresses per pair of which one is written.

    Args:
        name: of the program. names: of its parameters. writes: the indices of those that it writes. args: of a call;
            the calls that are checked have the same shapes and strides.
    """

    def __init__(self, name: str, names: Sequence[str], writes: frozenset[int], args: Sequence[Any]):
        self._name, self._names, self.writes = name, names, writes
        spans = {index: span(*_bytes(value)) for index, value in enumerate(args) if not isinstance(value, (int, float))}
        self._args = tuple(None if isinstance(value, (int, float)) else _bytes(value) for value in args)
        self._pairs = [
            (i, j, m, n)
            for i, m in spans.items()
            for j, n in spans.items()
            if m and n and i < j and (i in writes or j in writes)
        ]
        self._disjoint: set[tuple[int, int, int]] = (
            set()
        )  # pairs and distances at which rows interleave without overlap

    def check(self, bases: Sequence[int]) -> None:
        """Raise DitronError when a tensor that is written overlaps another one; ``bases`` are the addresses."""
        for i, j, m, n in self._pairs:
            if bases[i] < bases[j] + n and bases[j] < bases[i] + m:
                self._check_exactly(i, j, bases[j] - bases[i])

    def are_apart(self, bases: Sequence[int]) -> bool:
        """Whether each tensor that is written begins behind the end of any other, or ends before it."""
        for i, j, m, n in self._pairs:
            if bases[i] < bases[j] + n and bases[j] < bases[i] + m:
                return False
        return True

    def _check_exactly(self, i: int, j: int, distance: int) -> None:
        if (i, j, distance) in self._disjoint:
            return
        if overlap(*self._args[i], *self._args[j], distance):
            target, other = (self._names[k] for k in ((j, i) if j in self.writes else (i, j)))
            raise DitronError(
                f"program {self._name!r}: arguments {self._names[i]!r} and {self._names[j]!r} overlap in "
                f"memory, and the program writes {target!r}: give it tensors that do not overlap, such as "
                f"{other}.clone()"
            )
        self._disjoint.add((i, j, distance))


def _bytes(tensor: torch.Tensor) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Shape and strides of a tensor as one of bytes."""
    size = tensor.dtype.itemsize
    return (*tensor.shape, size), (*(stride * size for stride in tensor.stride()), 1)
