"""Observe pipelines while they run: the IR after each pass, times, statistics, a reproducer of a failure."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from ditron_compiler import knobs

__all__ = ["Instrumentation", "Remark", "Snapshot", "Statistic"]

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
    """A pass's statistic: how often it did ``what``, such as "waits merged"."""

    name: str
    what: str
    count: int


@dataclass(frozen=True)
class Remark:
    """A diagnostic of a pass about the user's code: ``severity`` is "remark" or "warning"; ``notes`` belong to it."""

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
class Instrumentation:
    """What to observe of every pipeline that is run with it, as MLIR's PassInstrumentation; filled while they run.

    Attributes:
        print_after: names of passes after which the module is printed to ``file`` (stderr); "all" is every pass.
        snapshots: keep the module after every pass in ``pipelines``, a list per pipeline.
        measure: keep ``timings``, (pass, seconds) in the order they ran, and ``statistics``.
        remarks: filled with the remarks and warnings of the passes; each warning is also a Python warning at the user's
            line.
        reproducer: where a pass that fails leaves the module it was given, with the pipeline; "" for nowhere. Default:
            the environment variable ``DITRON_REPRODUCER``.
    """

    print_after: tuple[str, ...] = ()
    snapshots: bool = False
    measure: bool = False
    reproducer: str = field(default_factory=knobs.reproducer.get)
    file: Any = None
    pipelines: list[list[Snapshot]] = field(default_factory=list)
    timings: list[tuple[str, float]] = field(default_factory=list)
    statistics: list[Statistic] = field(default_factory=list)
    remarks: list[Remark] = field(default_factory=list)

    def handle_diagnostic(self, diagnostic: Any) -> bool:
        """Keep a diagnostic unless it is an error; False, so that handlers attached before see it too."""
        if (severity := str(diagnostic.severity).rpartition(".")[2].lower()) != "error":
            self.remarks.append(_remark(diagnostic, severity))
        return False

    def before_pipeline(self, manager: Any, module: Any) -> _SnapshotStream | None:
        """Enable in ``manager`` what is asked for, before it runs; the result is for `after_pipeline`."""
        stream = None
        if self.print_after or self.snapshots:
            everything = self.snapshots or "all" in self.print_after
            stream = _SnapshotStream(self.print_after, self.file, str(module)) if self.snapshots else None
            manager.enable_ir_printing(
                print_after_all=everything,
                print_after=list(self.print_after),
                print_module_scope=True,
                file=stream or self.file,
            )
        if self.measure:
            manager.enable_timing()
        if self.reproducer:
            manager.enable_reproducer(self.reproducer)
        return stream

    def after_pipeline(self, manager: Any, stream: _SnapshotStream | None) -> None:
        """Collect what ``manager`` has recorded, also of a run that failed."""
        if stream is not None:
            self.pipelines.append(stream.snapshots())
        if self.measure:
            self.timings.extend(manager.timings)
            self.statistics.extend(Statistic(*entry) for entry in manager.statistics)

    def pairs(self) -> Iterator[tuple[str, str, str]]:
        """(pass, IR before, IR after) of every pass with a snapshot, in the order they ran."""
        for snapshots in self.pipelines:
            for before, after in zip(snapshots, snapshots[1:], strict=False):
                yield after.name, before.text, after.text


def _remark(diagnostic: Any, severity: str) -> Remark:
    file, line, column = diagnostic.location.file_line_col or ("<unknown>", 0, 0)
    notes = tuple(_remark(note, "note") for note in diagnostic.notes)
    return Remark(severity, file, line, column, diagnostic.message, notes)


class _SnapshotStream:
    """A file that MLIR prints dumps to: splits them into snapshots, and prints those of the passes ``print_after``."""

    def __init__(self, print_after: Iterable[str], file: Any, initial: str):
        self.print_after, self.file, self.initial = frozenset(print_after), file, initial
        self._text: list[str] = []

    def write(self, text: str) -> None:
        self._text.append(text)

    def snapshots(self) -> list[Snapshot]:
        """The module that the pipeline was given, and after each pass."""
        found: list[tuple[str, list[str]]] = []
        for line in "".join(self._text).splitlines(keepends=True):
            if header := _HEADER.match(line.rstrip("\n")):
                found.append((header["entry"], []))
            if found:
                found[-1][1].append(line)
        for name, lines in found:
            if name in self.print_after or "all" in self.print_after:
                print("".join(lines), end="", file=self.file or sys.stderr)
        after = [Snapshot(name, "".join(lines[1:]).strip("\n") + "\n") for name, lines in found]
        return [Snapshot("", self.initial), *after]
