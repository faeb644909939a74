"""Targets of compilation: backend, architecture and transport."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from ditron_compiler import knobs

__all__ = ["SIM_TARGET", "Target", "backend_of", "parse_target"]

_FNUZ = ("fp8e4b8", "fp8e5b16")

TRANSPORTS = {"cuda": ("p2p", "nvshmem"), "hip": ("p2p", "rocshmem"), "sim": ("sim",)}
# What Triton generates code for. Given another number, each of LLVM's passes complains.
ARCHITECTURES: dict[str, tuple[int | str, ...]] = {
    "cuda": (75, 80, 86, 87, 89, 90, 100, 101, 103, 110, 120, 121),
    "hip": (
        "gfx908",
        "gfx90a",
        "gfx942",
        "gfx950",
        "gfx1030",
        "gfx1100",
        "gfx1101",
        "gfx1102",
        "gfx1103",
        "gfx1150",
        "gfx1151",
        "gfx1152",
        "gfx1153",
        "gfx1200",
        "gfx1201",
        "gfx1250",
    ),
    "sim": ("",),
}


@dataclass(frozen=True)
class Target:
    """Backend (``cuda``, ``hip`` or ``sim``), architecture (``90``, ``"gfx942"``, ``""``) and transport.

    ``sanitize``: compile with the GPU sanitizer (docs/sanitizer.md); the simulator always checks.

    >>> parse_target("cuda:90")
    Target(backend='cuda', arch=90, transport='p2p')
    >>> str(parse_target("hip:gfx942", "rocshmem"))
    'hip:gfx942'
    """

    backend: str
    arch: int | str
    transport: str
    sanitize: bool = field(default=False, repr=False)

    def __str__(self) -> str:
        return f"{self.backend}:{self.arch}" if self.arch else self.backend

    @property
    def is_sim(self) -> bool:
        return self.backend == "sim"

    def gpu_target(self) -> Any:
        """Triton's description of the target; for the simulator that of the GPU it simulates."""
        from triton.backends.compiler import GPUTarget

        if self.backend == "hip":
            return GPUTarget("hip", self.arch, 64 if str(self.arch).startswith("gfx9") else 32)
        return GPUTarget("cuda", knobs.sim_capability.get() if self.is_sim else self.arch, 32)


def backend_of(target: Target) -> Any:
    """Triton's backend for a target. The simulator's has AMD's formats of fp8 too."""
    from triton.compiler.compiler import make_backend

    backend = make_backend(target.gpu_target())
    if target.is_sim:
        parse = backend.parse_options

        def parse_options(options: dict) -> Any:
            parsed = parse(options)
            return replace(parsed, supported_fp8_dtypes=tuple(sorted({*parsed.supported_fp8_dtypes, *_FNUZ})))

        backend.parse_options = parse_options
    return backend


def parse_target(text: str, transport: str | None = None, sanitize: bool = False) -> Target:
    """Read ``"cuda:90"``, ``"hip:gfx942"`` or ``"sim"``; the transport defaults to the backend's first.

    Raises ValueError, listing what there is, for a target or a transport that is not known.
    """
    backend, _, arch = text.partition(":")
    if backend == "cuda" and arch.isdigit():
        parsed: int | str = int(arch)
    elif backend == "hip" and arch.startswith("gfx"):
        parsed = arch
    elif text == "sim":
        parsed = ""
    else:
        raise ValueError(
            f"unknown target {text!r}: expected 'cuda:SM' (as cuda:90), 'hip:GFX' (as hip:gfx942) or 'sim'"
        )
    if parsed not in ARCHITECTURES[backend]:
        what = "compute capability" if backend == "cuda" else "architecture"
        raise ValueError(
            f"unknown {what} in target {text!r}: expected {backend}: and one of "
            f"{', '.join(map(str, ARCHITECTURES[backend]))}"
        )
    known = TRANSPORTS[backend]
    transport = transport or known[0]
    if transport not in known:
        raise ValueError(
            f"unknown transport {transport!r} for target {text!r}: expected one of {', '.join(map(repr, known))}"
        )
    return Target(backend, parsed, transport, sanitize)


#: The simulator's; compiling for it needs no driver.
SIM_TARGET = Target("sim", "", "sim")
