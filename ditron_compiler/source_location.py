"""The user's source line: of the innermost caller that is neither ours nor torch's nor Triton's."""

from __future__ import annotations

import contextlib
import sys
import traceback
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from pathlib import Path
from types import CodeType, FrameType

from ditron_compiler.errors import CompileError

__all__ = [
    "UNKNOWN",
    "SourceLocation",
    "caller",
    "caller_frame",
    "caller_line",
    "is_user_code",
    "raised_at",
    "tracing",
    "users_line",
]

#: What messages say in place of a line that is not known.
UNKNOWN = "an unknown line"
_PACKAGES = ("ditron", "ditron_compiler", "torch", "triton")
# The file of the function that is traced in this thread: the user's, also where it is one of our operators. The
# operator's caller may have no frame: gradients run in threads of autograd's.
_TRACED: ContextVar[str] = ContextVar("traced", default="")
_TYPED_IN = ("<stdin>", "<string>", "<ipython-input")  # files that are the user's for all their brackets


@dataclass(frozen=True)
class SourceLocation:
    """A place in the user's Python: line and column count from 1."""

    file: str
    line: int
    column: int = 1

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"

    @classmethod
    def of_function(cls, code: CodeType) -> SourceLocation:
        """Where a function is defined."""
        return cls(code.co_filename, code.co_firstlineno)

    def error(self, message: str, *notes: tuple[SourceLocation, str]) -> CompileError:
        """The error to raise for what stands here."""
        return CompileError(
            message, self.file, self.line, self.column, tuple((n.file, n.line, n.column, text) for n, text in notes)
        )


@lru_cache
def _directories(packages: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(str(Path(sys.modules[name].__file__).resolve().parent) + "/" for name in packages)


@contextlib.contextmanager
def tracing(file: str) -> Iterator[None]:
    """Take this file, of the function that is traced, as the user's."""
    token = _TRACED.set(file)
    try:
        yield
    finally:
        _TRACED.reset(token)


def _is_user_file(file: str) -> bool:
    if file == _TRACED.get():
        return True
    if file.startswith("<"):
        return file.startswith(_TYPED_IN)
    loaded = tuple(name for name in _PACKAGES if name in sys.modules)
    return not file.startswith(_directories(loaded)) and file != contextlib.__file__


def is_user_code(code: CodeType) -> bool:
    """Whether code is the user's. Python makes the constructors of dataclasses at run time, Triton a dynamic_func."""
    made = code.co_name == "dynamic_func" or code.co_qualname.startswith("__create_fn__")
    return not made and _is_user_file(code.co_filename)


def caller_frame() -> FrameType | None:
    """The innermost frame of the user's."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and not is_user_code(frame.f_code):
        frame = frame.f_back
    return frame


def caller() -> SourceLocation:
    """Where the user's innermost frame stands, with its column."""
    frame = caller_frame()
    if frame is None:
        return SourceLocation("<unknown>", 0)
    line, column = _position(frame.f_code, frame.f_lasti // 2)
    return SourceLocation(frame.f_code.co_filename, line or frame.f_lineno, column + 1)


@lru_cache(maxsize=4096)  # Python goes through all positions up to the one asked for, at every operation of a program
def _position(code: CodeType, instruction: int) -> tuple[int | None, int]:
    line, _, column, _ = next(islice(code.co_positions(), instruction, None))
    return line, column or 0


def caller_line() -> str:
    """``file:line`` of the user's innermost frame."""
    frame = caller_frame()
    return f"{frame.f_code.co_filename}:{frame.f_lineno}" if frame else UNKNOWN


def users_line(line: str) -> str:
    """``line``, which is ``file:line`` and perhaps a column, or the caller's where that is in an operator of ours."""
    return line if _is_user_file(line.partition(":")[0]) else caller_line()


def raised_at(error: BaseException) -> str:
    """``file:line`` of the user's innermost frame in the traceback of ``error``."""
    lines = [
        f"{frame.filename}:{frame.lineno}"
        for frame in traceback.extract_tb(error.__traceback__)
        if _is_user_file(frame.filename)
    ]
    return lines[-1] if lines else UNKNOWN
