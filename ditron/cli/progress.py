"""Progress of a long command, on a terminal."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["progress"]

_ERASE = "\r\x1b[K"


@contextmanager
def progress() -> Iterator[Callable[[str], None]]:
    """``say(text)`` shows one line on standard error in place of the one before; it is erased at the end.

    Nothing is shown where standard error is no terminal.
    """
    shown = sys.stderr.isatty()

    def say(text: str) -> None:
        if shown:
            print(_ERASE + text[: shutil.get_terminal_size().columns - 1], end="", file=sys.stderr, flush=True)

    try:
        yield say
    finally:
        say("")
