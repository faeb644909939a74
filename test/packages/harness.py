"""What the comparisons with other packages share: a case, its inputs, and its errors."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).resolve().parents[1] / "python" / "support")]

import torch  # noqa: E402
from plain_torch import BOUND, errors, given, rand  # noqa: E402, F401


@dataclass(frozen=True)
class Case:
    """One operator: ``ours(*inputs)`` is the package's, ``plain(*inputs)`` the same in plain torch, in float32."""

    inputs: Callable[[torch.dtype], tuple]
    ours: Callable[..., Any]
    plain: Callable[..., Any]
    dtypes: tuple = (torch.float32, torch.bfloat16)
    fixed: tuple[int, ...] = ()  # inputs that get no gradient
    tolerance: float = 1.0  # times the dtype's bound
    forward_only: bool = False  # the operator has no backward


def tensor(make: Callable[[], torch.Tensor]) -> Callable[[torch.dtype], torch.Tensor]:
    """An input that ``make`` makes; integers stay what they are."""
    return lambda dtype: made.to(dtype) if (made := make()).is_floating_point() else made


def measure(this: Case, dtype: torch.dtype) -> tuple[float, float | None, float]:
    """The errors of the results and of the gradients, and their bound."""
    torch.manual_seed(0)
    forward, backward = errors(this.inputs(dtype), this.ours, this.plain, this.fixed, this.forward_only)
    return forward, backward, BOUND[dtype] * this.tolerance
