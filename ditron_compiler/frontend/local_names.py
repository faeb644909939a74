"""Which names of a kernel are local, where Triton takes them for globals."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from triton.runtime.jit import JITFunction

__all__ = ["KnowsItsLocals"]


class _GlobalsWithoutLocals(Mapping):
    """The globals of a function as Triton looks for what it depends on, without the names that are local to it.

    Triton takes a name that is used above its assignment, in a loop, for the global.
    """

    def __init__(self, scope: Mapping[str, Any], local: frozenset[str]):
        self._scope, self._local = scope, local

    def __getitem__(self, name: str) -> Any:
        if name in self._local:
            raise KeyError(name)
        return self._scope[name]

    def __iter__(self) -> Iterator[str]:
        return (name for name in self._scope if name not in self._local)

    def __len__(self) -> int:
        return sum(1 for _ in self)


class KnowsItsLocals(JITFunction):
    """A JIT function that may have locals of the name of a global."""

    @property
    def cache_key(self) -> str:
        with self._hash_lock:
            scope = self.__globals__
            local = frozenset(self.fn.__code__.co_varnames) & scope.keys()
            if self.hash is not None or not local:
                return super().cache_key
            self.__globals__ = _GlobalsWithoutLocals(scope, local)
            try:
                return super().cache_key
            finally:
                self.__globals__ = scope
