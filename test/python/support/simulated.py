"""Functions on simulated ranks, and their random data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

import ditron


def run(main: Callable[[], Any], **options: Any) -> list:
    """What ``main()`` returns on each rank; ``options`` are those of :func:`ditron.sim.run`."""

    def rank() -> Any:
        ditron.init()
        return main()

    return ditron.sim.run(rank, **options)


def run_numbered(main: Callable[[int], Any], ranks: int = 2, **options: Any) -> list:
    """What ``main(rank)`` returns on each rank."""
    return run(lambda: main(ditron.rank()), ranks=ranks, **options)


def data(*shape: int, seed: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    """The same normally distributed numbers wherever it is called."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def weight(b: torch.Tensor, layout: str) -> torch.Tensor:
    """``b``, or a tensor like it whose memory is its transpose."""
    return b if layout == "nk" else b.t().contiguous().t()
