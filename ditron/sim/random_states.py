"""Random generators of host code: each rank has its own, as processes have."""

from __future__ import annotations

import random
import sys
from typing import Any, NamedTuple

import torch

__all__ = ["RandomStates"]


class _GeneratorStates(NamedTuple):
    """Of torch's generator for CPU tensors, of ``random``, and of ``numpy.random`` if anybody uses it."""

    torch: torch.Tensor
    random: tuple
    numpy: Any

    @classmethod
    def now(cls) -> _GeneratorStates:
        numpy = sys.modules.get("numpy")
        return cls(torch.default_generator.get_state(), random.getstate(), numpy and numpy.random.get_state())

    @classmethod
    def of_new_process(cls, seed: int, rank: int) -> _GeneratorStates:
        """``random`` and numpy seed themselves from the system: here from the run's seed."""
        numpy = sys.modules.get("numpy")
        return cls(
            torch.Generator().get_state(),
            random.Random(f"{seed}, {rank}").getstate(),
            numpy and numpy.random.RandomState((seed % 2**32, rank)).get_state(),
        )

    def restore(self) -> None:
        torch.default_generator.set_state(self.torch)
        random.setstate(self.random)
        if self.numpy is not None:
            sys.modules["numpy"].random.set_state(self.numpy)


class RandomStates:
    """The states of all ranks' generators, of which one rank's are in use.

    Args:
        fresh: begin like new processes do. Otherwise each rank continues from the caller's state.
    """

    def __init__(self, ranks: int, seed: int, fresh: bool):
        self._outside = _GeneratorStates.now()
        self._states = [
            _GeneratorStates.of_new_process(seed, rank) if fresh else self._outside for rank in range(ranks)
        ]
        self._rank: int | None = None

    def switch_to(self, rank: int) -> None:
        """From now on ``rank`` draws numbers."""
        if rank != self._rank:
            if self._rank is not None:
                self._states[self._rank] = _GeneratorStates.now()
            self._states[rank].restore()
            self._rank = rank

    def end(self) -> None:
        """Restore the caller's state from before the run."""
        self._outside.restore()
