"""Machines that the simulator's clock knows: a TOML file each, in which every number has its source.

machine = load("h200x4")       # ditron/machines/h200x4.toml
machine = load("h800x8x2")     # two nodes of h800x8
machine = load("mine.toml")    # a file of yours; base = "h200x4" takes over what it does not say
"""

from __future__ import annotations

import difflib
import math
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ditron_compiler.errors import DitronError

__all__ = ["FIELDS", "Field", "Machine", "Number", "load", "names", "of_gpu"]

_FOLDER = Path(__file__).resolve().parent
_KINDS = ("measured", "data sheet", "paper", "assumed")
_KEYS = ("value", "unit", "source")
_SAYS = {"data sheet": "of a data sheet", "paper": "of a paper", "assumed": "assumed"}


@dataclass(frozen=True)
class Field:
    """A number of a machine.

    Attributes:
        unit: as files write it. key, factor: in the native machine (runtime/sim/timing/timing_model.h).
        least, most: what is possible. what: in words. is_whole: whether it is an integer.
    """

    unit: str
    key: str
    factor: float
    least: float
    most: float
    what: str
    is_whole: bool = False


FIELDS = {
    "sm.count": Field("", "sms", 1, 1, 1024, "streaming multiprocessors of a GPU", True),
    "sm.dot16": Field("TFLOP/s", "dot16", 1e3, 1, 1e5, "products of 16-bit operands, of all SMs"),
    "sm.dot16_sustained": Field(
        "TFLOP/s", "", 1e3, 1, 1e5, "the same behind sm.burst, if calls follow without a pause"
    ),
    "sm.burst": Field("us", "", 1e3, 0, 1e9, "how long a kernel then computes at the full rate"),
    "sm.dot8": Field("TFLOP/s", "dot8", 1e3, 1, 1e5, "products of 8-bit operands"),
    "sm.dot32": Field("TFLOP/s", "dot32", 1e3, 0.1, 1e5, "products of 32-bit operands"),
    "sm.shared": Field("GB/s", "", 1, 1, 1e6, "operands of products, written to shared memory and read, of all SMs"),
    "sm.vector": Field("Top/s", "vector", 1e3, 0.01, 1e5, "operations on elements, as additions of fp32"),
    "sm.special": Field("Top/s", "special", 1e3, 0.01, 1e5, "exponentials, square roots and the like"),
    "sm.fill": Field("us", "fill", 1e3, 0, 100, "first loads of a row of products, which nothing hides"),
    "hbm.rate": Field("GB/s", "hbm", 1, 10, 1e5, "memory of a GPU"),
    "hbm.per_sm": Field("GB/s", "hbm_sm", 1, 1, 1e4, "the same of one program"),
    "l2.size": Field("MB", "cache", 1e6, 0.1, 1e4, "L2 cache of a GPU"),
    "link.rate": Field("GB/s", "link", 1, 1, 1e4, "out of a GPU to the others of its node, and into it"),
    "link.pair": Field(
        "GB/s", "link_pair", 1, 0.1, 1e4, "from a GPU to one other, where each two have a link; else all of link.rate"
    ),
    "link.store_share": Field("", "store_share", 1, 0.01, 1, "part of link.rate that stores reach"),
    "link.load_share": Field("", "load_share", 1, 0.01, 1, "part of link.rate that loads reach"),
    "link.store_per_sm": Field("GB/s", "store_sm", 1, 0.1, 1e4, "stores to peers of one program"),
    "link.load_per_sm": Field("GB/s", "load_sm", 1, 0.1, 1e4, "loads from peers of one program"),
    "copy_engine.share": Field("", "copy_share", 1, 0.01, 1, "part of link.rate that a copy engine reaches"),
    "copy_engine.busy_share": Field("", "copy_busy", 1, 0.01, 1, "part of its rate while SMs compute products"),
    "copy_engine.setup": Field("us", "copy_setup", 1e3, 0, 1e4, "of each copy, before its bytes move"),
    "copy_engine.setup_behind": Field(
        "us", "copy_next", 1e3, 0, 1e4, "the same of a copy behind other work of its stream, which was not idle"
    ),
    "copy_engine.setup_in_graph": Field("us", "", 1e3, 0, 1e4, "the same in a CUDA graph"),
    "copy_engine.least": Field("us", "copy_least", 1e3, 0, 1e4, "a copy takes at least"),
    "nic.rate": Field("GB/s", "nic", 1, 0.01, 1e4, "of a GPU's NIC, each way"),
    "nic.latency": Field("us", "nic_latency", 1e3, 0, 1e4, "from one node to another"),
    "nic.post": Field("us", "nic_post", 1e3, 0, 1e4, "of a program, for each put"),
    "tma.store_per_sm": Field("GB/s", "", 1, 0, 1e4, "TMA stores to peers of one program; 0: there is no TMA"),
    "tma.reduce_share": Field("", "", 1, 0.01, 1, "part of it that TMA's reduce-add reaches"),
    "packets.ll128_per_sm": Field("GB/s", "", 1, 0, 1e4, "payload of LL128 of one program; 0: there is none"),
    "packets.ll128_latency": Field("us", "", 1e3, 0, 100, "of LL128, more than of LL"),
    "multimem.rate": Field("GB/s", "", 1, 0, 1e4, "stores to all peers by the switch; 0: there is no multicast"),
    "nccl.share": Field("", "", 1, 0.01, 1, "part of link.rate that a large collective of NCCL reaches"),
    "nccl.latency": Field("us", "", 1e3, 0, 1e4, "of such a collective"),
    "nccl.packet_share": Field("", "", 1, 0.01, 1, "part of link.rate that its packets (LL, LL128) reach"),
    "nccl.packet_latency": Field("us", "", 1e3, 0, 1e4, "of a collective by packets"),
    "latency.launch": Field("us", "launch", 1e3, 0, 1e4, "of a kernel, from its stream to its programs"),
    "latency.peer": Field("us", "peer", 1e3, 0, 1e4, "from a store to a peer to who polls there"),
    "latency.local": Field("us", "local", 1e3, 0, 1e4, "the same within a GPU"),
    "latency.load": Field("us", "", 1e3, 0, 100, "of loads that a loop over K has ahead of its products"),
    "latency.fence": Field("us", "fence", 1e3, 0, 1e4, "of earlier stores, before a signal to a peer"),
    "latency.stream": Field("us", "stream", 1e3, 0, 1e4, "of a stream, for a signal that it writes or awaits"),
    "latency.barrier": Field("us", "barrier", 1e3, 0, 1e4, "of all ranks, once the last has come"),
}
#: What not every machine has: without these numbers it has it not; of NICs there are all or none.
_OPTIONAL = ("tma.", "packets.", "multimem.", "link.pair")
_SHORT = {"link": "link.rate", "nic": "nic.rate", "hbm": "hbm.rate", "sms": "sm.count"}


