"""NVIDIA: its target description, and the NVSHMEM functions that its operations call."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ditron_compiler import ir
from ditron_compiler.ir.pass_base import Pass, option
from ditron_compiler.lowering.gpu.builder import GPU
from ditron_compiler.lowering.gpu.lowering import lower_module

__all__ = ["NVSHMEM", "LowerToNvidia"]

# Under transport nvshmem, operation -> the functions of NVSHMEM that the kernel's LLVM IR calls. What is not here
# calls none: it is an access to memory that this GPU maps. With another granularity `_block` is `_warp` or absent;
# without nbi, `_nbi` is absent.
NVSHMEM: dict[str, tuple[str, ...]] = {
    "symm_at": ("nvshmem_ptr",),
    "multicast_ptr": ("nvshmemx_mc_ptr",),
    "notify": ("nvshmem_fence", "nvshmemx_signal_op"),
    "signal_op": ("nvshmemx_signal_op",),
    "signal_wait_until": ("nvshmem_signal_wait_until",),
    "putmem": ("nvshmemx_putmem_nbi_block",),
    "getmem": ("nvshmemx_getmem_nbi_block",),
    "putmem_signal": ("nvshmemx_putmem_signal_nbi_block",),
    "fence": ("nvshmem_fence",),
    "quiet": ("nvshmem_quiet",),
    "barrier_all": ("nvshmemx_barrier_all_block", "nvshmemx_barrier_block"),
    "barrier": ("nvshmemx_barrier_block",),
    "sync_all": ("nvshmemx_team_sync_block",),
}


@dataclass(frozen=True)
class LowerToNvidia(Pass):
    """Lower ``ditron`` operations to calls of the NVIDIA device library.

    Before::

        %peer = ditron.symm_at %out on %rank : !tt.ptr<bf16>
        ditron.notify %signal set %epoch on %rank : !tt.ptr<i64>

    After::

        %peer = tt.extern_elementwise %ctx, %out, %rank {pure = true, symbol = "ditron_symm_at", ...}
        %done = tt.extern_elementwise %ctx, %signal, %epoch, %rank, %set, %node {symbol = "ditron_notify", ...}

    On sm_90 and later, where descriptor accesses go through TMA, the pass also puts the proxy fence after each wait
    that TMA loads follow, and waits for TMA stores to complete before what publishes them.

    With ``sanitize``, waits have a time limit and remote addresses are checked first (runtime/gpu/sanitizer.ll).
    """

    name: ClassVar[str] = "lower-to-nvidia"
    anchor: ClassVar[str] = "builtin.module"
    transport: str = option("p2p", "how ranks reach each other", one_of=("p2p", "nvshmem"))
    arch: int = option(90, "compute capability; Volta's, 70, is the first with acquire and release", least=70)
    sanitize: bool = option(False, "give waits a time limit and check remote addresses")

    def run(self, op: ir.Operation) -> None:
        why = "NVLink multicast needs compute capability 90 (Hopper) or later"
        lower_module(
            op,
            GPU(
                sanitize=self.sanitize,
                maps_all=self.transport == "p2p",
                ends_complete=self.transport == "p2p",
                name=f"cuda:{self.arch}",
                has_tma=self.arch >= 90,
                has_system_cas=True,
                whole_lines=True,
                no_multicast="" if self.arch >= 90 else why,
            ),
        )
