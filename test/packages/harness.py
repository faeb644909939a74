"""What the comparisons with other packages share: a case, its inputs, and how errors are measured."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).resolve().parents[1] / "python")]

import torch  # noqa: E402
from liger_cases import _error, _leaf, _tuple, given, rand  # noqa: E402, F401

_BOUND = {torch.float32: 2e-5, torch.bfloat16: 2e-2, torch.float16: 3e-3}


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
    """The largest error of the results and of the gradients, over the largest number in them, and the bound."""
    torch.manual_seed(0)
    inputs = this.inputs(dtype)
    wanted = [not this.forward_only and i not in this.fixed for i in range(len(inputs))]
    ours = [_leaf(v, w) for v, w in zip(inputs, wanted, strict=True)]
    theirs = [_leaf(v.float() if v.is_floating_point() else v, w) for v, w in zip(inputs, wanted, strict=True)]
    results = _tuple(this.ours(*[v.clone() for v in ours]))  # operators may write on what they are given
    expected = _tuple(this.plain(*theirs))
    assert len(results) == len(expected), f"{len(results)} results, expected {len(expected)}"
    forward = max(_error(r.detach(), e.detach().float()) for r, e in zip(results, expected, strict=True))
    backward = None
    if any(v.requires_grad for v in ours):
        grads = [torch.randn(e.shape) for e in expected]
        torch.autograd.backward(list(results), [g.to(r.dtype) for g, r in zip(grads, results, strict=True)])
        torch.autograd.backward(list(expected), grads)
        backward = max(_error(a.grad, b.grad) for a, b in zip(ours, theirs, strict=True) if a.requires_grad)
    return forward, backward, _BOUND[dtype] * this.tolerance
