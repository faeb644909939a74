"""Which versions of the packages around us work, and a clear error for those that do not."""

from __future__ import annotations

import re
from collections.abc import Callable
from importlib import metadata

#: Triton: at least, and below. Tried with 3.6.0 to 3.9.0.
TRITON = ((3, 6), (3, 10))

#: llvmlite's LLVM compiles for the simulator the LLVM IR that our MLIR writes.
LLVMLITE_LLVM = {(0, 50): 22}


class VersionError(ImportError):
    """A package is missing or of a version that DITRON does not work with."""


def check_versions(version_of: Callable[[str], str] = metadata.version, mlir_version: str | None = None) -> None:
    """Check Triton and llvmlite; VersionError says what there is, what is needed and how to get it.

    ``version_of`` maps a distribution's name to its version, ``mlir_version`` is MLIR's ("22.1.8"); both are for tests.
    """
    triton = _version("triton", version_of)
    low, high = TRITON
    if not low <= triton < high:
        raise VersionError(
            f"DITRON works with Triton {_text(low)} up to but not including {_text(high)}, got {version_of('triton')}; "
            f"install one with: pip install 'triton>={_text(low)},<{_text(high)}'"
        )
    if mlir_version is None:
        from ._core import llvm_version as mlir_version
    major = int(mlir_version.split(".")[0])
    llvmlite = _version("llvmlite", version_of)
    if LLVMLITE_LLVM.get(llvmlite) != major:
        fitting = ", ".join(f"{_text(v)}.*" for v, llvm in LLVMLITE_LLVM.items() if llvm == major) or "none known"
        raise VersionError(
            f"the simulator needs an llvmlite with LLVM {major}, as our MLIR is {mlir_version}; "
            f"got llvmlite {version_of('llvmlite')}, fitting: {fitting}"
        )


def _version(package: str, version_of: Callable[[str], str]) -> tuple[int, int]:
    try:
        found = version_of(package)
    except metadata.PackageNotFoundError:
        raise VersionError(
            f"DITRON needs {package}, which is not installed; install it with: pip install {package}"
        ) from None
    match = re.match(r"(\d+)\.(\d+)", found)
    if not match:
        raise VersionError(f"cannot read the version of {package}: {found!r}")
    return int(match[1]), int(match[2])


def _text(version: tuple[int, int]) -> str:
    return ".".join(map(str, version))
