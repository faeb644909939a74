"""How far a result in floating point may lie from the exact one, by the number of operations: on every CPU.

The bounds are Higham's (Accuracy and Stability of Numerical Algorithms, 3.1): they hold in whatever order sums are
made, and with or without fused multiply-add.
"""

from __future__ import annotations

import torch


def gamma(n: int, dtype: torch.dtype = torch.float32) -> float:
    """Bound of the relative error after `n` roundings: n u / (1 - n u), u the unit roundoff."""
    rounded = n * torch.finfo(dtype).eps / 2
    return rounded / (1 - rounded)


def assert_error_within(got: torch.Tensor, exact: torch.Tensor, bound: torch.Tensor | float) -> None:
    """|got - exact| <= bound, elementwise; `got` may have been rounded once more, to a dtype narrower than float32."""
    assert got.shape == exact.shape and exact.dtype == torch.float64, (got.shape, exact.shape, exact.dtype)
    if torch.finfo(got.dtype).bits < 32:
        info = torch.finfo(got.dtype)
        bound = bound + info.eps / 2 * (exact.abs() + bound) + info.smallest_normal * info.eps
    error = (got.double() - exact).abs()
    worst = (error - bound).argmax()
    assert (error <= bound).all(), (
        f"element {worst.item()} (flat): got {got.flatten()[worst].item()}, exact {exact.flatten()[worst].item()}, "
        f"error {error.flatten()[worst].item():.3g}"
    )


def assert_product(got: torch.Tensor, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor | float = 0.0) -> None:
    """`got` is c + a @ b, summed in float32: within gamma(K + 1) (|c| + |a| |b|)."""
    a, b = a.double(), b.double()
    c = c.double() if isinstance(c, torch.Tensor) else torch.tensor(c, dtype=torch.float64)
    assert_error_within(got, c + a @ b, gamma(a.shape[-1] + 1) * (c.abs() + a.abs() @ b.abs()))
