"""The machines that kernels are compiled for, and their transports."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ditron_compiler import knobs

__all__ = ["NEUTRAL", "Target", "parse_target"]

TRANSPORTS = {"cuda": ("p2p", "nvshmem"), "hip": ("p2p", "rocshmem"), "sim": ("sim",)}
# What Triton makes code for. Its own answer to another number is the same complaint by each of LLVM's passes.
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
    """A machine (``cuda``, ``hip`` or ``sim``), its architecture (``90``, ``"gfx942"``, ``""``) and transport.

    ``sanitize``: compile in checked mode (docs/checked-mode.md); the simulator always checks.

    >>> parse_target("cuda:90")
    Target(machine='cuda', arch=90, transport='p2p')
    >>> str(parse_target("hip:gfx942", "rocshmem"))
    'hip:gfx942'
    """

    machine: str
    arch: int | str
    transport: str
    sanitize: bool = field(default=False, repr=False)

    def __str__(self) -> str:
        return f"{self.machine}:{self.arch}" if self.arch else self.machine

    @property
    def is_sim(self) -> bool:
        return self.machine == "sim"

    def gpu_target(self) -> Any:
        """Triton's description of the machine; for the simulator that of the GPU it stands in for."""
        from triton.backends.compiler import GPUTarget

        if self.machine == "hip":
            return GPUTarget("hip", self.arch, 64 if str(self.arch).startswith("gfx9") else 32)
        return GPUTarget("cuda", knobs.sim_capability.get() if self.is_sim else self.arch, 32)


def parse_target(text: str, transport: str | None = None, sanitize: bool = False) -> Target:
    """Read ``"cuda:90"``, ``"hip:gfx942"`` or ``"sim"``; the transport defaults to the machine's first.

    Raises ValueError, listing what there is, for a target or a transport that is not known.
    """
    machine, _, arch = text.partition(":")
    if machine == "cuda" and arch.isdigit():
        parsed: int | str = int(arch)
    elif machine == "hip" and arch.startswith("gfx"):
        parsed = arch
    elif text == "sim":
        parsed = ""
    else:
        raise ValueError(
            f"unknown target {text!r}: expected 'cuda:SM' (as cuda:90), 'hip:GFX' (as hip:gfx942) or 'sim'"
        )
    if parsed not in ARCHITECTURES[machine]:
        what = "compute capability" if machine == "cuda" else "architecture"
        raise ValueError(
            f"unknown {what} in target {text!r}: expected {machine}: and one of "
            f"{', '.join(map(str, ARCHITECTURES[machine]))}"
        )
    known = TRANSPORTS[machine]
    transport = transport or known[0]
    if transport not in known:
        raise ValueError(
            f"unknown transport {transport!r} for target {text!r}: expected one of {', '.join(map(repr, known))}"
        )
    return Target(machine, parsed, transport, sanitize)


# What the simulator's kernels are parsed as; needs no driver.
NEUTRAL = Target("sim", "", "sim")
