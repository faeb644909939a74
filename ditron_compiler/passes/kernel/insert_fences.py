"""Insert the fences and quiets that a kernel needs and does not have."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ditron_compiler import ir
from ditron_compiler.analysis.call_graph import functions, operations
from ditron_compiler.analysis.memory_order import missing_orders
from ditron_compiler.analysis.memory_order_lattice import SIGNAL
from ditron_compiler.analysis.memory_order_transfer import MissingOrder
from ditron_compiler.ir.dialects import ditron, scf, tt
from ditron_compiler.ir.pass_base import Pass, option

__all__ = ["InsertFences"]


@dataclass(frozen=True)
class InsertFences(Pass):
    """Order memory accesses before the signals that publish them, and complete non-blocking transfers.

    A forward memory-order analysis finds, on every path, which accesses may be unordered or incomplete where a later
    operation relies on them. The pass inserts the weakest operation that suffices, only where none is there:

    | before | missing | if one of these may be pending |
    |---|---|---|
    | `signal_op` | `fence` | puts, stores; loads that follow a wait |
    | a relaxed `st`, `red`, `atomic_*` of a flag | `fence` | stores; loads that follow a wait |
    | an update of a signal | `fence` | another update of what may be the same signal, if either is a `set` |
    | `putmem_signal` | `fence` | earlier puts, and stores to other ranks: its signal covers its own data only |
    | `st`, `red`, `atomic_*` of a flag; `sync_all` | `quiet` | puts: a fence orders only puts and signals after them |
    | a store to the source of a put | `quiet` | that put, if it is `nbi` |
    | a load from, store to or put from the destination of a get | `quiet` | that get, if it is `nbi` |
    | a call of a function that communicates, or has no body here | `quiet` | anything |
    | the end of the kernel | `quiet` | `nbi` transfers, and signals in flight |

    Sources and destinations are whole underlying objects: a store to another part of one counts, and so does a store
    through a pointer to an unknown object. Two updates may be of the same signal unless the kernel arguments, constant
    offsets or loop iterations of their signals or ranks differ; two that set the same value need no order. A barrier
    and an acquire load count as a wait. A call of a function that is not inlined is assumed to access every pointer
    operand in each way in which the function accesses memory.

    A quiet at the end of a kernel that has only signals to complete is marked (``ditron.signals_at_end``). Under
    transport p2p of NVIDIA it is erased: the end of a kernel makes its stores visible, those to peers too.

    A fence covers the whole program, so no thread barrier is needed with it. A flag is a cell of the signals that the
    kernel also waits for or updates, or an i64 on another rank. Accesses that are pending before a loop are ordered
    once, in front of it, not in every iteration. What has to be inserted in a loop is a warning, for its cost.

    Before::

        ditron.putmem %inbox, %outbox, %bytes on %right nbi : !tt.ptr<f32>, !tt.ptr<f32>
        ditron.signal_op %sig set %epoch on %right : !tt.ptr<i64>
        tt.return

    After::

        ditron.putmem %inbox, %outbox, %bytes on %right nbi : !tt.ptr<f32>, !tt.ptr<f32>
        ditron.fence
        ditron.signal_op %sig set %epoch on %right : !tt.ptr<i64>
        ditron.quiet
        tt.return
    """

    name: ClassVar[str] = "insert-fences"

    at_end: bool = option(True, "insert a quiet at the end of kernels that need one")

    def run(self, op: ir.Operation) -> None:
        for function in functions(op):
            for missing in missing_orders(function, self.at_end):
                self._insert(missing, function)

    def _insert(self, missing: MissingOrder, function: tt.FuncOp) -> None:
        what, pending, needed_by = missing.what, missing.pending, missing.needed_by
        reason = (
            f"{_describe(needed_by)}: {pending.description} may still be "
            f"{'unordered' if what == 'fence' else 'incomplete'}"
        )
        notes = [(pending.op, pending.description)]
        if missing.place is None:
            why = (
                "the kernel has a loop with warp_specialize=True, whose other warps do not reach it: remove that"
                if _is_warp_specialized(function)
                else "not all threads of the program reach this point"
            )
            needed_by.emit_warning(
                f"'ditron.{what}' is missing before {reason}; it cannot be inserted, because {why}", notes
            )
            self.count("missing and not inserted")
            return
        create = ditron.FenceOp if what == "fence" else ditron.QuietOp
        inserted = create(loc=needed_by.location, ip=ir.InsertionPoint(missing.place))
        if what == "quiet" and isinstance(needed_by, (tt.ReturnOp, scf.YieldOp)) and pending.kind == SIGNAL:
            inserted.attributes[ditron.SIGNALS_AT_END] = ir.UnitAttr.get()
        if _is_in_loop(missing.place):
            needed_by.emit_warning(
                f"inserted 'ditron.{what}' in a loop, before {reason}. It takes time in every iteration: order or "
                f"complete the accesses once, outside of the loop, or write dl.{what}() here if it has to be",
                notes,
            )
        else:
            needed_by.emit_remark(f"inserted 'ditron.{what}' before {reason}", notes)
        self.count("fences inserted" if what == "fence" else "quiets inserted")


def _is_warp_specialized(function: tt.FuncOp) -> bool:
    return any("tt.warp_specialize" in op.attributes for op in operations(function) if isinstance(op, scf.ForOp))


def _is_in_loop(op: ir.Operation) -> bool:
    while (op := op.parent) is not None:
        if isinstance(op, (scf.ForOp, scf.WhileOp)):
            return True
    return False


def _describe(op: ir.Operation) -> str:
    if isinstance(op, tt.ReturnOp):
        return "the end of the kernel"
    return "the end of this branch, and so of the kernel" if isinstance(op, scf.YieldOp) else "this operation"
