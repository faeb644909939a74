"""Every pipeline, as a list of passes, and the function that runs one.

A comment says why a pass has its place; one without depends on the pass before it.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable

from . import _core, ir, pass_registry
from .instrumentation import Instrumentation
from .ir.passmanager import PassManager

__all__ = [
    "AMD",
    "FRONT",
    "HOST",
    "NVIDIA",
    "OVERLAP",
    "PIPELINES",
    "SIM",
    "TTGIR",
    "Pipeline",
    "front",
    "lowering",
    "named",
    "pipeline",
    "run",
    "text",
]

Pipeline = tuple[str, ...]

#: Raises what the Triton frontend produced to ditron operations.
FRONT: Pipeline = (
    "raise-primitives",
    "canonicalize",  # fold symm_at(p, rank()) and constant arguments while they are visible
    "cse",
)

#: The passes over a kernel between raising and lowering, by the name that `@ditron.jit(pipeline=...)` and
#: `ditron compile --pipeline` take.
PIPELINES: dict[str, Pipeline] = {
    "default": (
        "hoist-symm-at",  # first: pointers of one base become the same value, which the others compare
        "merge-waits",
        "insert-fences",  # after the waits that remain are known
        "infer-scope",
        "cse",  # duplicates that hoisting leaves
    ),
    # Tiles in the order in which their data arrives or is waited for, unless the author has chosen an order.
    "swizzled": (
        "insert-swizzle",  # first: it matches what the author wrote
        "hoist-symm-at",
        "merge-waits",
        "insert-fences",
        "infer-scope",
        "cse",
    ),
    # What the author wrote, and nothing else: to find mistakes that another pipeline would hide.
    "as-written": (),
    # For messages that are so small that the signal costs more than the data.
    "low-latency": (
        "hoist-symm-at",
        "merge-waits",
        "ll-protocol",  # before fences are inserted for signals
        "insert-fences",
        "infer-scope",
        "cse",
    ),
    # For links without atomic operations, such as PCIe.
    "pcie": (
        "hoist-symm-at",
        "merge-waits",
        "insert-fences",  # before lower-nonatomic-sync adds its own fences
        "infer-scope",
        "lower-nonatomic-sync",
        "canonicalize",  # merges adjacent fences
        "cse",
    ),
}

# The same with an explicit order.
for _mode in ("gather", "scatter"):
    PIPELINES[f"swizzled-{_mode}"] = tuple(
        entry + f"{{mode={_mode}}}" if entry == "insert-swizzle" else entry for entry in PIPELINES["swizzled"]
    )

# The same with one protocol for every size.
for _protocol in ("ll", "ll128"):
    PIPELINES[f"low-latency-{_protocol}"] = tuple(
        entry + f"{{protocol={_protocol}}}" if entry == "ll-protocol" else entry for entry in PIPELINES["low-latency"]
    )

#: The passes over a host program, with its kernels, before it is executed.
HOST: Pipeline = (
    "decompose-all-at-once",  # the all-gathers that no earlier pass has decomposed
    "canonicalize",  # the trace computes a number at each use
    "cse",
)

#: The same for a program whose copies and streams are optimised.
OVERLAP: Pipeline = (
    *HOST,
    "eliminate-copies",  # before streams are assigned: one stream has a total order
    "canonicalize",
    "cse",
    "assign-streams",
)

#: To operations that Triton compiles: tt, arith, scf and calls of the device library.
NVIDIA: Pipeline = (
    "lower-swizzle{{one-node={one_node}}}",  # before the target: swizzle expands to rank and num_ranks
    "assign-latencies",
    "lower-to-nvidia{{transport={transport} arch={arch}{sanitize}}}",
    "canonicalize",
    "cse",
)

AMD: Pipeline = (
    "lower-swizzle{{one-node={one_node}}}",
    "lower-to-amd{{transport={transport} arch={arch}{sanitize}}}",
    "canonicalize",
    "cse",
)

#: On TTGIR for Hopper, behind Triton's passes.
TTGIR: Pipeline = (
    "overlap-promotion",
    "canonicalize",
    "cse",
)

#: To the LLVM dialect.
SIM: Pipeline = (
    "lower-swizzle",
    "lower-to-sim",
    "convert-scf-to-cf",
    "convert-math-to-llvm",
    "convert-arith-to-llvm",
    "convert-func-to-llvm",
    "convert-cf-to-llvm",
    "lower-loop-annotations",  # what scf.for said about vectorising, in the form that LLVM reads
    "reconcile-unrealized-casts",
)

#: The same with race detection.
SIM_RACES: Pipeline = tuple("lower-to-sim{races=true}" if entry == "lower-to-sim" else entry for entry in SIM)

#: Before them, for a clock: what the kernel spends,
SIM_COSTS: Pipeline = ("insert-costs",)

#: and nothing but what decides when that happens.
SIM_TIMING: Pipeline = (
    *SIM_COSTS,
    "skeletonize",
    "canonicalize",  # erases what computed data
    "cse",
    "canonicalize",
)

#: Backend -> its pipeline and its default architecture.
_LOWERINGS = {"cuda": (NVIDIA, 90), "hip": (AMD, "gfx942"), "sim": (SIM, "")}


def lowering(backend: str, transport: str, arch: int | str | None = None, sanitize: bool = False) -> Pipeline:
    """The passes that lower a mixed module for ``backend`` (cuda, hip or sim).

    ``arch`` is the compute capability for cuda (default 90), the processor for hip (gfx942). ``sanitize``: with the
    sanitizer, on GPUs. ValueError for an unknown backend.
    """
    if backend not in _LOWERINGS:
        raise ValueError(f"no pipeline for backend '{backend}': expected one of {', '.join(_LOWERINGS)}")
    passes, usual = _LOWERINGS[backend]
    suffix = " sanitize=true" if sanitize else ""
    one_node = "true" if transport == "p2p" else "false"  # p2p reaches the ranks of one node
    return tuple(
        entry.format(transport=transport, arch=arch or usual, sanitize=suffix, one_node=one_node) for entry in passes
    )


def front(name: str | Iterable[str] = "default") -> Pipeline:
    """The passes from Triton's module to the mixed module that is lowered, in the pipeline ``name``.

    Instead of a name, a tuple of passes, or a pipeline's text as "hoist-symm-at,my-pass{limit=3}".

    ValueError, listing the pipelines, for an unknown name.
    """
    if isinstance(name, str) and name in PIPELINES:
        return FRONT + PIPELINES[name]
    passes = tuple(re.split(r",(?![^{]*})", name)) if isinstance(name, str) else tuple(name)
    if (unknown := _unknown(passes)) and isinstance(name, str):
        raise ValueError(
            f"unknown pipeline {name!r}: expected one of {', '.join(map(repr, PIPELINES))}"
            f"{pass_registry.similar(name, PIPELINES)}"
        )
    if unknown:
        raise ValueError(unknown)
    return FRONT + passes


def pipeline(backend: str, transport: str, arch: int | str | None = None, name: str = "default") -> str:
    """All passes of a kernel, to the end of its lowering, as text for ``--pass-pipeline``."""
    return text(front(name) + lowering(backend, transport, arch))


def named() -> dict[str, Pipeline]:
    """The pipelines by name, as documentation shows them."""
    return {
        "front": FRONT,
        **PIPELINES,
        "host": HOST,
        "overlap": OVERLAP,
        "cuda": NVIDIA,
        "ttgir": TTGIR,
        "hip": AMD,
        "sim": SIM,
    } | {
        "sim-costs": SIM_COSTS,
        "sim-timing": SIM_TIMING,
    }


def text(passes: Iterable[str]) -> str:
    """Passes as the text of a pipeline over a module."""
    return f"builtin.module({','.join(passes)})"


def _unknown(entries: Iterable[str]) -> str:
    """The unknown passes of a pipeline, with similar names; empty when all are known."""
    known = {*pass_registry.names(), *(entry.partition("{")[0] for one in named().values() for entry in one)}
    unknown = [
        name
        for entry in entries
        for name in re.findall(f"^{_NAME}(?![(])", entry)
        if name not in known and not _core._registered_passes_contain(name)  # type: ignore[attr-defined]
    ]
    return ", and ".join(f"there is no pass '{name}'{pass_registry.similar(name, known)}" for name in unknown)


_NAME = r"[\w.-]+"


def run(module: ir.Module, passes: Iterable[str], instrumentation: Instrumentation | None = None) -> None:
    """Run passes over ``module``, in place; ``instrumentation`` observes them.

    A pass's warning becomes a Python warning at the user's line. Raises MLIRError, or the exception of a Python pass
    that has a bug; ValueError for passes that cannot be parsed, with the unknown names.
    """
    instrumentation = instrumentation or Instrumentation()
    passes = list(passes)
    try:
        manager = PassManager.parse(text(passes), module.context)
    except ValueError as error:
        unknown = _unknown(passes)
        raise ValueError(f"cannot parse the pipeline '{text(passes)}': {unknown}" if unknown else error) from None
    stream = instrumentation.before_pipeline(manager, module)
    earlier = len(instrumentation.remarks)
    try:
        with module.context.attach_diagnostic_handler(instrumentation.handle_diagnostic):
            manager.run(module)
    finally:
        instrumentation.after_pipeline(manager, stream)
    for remark in instrumentation.remarks[earlier:]:
        if remark.severity == "warning":
            warnings.warn_explicit(remark.message, UserWarning, remark.file, remark.line)
