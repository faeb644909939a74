"""Diagnostics of Triton's frontend and of our passes, as errors at the user's Python line."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ditron_compiler import ir

__all__ = ["compile_error", "explained", "locate_frontend_errors", "raise_compile_errors"]


def compile_error(error: ir.MLIRError) -> Exception:
    """The ``ditron.CompileError`` of the first diagnostic that ``error`` carries; the rest becomes notes."""
    from ditron_compiler.errors import CompileError

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


@contextmanager
def locate_frontend_errors() -> Iterator[None]:
    """Within it, Triton's CompilationError gets a note with file, line and caret.

    Triton's own has lines relative to the function only. The innermost error of a chain is the cause; those around it
    are the calls through which it was reached.
    """
    from triton.compiler.errors import CompilationError

    try:
        yield
    except CompilationError as error:
        explanation = _explain(error, CompilationError)
        if explanation is not None:
            error.ditron_explanation = explanation
            error.add_note(str(explanation))
        raise


def explained(error: BaseException) -> Exception | None:
    """The CompileError that :func:`locate_frontend_errors` derived from ``error``, if any."""
    return getattr(error, "ditron_explanation", None)


def _explain(error: BaseException, kind: type) -> Exception | None:
    from ditron_compiler.errors import CompileError

    chain = [error]
    while isinstance(chain[-1].__cause__, kind):
        chain.append(chain[-1].__cause__)
    places = [_generator_location(link) for link in chain]
    if places[-1] is None:
        return None
    inner = chain[-1]
    cause = str(inner.__cause__) if inner.__cause__ else "this does not compile"
    message = _recursion(inner) or inner.error_message or cause
    notes = tuple((*place, "called from here") for place in reversed(places[:-1]) if place is not None)
    return CompileError(str(message), *places[-1], notes=notes)


def _recursion(error: Any) -> str | None:
    """The message for recursion: Triton looks up the result type of a function it is compiling, a KeyError."""
    cause = error.__cause__ or error.__context__
    frame = cause.__traceback__ if isinstance(cause, KeyError) else None
    while frame is not None and frame.tb_next is not None:
        frame = frame.tb_next
    if frame is None or frame.tb_frame.f_code.co_name != "call_JitFunction":
        return None
    name = frame.tb_frame.f_locals["fn"].__name__
    return f"{name} calls itself, and kernels have no recursion: write it as a loop"


def _generator_location(error: Any) -> tuple[str, int, int] | None:
    """What Triton's code generator was compiling when it raised; its frames are in the traceback."""
    place, frame = None, error.__traceback__
    while frame is not None:
        generator = frame.tb_frame.f_locals.get("self")
        if hasattr(generator, "begin_line") and hasattr(generator, "jit_fn") and hasattr(error.node, "lineno"):
            if generator.jit_fn.src == error.src:
                place = (generator.file_name, generator.begin_line + error.node.lineno, _column(generator, error.node))
        frame = frame.tb_next
    return place


def _column(generator: Any, node: Any) -> int:
    """1-based column; the syntax tree is that of the dedented source."""
    first = generator.jit_fn.raw_src[0]
    return len(first) - len(first.lstrip()) + node.col_offset + 1
