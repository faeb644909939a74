"""The host's side of the sanitizer: what kernels reported, as an error that names the Python line.

A wait that takes too long, or an access that cannot be right, writes records into memory of the host and ends the
kernel (runtime/gpu/sanitizer.ll has the layout). The host looks there at each launch and at each synchronising call of
ditron, and raises. docs/sanitizer.md shows a report.
"""

from __future__ import annotations

import atexit
import linecache
import os
import re
import sys
import weakref
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Any

from ditron_compiler.errors import SanitizerError, WaitTimeout
from ditron_compiler.lowering.gpu.sanitizer import places

if TYPE_CHECKING:
    import torch

__all__ = [
    "RECORDS",
    "WORDS",
    "Kind",
    "Monitor",
    "Report",
    "synchronize",
    "error_of",
    "meet",
    "remember_kernel",
]

RECORDS, WORDS = 32, 16
_SHOWN = 12  # lines of a message that tell of others
_COMPARISONS = ("==", "!=", ">", ">=", "<", "<=")


class Kind(IntEnum):
    """What a record tells; 0 is a record that was not written."""

    EXPIRED = 1
    WAITING = 2
    RANK_OUT_OF_RANGE = 3
    RANK_NOT_MAPPED = 4
    OUTSIDE_HEAP = 5
    WORLD_NOT_REACHED = 6


@dataclass(frozen=True)
class Report:
    """One record, in the user's terms.

    Attributes:
        kind: what happened. op: the primitive. kernel: its name. file, line: the Python line (None, 0: not known).
        rank: world rank. program: the program's id. thread: in it.
        where: the signal or address as ``name[index]``, as far as the host knows its name.
        cmp: the comparison, as ``">="``. expected, actual: values of the signal.
        peer: the rank concerned, None when it is not known. nbytes: of an access. seconds: how long it waited.
        first: world rank of who gave up first.
    """

    kind: Kind
    op: str
    kernel: str
    file: str | None
    line: int
    rank: int
    program: tuple[int, int, int]
    thread: int
    where: str
    cmp: str
    expected: int
    actual: int
    peer: int | None
    nbytes: int
    seconds: float
    num_ranks: int
    first: int

    @property
    def what(self) -> str:
        """What is wrong, without the place."""
        if self.kind in (Kind.EXPIRED, Kind.WAITING):
            peer = f", for rank {self.peer}" if self.peer is not None else ""
            return (
                f"{self.op} on {self.where}{peer}: expected {self.cmp} {self.expected}, actual {self.actual}, "
                f"after {self.seconds:.1f} s"
            )
        if self.kind == Kind.RANK_OUT_OF_RANGE:
            return f"{self.op} to rank {self.peer}: expected a rank from 0 to {self.num_ranks - 1}"
        if self.kind == Kind.RANK_NOT_MAPPED:
            return f"{self.op} to rank {self.peer}, whose memory is not mapped here (another node)"
        if self.kind == Kind.OUTSIDE_HEAP:
            return (
                f"{self.op} of {self.nbytes} bytes at {self.where}: expected memory of ditron.symm_empty or symm_zeros"
            )
        return f"{self.op} of the world, which this transport does not reach from a smaller group"

    @property
    def who(self) -> str:
        return f"rank {self.rank}, program {self.program}, thread {self.thread}"

    @property
    def place(self) -> str:
        """The Python line, as ``file:line`` and as text."""
        where = f"{self.file}:{self.line}" if self.file else "an unknown line"
        source = linecache.getline(self.file, self.line).strip() if self.file else ""
        return f"{where}, kernel {self.kernel}" + (f"\n        {source}" if source else "")

    def __str__(self) -> str:
        return f"{self.who}: {self.what}\n    {self.place}"


_PLACE = re.compile(r"(\w+) in (\S+) at (?:(.*):(\d+)|.*)")
_ttir: list[
    str
] = []  # of every kernel with the sanitizer that was loaded: their places are looked up when there is a report
_monitors: weakref.WeakSet[Monitor] = weakref.WeakSet()


def remember_kernel(ttir: str | None) -> None:
    """A kernel was loaded; ``ttir`` (None when Triton's cache does not keep it) has the places of its calls."""
    if ttir is not None:
        _ttir.append(ttir)


