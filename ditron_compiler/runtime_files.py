"""Where the files of ``runtime/`` are: in the package in a wheel, beside it in a source tree."""

from __future__ import annotations

from functools import cache
from pathlib import Path

__all__ = ["runtime_directory", "runtime_library"]


@cache
def runtime_directory() -> Path:
    """The directory that holds the device libraries; FileNotFoundError when the installation has none."""
    package = Path(__file__).resolve().parent
    for directory in (package / "runtime", package.parent / "runtime"):
        if (directory / "gpu" / "core.ll").is_file():
            return directory
    raise FileNotFoundError(
        f"the device libraries are missing: expected gpu/core.ll in {package / 'runtime'}; reinstall ditron"
    )


def runtime_library(name: str) -> Path:
    """The path of a device library, such as "nvidia/nvshmem.ll"; FileNotFoundError lists what there is."""
    path = runtime_directory() / name
    if not path.is_file():
        known = ", ".join(sorted(str(p.relative_to(runtime_directory())) for p in runtime_directory().rglob("*.ll")))
        raise FileNotFoundError(f"no device library '{name}'; there are {known}")
    return path
