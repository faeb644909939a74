"""Which names of a kernel are local, where Triton takes them for globals."""

from __future__ import annotations

from typing import Any

from triton.runtime.jit import JITFunction

__all__ = ["KnowsItsLocals"]


class _GlobalsWithoutLocals(dict):
    """The globals of a function as Triton looks for what it depends on, without the names that are local to it.

    Triton takes a name that is used above its assignment, in a loop, for the global.
    """

    def __init__(self, scope: dict[str, Any], local: frozenset[str]):
        super().__init__()
        self._scope, self._local = scope, local

    def get(self, name: str, default: Any = None) -> Any:
        return default if name in self._local else self._scope.get(name, default)


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
