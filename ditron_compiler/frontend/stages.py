"""Our passes behind Triton's: on TTGIR, where a kernel has layouts and pipelined loops."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from triton import knobs

from ditron_compiler import ir, pipeline
from ditron_compiler.frontend import handover
from ditron_compiler.frontend.diagnostics import raise_compile_errors
from ditron_compiler.instrumentation import Instrumentation

__all__ = ["add_passes", "passes_on_ttgir"]

_lock = threading.RLock()


def add_passes(
    stages: dict[str, Callable], options: Any, capability: int | None, instrumentation: Instrumentation | None = None
) -> None:
    """Let the stage ``ttgir`` of Triton's ``stages`` end with our passes, which are for a ``capability`` of 90 and fuse
    multiplications with additions: ``options`` may forbid that.
    """
    if capability is None or capability // 10 != 9 or "ttgir" not in stages or not options.enable_fp_fusion:
        return
    by_triton = stages["ttgir"]

    def lowered(module: Any, metadata: dict) -> Any:
        module = by_triton(module, metadata)
        if not _has_promotions(module.str_nodebug()):
            return module
        with ir.Context() as ours, raise_compile_errors():
            parsed = handover.from_triton(module, ours)
            pipeline.run(parsed, pipeline.TTGIR, instrumentation)
            return handover.to_triton(parsed, module.context)

    stages["ttgir"] = lowered


def _has_promotions(text: str) -> bool:
    """Whether a pass may find something to do, so that other kernels are not handed over."""
    return text.count("ttng.warp_group_dot_wait") > 1 and "xf8E" in text


@contextmanager
def passes_on_ttgir() -> Iterator[None]:
    """What ``triton.compile`` compiles in this thread goes through our passes; only a hook reaches its stages.

    One thread at a time: the hook is the process's, and one that another thread had removed would be missed in silence.
    """
    runtime, thread = knobs.runtime, threading.get_ident()

    def add(backend: Any, stages: dict, options: Any, language: Any, capability: int | None) -> None:
        if before is not None:
            before(backend, stages, options, language, capability)
        if threading.get_ident() == thread:
            add_passes(stages, options, capability)

    with _lock:
        before = runtime.add_stages_inspection_hook
        runtime.add_stages_inspection_hook = add
        try:
            yield
        finally:
            runtime.add_stages_inspection_hook = before
