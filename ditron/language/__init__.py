"""Device primitives: one function per device operation of the ``ditron`` dialect, called from ``@ditron.jit`` kernels
and from the ``@triton.jit`` helpers they call.

    import ditron
    import ditron.language as dl
    import triton.language as tl

    @ditron.jit
    def send_right(inbox_ptr, outbox_ptr, signal_ptr, epoch, BLOCK: tl.constexpr):
        right = (dl.rank() + 1) % dl.num_ranks()
        offsets = tl.arange(0, BLOCK)
        tl.store(dl.symm_at(inbox_ptr, right) + offsets, tl.load(outbox_ptr + offsets))
        dl.notify(signal_ptr, right, epoch)
        token = dl.wait(signal_ptr, 1, epoch)
        tl.store(outbox_ptr + offsets, tl.load(dl.consume_token(inbox_ptr, token) + offsets))

Enumerations are strings, known at compile time. Wrong use raises Triton's CompilationError at the kernel's line.
"""

from ditron.language._core import token
from ditron.language.data import fence, getmem, getmem_nbi, putmem, putmem_nbi, putmem_signal, putmem_signal_nbi, quiet
from ditron.language.identity import local_rank, multicast_ptr, node, num_local_ranks, num_ranks, rank, symm_at
from ditron.language.memory import (
    atomic_add,
    atomic_cas,
    ld,
    load_ahead,
    multimem_ld_reduce,
    multimem_red,
    multimem_st,
    red,
    st,
)
from ditron.language.packets import ll_get, ll_put, packet_bytes
from ditron.language.signals import consume_token, notify, signal_fetch, signal_op, signal_wait_until, wait
from ditron.language.sync import barrier, barrier_all, swizzle, sync_all
from ditron.language.threads import (
    ballot,
    expect,
    extern_call,
    lane_id,
    num_threads,
    shfl,
    sync_threads,
    thread_id,
    warp_id,
)

__all__ = [
    "atomic_add",
    "atomic_cas",
    "ballot",
    "barrier",
    "barrier_all",
    "consume_token",
    "expect",
    "extern_call",
    "fence",
    "getmem",
    "getmem_nbi",
    "lane_id",
    "ld",
    "ll_get",
    "ll_put",
    "load_ahead",
    "local_rank",
    "multicast_ptr",
    "multimem_ld_reduce",
    "multimem_red",
    "multimem_st",
    "node",
    "notify",
    "num_local_ranks",
    "num_ranks",
    "num_threads",
    "packet_bytes",
    "putmem",
    "putmem_nbi",
    "putmem_signal",
    "putmem_signal_nbi",
    "quiet",
    "rank",
    "red",
    "shfl",
    "signal_fetch",
    "signal_op",
    "signal_wait_until",
    "st",
    "swizzle",
    "symm_at",
    "sync_all",
    "sync_threads",
    "thread_id",
    "token",
    "wait",
    "warp_id",
]
