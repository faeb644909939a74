"""An operator against the same thing in plain torch: its inputs, and how its errors are measured."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import torch

#: Errors of operators that round once or twice; a case multiplies them.
BOUND = {torch.float32: 2e-5, torch.bfloat16: 2e-2, torch.float16: 3e-3}


def rand(*shape: int, scale: float = 1.0) -> Callable[[torch.dtype], torch.Tensor]:
    return lambda dtype: (torch.randn(shape) * scale).to(dtype)


def labels(count: int, classes: int, ignored: int = 1) -> Callable[[torch.dtype], torch.Tensor]:
    def make(_: torch.dtype) -> torch.Tensor:
        made = torch.randint(classes, (count,))
        made[:ignored] = -100
        return made

    return make


def given(*makers: Any) -> Callable[[torch.dtype], tuple]:
    return lambda dtype: tuple(m(dtype) if callable(m) else m for m in makers)


def errors(
    inputs: tuple,
    ours: Callable,
    plain: Callable,
    fixed: Collection[int] = (),
    forward_only: bool = False,
    more_results: bool = False,
) -> tuple[float, float | None]:
    """The largest errors of the results and of the gradients, over the largest number in them.

    ``plain`` gets the inputs in float32. Those numbered in ``fixed`` get no gradient, and with ``forward_only`` none
    does: then the second error is None, as it is without a floating-point input. With ``more_results``, ``ours`` may
    give results that ``plain`` does not, behind the others: what it keeps for its backward.
    """
    wanted = [not forward_only and i not in fixed for i in range(len(inputs))]
    mine = [_leaf(v, w) for v, w in zip(inputs, wanted, strict=True)]
    theirs = [_leaf(v.float() if v.is_floating_point() else v, w) for v, w in zip(inputs, wanted, strict=True)]
    results = _tuple(ours(*[v.clone() for v in mine]))  # operators may write on what they are given
    expected = _tuple(plain(*theirs))
    if more_results:
        results = results[: len(expected)]
    assert len(results) == len(expected), f"{len(results)} results, expected {len(expected)}"
    forward = max(_error(r.detach(), e.detach()) for r, e in zip(results, expected, strict=True))
    if not any(v.requires_grad for v in mine):
        return forward, None
    grads = [torch.randn(e.shape) for e in expected]
    torch.autograd.backward(results, [g.to(r.dtype, copy=True) for g, r in zip(grads, results, strict=True)])
    torch.autograd.backward(expected, grads)
    return forward, max(_error(a.grad, b.grad) for a, b in zip(mine, theirs, strict=True) if a.requires_grad)


def _leaf(value: torch.Tensor, wanted: bool) -> torch.Tensor:
    value = value.detach().clone()
    return value.requires_grad_() if wanted and value.is_floating_point() else value


def _tuple(value: Any) -> tuple:
    return value if isinstance(value, tuple) else (value,)


def _error(got: torch.Tensor | None, want: torch.Tensor) -> float:
    assert got is not None, "no gradient"
    assert got.shape == want.shape, f"shape {tuple(got.shape)}, expected {tuple(want.shape)}"
    difference = (got.float() - want.float()).abs().max().item()
    return difference / max(1e-3, want.abs().max().item())
