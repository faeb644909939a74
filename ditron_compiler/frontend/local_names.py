"""Which names of a kernel are local, where Triton takes them for globals."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from triton.compiler.code_generator import get_jit_fn_file_line
from triton.runtime.jit import JITFunction

from ditron_compiler.source_location import SourceLocation

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
            if self.hash is not None:
                return super().cache_key
            scope = self.__globals__
            local = frozenset(self.fn.__code__.co_varnames) & scope.keys()
            if local:
                self.__globals__ = _GlobalsWithoutLocals(scope, local)
            try:
                return super().cache_key
            except AttributeError as error:  # of a global, as dl.notfy
                raise self._at_attribute(error.name).error(str(error)) from None
            except RuntimeError as error:  # a call of what is no JIT function
                raise SourceLocation.of_function(self.fn.__code__).error(f"kernel {self.__name__!r}: {error}") from None
            finally:
                self.__globals__ = scope

    def _at_attribute(self, name: str | None) -> SourceLocation:
        """Where the attribute is first, or where the function begins."""
        here = SourceLocation.of_function(self.fn.__code__)
        nodes = [node for node in ast.walk(self.parse()) if isinstance(node, ast.Attribute) and node.attr == name]
        first = min((node.lineno for node in nodes), default=None)
        return here if first is None else replace(here, line=get_jit_fn_file_line(self)[1] + first - 1)
