"""Which device libraries the kernels of a target are linked to."""

from __future__ import annotations

from typing import Any

from ditron_compiler import ir
from ditron_compiler.frontend import device_libraries as gpu_libraries
from ditron_compiler.frontend.targets import Target
from ditron_compiler.ir.dialects import arith, tt

__all__ = ["device_libraries", "missing_libraries", "select_libraries"]


def device_libraries(target: Target, *, shmem: bool = True) -> dict[str, str]:
    """Triton's option ``extern_libs`` for a target: name -> file, in the order of linking; empty for the simulator.

    Without ``shmem``, the vendor's SHMEM library is left out, so that its calls can be seen in the LLVM IR.
    """
    if target.is_sim:
        return {}
    return gpu_libraries.extern_libs(
        target.backend, target.transport, target.arch, bitcode=shmem, sanitize=target.sanitize
    )


def missing_libraries(target: Target) -> str | None:
    """Why machine code cannot be linked for a target, and what to do; None when it can."""
    if target.transport == "nvshmem" and gpu_libraries.nvshmem_bitcode() is None:
        return (
            "NVSHMEM's device library (libnvshmem_device.bc) was not found: pip install nvidia-nvshmem-cu13 (or "
            "-cu12), or set DITRON_NVSHMEM_BITCODE"
        )
    if target.transport == "rocshmem" and gpu_libraries.rocshmem_bitcode(str(target.arch)) is None:
        return (
            "rocSHMEM's device library (librocshmem_device.bc) was not found under /opt/rocm/lib: install "
            "rocSHMEM, or set DITRON_ROCSHMEM_BITCODE"
        )
    return None


# Operations that Triton's NVIDIA backend turns into calls of libdevice, beside those of the math dialect.
_USE_LIBDEVICE = (arith.RemFOp, tt.MulhiUIOp, tt.PreciseSqrtOp, tt.PreciseDivFOp)


def select_libraries(lowered: ir.Module, target: Target, options: Any) -> None:
    """Set ``options.extern_libs`` to the libraries whose functions a lowered module calls.

    CUDA's libdevice is left out where nothing can call it: Triton reads every library of a kernel that calls any, and
    reading libdevice takes a tenth of the compile time. All of NVSHMEM is linked where a kernel calls its functions
    directly; the libraries that ``dl.extern_call`` names are added.
    """
    libraries = dict(options.extern_libs or ())
    math, symbols = False, {}

    def look(op: ir.Operation) -> ir.WalkResult:
        nonlocal math
        if isinstance(op, tt.ExternElementwiseOp):
            symbols[op.symbol.value] = op.libpath.value
        else:
            math |= op.name.startswith("math.") or isinstance(op, _USE_LIBDEVICE)
        return ir.WalkResult.ADVANCE

    lowered.operation.walk(look)
    foreign = {symbol: path for symbol, path in symbols.items() if not symbol.startswith("ditron_")}
    if not math and not foreign:
        libraries.pop("libdevice", None)
    if target.transport == "nvshmem" and any(symbol.startswith("nvshmem") for symbol in foreign):
        shmem = gpu_libraries.nvshmem_bitcode() is not None and _links_shmem(libraries, target)
        libraries |= gpu_libraries.extern_libs(
            target.backend, target.transport, target.arch, bitcode=shmem, whole=True, sanitize=target.sanitize
        )
    # By the symbol's name: AMD's backend links a library if a function's name contains its name.
    libraries |= {symbol: path for symbol, path in foreign.items() if path}
    object.__setattr__(options, "extern_libs", tuple(libraries.items()))


def _links_shmem(libraries: dict[str, str], target: Target) -> bool:
    """Whether the vendor's SHMEM library is among ``libraries`` (it is not when only LLVM IR is wanted)."""
    return len(set(libraries.values()) & set(device_libraries(target).values())) == len(device_libraries(target))
