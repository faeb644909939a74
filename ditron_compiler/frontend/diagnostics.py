"""Diagnostics of our passes, as errors at the user's Python line."""
from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ditron_compiler import ir

__all__ = ["compile_error", "raise_compile_errors"]


def compile_error(error: ir.MLIRError) -> Exception:
    """The ``ditron.CompileError`` of the first diagnostic that ``error`` carries; the rest becomes notes."""
    from ditron.errors import CompileError

    diagnostics = list(error.error_diagnostics)
    if not diagnostics:
        return CompileError(str(error))
    first, *others = diagnostics
    notes = [(*_place(note.location), note.message) for note in first.notes]
    notes += [(*_place(other.location), other.message) for other in others]
    notes = _callers(first.location) + notes
    return CompileError(first.message, *_place(first.location), notes=tuple(notes))


@contextmanager
def raise_compile_errors() -> Iterator[None]:
    """Within it, an ``MLIRError`` becomes a ``CompileError``."""
    try:
        yield
    except ir.MLIRError as error:
        raise compile_error(error) from error


def _place(location: Any) -> tuple[str | None, int, int]:
    place = location.file_line_col
    return place if place else (None, 0, 0)


def _callers(location: Any) -> list[tuple[str | None, int, int, str]]:
    """One note for each call through which an inlined helper was reached, innermost first."""
    notes: list = []
    while location.is_a_name() or location.is_a_callsite():
        if location.is_a_name():
            location = location.child_loc
            continue
        location, inner = location.caller, location.callee
        notes = _callers(inner) + notes + [(*_place(location), "called from here")]
    return notes
