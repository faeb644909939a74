"""What DITRON raises. Every message says where, what is wrong, and what to do."""

from __future__ import annotations

__all__ = [
    "SanitizerError",
    "CompileError",
    "DeadlockError",
    "DitronError",
    "NodesError",
    "RaceError",
    "SimulationError",
    "WaitTimeout",
]


class DitronError(Exception):
    """Base of the errors that a user of DITRON can cause."""


class NodesError(DitronError):
    """A script or a program was started on more nodes than it is for (``max_nodes=``)."""


class CompileError(DitronError):
    """A kernel does not compile; the message points at its Python line.

    Attributes:
        file, line, column: where (1-based; None and 0 when it is not known).
        message: what is wrong, without the place. notes: (file, line, column, text) of what belongs to it.
    """

    def __init__(
        self,
        message: str,
        file: str | None = None,
        line: int = 0,
        column: int = 0,
        notes: tuple[tuple[str | None, int, int, str], ...] = (),
    ):
        self.message, self.file, self.line, self.column, self.notes = message, file, line, column, notes
        parts = [_at(file, line, column, "error", message)]
        parts += [_at(file, line, column, "note", text) for file, line, column, text in notes]
        super().__init__("\n".join(parts))


def _at(file: str | None, line: int, column: int, severity: str, message: str) -> str:
    """``file:line:column: error: message``, the source line and a caret below, as compilers print it."""
    if file is None:
        return f"{severity}: {message}"
    import linecache

    text = linecache.getline(file, line).rstrip()
    head = f"{file}:{line}:{column}: {severity}: {message}"
    return f"{head}\n{text}\n{' ' * _caret(text, column, message)}^" if text else head


def _caret(text: str, column: int, message: str) -> int:
    """Where the caret goes: below the primitive that the message speaks of, else below the column.

    Triton's columns are those of the last argument, and count from 0 or from 1, by version.
    """
    import re

    op = re.search(r"'ditron\.(\w+)'", message)
    call = op and re.search(rf"(\w+\.)?{op[1]}(_nbi)?\s*\(", text)
    return call.start() if call else min(max(column - 1, len(text) - len(text.lstrip())), len(text))


class SimulationError(DitronError, RuntimeError):
    """A kernel, or the script that launched it, did something wrong on the simulator.

    It is a RuntimeError too, as torch's for what a kernel does wrong on a GPU.

    Attributes:
        kernel: name of the kernel, or None when the script did it.
        location: ``file:line:col`` of the primitive, as far as it is known.
        rank: world rank. program: the program's id, three integers.
        kind: of the mistake: ``"race"``, ``"deadlock"``, ``"bounds"``, ``"freed"``, ``"unwritten"`` (a read of
            symmetric memory that nobody wrote), ``"signal"`` (one that goes backwards or wraps), or empty.
        others: locations of what else is part of it: the other access of a race.
        seed: of the simulator's run, which finds it again.
    """

    kernel: str | None = None
    location: str = ""
    rank: int | None = None
    program: tuple[int, int, int] | None = None
    kind: str = ""
    others: tuple[str, ...] = ()
    seed: int | None = None


class RaceError(SimulationError):
    """Two accesses to the same memory, of which one writes, that nothing orders: ``location`` and ``others[0]``."""

    kind = "race"


class DeadlockError(SimulationError):
    """Nothing on the simulated machine can go on.

    Attributes:
        waiters: one line per program or script that waits: who, where, for what.
    """

    kind = "deadlock"
    waiters: tuple[str, ...] = ()


class SanitizerError(DitronError):
    """The GPU sanitizer stopped a kernel before an invalid access.

    Attributes:
        reports: one :class:`ditron.sanitizer.report.Report` per program that reported, the cause first.
    """

    reports: tuple = ()


class WaitTimeout(SanitizerError):
    """A wait of a GPU kernel took longer than the sanitizer allows (``DITRON_SANITIZE_SECONDS``)."""
