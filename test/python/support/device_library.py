"""The vendor-neutral device library on the CPU, where LLVM IR runs too: a thread for each rank's program."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Mapping
from types import SimpleNamespace

import llvmlite.binding as llvm
import numpy as np

from ditron.distributed.context import Slot, barrier_area_bytes, pack
from ditron_compiler.runtime_files import runtime_directory

# What a vendor's common.ll provides, for a program of one thread on the CPU.
CPU = "\n".join(
    [
        "define i32 @ditron_thread_id() { ret i32 0 }",
        "define i32 @ditron_num_threads() { ret i32 1 }",
        "define i32 @ditron_warp_size() { ret i32 1 }",
        "define void @ditron_warp_sync() { ret void }",
        "define i64 @ditron_ballot(i32 %mine) { %r = zext i32 %mine to i64 ret i64 %r }",
        # Halves of a pair are each whole, and in no order.
        "define { i64, i64 } @ditron_ld_pair(ptr addrspace(1) %p) { %y = call i32 @sched_yield() "
        "%q = getelementptr i64, ptr addrspace(1) %p, i64 1 %b = load atomic i64, ptr addrspace(1) %q monotonic, align 8 "
        "%a = load atomic i64, ptr addrspace(1) %p monotonic, align 8 %r = insertvalue { i64, i64 } poison, i64 %a, 0 "
        "%s = insertvalue { i64, i64 } %r, i64 %b, 1 ret { i64, i64 } %s }",
        "define void @ditron_st_pair(ptr addrspace(1) %p, i64 %a, i64 %b) { %q = getelementptr i64, ptr addrspace(1) %p, "
        "i64 1 store atomic i64 %b, ptr addrspace(1) %q monotonic, align 8 "
        "store atomic i64 %a, ptr addrspace(1) %p monotonic, align 8 ret void }",
        "define i32 @ditron_shfl_i32(i32 %v, i32 %lane, i32 %mode) { ret i32 %v }",
        "define void @ditron_block_barrier() { ret void }",
        "define void @ditron_polled(i32 %scope, i32 %semantic) { ret void }",
        "define void @ditron_fence_scope(i32 %scope) { fence seq_cst ret void }",
        "declare i32 @sched_yield()",  # more ranks than processors: who polls lets others run
        "define i64 @ditron_poll(ptr addrspace(1) %p, i32 %s, i32 %m) { %y = call i32 @sched_yield() "
        "%v = load atomic i64, ptr addrspace(1) %p seq_cst, align 8 ret i64 %v }",
        "define i64 @ditron_ld_b64(ptr addrspace(1) %p, i32 %s, i32 %m) "
        "{ %v = load atomic i64, ptr addrspace(1) %p seq_cst, align 8 ret i64 %v }",
        "define void @ditron_add_b64(ptr addrspace(1) %p, i64 %v, i32 %s) "
        "{ %o = atomicrmw add ptr addrspace(1) %p, i64 %v seq_cst ret void }",
        "declare void @ditron_signal(ptr addrspace(1), i64, i32, i32)",
        "define void @ditron_release_signal(i1 %leader, ptr addrspace(1) %p, i64 %v, i32 %op, i32 %s) "
        "{ br i1 %leader, label %lead, label %done lead: call void @ditron_fence_scope(i32 %s) "
        "call void @ditron_signal(ptr addrspace(1) %p, i64 %v, i32 %op, i32 %s) br label %done done: ret void }",
        *(
            f"define i32 @ditron_st_b{b}(ptr addrspace(1) %p, i{b} %v, i32 %s, i32 %m) "
            f"{{ store atomic i{b} %v, ptr addrspace(1) %p seq_cst, align {b // 8} ret i32 0 }}"
            for b in (8, 16, 32, 64)
        ),
    ]
)
P, I32, I64 = ctypes.c_void_p, ctypes.c_int32, ctypes.c_int64


def compiled(
    signatures: Mapping[str, tuple],
    more: tuple[str, ...] = (),
    vendor: str = "",
    changed: Callable[[str], str] = lambda text: text,
) -> SimpleNamespace:
    """Functions of core.ll, p2p.ll, packets.ll and ``more``, by name without ``ditron_``.

    ``signatures``: the result and the arguments of each; ``vendor``: IR of what else a vendor provides; ``changed``:
    what to do to the text of a file.
    """
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    module = llvm.parse_assembly(CPU + vendor)
    for name in ("core", "p2p", "packets", *more):
        # Found by name only when they are ordinary functions.
        text = (runtime_directory() / f"gpu/{name}.ll").read_text().replace("linkonce_odr hidden ", "")
        module.link_in(llvm.parse_assembly(changed(text)))
    module.verify()
    engine = llvm.create_mcjit_compiler(module, llvm.Target.from_default_triple().create_target_machine(opt=2))
    engine.finalize_object()
    library = SimpleNamespace(engine_alive=engine)
    for name, (result, *arguments) in signatures.items():
        function = ctypes.CFUNCTYPE(result, *arguments)(engine.get_function_address(name))
        setattr(library, name.removeprefix("ditron_"), function)
    return library


HEAP = 4096
SIGNALS, DATA = 512, 1024  # offsets in the heap, behind the barrier area


class Ranks:
    """Heaps and contexts of a group in one address space; ``unmapped`` pairs are on different nodes."""

    def __init__(self, n: int, ranks_per_node: int | None = None):
        self.n, per_node = n, ranks_per_node or n
        self.heaps = [np.zeros(HEAP + 128, np.uint8) for _ in range(n)]
        self.bases = [heap.ctypes.data + -heap.ctypes.data % 128 for heap in self.heaps]
        assert barrier_area_bytes(n) <= SIGNALS
        self.tables = []
        for r in range(n):
            mapped = [base if s // per_node == r // per_node else 0 for s, base in enumerate(self.bases)]
            fixed = {
                Slot.RANK: r,
                Slot.NUM_RANKS: n,
                Slot.LOCAL_RANK: r % per_node,
                Slot.NUM_LOCAL_RANKS: per_node,
                Slot.NODE: r // per_node,
                Slot.WORLD_RANK: 10 + r,
                Slot.WORLD_SIZE: 20,
                Slot.HEAP_BASE: self.bases[r],
                Slot.HEAP_BYTES: HEAP,
                Slot.BARRIER_OFFSET: 0,
            }
            self.tables.append(np.array(pack(fixed, mapped, [10 + s for s in range(n)]), np.int64))
        self.contexts = [table.ctypes.data for table in self.tables]

    def at(self, rank: int, offset: int) -> int:
        return self.bases[rank] + offset

    def words(self, rank: int, offset: int, count: int) -> np.ndarray:
        return np.ctypeslib.as_array((ctypes.c_int64 * count).from_address(self.at(rank, offset)))

    def run(self, program) -> None:
        """``program(rank)`` on every rank at once."""
        failures = []

        def guarded(rank):
            try:
                program(rank)
            except BaseException as error:  # noqa: BLE001
                failures.append(error)

        threads = [threading.Thread(target=guarded, args=(rank,), daemon=True) for rank in range(self.n)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
            assert not thread.is_alive(), "hangs"
        if failures:
            raise failures[0]
