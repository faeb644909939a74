"""Whether an assertion about results, which fails because nothing is computed, ends host code that had more to do."""

from __future__ import annotations

import ast
import inspect
import textwrap
import traceback
from collections.abc import Iterator, Sequence
from types import CodeType

from ditron_compiler.source_location import is_user_code

__all__ = ["cuts_short"]

_LOOPS = (ast.For, ast.While, ast.AsyncFor)
_NO_LAUNCH = (ast.Assert, ast.Return, ast.Pass)


def cuts_short(error: AssertionError) -> bool:
    """Whether a function that ``error`` has ended had more to do: other statements follow, or a loop is around.

    Only the user's functions count; one without source had more to do.
    """
    return any(
        not _is_end(frame.f_code, line)
        for frame, line in traceback.walk_tb(error.__traceback__)
        if is_user_code(frame.f_code)
    )


def _is_end(code: CodeType, line: int) -> bool:
    """Whether at most assertions and prints follow the statement of a function at a line of its file."""
    if code.co_name.startswith("<"):
        return True  # a lambda, a comprehension: one expression
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(code)))
    except (OSError, SyntaxError):
        return False
    function = tree.body[0]
    return isinstance(function, ast.FunctionDef) and _at_end(function.body, line - code.co_firstlineno + 1)


def _at_end(body: Sequence[ast.stmt], line: int) -> bool:
    for index, statement in enumerate(body):
        if statement.lineno <= line <= statement.end_lineno:
            return (
                not isinstance(statement, _LOOPS)
                and all(map(_launches_nothing, body[index + 1 :]))
                and all(_at_end(inner, line) for inner in _inner(statement))
            )
    return True


def _launches_nothing(statement: ast.stmt) -> bool:
    call = statement.value if isinstance(statement, ast.Expr) else None
    return isinstance(statement, _NO_LAUNCH) or (
        isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "print"
    )


def _inner(statement: ast.stmt) -> Iterator[list[ast.stmt]]:
    for name in ("body", "orelse", "finalbody"):
        yield getattr(statement, name, [])
    for handler in getattr(statement, "handlers", []):
        yield handler.body