@dataclass(frozen=True)
class Number:
    """A number with where it comes from, and the ``file:line`` that says so."""

    value: float
    source: str
    where: str


@dataclass(frozen=True)
class Machine:
    """A machine: numbers by ``section.name``, of a node of ``ranks`` GPUs, and how many nodes.

    Attributes:
        uncalibrated: why what is predicted for it was not compared with a measurement; empty: it was.
        partly: of a file of one's own that is not uncalibrated, which of its numbers were not measured.
        is_sustained: whether calls follow each other without a pause, so that the GPU lowers its clocks.
        is_captured: whether programs are CUDA graphs.
        changed: what ``with_changes`` has changed. file: what ``load`` finds it by.
    """

    name: str
    title: str
    ranks: int
    numbers: Mapping[str, Number]
    nodes: int = 1
    uncalibrated: str = ""
    partly: str = ""
    is_sustained: bool = False
    is_captured: bool = False
    changed: tuple[str, ...] = ()
    file: str = ""

    @property
    def size(self) -> int:
        """GPUs of all nodes."""
        return self.ranks * self.nodes

    def __getitem__(self, name: str) -> float:
        return self.numbers[name].value

    def model(self) -> dict[str, float]:
        """The numbers as the native machine takes them, in ns and bytes per ns."""
        zero = {field.key: 0.0 for field in FIELDS.values() if field.key}
        slower = self["sm.dot16_sustained"] / self["sm.dot16"] if self.is_sustained else 1.0
        power = {"burst": self["sm.burst"] * FIELDS["sm.burst"].factor, "sustained": min(slower, 1.0)}
        return (
            zero
            | power
            | {
                FIELDS[name].key: number.value * FIELDS[name].factor
                for name, number in self.numbers.items()
                if FIELDS[name].key
            }
        )

    def with_changes(self, changes: list[str]) -> Machine:
        """What if: the machine with other numbers, each ``name=value``, as ``link=450`` or ``copy_engine.setup=2``.

        Raises DitronError for a name that no machine has, or an impossible value.
        """
        machine = self
        for change in changes:
            name, _, text = change.partition("=")
            name = _SHORT.get(name, name)
            if name not in machine.numbers:
                raise DitronError(f"{change}: the machine {self.name} has no number {name!r}{_instead(name, machine)}")
            try:
                value = float(text)
            except ValueError:
                raise DitronError(f"{change}: expected {name}=NUMBER, as {name}={self[name]:g}") from None
            _require_possible(name, value, change)
            numbers = dict(machine.numbers) | {name: Number(value, "what if", change)}
            partly = machine.partly and _not_measured(numbers)
            machine = replace(machine, numbers=numbers, partly=partly, changed=(*machine.changed, change))
        return machine

    def sustained(self) -> Machine:
        """The machine as it is when calls follow each other without a pause, and it lowers its clocks."""
        return replace(self, is_sustained=True, changed=("sustained", *self.changed))

    def in_graph(self) -> Machine:
        """The machine as it is for programs in a CUDA graph: copies begin sooner, and a stream's waits are kernels."""
        setup = self["copy_engine.setup_in_graph"]
        changes = [f"copy_engine.setup={setup!r}"]
        changes += [f"{name}={min(setup, self[name])!r}" for name in ("copy_engine.setup_behind", "copy_engine.least")]
        return replace(self.with_changes(changes), is_captured=True, changed=("graph", *self.changed))

    def __str__(self) -> str:
        nodes = f", {self.nodes} nodes" if self.nodes > 1 else ""
        changed = f", with {', '.join(self.changed)}" if self.changed else ""
        if self.uncalibrated:
            return f"{self.name} ({self.title}{nodes}){changed}; uncalibrated: {self.uncalibrated}"
        return f"{self.name} ({self.title}{nodes}){changed}" + (
            f"; partly uncalibrated: {self.partly}" if self.partly else ""
        )


