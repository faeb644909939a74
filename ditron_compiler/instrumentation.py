"""What to see of pipelines while they run: the IR after each pass, times, statistics, a reproducer of a failure."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from ditron_compiler import knobs

__all__ = ["Remark", "Snapshot", "Statistic", "Watch"]

# MLIR's own header of a dump; what lies between two of them is a module.
_HEADER = re.compile(r"^// -----// IR Dump After \S+ \((?P<entry>.*?)\).*? //----- //$")


@dataclass(frozen=True)
class Snapshot:
    """The module after one pass. ``name`` is the pass as in a pipeline, without options; the first of a pipeline is
    named "" and holds what the pipeline was given."""

    name: str
    text: str


@dataclass(frozen=True)
class Statistic:
    """A count that a pass kept: how often it did ``what``, such as "waits merged"."""

    name: str
    what: str
    count: int


@dataclass(frozen=True)
class Remark:
    """What a pass says of the user's code: ``severity`` is "remark" or "warning"; ``notes`` belong to it."""

    severity: str
    file: str
    line: int
    column: int
    message: str
    notes: tuple[Remark, ...] = ()

    def __str__(self) -> str:
        first = f"{self.file}:{self.line}:{self.column}: {self.severity}: {self.message}"
        return "\n".join([first, *map(str, self.notes)])


@dataclass
class Watch:
    """What to see of every pipeline that is run with it; filled while they run.

    Attributes:
        print_after: names of passes after which the module is printed to ``file`` (stderr); "all" is every pass.
        snapshots: keep the module after every pass in ``seen``, a list per pipeline.
        measure: keep ``timings``, (pass, seconds) in the order they ran, and ``statistics``.
        remarks: filled with what the passes remark on and warn of; each warning is also a Python warning at the user's
            line.
        reproducer: where a pass that fails leaves the module it was given, with the pipeline; "" for nowhere. Default:
            the environment variable ``DITRON_REPRODUCER``.
    """

    print_after: tuple[str, ...] = ()
    snapshots: bool = False
    measure: bool = False
    reproducer: str = field(default_factory=knobs.reproducer.get)
    file: Any = None
    seen: list[list[Snapshot]] = field(default_factory=list)
    timings: list[tuple[str, float]] = field(default_factory=list)
    statistics: list[Statistic] = field(default_factory=list)
    remarks: list[Remark] = field(default_factory=list)

    def hear(self, diagnostic: Any) -> bool:
        """Keep a diagnostic unless it is an error; False, since others may want to hear it too."""
        if (severity := str(diagnostic.severity).rpartition(".")[2].lower()) != "error":
            self.remarks.append(_remark(diagnostic, severity))
        return False

    def begin(self, manager: Any, module: Any) -> _Printer | None:
        """Make ``manager`` tell what is watched, before it runs over ``module``; the result goes to :meth:`end`."""
        printer = None
        if self.print_after or self.snapshots:
            everything = self.snapshots or "all" in self.print_after
            printer = _Printer(self.print_after, self.file) if self.snapshots else None
            if printer is not None:
                printer.seen.append(Snapshot("", str(module)))
            manager.enable_ir_printing(
                print_after_all=everything,
                print_after=list(self.print_after),
                print_module_scope=True,
                file=printer or self.file,
            )
        if self.measure:
            manager.enable_timing()
        if self.reproducer:
            manager.enable_reproducer(self.reproducer)
        return printer

    def end(self, manager: Any, printer: _Printer | None) -> None:
        """Keep what a run has told, also of one that failed."""
        if printer is not None:
            self.seen.append([*printer.seen, *printer.finished()])
        if self.measure:
            self.timings.extend(manager.timings)
            self.statistics.extend(Statistic(*entry) for entry in manager.statistics)

    def pairs(self) -> Iterator[tuple[str, str, str]]:
        """(pass, IR before, IR after) of every pass that was seen, in the order they ran."""
        for seen in self.seen:
            for before, after in zip(seen, seen[1:], strict=False):
                yield after.name, before.text, after.text


def _remark(diagnostic: Any, severity: str) -> Remark:
    place = diagnostic.location.file_line_col or ("<unknown>", 0, 0)
    return Remark(severity, *place, diagnostic.message, tuple(_remark(note, "note") for note in diagnostic.notes))


class _Printer:
    """A file that MLIR prints to: cuts what it is given into snapshots, and prints those that are wanted."""

    def __init__(self, wanted: Iterable[str], file: Any):
        self.wanted, self.file = frozenset(wanted), file
        self.seen: list[Snapshot] = []
        self._text: list[str] = []

    def write(self, text: str) -> None:
        self._text.append(text)

    def finished(self) -> list[Snapshot]:
        """The snapshots in what was written."""
        found: list[tuple[str, list[str]]] = []
        for line in "".join(self._text).splitlines(keepends=True):
            if header := _HEADER.match(line.rstrip("\n")):
                found.append((header["entry"], []))
            if found:
                found[-1][1].append(line)
        for name, lines in found:
            if name in self.wanted or "all" in self.wanted:
                print("".join(lines), end="", file=self.file or sys.stderr)
        return [Snapshot(name, "".join(lines[1:]).strip("\n") + "\n") for name, lines in found]
