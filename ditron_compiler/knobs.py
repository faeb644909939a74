"""Every environment variable that DITRON reads, in one place; nothing else reads ``os.environ``.

A knob is read when it is asked for, so a test or a user may set it at any time:

    >>> from ditron_compiler import knobs
    >>> knobs.symmetric_size.get() > 0
    True
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = [
    "Knob",
    "all_knobs",
    "cache_dir",
    "environment",
    "heap",
    "sanitize",
    "sanitize_seconds",
    "local_rank",
    "local_world_size",
    "no_color",
    "nvshmem_bitcode",
    "pipeline",
    "protocol",
    "reproducer",
    "rocshmem_bitcode",
    "sim_capability",
    "sim_cpu",
    "sim_looks",
    "sim_races",
    "sim_threads",
    "symmetric_size",
    "transport",
    "tune",
    "tune_seconds",
    "tune_top",
    "under_torchrun",
]


def _parse_bytes(text: str) -> int:
    """``"512M"`` -> 536870912; the suffixes K, M and G are powers of 1024."""
    scale = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
    suffix = text[-1:].upper()
    return int(text[:-1]) * scale[suffix] if suffix in scale else int(text)


def _parse_switch(text: str) -> bool:
    """``"1"`` or ``"on"`` -> True, ``"0"`` or ``"off"`` -> False."""
    return {"1": True, "on": True, "0": False, "off": False}[text.lower()]


def _parse_count(text: str) -> int:
    """``"3"`` -> 3; nothing below 0."""
    if int(text) < 0:
        raise ValueError(text)
    return int(text)


def _one_of(*choices: str) -> Callable[[str], str]:
    """Reads one of these words."""
    return {choice: choice for choice in choices}.__getitem__


@dataclass(frozen=True)
class Knob:
    """One environment variable: its name, how its text is read, its default, and what it is for."""

    name: str
    parse: Callable[[str], Any]
    default: Any
    doc: str

    @property
    def is_set(self) -> bool:
        """Whether the variable is set, and not empty."""
        return bool(os.environ.get(self.name))

    def get(self) -> Any:
        """The variable's value, or the default when it is unset or empty.

        Raises ValueError, naming the variable, when its text cannot be read.
        """
        text = os.environ.get(self.name, "")
        if not text:
            return self.default
        try:
            return self.parse(text)
        except (ValueError, KeyError) as error:
            raise ValueError(f"environment variable {self.name}={text!r} cannot be read: {self.doc}") from error


symmetric_size = Knob(
    "DITRON_SYMMETRIC_SIZE",
    _parse_bytes,
    1 << 30,
    "bytes of symmetric memory per rank and group, e.g. 512M or 2G (default 1G); where it grows, those mapped at once",
)
heap = Knob(
    "DITRON_HEAP",
    _one_of("vmm", "torch"),
    "vmm",
    "symmetric memory of transport p2p: vmm (default; grows as needed, by CUDA's virtual memory management) or torch "
    "(a size that is given, per group)",
)
transport = Knob(
    "DITRON_TRANSPORT",
    str,
    "",
    "transport of ditron.init() on GPUs: p2p or nvshmem (AMD: p2p or rocshmem); default p2p",
)
local_rank = Knob("LOCAL_RANK", int, 0, "torchrun's: this process's rank, and so its GPU, on its node")
local_world_size = Knob("LOCAL_WORLD_SIZE", int, 1, "torchrun's: processes on this node")
cache_dir = Knob(
    "DITRON_CACHE_DIR",
    Path,
    Path.home() / ".cache" / "ditron",
    "where code compiled for the simulator, and tables that ditron tune has made, are kept (default ~/.cache/ditron)",
)
sim_races = Knob(
    "DITRON_SIM_RACES",
    _parse_switch,
    None,
    "whether the simulator detects races: 1 or 0 (default: 1 for ranks of a run, 0 for plain kernels outside of one)",
)
sim_looks = Knob(
    "DITRON_SIM_LOOKS",
    int,
    1 << 20,
    "how often all programs together may look at memory and see nothing new before the simulator calls it "
    "a deadlock (default 1048576; four times that where their loops write as well, 64 times where they "
    "are known to end)",
)
sim_capability = Knob(
    "DITRON_SIM_CAPABILITY",
    int,
    90,
    "compute capability that packages are told of on the simulator, as 80 or 90 (default 90), for "
    "those that know the bugs of one",
)
sim_cpu = Knob(
    "DITRON_SIM_CPU",
    str,
    "host",
    "CPU that the simulator's kernels are compiled for, by LLVM's name, as x86-64-v3 (default host: this one)",
)
sim_threads = Knob(
    "DITRON_SIM_THREADS",
    int,
    0,
    "cores that the simulator uses for launches that need no order (default: all it may; 1 is none but the caller's)",
)
nvshmem_bitcode = Knob(
    "DITRON_NVSHMEM_BITCODE",
    Path,
    None,
    "libnvshmem_device.bc, when it is not the one of the installed nvidia-nvshmem package",
)
rocshmem_bitcode = Knob("DITRON_ROCSHMEM_BITCODE", Path, None, "librocshmem_device.bc of the installed rocSHMEM")


sanitize = Knob(
    "DITRON_SANITIZE",
    int,
    0,
    "the sanitizer of GPU kernels: 0 off (default), 1 on, 2 on and the host waits for each launch",
)
sanitize_seconds = Knob(
    "DITRON_SANITIZE_SECONDS", float, 10.0, "seconds a wait of a GPU kernel may take under the sanitizer (default 10)"
)
no_color = Knob("NO_COLOR", bool, False, "no colours in terminals, whatever its value (see no-color.org)")
pipeline = Knob(
    "DITRON_PIPELINE",
    str,
    "default",
    "pipeline of the kernels that name none, by @ditron.jit(pipeline=...) or --pipeline (default: default)",
)
protocol = Knob(
    "DITRON_PROTOCOL",
    str,
    "warn",
    "what is done about mistakes between ranks that the checker finds in a program when it is compiled: "
    "warn (default), error or off",
)
tune = Knob(
    "DITRON_TUNE",
    _parse_switch,
    None,
    "what operators run: 1 measures at the first call what no table knows, 0 looks at no table (default: tables only)",
)
tune_seconds = Knob(
    "DITRON_TUNE_SECONDS", float, 30.0, "seconds that a candidate of the tuner may take before it is ended (default 30)"
)
tune_top = Knob(
    "DITRON_TUNE_TOP",
    _parse_count,
    0,
    "with DITRON_TUNE=1, measure the default and so many schedules that are predicted to be fastest (default: all)",
)
reproducer = Knob(
    "DITRON_REPRODUCER",
    str,
    "",
    "file that a pass that fails leaves its module and pipeline in: ditron-opt --run-reproducer FILE",
)


def under_torchrun() -> bool:
    """Whether this process is one of torchrun's."""
    return "TORCHELASTIC_RUN_ID" in os.environ


def environment(**changes: object) -> dict[str, str]:
    """The environment of a process that this one starts, which finds the same packages, with some variables changed."""
    places = [place for place in sys.path if place and not place.endswith(".zip")]
    return os.environ | {"PYTHONPATH": os.pathsep.join(places)} | {name: str(value) for name, value in changes.items()}


def all_knobs() -> list[Knob]:
    """Every knob, in the order written in this file."""
    return [value for value in globals().values() if isinstance(value, Knob)]
