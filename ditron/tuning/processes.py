"""The processes that measure: one per rank, started, watched and ended as a whole by their parent.

A candidate that hangs, or that kills its process, ends all of them; it is recorded, and fresh processes measure the
rest.
"""

from __future__ import annotations

import json
import os
import re
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ditron.tuning.order import ordered, predicted
from ditron.tuning.problem import Options, Problem
from ditron.tuning.registry import candidates_of
from ditron.tuning.tables import Entry, Measured, Table, read, user_path
from ditron_compiler import knobs
from ditron_compiler.errors import DitronError

__all__ = ["Job", "Settings", "check_output", "is_left_out", "keep", "measure", "tune_one"]

GPU_BENCH = "ditron.tuning.bench:GpuBench"
_START_SECONDS = 180.0  # imports, NCCL's start
_PREDICTION_SECONDS = 20.0  # of a problem that is tuned when it is called
_GRACE_SECONDS = 5.0  # for the other ranks, when one has raised
_LEFT_OUT = "not measured: the time for everything was over"


@dataclass
class Job:
    """One problem and what may run it, the rule's choice first; ``results`` by position; what messages call it."""

    problem: Problem
    candidates: list[Options]
    name: str = ""
    results: dict[int, Measured] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.name or str(self.problem)

    def entry(self, timing: str) -> Entry:
        return Entry(self.problem, [self.results[number] for number in sorted(self.results)], timing)

    def fail(self, numbers: Iterable[int], why: str) -> None:
        for number in numbers:
            self.results[number] = Measured(self.candidates[number], None, why, number == 0)

    @property
    def left(self) -> list[int]:
        """Candidates without a result."""
        return [number for number in range(len(self.candidates)) if number not in self.results]


@dataclass
class Settings:
    """How processes measure.

    Attributes:
        devices: the GPU of each rank. limit: seconds that a candidate may take. total: seconds for everything.
        bench: ``module:class`` of what runs and times calls. timing: ``"graph"`` or ``"call"``.
    """

    devices: Sequence[int]
    limit: float = 30.0
    total: float = float("inf")
    rounds: int = 12
    timing: str = "graph"
    bench: str = field(default_factory=lambda: GPU_BENCH)
    say: Callable[[str], None] = lambda text: None


def measure(jobs: list[Job], settings: Settings) -> list[Entry]:
    """Every candidate's time, or why it has none. Raises DitronError when no process can start."""
    end = time.monotonic() + settings.total
    while any(job.left for job in jobs):
        if time.monotonic() >= end:
            break
        left = [job.left for job in jobs]
        with tempfile.TemporaryDirectory(prefix="ditron-tune-") as folder:
            with _Ranks(jobs, settings, Path(folder)) as ranks:
                ranks.watch(end)
        if left == [job.left for job in jobs] and time.monotonic() < end:
            raise DitronError("the processes that measure came to their end without a result")
    for job in jobs:
        job.fail(job.left, _LEFT_OUT)
    return [job.entry(settings.timing) for job in jobs]


def is_left_out(candidate: Measured) -> bool:
    """Whether the time for everything was over before the candidate had one."""
    return candidate.failure == _LEFT_OUT