class Monitor:
    """Reads one group's report buffer on this rank.

    Args:
        buffer: int64 ``[RECORDS * WORDS]``, zero, memory of the host that the GPU can write.
        ranks: world rank of each group rank. rank: this process's, in the group.
        base, nbytes: the symmetric heap. area: offsets of the barriers' counters in it.
    """

    def __init__(self, buffer: torch.Tensor, ranks: Sequence[int], rank: int, base: int, nbytes: int, area: range):
        self.buffer, self.ranks, self.rank = buffer, list(ranks), rank
        self.base, self.nbytes, self.area = base, nbytes, area
        self.told = False  # whether the reports were raised
        self._tensors: dict[int, tuple[str, tuple[int, ...], int]] = {}
        _monitors.add(self)

    def remember(self, tensor: torch.Tensor, name: str) -> None:
        """A symmetric tensor was allocated."""
        self._tensors[tensor.data_ptr() - self.base] = (name, tuple(tensor.shape), tensor.element_size())

    def forget(self, tensor: torch.Tensor) -> None:
        """It was freed."""
        self._tensors.pop(tensor.data_ptr() - self.base, None)

    def name(self, address: int) -> str:
        """``signals[3]`` for an address in a symmetric tensor; what else it is in words."""
        offset = address - self.base
        if not 0 <= offset < self.nbytes:
            return f"address {address:#x}, which is outside of the symmetric heap"
        if offset in self.area:
            return "the barrier's counters"
        for start, (name, shape, size) in self._tensors.items():
            count = 1
            for extent in shape:
                count *= extent
            if 0 <= offset - start < count * size:
                index, within = divmod(offset - start, size)
                indices: list[int] = []
                for extent in reversed(shape):
                    index, last = divmod(index, extent)
                    indices.insert(0, last)
                label = name or f"the unnamed symmetric tensor of shape {shape} "
                return f"{label}[{', '.join(map(str, indices))}]" + (f" + {within} bytes" if within else "")
        return f"offset {offset} of the symmetric heap, in no tensor"

    @property
    def reported(self) -> bool:
        """Whether there is a record; costs a read of memory."""
        return bool(self.buffer[0]) or bool(self.buffer[WORDS])  # given up here, or on another rank

    def reports(self) -> list[Report]:
        """What was reported on this rank, who gave up first at the front."""
        known: dict[int, str] = {}
        for text in _ttir:
            known |= places(text)
        found = [self._report(record, known) for record in self.buffer.view(-1, WORDS).tolist() if record[0]]
        return sorted(found, key=lambda report: (report.kind == Kind.WAITING, report.line, report.program))

    def _report(self, record: list[int], known: dict[int, str]) -> Report:
        kind, place, x, y, z, thread, address, cmp, expected, actual, peer, nbytes, ns, origin, *_ = record
        match = _PLACE.fullmatch(known.get(place, ""))
        op, kernel, file, line = match.groups() if match else ("a primitive", "of unknown name", None, None)
        member = 0 <= peer < len(self.ranks)
        return Report(
            Kind(kind),
            op,
            kernel,
            file,
            int(line or 0),
            self.ranks[self.rank],
            (x, y, z),
            thread,
            self.name(address),
            _COMPARISONS[cmp],
            expected,
            actual,
            self.ranks[peer] if member else None if kind in (Kind.EXPIRED, Kind.WAITING) else peer,
            nbytes,
            ns / 1e9,
            len(self.ranks),
            self.ranks[origin - 1] if origin else self.ranks[self.rank],
        )


def error_of(reports: Iterable[Report]) -> SanitizerError:
    """The error to raise for reports of one or more ranks."""
    reports = sorted(reports, key=lambda report: report.kind == Kind.WAITING)
    first = reports[0]
    if first.kind in (Kind.EXPIRED, Kind.WAITING):
        cls = WaitTimeout
        if first.kind == Kind.EXPIRED:
            head = f"sanitizer: a wait of kernel {first.kernel!r} was given up"
        else:
            head = f"sanitizer: a wait of kernel {first.kernel!r} was ended, because rank {first.first} gave up"
        hint = (
            "look for what should have written the signal; if it only takes long, set DITRON_SANITIZE_SECONDS to more "
            "than the time above"
        )
    else:
        cls, head = SanitizerError, f"sanitizer: kernel {first.kernel!r} was stopped before a wrong access"
        hint = "correct the rank or the pointer on that line"
    lines = [head, f"  {first}"]
    lines += _waiting(reports[1:])
    lines.append(f"  {hint}; every rank has to start anew")
    error = cls("\n".join(lines))
    error.reports = tuple(reports)
    return error


def _waiting(reports: list[Report]) -> list[str]:
    """Who else was waiting: a line each, and one for all programs of a rank that wait for the same at one place."""
    together: dict[tuple, list[Report]] = {}
    for report in reports:
        key = (report.rank, report.file, report.line, report.where, report.cmp, report.expected, report.actual)
        together.setdefault(key, []).append(report)
    lines, place = ["  these were waiting then:"] if reports else [], ""
    for report, *others in list(together.values())[:_SHOWN]:
        more = f" (and {len(others)} more programs or threads that reported)" if others else ""
        lines.append(f"  {report.who}{more}: {report.what}")
        if report.place != place:
            place = report.place
            lines.append(f"    {place}")
    if len(together) > _SHOWN:
        lines.append(f"  and {len(together) - _SHOWN} more")
    return lines


def _local() -> list[Report]:
    """The reports of every group of this process."""
    found = []
    for monitor in list(_monitors):
        reports = monitor.reports()
        monitor.told |= bool(reports)
        found += reports
    return found


def synchronize(group: Any) -> None:
    """Wait for this rank's GPU and raise what its kernels reported. Not collective."""
    import torch

    failure = None
    try:
        torch.cuda.synchronize(group.device)
    except RuntimeError as error:  # the report survives it
        failure = error
    if found := _local():
        raise error_of(found) from failure
    if failure:
        raise failure


def meet(group: Any) -> None:
    """The barrier of the sanitizer: wait for the GPUs; every rank of the group raises what any reported. Collective."""
    import torch

    failure = None
    try:
        torch.cuda.synchronize(group.device)
    except RuntimeError as error:
        failure = error
    mine = _local()
    try:
        everyone = group.all_gather_object(mine)
    except RuntimeError as error:  # a rank has died of its own report, most likely
        everyone, failure = [mine], failure or error
    if found := [report for reports in everyone for report in reports]:
        raise error_of(found) from failure
    if failure:
        raise failure


@atexit.register
def _at_exit() -> None:
    """A script that ends without a synchronising call of ditron must not hide a report, nor end well."""
    silent = [monitor for monitor in _monitors if not monitor.told]
    if not silent:
        return
    import torch

    try:
        torch.cuda.synchronize()
    except (RuntimeError, AssertionError) as error:
        print(f"ditron: the GPU failed: {error}", file=sys.stderr)
    if found := [report for monitor in silent for report in monitor.reports()]:
        print(error_of(found), file=sys.stderr)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(1)
