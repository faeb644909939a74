"""Every pipeline, as a list that can be read, and the way to run one.

A line without a reason stands where it must: it needs what the line above makes.
"""

from __future__ import annotations

from collections.abc import Iterable

from . import ir
from .ir.passmanager import PassManager
from .watch import Watch

Pipeline = tuple[str, ...]

#: What the Triton frontend gave becomes ditron operations that later passes can trust.
FRONT: Pipeline = (
    "raise-primitives",
    "canonicalize",  # fold symm_at(p, rank()) and constant arguments while they are visible
    "cse",
)

#: Ends at operations that Triton compiles: tt, arith, scf and calls of the device library.
NVIDIA: Pipeline = (
    "lower-swizzle",  # before the target: swizzle expands to rank and num_ranks
    "lower-to-nvidia{{transport={transport} arch={arch}{check}}}",
    "canonicalize",
    "cse",
)

AMD: Pipeline = (
    "lower-swizzle",
    "lower-to-amd{{transport={transport} arch={arch}{check}}}",
    "canonicalize",
    "cse",
)

#: Ends at the LLVM dialect.
SIM: Pipeline = (
    "lower-swizzle",
    "lower-to-sim",
    "convert-scf-to-cf",
    "convert-math-to-llvm",
    "convert-arith-to-llvm",
    "convert-func-to-llvm",
    "convert-cf-to-llvm",
    "mark-loops",  # what scf.for said about vectorising, in the form that LLVM reads
    "reconcile-unrealized-casts",
)

#: The same for a machine that looks for races.
SIM_RACES: Pipeline = tuple("lower-to-sim{races=true}" if entry == "lower-to-sim" else entry for entry in SIM)

#: Machine -> its pipeline and the arch that it stands for when none is given.
_LOWERINGS = {"cuda": (NVIDIA, 90), "hip": (AMD, "gfx942"), "sim": (SIM, "")}


def lowering(machine: str, transport: str, arch: int | str | None = None, check: bool = False) -> Pipeline:
    """The passes from a mixed module to what ``machine`` (cuda, hip or sim) runs.

    ``arch`` is the compute capability for cuda (default 90), the processor for hip (gfx942). ``check`` is checked mode,
    on GPUs. ValueError for an unknown machine.
    """
    if machine not in _LOWERINGS:
        raise ValueError(f"no pipeline for machine '{machine}': expected one of {', '.join(_LOWERINGS)}")
    passes, usual = _LOWERINGS[machine]
    checked = " check=true" if check else ""
    return tuple(entry.format(transport=transport, arch=arch or usual, check=checked) for entry in passes)


def pipeline(machine: str, transport: str, arch: int | str | None = None) -> str:
    """The whole way, front and lowering, as text for ``--pass-pipeline``."""
    return text(FRONT + lowering(machine, transport, arch))


def named() -> dict[str, Pipeline]:
    """The pipelines by name, as documentation shows them."""
    return {"front": FRONT, "cuda": NVIDIA, "hip": AMD, "sim": SIM}


def text(passes: Iterable[str]) -> str:
    """Passes as the text of a pipeline over a module."""
    return f"builtin.module({','.join(passes)})"


def run(module: ir.Module, passes: Iterable[str], watch: Watch | None = None) -> None:
    """Run passes over ``module``, in place; ``watch`` says what to see of it.

    Raises MLIRError, or the exception of a Python pass that has a bug.
    """
    watch = watch or Watch()
    manager = PassManager.parse(text(passes), module.context)
    printer = watch.begin(manager, module)
    try:
        manager.run(module)
    finally:
        watch.end(manager, printer)
