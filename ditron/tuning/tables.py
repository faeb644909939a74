"""Tables of what was measured: a JSON file per machine and number of ranks, shipped ones and the user's own."""

from __future__ import annotations

import json
import logging
import math
import os
import re
from collections.abc import Collection
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from ditron import machines
from ditron.tuning.problem import Options, Problem
from ditron.tuning.validation import check_entry
from ditron_compiler import knobs

__all__ = [
    "Entry",
    "Found",
    "Measured",
    "Table",
    "known_machines",
    "machine_name",
    "shipped_path",
    "tables_of",
    "user_path",
    "versions",
]

#: Of the files' form.
FORMAT = 1

#: Of what is measured: raise it when an operator's kernels change so that their times no longer hold.
KERNELS = 3

#: How far away a known N and K may be to stand for others: powers of two, added. 0.25 is 19 % more or less.
NEAREST = 0.25

#: The rule's choice stays unless another one takes less than this part of its time: noise is not followed.
FASTER = 0.98

log = logging.getLogger("ditron.tuning")


def versions() -> dict[str, Any]:
    """What makes a table stale when it differs."""
    from importlib.metadata import version

    return {"format": FORMAT, "kernels": KERNELS, "triton": ".".join(version("triton").split(".")[:2])}


def machine_name(gpu: str) -> str:
    """``"NVIDIA H200"`` and ``"NVIDIA H100 80GB HBM3"`` -> ``"h200"`` and ``"h100"``: what tables are named by.

    How much memory of which kind is left out: a GPU that has more is another one by its name.
    """
    words = gpu.lower().removeprefix("nvidia ").split()
    return "-".join(word for word in words if not re.fullmatch(r"\d+gb|hbm3\w*", word)) or "gpu"


@dataclass
class Measured:
    """A candidate: microseconds of a call on the slowest rank, or why it has none."""

    options: Options
    us: float | None = None
    failure: str = ""
    is_rule: bool = False


@dataclass
class Entry:
    """All candidates of a problem, fastest first."""

    problem: Problem
    candidates: list[Measured]
    timing: str = "graph"  # a CUDA graph of several calls, or single calls

    def __post_init__(self) -> None:
        self.candidates = sorted(self.candidates, key=lambda candidate: candidate.us or math.inf)

    def best(
        self,
        algorithm: str | None = None,
        without: Collection[str] = (),
        among: Collection[str] = (),
        lacking: Collection[str] = (),
    ) -> Measured | None:
        """The fastest candidate, of an algorithm if one is given; the rule's if only noise makes another one faster.

        Where none is given, not of those ``without``, and, if there are any, of those ``among`` which it has to be.
        It has no argument that is ``lacking``.
        """
        eligible = [
            (candidate.us, candidate)
            for candidate in self.candidates
            if candidate.us is not None
            and not any(argument in candidate.options for argument in lacking)
            and (name := candidate.options.get("algorithm")) == (algorithm or name)
            and (algorithm is not None or name not in without and (not among or name in among))
        ]
        if not eligible:
            return None
        fastest, best = eligible[0]
        return next((candidate for us, candidate in eligible if candidate.is_rule and fastest > FASTER * us), best)


@dataclass
class Found:
    """An entry for a problem, and whether it is of the nearest N and K rather than of those asked for."""

    entry: Entry
    is_nearest: bool


