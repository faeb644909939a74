"""AMD: its target description, and the rocSHMEM functions that its operations call."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ditron_compiler import ir
from ditron_compiler.ir.pass_base import Pass, PassFailure, option
from ditron_compiler.lowering.gpu.builder import GPU
from ditron_compiler.lowering.gpu.lowering import lower_module

__all__ = ["ROCSHMEM", "LowerToAMD"]

# Set and add: rocSHMEM has no signal_op, and its C interface for bitcode leaves the atomics out: these are C++ names.
_SIGNAL = ("_ZN8rocshmem25rocshmem_ulong_atomic_setEPmmi", "_ZN8rocshmem25rocshmem_ulong_atomic_addEPmmi")

# Under transport rocshmem, operation -> the functions of rocSHMEM that the kernel's LLVM IR calls. What is not here
# calls none: it is an access to memory that this GPU maps. With another granularity `_wg` is `_wave` or absent; without
# nbi, `_nbi` is absent.
# The C interface has no quiet either.
ROCSHMEM: dict[str, tuple[str, ...]] = {
    "symm_at": ("rocshmem_ptr",),
    "notify": ("rocshmem_fence", *_SIGNAL),
    "signal_op": _SIGNAL,
    "signal_wait_until": ("rocshmem_ulong_wait_until",),
    "putmem": ("rocshmem_putmem_nbi_wg",),
    "getmem": ("rocshmem_getmem_nbi_wg",),
    "putmem_signal": ("rocshmem_putmem_signal_nbi_wg",),
    "fence": ("rocshmem_fence",),
    "quiet": ("_ZN8rocshmem14rocshmem_quietEv",),
    "barrier_all": ("rocshmem_barrier_all_wg",),
    "barrier": ("rocshmem_barrier_all_wg",),
    "sync_all": ("rocshmem_barrier_all_wg",),
}


@dataclass(frozen=True)
class LowerToAMD(Pass):
    """Lower ``ditron`` operations to calls of the AMD device library.

    Before::

        %peer = ditron.symm_at %out on %rank : !tt.ptr<bf16>
        ditron.notify %signal set %epoch on %rank : !tt.ptr<i64>

    After::

        %peer = tt.extern_elementwise %ctx, %out, %rank {pure = true, symbol = "ditron_symm_at", ...}
        %done = tt.extern_elementwise %ctx, %signal, %epoch, %rank, %set, %node {symbol = "ditron_notify", ...}

    Multicast (``multicast_ptr`` and ``multimem_*``) is an error: the links of AMD's GPUs have none.

    With ``sanitize``, waits have a time limit and remote addresses are checked first (runtime/gpu/sanitizer.ll).
    """

    name: ClassVar[str] = "lower-to-amd"
    anchor: ClassVar[str] = "builtin.module"
    transport: str = option("p2p", "how ranks reach each other", one_of=("p2p", "rocshmem"))
    arch: str = option("gfx942", "processor")
    sanitize: bool = option(False, "give waits a time limit and check remote addresses")

    def run(self, op: ir.Operation) -> None:
        if not self.arch.startswith("gfx"):
            op.emit_error(f"expected an architecture such as gfx942, got '{self.arch}'")
            raise PassFailure
        why = "the links of AMD's GPUs have no multicast; use symm_at and a loop over the ranks"
        lower_module(
            op,
            GPU(
                sanitize=self.sanitize,
                maps_all=self.transport == "p2p",
                name=f"hip:{self.arch}",
                has_tma=False,
                has_system_cas=False,
                whole_lines=False,
                no_multicast=why,
            ),
        )
