"""A mapping of bounded size."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

__all__ = ["LruCache"]


class LruCache:
    """Keeps the ``limit`` values that were looked up last."""

    def __init__(self, limit: int):
        self._limit = limit
        self._entries: OrderedDict[Any, Any] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: Any) -> Any:
        """The value, or None."""
        found = self._entries.get(key)
        if found is not None:
            self._entries.move_to_end(key)
        return found

    def __setitem__(self, key: Any, value: Any) -> None:
        self._entries[key] = value
        if len(self._entries) > self._limit:
            self._entries.popitem(last=False)

    def clear(self) -> None:
        """Forget all."""
        self._entries.clear()
