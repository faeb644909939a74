"""Whether a stream's wait, in a CUDA graph a kernel of one warp, has a place beside programs that wait on every SM."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ditron._program.execute.kernels import DeviceKernel

__all__ = ["SmLimits", "sm_limits", "warn_of_waits_without_a_place"]

_RESERVED = 1024  # bytes of shared memory that the driver takes for each program


@dataclass(frozen=True)
class SmLimits:
    """How many SMs a GPU has, and what is on each: 32-bit registers and bytes of shared memory."""

    sms: int
    registers: int
    shared: int

    def has_place(self, kernel: DeviceKernel, programs: int, other: DeviceKernel) -> bool:
        """Whether a program of ``other`` starts where ``programs`` of ``kernel`` are resident."""
        fit = min(self.registers // kernel.registers, self.shared // (kernel.shared + _RESERVED))
        resident = min(fit, programs // self.sms)  # of the SM that has the fewest
        left = self.registers - resident * kernel.registers, self.shared - resident * (kernel.shared + _RESERVED)
        return left[0] >= other.registers and left[1] >= other.shared + _RESERVED


@cache
def sm_limits(device: Any) -> SmLimits:
    """Those of a GPU."""
    import torch

    gpu = torch.cuda.get_device_properties(device)
    return SmLimits(gpu.multi_processor_count, gpu.regs_per_multiprocessor, gpu.shared_memory_per_multiprocessor)


def warn_of_waits_without_a_place(
    name: str, limits: SmLimits, launches: Iterable[tuple[Any, DeviceKernel]], waits: Iterable[tuple[Any, DeviceKernel]]
) -> None:
    """Warn of launches whose programs wait while they leave no place for a wait of another stream of program ``name``.

    Both with their kernels; that of a wait may write signals first (signal_runs.py). Whether the programs wait for
    these, or for what comes after the wait, is not looked at.
    """
    for launch, kernel in launches:
        programs = launch.grid[0] * launch.grid[1] * launch.grid[2]
        for wait, waiting in waits:
            if wait.stream != launch.stream and not limits.has_place(kernel, programs, waiting):
                warnings.warn(
                    f"program {name!r} in a CUDA graph: {programs} programs of kernel {launch.kernel!r} ({launch.loc}) "
                    f"wait for signals with {kernel.registers} of {limits.registers} registers of an SM each, and the "
                    f"wait of stream {wait.stream.name!r} ({wait.loc}), a kernel there, finds no place beside them: it "
                    "hangs if they come first and wait for what it writes or what follows it. Launch fewer programs, "
                    "or leave registers with maxnreg=232",
                    RuntimeWarning,
                    stacklevel=2,
                )
                break
