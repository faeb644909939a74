"""Progress of a long command, on a terminal."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["progress", "timed"]

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


def timed(show: Callable[[str], None], verbose: bool) -> Callable[[str], None]:
    """``show``, or where ``verbose`` a line of standard error for each text, with the seconds since now."""
    begin = time.monotonic()

    def say(text: str) -> None:
        if not verbose:
            show(text)
        elif text:
            print(f"{time.monotonic() - begin:6.1f} s  {text}", file=sys.stderr, flush=True)

    return say
