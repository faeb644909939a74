"""The DITRON compiler: IR, passes, pipelines and lowerings for kernels that compute and communicate.

What a compiler author imports: ``ir`` (MLIR), ``passes`` (what a pass is made of), ``pass_registry`` (all passes by
name), ``pipeline`` (every pipeline). Imports neither torch nor triton; kernel authors import ``ditron`` instead.
"""

from __future__ import annotations

import importlib

from ditron_compiler.runtime_files import runtime_library

__all__ = ["ir", "pass_registry", "passes", "pipeline", "runtime_library", "versions"]


def __getattr__(name: str):
    # Lazily: `ditron_compiler.knobs` must not cost loading MLIR.
    if name in ("ir", "pass_registry", "passes", "pipeline", "versions"):
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")


def __dir__() -> list[str]:
    return __all__