class _Ranks:
    """A process per rank, and what they said last."""

    def __init__(self, jobs: list[Job], settings: Settings, folder: Path):
        self.jobs, self.settings, self.folder = jobs, settings, folder
        count = len(settings.devices)
        spec = {
            "ranks": count,
            "bench": settings.bench,
            "rounds": settings.rounds,
            "timing": settings.timing,
            "jobs": [
                {
                    "number": number,
                    "problem": asdict(job.problem),
                    "candidates": [[position, job.candidates[position]] for position in job.left],
                }
                for number, job in enumerate(jobs)
                if job.left
            ],
        }
        (folder / "jobs.json").write_text(json.dumps(spec))
        self.selector = selectors.DefaultSelector()
        self.at: list[dict[str, Any]] = [{} for _ in range(count)]  # job and candidate of each rank
        self.heard = [time.monotonic()] * count
        self.said, self.started = [0] * count, [False] * count
        self.failed: dict[str, Any] | None = None
        self.over: set[int] = set()
        self.processes: list[subprocess.Popen] = []
        self.text = [b""] * count

    def __enter__(self) -> _Ranks:
        try:
            for rank, device in enumerate(self.settings.devices):
                reader, writer = os.pipe()
                with (self.folder / f"rank{rank}.log").open("wb") as log:
                    self.processes.append(
                        subprocess.Popen(
                            [sys.executable, "-m", "ditron.tuning.worker", self.folder, str(rank), str(writer)],
                            env=knobs.environment(
                                LOCAL_RANK=device, LOCAL_WORLD_SIZE=len(self.settings.devices), DITRON_TUNE=0
                            ),
                            stdin=subprocess.DEVNULL,
                            stdout=log,
                            stderr=subprocess.STDOUT,
                            pass_fds=[writer],
                            start_new_session=True,
                        )
                    )
                os.close(writer)
                self.selector.register(reader, selectors.EVENT_READ, rank)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        for process in self.processes:
            if process.returncode is None:  # not waited for yet: the number is still its own
                try:
                    os.killpg(process.pid, signal.SIGKILL)  # with what it has started: a compiler, say
                except ProcessLookupError:
                    pass
        for process in self.processes:
            process.wait()
        for key in list(self.selector.get_map().values()):
            os.close(key.fd)
        self.selector.close()

    def watch(self, end: float) -> None:
        """Take results until all is measured, or until a candidate has to be ended."""
        while len(self.over) < len(self.processes):
            limits = [
                heard + (self.settings.limit if started else max(_START_SECONDS, self.settings.limit))
                for rank, (heard, started) in enumerate(zip(self.heard, self.started, strict=True))
                if rank not in self.over
            ]
            until = min(*limits, end) if len(limits) > 1 else min(limits[0], end)
            if self.failed is not None:
                until = min(until, self.failed["time"] + min(_GRACE_SECONDS, self.settings.limit))
            ready = self.selector.select(max(0.0, until - time.monotonic()))
            for key, _ in ready:
                self._read(key.fd, key.data)
                if key.data in self.over and self.processes[key.data].wait() != 0:
                    return self._ended(key.data)
            now = time.monotonic()
            if not ready and now >= end:
                return
            if not ready and now >= until:
                return self._hangs()

    def _read(self, fd: int, rank: int) -> None:
        data = os.read(fd, 1 << 16)
        if not data:
            self.selector.unregister(fd)
            os.close(fd)
            self.over.add(rank)
            return
        self.heard[rank], self.started[rank] = time.monotonic(), True
        *lines, self.text[rank] = (self.text[rank] + data).split(b"\n")
        for line in lines:
            self._take(rank, json.loads(line))

    def _take(self, rank: int, event: dict[str, Any]) -> None:
        self.at[rank] = event
        self.said[rank] += "stage" in event
        job = self.jobs[event["job"]]
        if "failed" in event and self.failed is None:
            self.failed = event | {"rank": rank, "time": time.monotonic()}
        if "excluded" in event:  # by all ranks: they go on
            self.failed = None
            if rank == 0:
                self._record(job, event["candidate"], event["excluded"])
        if "done" in event and rank == 0:
            for number, us in event["done"]:
                job.results[number] = Measured(job.candidates[number], us, "", number == 0)
            best = min((us for _, us in event["done"]), default=None)
            self.settings.say(f"{job}: {'no candidate works' if best is None else f'{best:.1f} us'}")
        elif rank == 0 and event.get("candidate") is not None and event.get("stage") == "check":
            which = f": candidate {event['candidate'] + 1} of {len(job.candidates)}" if len(job.candidates) > 1 else ""
            self.settings.say(f"{job}{which}")

    def _hangs(self) -> None:
        """The rank that has come least far, since all say the same in the same order, says which candidate."""
        if self.failed is not None:
            rank, event = self.failed["rank"], self.failed
            return self._blame(event, f"rank {rank}: {event['failed']}")
        rank = min((r for r in range(len(self.at)) if r not in self.over), key=lambda r: (self.said[r], self.heard[r]))
        self._blame(self.at[rank], f"hangs: rank {rank} was ended after {self.settings.limit:g} s", rank)

    def _ended(self, rank: int) -> None:
        event, code = self.at[rank], self.processes[rank].returncode
        if self.failed is not None:
            return self._blame(self.failed, f"rank {self.failed['rank']}: {self.failed['failed']}")
        self._blame(event, f"rank {rank}: the process ended with exit code {code}{self._last_line(rank)}", rank)

    def _blame(self, event: dict[str, Any], why: str, rank: int = 0) -> None:
        if "job" not in event:
            log = (self.folder / f"rank{rank}.log").read_text(errors="replace")
            raise DitronError(f"the processes that measure did not start: {why}\n{log[-2000:]}".rstrip())
        job, number = self.jobs[event["job"]], event.get("candidate")
        if number is None:
            job.fail(job.left, f"its operands cannot be made: {why}")
        else:
            self._record(job, number, why)

    def _record(self, job: Job, number: int, why: str) -> None:
        job.fail([number], why)
        self.settings.say(f"{job}: candidate {number + 1}: {why.splitlines()[0]}")

    def _last_line(self, rank: int) -> str:
        """Of what the process wrote, the exception that it ended with, if there is one: libraries write behind it."""
        lines = (self.folder / f"rank{rank}.log").read_text(errors="replace").strip().splitlines()
        raised = [line for line in lines if re.match(r"(\[rank\d+\]: )?[\w.]+(Error|Exception)\b", line)]
        return f": {(raised or lines)[-1]}" if lines else ""


def tune_one(problem: Problem, devices: Sequence[int], limit: float, machine: str = "", top: int = 0) -> Entry:
    """Measure the candidates of a problem; of the process that calls it, nothing runs on GPUs meanwhile.

    With ``top``, the rule's choice and so many others: those that are predicted to be fastest on ``machine``, where a
    file describes it.
    """
    from ditron.tuning.floors import machine_of

    candidates = candidates_of(problem)
    if top and (described := machine_of(machine, problem.ranks)) is not None:
        (timed,) = predicted([(problem, candidates)], described, seconds=_PREDICTION_SECONDS)
        candidates = ordered(candidates, timed, top)
    return measure([Job(problem, candidates)], Settings(devices, limit, total=400.0))[0]


def check_output(path: Path, machine: str, ranks: int) -> None:
    """Raises DitronError where :func:`keep` could not write, or would replace what is no table of the machine."""
    try:
        if path.exists():
            if not path.is_file():
                raise ValueError("it is no regular file")
            table = Table.from_text(path.read_text(), str(path))
            if (table.machine, table.ranks) != (machine, ranks):
                raise ValueError(table.stale(machine, ranks))
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except ValueError as error:
        raise DitronError(f"{path} is not replaced: {error}: choose another file") from error
    except OSError as error:
        raise DitronError(f"cannot write {path}: {error.strerror or error}: choose another file") from error


def keep(table: Table, path: Path | None = None) -> Path:
    """Add entries to the user's table, or to the one in ``path``; raises DitronError as :func:`check_output`."""
    path = path or user_path(table.machine, table.ranks)
    check_output(path, table.machine, table.ranks)
    old = read(path, table.machine, table.ranks)
    if old is not None:
        table.entries = old.entries | table.entries
        table.about = old.about | table.about
    table.save(path)
    return path
