"""The functions that kernels compiled for the simulator may call: a runtime registers them, the JIT links to them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

__all__ = ["addresses", "register"]

_tables: list[Callable[[], Mapping[str, int]]] = []


def register(table: Callable[[], Mapping[str, int]]) -> None:
    """Add a runtime: `table()` gives the address of each of its functions by name."""
    if table not in _tables:
        _tables.append(table)


def addresses() -> dict[str, int]:
    """The address of each function that is registered."""
    return {name: address for table in _tables for name, address in table().items()}
