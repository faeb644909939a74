"""Whether a check of results that fails, because nothing is computed, hides what would have come after it."""

from __future__ import annotations

import ast
import inspect
import textwrap
import traceback
from collections.abc import Iterator, Sequence
from types import CodeType

__all__ = ["cuts_short"]

_LOOPS = (ast.For, ast.While, ast.AsyncFor)
_LAST_WORDS = (ast.Assert, ast.Return, ast.Pass)  # behind which nothing is launched


def cuts_short(error: AssertionError, foreign: tuple[str, ...]) -> bool:
    """Whether a function that ``error`` has ended had more to do: there are other statements behind, or a loop around.

    Functions in files whose names begin with one of ``foreign`` are not looked at; one without source had more to do.
    """
    return any(
        not _is_last(frame.f_code, line)
        for frame, line in traceback.walk_tb(error.__traceback__)
        if not frame.f_code.co_filename.startswith(foreign)
    )


def _is_last(code: CodeType, line: int) -> bool:
    """Whether at most checks and prints follow the statement of a function at a line of its file."""
    if code.co_name.startswith("<"):
        return True  # a lambda, a comprehension: one expression
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(code)))
    except (OSError, SyntaxError):
        return False
    function = tree.body[0]
    return isinstance(function, ast.FunctionDef) and _ends_with(function.body, line - code.co_firstlineno + 1)


def _ends_with(body: Sequence[ast.stmt], line: int) -> bool:
    for index, statement in enumerate(body):
        if statement.lineno <= line <= statement.end_lineno:
            return (
                not isinstance(statement, _LOOPS)
                and all(map(_is_last_word, body[index + 1 :]))
                and all(_ends_with(inner, line) for inner in _inner(statement))
            )
    return True


def _is_last_word(statement: ast.stmt) -> bool:
    call = statement.value if isinstance(statement, ast.Expr) else None
    return isinstance(statement, _LAST_WORDS) or (
        isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "print"
    )


def _inner(statement: ast.stmt) -> Iterator[list[ast.stmt]]:
    for name in ("body", "orelse", "finalbody"):
        yield getattr(statement, name, [])
    for handler in getattr(statement, "handlers", []):
        yield handler.body