@dataclass
class Table:
    """What was measured on one machine with one number of ranks."""

    machine: str
    ranks: int
    versions: dict[str, Any]
    about: dict[str, Any] = field(default_factory=dict)  # when, with which torch and driver: for people
    entries: dict[Problem, Entry] = field(default_factory=dict)

    def add(self, entry: Entry) -> None:
        self.entries[entry.problem] = entry

    def find(self, problem: Problem) -> Found | None:
        """The entry of a bucket, or that of the nearest N and K; ``problem.rows`` is a bucket's."""
        if (entry := self.entries.get(problem)) is not None:
            return Found(entry, False)
        if not problem.is_product or problem.N % 8 or problem.K % 8:  # TMA would not reach what it reaches there
            return None
        near = [
            (distance, other.N, other.K, entry)
            for other, entry in self.entries.items()
            if _replaced(other) == _replaced(problem)
            and other.N % 8 == other.K % 8 == 0
            and (distance := abs(math.log2(other.N / problem.N)) + abs(math.log2(other.K / problem.K))) <= NEAREST
        ]
        return Found(min(near, key=lambda item: item[:3])[-1], True) if near else None

    def to_text(self) -> str:
        """JSON, a candidate per line."""
        head = {"machine": self.machine, "ranks": self.ranks, "versions": self.versions, "about": self.about}
        lines = [f"{json.dumps(name)}: {json.dumps(value)}" for name, value in head.items()]
        entries = []
        for problem in sorted(self.entries, key=_order):
            entry, key = self.entries[problem], asdict(problem)
            del key["ranks"], key["routing"]
            for name in ("experts", "top_k", "parallel"):
                if not key[name]:
                    del key[name]
            candidates = ",\n   ".join(json.dumps(_as_json(candidate)) for candidate in entry.candidates)
            start = json.dumps(key | {"timing": entry.timing})[:-1]
            entries.append(f'{start}, "candidates": [\n   {candidates}]}}')
        return "{" + ",\n ".join(lines) + ',\n "entries": [\n  ' + ",\n  ".join(entries) + "]}\n"

    @classmethod
    def from_text(cls, text: str, where: str = "a table of measured choices") -> Table:
        """Raises ValueError for what is no table of this format; those of others come with no entries.

        An entry that is not one is left out, with a line of logging that names ``where`` and the entry.
        """
        try:
            read = json.loads(text)
            table = cls(read["machine"], read["ranks"], read["versions"], read.get("about", {}))
            if not (
                isinstance(table.machine, str)
                and type(table.ranks) is int
                and table.ranks > 0
                and isinstance(table.versions, dict)
                and isinstance(table.about, dict)
            ):
                raise TypeError("machine, ranks, versions or about is of another type")
            if table.versions.get("format") != FORMAT:
                return table
            if not isinstance(read["entries"], list):
                raise TypeError("entries is no list")
        except (AttributeError, KeyError, TypeError, RecursionError, json.JSONDecodeError) as error:
            raise ValueError(f"not a table of measured choices: {type(error).__name__}: {error}") from error
        for number, item in enumerate(read["entries"], 1):
            try:
                check_entry(item, table.ranks)
            except ValueError as error:
                log.warning("%s: entry %d%s is ignored: %s", where, number, _in_short(item), error)
                continue
            candidates = [_from_json(candidate) for candidate in item.pop("candidates")]
            timing = item.pop("timing", "graph")
            table.add(Entry(Problem(ranks=table.ranks, **item), candidates, timing))
        return table

    def save(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_suffix(f".{os.getpid()}")
        temporary.write_text(self.to_text())
        temporary.replace(path)

    def stale(self, machine: str, ranks: int) -> str:
        """Why its times do not hold for that machine and these versions; empty when they do."""
        if (self.machine, self.ranks) != (machine, ranks):
            return f"it was measured on {self.machine} x {self.ranks}"
        current = versions()
        wrong = [
            f"{name} {self.versions.get(name)}, not {value}"
            for name, value in current.items()
            if self.versions.get(name) != value
        ]
        return f"it was measured with {', '.join(wrong)}" if wrong else ""


def _replaced(problem: Problem) -> Problem:
    """What has to be the same of the problem that stands for another."""
    return replace(problem, N=0, K=0)


def _order(problem: Problem) -> tuple:
    """Of entries in a file."""
    of_experts = problem.parallel, problem.experts, problem.top_k
    return problem.operator, problem.dtype, problem.N, problem.K, *of_experts, problem.rows


def _as_json(candidate: Measured) -> dict[str, Any]:
    result: dict[str, Any] = {"options": candidate.options}
    if candidate.us is not None:
        result["us"] = round(candidate.us, 2)
    if candidate.failure:
        result["failure"] = candidate.failure
    return result | ({"rule": True} if candidate.is_rule else {})


def _in_short(item: Any) -> str:
    """What names an entry, as far as it says."""
    if not isinstance(item, dict):
        return ""
    said = [f"{item[name]!s:.20}" for name in ("operator", "dtype", "rows", "N", "K") if name in item]
    return f" ({' '.join(said)})" if said else ""


def _from_json(item: dict[str, Any]) -> Measured:
    options = {name: tuple(value) if isinstance(value, list) else value for name, value in item["options"].items()}
    return Measured(options, item.get("us"), item.get("failure", ""), item.get("rule", False))


def shipped_path(machine: str, ranks: int) -> Path:
    return Path(__file__).parent / "tables" / f"{machine}x{ranks}.json"


def user_path(machine: str, ranks: int) -> Path:
    return Path(knobs.cache_dir.get()) / "tuning" / f"{machine}x{ranks}.json"


def known_machines() -> list[str]:
    """Names of GPUs with a machine's file, shipped tables or tables of the user's."""
    folders = {shipped_path("", 1).parent, user_path("", 1).parent}
    files = [file.stem for folder in folders for file in folder.glob("*x*.json")]
    found = (re.fullmatch(r"(.+)x\d+", name) for name in (*files, *machines.names()))
    return sorted({match[1] for match in found if match})


def read(path: Path, machine: str, ranks: int) -> Table | None:
    """The table in a file; None, with a line of logging, for one that is stale or no table."""
    try:
        table = Table.from_text(path.read_text(), str(path))
        why = table.stale(machine, ranks)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        why = str(error)
    if why:
        log.warning("%s is ignored: %s", path, why)
        return None
    return table


def tables_of(machine: str, ranks: int) -> Table:
    """What is known of a machine: the user's own entries before shipped ones."""
    merged = Table(machine, ranks, versions())
    for path in (shipped_path(machine, ranks), user_path(machine, ranks)):
        if (table := read(path, machine, ranks)) is not None:
            merged.entries |= table.entries
            merged.about[str(path)] = table.about
    return merged
