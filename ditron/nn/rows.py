"""Activations ``[.., features]`` as matrices whose rows are in the order of the sequence, which ranks divide."""

from __future__ import annotations

import torch

__all__ = ["restore", "rows_first"]


def rows_first(x: torch.Tensor, sequence_dim: int) -> tuple[torch.Tensor, torch.Size]:
    """``[sequence * others, features]`` and the other dimensions' extents; a copy if the sequence is not first."""
    x = x.movedim(sequence_dim, 0)
    return x.reshape(-1, x.shape[-1]), x.shape[1:-1]


def restore(rows: torch.Tensor, sequence_dim: int, between: torch.Size) -> torch.Tensor:
    """The inverse of :func:`rows_first`, for any length of the sequence and any number of features; a view."""
    return rows.unflatten(0, (-1, *between)).movedim(0, sequence_dim) if between else rows
