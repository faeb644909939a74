"""What scripts draw at random: each rank has generators of its own, as processes have."""

from __future__ import annotations

import random
import sys
from typing import Any, NamedTuple

import torch

__all__ = ["Randomness"]


class _State(NamedTuple):
    """Of torch's generator for CPU tensors, of ``random``, and of ``numpy.random`` if anybody uses it."""

    torch: torch.Tensor
    random: tuple
    numpy: Any

    @classmethod
    def now(cls) -> _State:
        numpy = sys.modules.get("numpy")
        return cls(torch.default_generator.get_state(), random.getstate(), numpy and numpy.random.get_state())

    @classmethod
    def of_new_process(cls, seed: int, rank: int) -> _State:
        """``random`` and numpy begin with what the machine has at the time: here with what repeats."""
        numpy = sys.modules.get("numpy")
        return cls(
            torch.Generator().get_state(),
            random.Random(f"{seed}, {rank}").getstate(),
            numpy and numpy.random.RandomState((seed % 2**32, rank)).get_state(),
        )

    def use(self) -> None:
        torch.default_generator.set_state(self.torch)
        random.setstate(self.random)
        if self.numpy is not None:
            sys.modules["numpy"].random.set_state(self.numpy)


class Randomness:
    """The states of all ranks, of which one is in use.

    Args:
        fresh: begin like new processes do. Otherwise each rank goes on from where the caller is.
    """

    def __init__(self, ranks: int, seed: int, fresh: bool):
        self._outside = _State.now()
        self._states = [_State.of_new_process(seed, rank) if fresh else self._outside for rank in range(ranks)]
        self._rank: int | None = None

    def switch_to(self, rank: int) -> None:
        """From now on ``rank`` draws."""
        if rank != self._rank:
            if self._rank is not None:
                self._states[self._rank] = _State.now()
            self._states[rank].use()
            self._rank = rank

    def end(self) -> None:
        """The caller draws what it would have drawn without ranks."""
        self._outside.use()