def names() -> list[str]:
    """The machines that there are files of."""
    return sorted(path.stem for path in _FOLDER.glob("*.toml"))


def of_gpu(gpu: str, ranks: int) -> Machine | None:
    """The smallest machine of one node with that GPU and so many ranks: ``of_gpu("h200", 3)`` is h200x4.

    ``gpu`` is as tables of ``ditron tune`` name it.
    """
    sizes = {int(found[1]): name for name in names() if (found := re.fullmatch(rf"{re.escape(gpu)}x(\d+)", name))}
    enough = [size for size in sizes if size >= ranks]
    return load(sizes[min(enough)]) if enough else None


def load(name: str | Path) -> Machine:
    """The machine of that name, of a file, or of several nodes of one (``h800x8x2``).

    Raises DitronError for an unknown machine, and for what is wrong in a file, with its line; TypeError for another
    argument.
    """
    if not isinstance(name, (str, Path)):
        raise TypeError(f"expected the name of a machine, as 'h200x4', or a file that ends in .toml, got {name!r}")
    name = str(name)
    if name.endswith(".toml"):
        return replace(_read(Path(name), Path(name).stem), file=name)
    if name in names():
        return _read(_FOLDER / f"{name}.toml", name)
    node, _, nodes = name.rpartition("x")
    if node in names() and re.fullmatch("[1-9][0-9]*", nodes):
        machine = _read(_FOLDER / f"{node}.toml", node)
        if int(nodes) > 1 and "nic.rate" not in machine.numbers:
            raise DitronError(
                f"machine {name!r}: {node} has no NICs, so there is one node of it: add [nic] to "
                f"{machine.numbers['link.rate'].where.rpartition(':')[0]} with rate, latency and post"
            )
        return replace(machine, name=name, file=name, nodes=int(nodes))
    if node in names():
        raise DitronError(
            f"there is no machine {name!r}: expected a number of nodes from 1 behind {node}x, got {nodes!r}"
        )
    raise DitronError(
        f"there is no machine {name!r}{_similar(name, names())}: expected one of {', '.join(names())}, NAMExN for N "
        "nodes of one, or a file that ends in .toml"
    )


