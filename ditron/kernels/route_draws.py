"""Which experts tokens go to where no router says it: drawn, by a distribution that a user names."""

from __future__ import annotations

import math
import operator
import re
from dataclasses import dataclass

import torch

from ditron.distributed.group import Group
from ditron.distributed.torch_groups import AnyGroup
from ditron.kernels.operands import in_group
from ditron_compiler.errors import DitronError

__all__ = ["RouteDistribution", "are_drawn", "draw_routes"]

_FORMS = "expected 'uniform', 'zipf:S' with an exponent S from 0 on, as zipf:1.2, or 'onehot'"
_MOST = 1 << 48  # times a number of ranks it is still a seed of torch's


@dataclass(frozen=True)
class RouteDistribution:
    """How likely experts are, each token choosing ``top_k`` different ones.

    ``uniform``: all alike. ``zipf:S``: that of rank n in a popularity list has weight n ** -S, and the list is in an
    order that looks random, the same everywhere. ``onehot``: one of them is chosen by every token, the others alike.

    Attributes:
        exponent: S; 0 of the others. is_onehot: whether it is ``onehot``.
    """

    exponent: float = 0.0
    is_onehot: bool = False

    @classmethod
    def parse(cls, text: str) -> RouteDistribution:
        """Raises ValueError for what is no distribution."""
        if text in ("uniform", "onehot"):
            return cls(is_onehot=text == "onehot")
        found = re.fullmatch(r"zipf:(\d+(?:\.\d*)?|\.\d+)", text) if isinstance(text, str) else None
        if found is None or not math.isfinite(float(found[1])):
            raise ValueError(f"{text!r} is no distribution of routes: {_FORMS}")
        return cls(float(found[1]))

    def choose(self, numbers: torch.Tensor, top_k: int) -> torch.Tensor:
        """Experts ``[..., top_k]``, the first choice first, of random ``numbers`` ``[..., experts]`` in [0, 1).

        Without replacement by weights: experts are taken in the order in which exponential clocks of rates that are the
        weights ring (Efraimidis and Spirakis, 2006), which is that of ``log(number) / weight``, from 0 down.
        """
        popularity = self._popularity(numbers.shape[-1]).to(numbers.device)
        if self.exponent:
            numbers = numbers.clamp(min=torch.finfo(numbers.dtype).tiny).log() * popularity**self.exponent
        elif self.is_onehot:
            numbers = torch.where(popularity == 1, 2.0, numbers)
        return numbers.topk(top_k, -1).indices

    def draw(
        self, tokens: int, experts: int, top_k: int, seed: int, device: torch.device | str = "cpu"
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Experts and weights ``[tokens, top_k]``, int32 and float32."""
        numbers = torch.rand(tokens, experts, device=device, generator=torch.Generator(device).manual_seed(seed))
        ids = self.choose(numbers, top_k)
        return ids.int(), numbers.gather(1, ids)

    @staticmethod
    def _popularity(experts: int) -> torch.Tensor:
        """Of each expert its place in the list, from 1 on."""
        return torch.randperm(experts, generator=torch.Generator().manual_seed(experts)) + 1


def draw_routes(
    tokens: int, experts: int, top_k: int, distribution: str | None = None, *, seed: int = 0, group: AnyGroup = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Routes of this rank's tokens, drawn: to predict or to measure a mixture of experts under a skew.

    Args:
        tokens: of this rank. experts: of all ranks together. top_k: different ones for each token.
        distribution: ``"uniform"``; ``"zipf:1.2"``: the n-th most popular expert has weight n ** -1.2, and popular ones
            are spread over the ranks; ``"onehot"``: every token goes to one expert, and otherwise uniformly. Default:
            what ``ditron run --routing`` or ``sim.predict(routing=)`` says, or uniform.
        seed: other routes; those of ranks differ. group: the ranks; default the current group.

    Returns ``topk_ids`` and ``topk_weights`` [tokens, top_k], int32 and float32, on the group's device, as ``moe_plan``
    and ``ep_moe`` take them. Raises DitronError for another distribution, more experts of a token than there are, or
    what is no integer.

        ids, weights = ditron.kernels.draw_routes(4096, experts=128, top_k=8)
    """
    with in_group(group, "draw_routes") as group:
        tokens, experts = _integer("tokens", tokens), _integer("experts", experts)
        top_k, seed = _integer("top_k", top_k), _integer("seed", seed)
        if not 0 < top_k <= experts or tokens < 0:
            raise DitronError(f"draw_routes: {tokens} tokens cannot choose {top_k} of {experts} experts each")
        if distribution is None:
            distribution = group.world.routing() if group.is_sim else "uniform"  # type: ignore[attr-defined]
        try:
            chosen = RouteDistribution.parse(distribution)
        except ValueError as error:
            raise DitronError(f"draw_routes: {error}") from None
        return chosen.draw(tokens, experts, top_k, seed * group.num_ranks + group.rank, group.device)


def _integer(name: str, value: int) -> int:
    try:
        number = int(operator.index(value))
    except TypeError:
        number = _MOST
    if abs(number) >= _MOST:
        raise DitronError(f"draw_routes: {name} must be an integer of at most 48 bits, got {value!r}")
    return number


def are_drawn(group: Group) -> bool:
    """Whether a router has no scores to go by: in timing-only mode nothing computes them."""
    return group.is_sim and not group.is_captured and group.world.timing_only  # type: ignore[attr-defined]
