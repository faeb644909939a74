"""Random numbers under fake CUDA: seeds, states, and generators of a CUDA device."""

from __future__ import annotations

from typing import Any

import torch

from ditron.sim.fake_cuda.cuda_streams import DEVICE

__all__ = ["DEFAULT", "SEEDS", "Generator"]

_Plain = torch.Generator


class _Generators(type(_Plain)):
    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, _Plain)


class Generator(_Plain, metaclass=_Generators):
    """``torch.Generator``; one of a CUDA device has a seed and an offset as its state, and the CPU's numbers."""

    def __new__(cls, device: Any = "cpu") -> Any:
        return super().__new__(cls, "cpu") if torch.device(device).type == "cuda" else _Plain(device)

    def __init__(self, device: Any = "cpu"):
        self._states: dict[tuple[int, int], torch.Tensor] = {}  # where in the CPU's numbers a seed and an offset are
        self._seed, self._offset = self._numbers.initial_seed(), 0
        self._remember()

    @property
    def _numbers(self) -> Any:
        """The CPU's generator."""
        return super()

    def _go(self, seed: int, offset: int) -> Generator:
        self._seed, self._offset = seed, offset
        known = self._states.get((seed, offset))
        if known is not None:
            self._numbers.set_state(known)
            self._here = known
        else:
            self._numbers.manual_seed(hash((seed, offset)) if offset else seed)
            self._remember()
        return self

    def _remember(self) -> None:
        self._here = self._states[self._seed, self._offset] = self._numbers.get_state()
        if len(self._states) > 1000:
            del self._states[next(iter(self._states))]

    @property
    def device(self) -> torch.device:
        return DEVICE

    def get_offset(self) -> int:
        state = self._numbers.get_state()
        if not torch.equal(state, self._here):  # numbers have been taken since
            self._offset += 4
            # Another offset than where other numbers were taken from the same place.
            while not torch.equal(self._states.get((self._seed, self._offset), state), state):
                self._offset += 4
            self._remember()
        return self._offset

    def get_state(self) -> torch.Tensor:
        return torch.tensor([self._seed, self.get_offset()]).view(torch.uint8)

    def set_state(self, new_state: torch.Tensor) -> Generator:
        seed, offset = new_state.clone().view(torch.int64).tolist()
        return self._go(seed, offset)

    def set_offset(self, offset: int) -> Generator:
        return self._go(self._seed, offset)

    def initial_seed(self) -> int:
        return self._seed

    def manual_seed(self, seed: int) -> Generator:
        self._states.pop((seed, 0), None)
        return self._go(seed, 0)

    def seed(self) -> int:
        return self._go(self._numbers.seed() >> 1, 0)._seed


class _Default(Generator):
    """The generator of the device: ``device="cuda"`` draws the CPU's numbers, so that it is the CPU's."""

    @property
    def _numbers(self) -> torch.Generator:
        return torch.default_generator


DEFAULT = _Default("cuda")

# What torch.cuda values.
SEEDS: dict[str, Any] = {
    "default_generators": (DEFAULT,),
    "manual_seed": lambda seed: DEFAULT.manual_seed(seed) and None,
    "manual_seed_all": lambda seed: DEFAULT.manual_seed(seed) and None,
    "initial_seed": lambda: DEFAULT.initial_seed(),
    "seed": lambda: DEFAULT.seed() and None,
    "seed_all": lambda: DEFAULT.seed() and None,
    "get_rng_state": lambda device="cuda": DEFAULT.get_state(),
    "get_rng_state_all": lambda: [DEFAULT.get_state()],
    "set_rng_state": lambda new_state, device="cuda": DEFAULT.set_state(new_state) and None,
    "set_rng_state_all": lambda new_states: DEFAULT.set_state(new_states[0]) and None,
}
