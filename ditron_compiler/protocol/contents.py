"""What integers are in memory, as far as that is known: bytes, by rank and buffer.

A buffer's contents begin as zeros, as what the host code has put there, or unknown. Stores of integers, atomics, copies
and puts move them; what stores of other data write is not known afterwards.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from ditron_compiler.protocol.memory import HeapBuffer, Span, parts
from ditron_compiler.protocol.values import UNKNOWN

__all__ = ["Contents"]

#: Of a larger buffer nothing is known.
_MAX_BYTES = 1 << 26
_TYPES = {1: np.int8, 2: np.int16, 4: np.int32, 8: np.int64}
_SHIFT = 36  # a pointer's bits above the offset: its rank and buffer


class Contents:
    """The memory of all ranks."""

    def __init__(self, roots: Mapping[int, HeapBuffer]):
        self._roots = roots
        self._bytes: dict[int, tuple[np.ndarray, np.ndarray] | None] = {}  # contents, and which of them are known
        self._all_lost = False
        self._lost: set[int] = set()  # buffers whose contents became unknown before they were needed
        self._words: dict[int, set[str]] = {}  # of buffers, of any rank: the kinds of words (words.py) that they hold

    def load(self, pointers: Any, size: int, mask: Any = True, other: Any = 0) -> Any:
        """The integers at ``pointers``, one or a tile; where ``mask`` is false, ``other``. UNKNOWN if any is."""
        if isinstance(pointers, (int, np.integer)):
            if mask is not True and not np.any(mask):
                return other
            return self._one(int(pointers), size)
        if mask is True and np.ndim(other) == 0:  # what loops poll: without broadcasts, which take longer than the rest
            value, known = self._gather(np.reshape(pointers, -1), size)
            return value.reshape(np.shape(pointers)) if known.all() else UNKNOWN
        shape = np.broadcast_shapes(np.shape(pointers), np.shape(mask), np.shape(other) if other is not UNKNOWN else ())
        active = np.broadcast_to(np.asarray(mask, dtype=bool), shape)
        flat = np.broadcast_to(pointers, shape)[active]
        value, known = self._gather(flat, size)
        if not known.all() or (other is UNKNOWN and not active.all()):
            return UNKNOWN
        result = np.array(np.broadcast_to(0 if other is UNKNOWN else other, shape), dtype=np.int64)
        result[active] = value
        return result

    def store(self, pointers: Any, size: int, values: Any, mask: Any = True) -> None:
        """Write integers, one or a tile, where ``mask`` is true; of values that are UNKNOWN nothing is known after."""
        if mask is True and isinstance(pointers, (int, np.integer)) and (values is UNKNOWN or isinstance(values, int)):
            return self._store_one(int(pointers), size, values)  # a cell: without broadcasts, which take longer
        shape = np.broadcast_shapes(np.shape(pointers), np.shape(mask))
        active = np.broadcast_to(np.asarray(mask, dtype=bool), shape)
        flat = np.broadcast_to(pointers, shape)[active]
        if isinstance(values, int):
            values = (values + (1 << 63)) % (1 << 64) - (1 << 63)
        if values is not UNKNOWN:
            values = np.asarray(values, dtype=np.int64)
            values = np.broadcast_to(values.reshape(()) if values.size == 1 else values, shape)[active]
        for key, chosen, offsets in _by_buffer(flat):
            if values is UNKNOWN and key not in self._bytes:
                self._lost.add(key)
            elif (found := self._of(key)) is not None:
                data, known = found
                at = offsets[:, None] + np.arange(size)
                inside = (offsets >= 0) & (offsets + size <= len(data))
                known[at[inside]] = values is not UNKNOWN
                if values is not UNKNOWN:
                    raw = np.ascontiguousarray(values[chosen].astype(_TYPES[size])).view(np.uint8).reshape(-1, size)
                    data[at[inside]] = raw[inside]

    def forget(self, span: Span) -> None:
        """Something that is not known was written to these bytes."""
        for low, high in span.tolist():
            key, _, offset = low >> _SHIFT, *parts(low)[1:]
            if key not in self._bytes:
                self._lost.add(key)
            elif (found := self._bytes[key]) is not None:
                found[1][max(offset, 0) : offset + high - low] = False

    def forget_all(self) -> None:
        """Something that is not known was written, and nobody knows where."""
        for found in self._bytes.values():
            if found is not None:
                found[1][:] = False
        self._all_lost = True

    def mark_words(self, pointers: Any, kinds: set[str]) -> None:
        """Words (words.py) are stored there."""
        for pointer in np.unique(pointers).tolist():
            self._words.setdefault(parts(pointer)[1], set()).update(kinds)

    def kinds_of_words(self, pointers: Any) -> set[str]:
        """Of the words that are in the buffers of the pointers."""
        if not self._words:
            return set()
        return set().union(*(self._words.get(parts(pointer)[1], ()) for pointer in np.unique(pointers).tolist()))

    def bytes_of(self, pointer: int, nbytes: int) -> tuple[np.ndarray, np.ndarray] | None:
        """A copy of bytes, and which of them are known; None where none is."""
        if self.kinds_of_words(pointer):
            return None
        return self._slice(pointer, pointer + nbytes)

    def copy(self, source: Span, target: Span) -> None:
        """Copy bytes, in the order of both; one span may be longer."""
        if kinds := self.kinds_of_words(source[:, 0]):
            self.mark_words(target[:, 0], kinds)
        got = [self._slice(low, high) for low, high in source.tolist()]
        if all(piece is None for piece in got) and all(low >> _SHIFT not in self._bytes for low, _ in target.tolist()):
            self._lost.update(low >> _SHIFT for low, _ in target.tolist())
            return
        if not got:
            return
        sizes = np.diff(source).reshape(-1).tolist()
        unknown = [(np.zeros(size, np.uint8), np.zeros(size, bool)) for size in sizes]
        pieces = [there if piece is None else piece for piece, there in zip(got, unknown, strict=True)]
        data, known = (np.concatenate(parts) for parts in zip(*pieces, strict=True))
        at = 0
        for low, high in target.tolist():
            self.put(low, data[at : at + high - low], known[at : at + high - low])
            at += high - low

    def put(self, pointer: int, data: np.ndarray, known: Any = True) -> None:
        """Write bytes at ``pointer``."""
        found, offset = self._of(pointer >> _SHIFT), parts(pointer)[2]
        if found is not None and offset >= 0:
            end = min(offset + len(data), len(found[0]))
            found[0][offset:end] = data[: end - offset]
            found[1][offset:end] = known if isinstance(known, bool) else known[: end - offset]

    def _slice(self, low: int, high: int) -> tuple[np.ndarray, np.ndarray] | None:
        """The bytes of a run, and which are known; None where none is."""
        key, offset = low >> _SHIFT, parts(low)[2]
        found = self._of(key) if self._is_integer(key) or key in self._bytes else None
        if found is None or offset < 0 or offset + high - low > len(found[0]):
            return None
        return tuple(part[offset : offset + high - low].copy() for part in found)

    def _is_integer(self, key: int) -> bool:
        root = self._roots.get(key & 0xFFFF)
        return root is not None and root.integer

    def _one(self, pointer: int, size: int) -> Any:
        offset = (pointer & ((1 << _SHIFT) - 1)) - (1 << (_SHIFT - 1))
        if (found := self._of(pointer >> _SHIFT)) is None or not 0 <= offset <= len(found[0]) - size:
            return UNKNOWN
        bytes_ = slice(offset, offset + size)
        return int(found[0][bytes_].view(_TYPES[size])[0]) if found[1][bytes_].all() else UNKNOWN

    def _store_one(self, pointer: int, size: int, value: Any) -> None:
        key, offset = pointer >> _SHIFT, (pointer & ((1 << _SHIFT) - 1)) - (1 << (_SHIFT - 1))
        if value is UNKNOWN and key not in self._bytes:
            self._lost.add(key)
        elif (found := self._of(key)) is not None and 0 <= offset <= len(found[0]) - size:
            bytes_ = slice(offset, offset + size)
            found[1][bytes_] = value is not UNKNOWN
            if value is not UNKNOWN:
                found[0][bytes_] = np.frombuffer((value % (1 << 8 * size)).to_bytes(size, "little"), np.uint8)

    def _gather(self, pointers: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray]:
        value, known = np.zeros(len(pointers), np.int64), np.zeros(len(pointers), bool)
        for key, chosen, offsets in _by_buffer(pointers):
            if (found := self._of(key)) is None:
                continue
            inside = (offsets >= 0) & (offsets + size <= len(found[0]))
            at = np.where(inside, offsets, 0)[:, None] + np.arange(size)
            if at.size and at.max() < len(found[0]):
                value[chosen] = np.ascontiguousarray(found[0][at]).view(_TYPES[size]).reshape(-1)
                known[chosen] = found[1][at].all(axis=1) & inside
        return value, known

    def _of(self, key: int) -> tuple[np.ndarray, np.ndarray] | None:
        if key not in self._bytes:
            root = self._roots.get(key & 0xFFFF)
            if root is None or key >> 16 <= 0 or not 0 < root.nbytes <= _MAX_BYTES:
                self._bytes[key] = None
            else:
                data, known = np.zeros(root.nbytes, np.uint8), np.zeros(root.nbytes, bool)
                if key not in self._lost and not self._all_lost:
                    if root.initial is not None:
                        data[:] = root.initial
                    known[:] = root.initial is not None or root.zeroed or not root.given
                self._bytes[key] = data, known
        return self._bytes[key]


def _by_buffer(pointers: np.ndarray) -> Iterator[tuple[int, Any, np.ndarray]]:
    """Rank and buffer as one number, which of ``pointers`` lead there, and their byte offsets."""
    keys = pointers >> _SHIFT
    offsets = (pointers & ((1 << _SHIFT) - 1)) - (1 << (_SHIFT - 1))
    if len(keys) and (keys == keys[0]).all():
        yield int(keys[0]), slice(None), offsets
        return
    for key in np.unique(keys):
        chosen = keys == key
        yield int(key), chosen, offsets[chosen]
