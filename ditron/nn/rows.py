"""Activations ``[.., features]`` as matrices whose rows are in the order of the sequence, which ranks divide."""

from __future__ import annotations

import torch

from ditron_compiler.errors import DitronError

__all__ = ["restore", "rows_first"]


def rows_first(x: torch.Tensor, sequence_dim: int) -> tuple[torch.Tensor, torch.Size]:
    """``[sequence * others, features]`` and the other dimensions' extents; a copy if the sequence is not first."""
    if x.ndim < 2 or sequence_dim % x.ndim == x.ndim - 1 or not -x.ndim <= sequence_dim < x.ndim:
        raise DitronError(
            f"a parallel layer got an input of shape {tuple(x.shape)}, whose dimension {sequence_dim} must be the "
            "sequence, and the last the features: give it that dimension, or the layer another sequence_dim"
        )
    x = x.movedim(sequence_dim, 0)
    return x.reshape(-1, x.shape[-1]), x.shape[1:-1]


def restore(rows: torch.Tensor, sequence_dim: int, between: torch.Size) -> torch.Tensor:
    """The inverse of :func:`rows_first`, for any length of the sequence and any number of features; a view."""
    return rows.unflatten(0, (-1, *between)).movedim(0, sequence_dim) if between else rows
