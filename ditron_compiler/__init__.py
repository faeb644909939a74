"""The DITRON compiler: IR, passes, pipelines and lowerings for kernels that compute and communicate.

What a compiler author imports: ``ir`` (MLIR), ``passes`` (the registry), ``pipeline`` (every pipeline). Imports neither
torch nor triton; kernel authors import ``ditron`` instead.
"""

from __future__ import annotations

import importlib
from pathlib import Path

__all__ = ["ir", "passes", "pipeline", "runtime_library", "versions"]


def runtime_library(name: str) -> Path:
    """The path of a device library, such as "nvidia/nvshmem.ll"; FileNotFoundError lists what there is.

    In a wheel they are in ``ditron_compiler/runtime``, in a source tree in ``runtime`` beside the package.
    """
    package = Path(__file__).resolve().parent
    root = next((r for r in (package / "runtime", package.parent / "runtime") if r.is_dir()), None)
    if root is None:
        raise FileNotFoundError(f"no device libraries at {package / 'runtime'}: the installation is incomplete")
    path = root / name
    if not path.is_file():
        known = ", ".join(sorted(str(p.relative_to(root)) for p in root.rglob("*.ll")))
        raise FileNotFoundError(f"no device library '{name}'; there are {known or 'none'}")
    return path


def __getattr__(name: str):
    # Lazily: `ditron_compiler.knobs` must not cost loading MLIR.
    if name in ("ir", "passes", "pipeline", "versions"):
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")


def __dir__() -> list[str]:
    return __all__