def _similar(name: str, known: Any) -> str:
    close = difflib.get_close_matches(name, list(known), 1)
    return f" (did you mean {close[0]!r}?)" if close else ""


def _instead(name: str, machine: Machine) -> str:
    """What to write for a number that a machine does not have."""
    if name in FIELDS:
        having = [other for other in names() if name in load(other).numbers]
        return f" ({FIELDS[name].what}): of the machines that there are files of, {', '.join(having)} have it"
    short = [key for key, full in _SHORT.items() if full in machine.numbers]
    return f"{_similar(name, [*short, *machine.numbers])}; it has {', '.join(machine.numbers)}"


def _not_measured(numbers: Mapping[str, Number]) -> str:
    """Which numbers of files of one's own were not measured, in a clause; empty for none."""
    kinds: dict[str, list[str]] = {}
    for name, number in numbers.items():
        if number.source.startswith(_KINDS[1:]) and not number.where.startswith(str(_FOLDER)):
            kinds.setdefault(next(kind for kind in _KINDS if number.source.startswith(kind)), []).append(name)
    few = lambda found: found if len(found) <= 4 else [*found[:3], f"{len(found) - 3} more"]  # noqa: E731
    return "; ".join(f"{', '.join(few(found))} {_SAYS[kind]}" for kind, found in kinds.items())


class _File:
    """A machine's file: what is wrong with it is said with its line."""

    def __init__(self, path: Path):
        self.path = path
        try:
            self.text = path.read_text()
            self.table = tomllib.loads(self.text)
        except OSError as error:
            raise DitronError(f"machine {path}: {error.strerror}") from None
        except UnicodeDecodeError as error:
            line = error.object.count(b"\n", 0, error.start) + 1
            raise DitronError(f"{path}:{line}: error: not TOML: {error}") from None
        except tomllib.TOMLDecodeError as error:
            found = re.search(r"at line (\d+)", str(error))
            line = int(found[1]) if found else max(1, len(self.text.splitlines()))
            raise DitronError(f"{path}:{line}: error: not TOML: {error}") from None
        self.lines: dict[str, int] = {}
        section = ""
        for number, line in enumerate(self.text.splitlines(), 1):
            if header := re.match(r"\s*\[([\w.]+)\]", line):
                section = header[1] + "."
                self.lines.setdefault(section, number)
                self.lines.setdefault(header[1], number)
            elif key := re.match(r"\s*([\w.]+)\s*=", line):
                self.lines.setdefault(section + key[1], number)

    def at(self, name: str) -> str:
        """``file:line`` of a key, else of its section, else of the first line."""
        section = name.rpartition(".")[0] + "."
        return f"{self.path}:{self.lines.get(name, self.lines.get(section, 1))}"

    def fail(self, name: str, what: str) -> DitronError:
        return DitronError(f"{self.at(name)}: error: {what}")


