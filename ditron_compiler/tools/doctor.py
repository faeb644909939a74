"""``ditron doctor``: what is installed, what works here, what is missing and how to install it."""

from __future__ import annotations

import importlib
import importlib.metadata
import platform
from collections.abc import Callable, Iterator
from dataclasses import dataclass

__all__ = ["Diagnosis", "findings", "main"]


@dataclass(frozen=True)
class Diagnosis:
    """One line of the report: ``state`` is ``ok``, ``missing`` (optional), or ``broken`` (DITRON cannot work)."""

    subject: str
    state: str
    detail: str
    remedy: str = ""


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _core() -> Diagnosis:
    try:
        core = importlib.import_module("ditron_compiler._core")
    except ImportError as error:
        return Diagnosis("native module", "broken", str(error), "build it: make build, or pip install .")
    return Diagnosis("native module", "ok", f"MLIR {core.llvm_version}")


def _ranges() -> Diagnosis:
    from ditron_compiler.versions import check_versions

    found = ", ".join(f"{name} {_version(name)}" for name in ("triton", "torch", "llvmlite", "numpy"))
    try:
        check_versions()
    except Exception as error:
        return Diagnosis("versions", "broken", f"{found}: {error}", "pip install -U ditron")
    return Diagnosis("versions", "ok", f"python {platform.python_version()}, {found}")


def _simulator() -> Diagnosis:
    try:
        importlib.import_module("ditron._sim")
        import llvmlite.binding as llvm
    except ImportError as error:
        return Diagnosis("simulator", "broken", str(error), "build it: make build, or pip install .")
    return Diagnosis("simulator", "ok", f"JIT for {llvm.get_host_cpu_name()}: ditron run --sim N SCRIPT")


def _gpus() -> Diagnosis:
    import torch  # noqa: TID251

    if not torch.cuda.is_available():
        why = "this torch is a CPU build" if torch.version.cuda is None and torch.version.hip is None else "no device"
        return Diagnosis("GPUs", "missing", why, "not needed to compile for GPUs nor to simulate them")
    count = torch.cuda.device_count()
    names = ", ".join(sorted({torch.cuda.get_device_name(i) for i in range(count)}))
    return Diagnosis("GPUs", "ok", f"{count} x {names}")


def _links() -> Diagnosis:
    import torch  # noqa: TID251

    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if count < 2:
        return Diagnosis("links", "missing", "fewer than two GPUs", "transport p2p needs GPUs of one node to be linked")
    pairs = [(i, j) for i in range(count) for j in range(count) if i != j]
    linked = [p for p in pairs if torch.cuda.can_device_access_peer(*p)]
    if len(linked) < len(pairs):
        return Diagnosis(
            "links", "missing", f"{len(linked)} of {len(pairs)} pairs of GPUs reach each other", "use transport nvshmem"
        )
    return Diagnosis("links", "ok", f"all {len(pairs)} pairs of GPUs reach each other: transport p2p works")


def _nvshmem_host() -> Diagnosis:
    for package in ("nvshmem4py-cu13", "nvshmem4py-cu12"):
        if _version(package):
            return Diagnosis("NVSHMEM host", "ok", f"{package} {_version(package)}")
    return Diagnosis(
        "NVSHMEM host",
        "missing",
        "nvshmem4py is not installed",
        "pip install 'ditron[nvshmem-cu13]' (or -cu12) to run transport nvshmem",
    )


def _nvshmem_device() -> Diagnosis:
    from ditron_compiler.frontend.device_libraries import nvshmem_bitcode

    path = nvshmem_bitcode()
    if path is None:
        return Diagnosis(
            "NVSHMEM device",
            "missing",
            "libnvshmem_device.bc not found: compiling stops at LLVM IR",
            "pip install nvidia-nvshmem-cu13, or set DITRON_NVSHMEM_BITCODE",
        )
    return Diagnosis("NVSHMEM device", "ok", str(path))


def _rocshmem_device() -> Diagnosis:
    from ditron_compiler.frontend.device_libraries import rocshmem_bitcode

    path = rocshmem_bitcode("gfx942")
    if path is None:
        return Diagnosis(
            "rocSHMEM device",
            "missing",
            "its bitcode is not found: compiling stops at LLVM IR",
            "install rocSHMEM below /opt/rocm, or set DITRON_ROCSHMEM_BITCODE",
        )
    return Diagnosis("rocSHMEM device", "ok", str(path))


def _pictures() -> Diagnosis:
    if _version("matplotlib") is None:
        return Diagnosis(
            "pictures",
            "missing",
            "matplotlib is not installed, which --timeline and --graph need",
            "pip install 'ditron[plot]'",
        )
    return Diagnosis("pictures", "ok", f"matplotlib {_version('matplotlib')}")


CHECKS: tuple[Callable[[], Diagnosis], ...] = (
    _core,
    _ranges,
    _simulator,
    _gpus,
    _links,
    _nvshmem_host,
    _nvshmem_device,
    _rocshmem_device,
    _pictures,
)


def findings() -> Iterator[Diagnosis]:
    """Every check's finding; a check that itself fails is a finding that says so, not a crash."""
    for check in CHECKS:
        try:
            yield check()
        except Exception as error:
            yield Diagnosis(check.__name__.strip("_"), "broken", f"{type(error).__name__}: {error}")


def main() -> int:
    """Print the report. Returns 1 when something that DITRON cannot do without is broken, else 0."""
    broken = 0
    for finding in findings():
        mark = {"ok": "ok     ", "missing": "missing", "broken": "BROKEN "}[finding.state]
        print(f"{mark}  {finding.subject:<15} {finding.detail}")
        if finding.remedy and finding.state != "ok":
            print(f"{'':25}-> {finding.remedy}")
        broken += finding.state == "broken"
    return 1 if broken else 0
