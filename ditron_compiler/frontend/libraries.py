"""Which device libraries a target's kernels link to, in the terms of the frontend."""
from __future__ import annotations

from typing import Any

from ditron_compiler import ir
from ditron_compiler.frontend.targets import Target
from ditron_compiler.lowering import gpu_libraries

__all__ = ["device_libraries", "drop_unused_libdevice", "missing_libraries"]


def device_libraries(target: Target, *, shmem: bool = True) -> dict[str, str]:
    """Triton's option ``extern_libs`` for a target: name -> file, in the order of linking; empty for the simulator.

    Without ``shmem``, the vendor's SHMEM library is left out, so that its calls can be seen in the LLVM IR.
    """
    if target.is_sim:
        return {}
    return gpu_libraries.extern_libs(target.machine, target.transport, target.arch, bitcode=shmem)


def missing_libraries(target: Target) -> str | None:
    """Why machine code cannot be linked for a target, and what to do; None when it can."""
    if target.transport == "nvshmem" and gpu_libraries.nvshmem_bitcode() is None:
        return ("NVSHMEM's device library (libnvshmem_device.bc) was not found: pip install nvidia-nvshmem-cu13 (or "
                "-cu12), or set DITRON_NVSHMEM_BITCODE")
    if target.transport == "rocshmem" and gpu_libraries.rocshmem_bitcode(str(target.arch)) is None:
        return ("rocSHMEM's device library (librocshmem_device.bc) was not found under /opt/rocm/lib: install "
                "rocSHMEM, or set DITRON_ROCSHMEM_BITCODE")
    return None


# Operations of Triton that its NVIDIA backend turns into calls of libdevice, beside those of the math dialect.
_USE_LIBDEVICE = ("tt.mulhiui", "tt.precise_sqrt", "tt.precise_divf")


def drop_unused_libdevice(lowered: ir.Module, options: Any) -> None:
    """Take CUDA's libdevice out of ``options.extern_libs`` when nothing in a lowered module can need it.

    Triton reads every library of a kernel that calls any, and reading libdevice takes a tenth of the compile time; a
    plain kernel without libdevice's functions calls none and is spared it, and so should ours be.
    """
    libraries = dict(options.extern_libs or ())
    if "libdevice" not in libraries:
        return
    needed = False

    def look(op: ir.Operation) -> ir.WalkResult:
        nonlocal needed
        name = op.name
        if name == "tt.extern_elementwise":
            needed |= not ir.StringAttr(op.attributes["symbol"]).value.startswith("ditron_")
        else:
            needed |= name.startswith("math.") or name in _USE_LIBDEVICE
        return ir.WalkResult.INTERRUPT if needed else ir.WalkResult.ADVANCE

    lowered.operation.walk(look)
    if not needed:
        del libraries["libdevice"]
        object.__setattr__(options, "extern_libs", tuple(libraries.items()))
