"""Operations on whole tiles of integers: reductions, scans, histograms, gathers (see :mod:`.values`)."""

from __future__ import annotations

from typing import Any

import numpy as np

from ditron_compiler.protocol.values import UNKNOWN, any_unknown

__all__ = ["catenated", "gathered", "histogram", "joined", "reduced", "reduced_with_index", "scanned", "split_part"]

_UFUNCS = {
    "add": np.add,
    "mul": np.multiply,
    "min": np.minimum,
    "max": np.maximum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}


def _whole(a: Any, shape: tuple[int, ...]) -> np.ndarray:
    return np.broadcast_to(np.asarray(a), shape)


def _plain(result: Any) -> Any:
    """A single value as a Python number."""
    return result.item() if np.ndim(result) == 0 else result


def reduced(kind: str, a: Any, shape: tuple[int, ...], axis: int) -> Any:
    """All elements along an axis combined, as ``kind`` says."""
    if any_unknown(a) or kind not in _UFUNCS:
        return UNKNOWN
    return _plain(_UFUNCS[kind].reduce(_whole(a, shape), axis=axis))


def reduced_with_index(largest: bool, value: bool, a: Any, index: Any, shape: tuple[int, ...], axis: int) -> Any:
    """The largest, or smallest, element along an axis, or its index: the first of equal ones."""
    if any_unknown(a, index):
        return UNKNOWN
    whole = _whole(a, shape)
    where = np.expand_dims((np.argmax if largest else np.argmin)(whole, axis=axis), axis)
    return _plain(np.take_along_axis(whole if value else _whole(index, shape), where, axis).squeeze(axis))


def scanned(kind: str, a: Any, shape: tuple[int, ...], axis: int, reverse: bool) -> Any:
    """Each element combined with all before it (``reverse``: after it) along an axis."""
    if any_unknown(a) or kind not in _UFUNCS:
        return UNKNOWN
    whole = _whole(a, shape)
    if reverse:
        return np.flip(_UFUNCS[kind].accumulate(np.flip(whole, axis), axis=axis), axis)
    return _UFUNCS[kind].accumulate(whole, axis=axis)


def histogram(a: Any, mask: Any, shape: tuple[int, ...], bins: int) -> Any:
    """How often each of 0 to ``bins`` occurs where the mask is true."""
    if any_unknown(a, mask):
        return UNKNOWN
    kept = _whole(a, shape)[_whole(mask, shape).astype(bool)]
    return np.bincount(kept[(kept >= 0) & (kept < bins)], minlength=bins).astype(np.int64)


def gathered(a: Any, index: Any, shape: tuple[int, ...], index_shape: tuple[int, ...], axis: int) -> Any:
    """Elements along an axis, by their indices."""
    if any_unknown(a, index):
        return UNKNOWN
    return np.take_along_axis(_whole(a, shape), _whole(index, index_shape), axis)


def joined(a: Any, b: Any, shape: tuple[int, ...]) -> Any:
    """Two tiles side by side in a new last dimension."""
    return UNKNOWN if any_unknown(a, b) else np.stack((_whole(a, shape), _whole(b, shape)), axis=-1)


def split_part(a: Any, shape: tuple[int, ...], part: int) -> Any:
    """One of the two halves that the last dimension holds."""
    return UNKNOWN if any_unknown(a) else _plain(_whole(a, shape)[..., part])


def catenated(a: Any, b: Any, shape: tuple[int, ...]) -> Any:
    """Two tiles one after the other."""
    return UNKNOWN if any_unknown(a, b) else np.concatenate((_whole(a, shape), _whole(b, shape)))