def _read(path: Path, name: str, above: tuple[Path, ...] = ()) -> Machine:
    """The machine of a file, which is the base of the files ``above``."""
    file = _File(path)
    table = dict(file.table)
    inherited = _base(file, table.pop("base"), (*above, path.resolve())) if "base" in table else None
    numbers = dict(inherited.numbers) if inherited else {}
    head: dict[str, Any] = {}
    if inherited:
        head = {key: getattr(inherited, key) for key in ("ranks", "nodes", "uncalibrated")}
        head["title"] = f"{inherited.title} ({path.name})"
    for key, value in table.items():
        if isinstance(value, dict):
            for inner, entry in value.items():
                numbers[f"{key}.{inner}"] = _number(file, f"{key}.{inner}", entry)
        elif key in ("title", "uncalibrated") and isinstance(value, str):
            head[key] = value
        elif key == "ranks" and type(value) is int and 1 <= value <= 1024:
            head[key] = value
        else:
            raise file.fail(key, f"expected title, base, ranks (from 1 to 1024) or uncalibrated, got {key} = {value!r}")
    if inherited and inherited.nodes > 1 and head["ranks"] == inherited.size:
        raise file.fail(
            "ranks",
            f"ranks is of a node, and {inherited.name} has {inherited.nodes} nodes of {inherited.ranks}: leave ranks "
            f"out for its {inherited.size} GPUs, or take one node of it as base",
        )
    for key in ("title", "ranks"):
        if key not in head:
            raise file.fail(key, f"the machine has no {key}: add {key} = ... above the first section")
    for field in FIELDS:
        has_nic = any(name.startswith("nic.") for name in numbers)
        optional = field.startswith(_OPTIONAL) or field.startswith("nic.") and not has_nic
        if field not in numbers and not optional:
            section, _, key = field.partition(".")
            unit = f', unit = "{FIELDS[field].unit}"' if FIELDS[field].unit else ""
            raise file.fail(
                field,
                f"the machine has no {field} ({FIELDS[field].what}): add to [{section}] "
                f'{key} = {{value = ...{unit}, source = "measured: ..."}}',
            )
    partly = "" if head.get("uncalibrated") else _not_measured(numbers)
    return Machine(name, numbers=numbers, partly=partly, file=name, **head)


def _base(file: _File, base: Any, above: tuple[Path, ...]) -> Machine:
    """The machine that a file takes over; another file is looked for in its folder."""
    if not isinstance(base, str):
        raise file.fail("base", f"expected base to be the name of a machine or a file, got {base!r}")
    if not base.endswith(".toml"):
        try:
            return load(base)
        except DitronError as error:
            raise file.fail("base", f"base: {error}") from None
    path = file.path.parent / base
    if path.resolve() in above:
        cycle = [*above[above.index(path.resolve()) :], path.resolve()]
        raise file.fail("base", f"base leads back to the same file: {' -> '.join(one.name for one in cycle)}")
    if not path.is_file():
        raise file.fail("base", f"base: there is no file {path}")
    return _read(path, path.stem, above)


def _number(file: _File, name: str, entry: Any) -> Number:
    if name not in FIELDS:
        section = [field for field in FIELDS if field.startswith(name.partition(".")[0] + ".")]
        raise file.fail(
            name,
            f"no machine has a number {name!r}{_similar(name, FIELDS)}: take it out, as what a file does not say is "
            f"its base's, or write one of {', '.join(section or FIELDS)}",
        )
    for key in entry if isinstance(entry, dict) else ():
        if key not in _KEYS:
            raise file.fail(name, f"{name}: expected value, unit and source, got {key!r}{_similar(key, _KEYS)}")
    if not isinstance(entry, dict) or "value" not in entry or "source" not in entry:
        raise file.fail(name, f'{name}: expected {{value = ..., source = "..."}}: every number says where it is from')
    value, unit, source = entry["value"], entry.get("unit", ""), entry["source"]
    if unit != FIELDS[name].unit:
        raise file.fail(name, f"{name}: expected the unit {FIELDS[name].unit!r}, got {unit!r}")
    if not isinstance(source, str) or not source.startswith(_KINDS) or re.fullmatch(r"[^:]*:\s*", source):
        raise file.fail(name, f"{name}: expected a source that begins with {', '.join(_KINDS)}, got {source!r}")
    _require_possible(name, value, f"{file.at(name)}: error: {name}")
    return Number(float(value), source, file.at(name))


def _require_possible(name: str, value: Any, where: str) -> None:
    field = FIELDS[name]
    if type(value) not in (int, float) or not math.isfinite(value) or not field.least <= value <= field.most:
        unit = f" {field.unit}" if field.unit else ""
        raise DitronError(f"{where}: expected a number from {field.least:g} to {field.most:g}{unit}, got {value!r}")
    if field.is_whole and value != int(value):
        raise DitronError(f"{where}: expected an integer, got {value!r}")
