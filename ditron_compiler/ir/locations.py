"""The location table: which Python line an index in an ABI call means."""

from __future__ import annotations

import linecache
import re

from ditron_compiler import ir

_FRAME = re.compile(r'"((?:[^"\\]|\\.)*)":(\d+):(\d+)')
# Frames inside these are not the user's: Triton's standard library and our device language.
_LIBRARY = re.compile(r"[/\\](triton[/\\](language|runtime|compiler|tools)|ditron[/\\]language)[/\\]")
UNKNOWN = "<unknown>:0:0"


def user_line(location: ir.Location) -> str:
    """`file:line:col` of the innermost frame that the user wrote, in callsites and fused locations too."""
    frames = _FRAME.findall(str(location))
    if not frames:
        return UNKNOWN
    for frame in frames:
        if not _LIBRARY.search(frame[0]):
            return ":".join(frame)
    return ":".join(frames[0])


def user_text(location: ir.Location) -> str:
    """What the user wrote in that line; empty when the file cannot be read."""
    file, line, _ = user_line(location).rsplit(":", 2)
    return linecache.getline(file, int(line)).strip()


class LocationTable:
    """Numbers the user's lines in the order in which they are first needed."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._numbers: dict[str, int] = {}

    def number(self, location: ir.Location) -> int:
        line = user_line(location)
        found = self._numbers.get(line)
        if found is None:
            found = self._numbers[line] = len(self.lines)
            self.lines.append(line)
        return found
