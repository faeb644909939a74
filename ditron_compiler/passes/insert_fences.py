"""Put in the fences and quiets that the operations' descriptions call for and the author left out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ditron_compiler import ir
from ditron_compiler.analysis.call_graph import functions
from ditron_compiler.analysis.memory_order import Finding, scan
from ditron_compiler.ir.pass_base import Pass, option

__all__ = ["InsertFences"]


@dataclass(frozen=True)
class InsertFences(Pass):
    """Order what a kernel publishes before the signal that says it is there.

    Looks along every path for what nothing has ordered yet when something publishes it, and puts the weakest sufficient
    operation there, which is never one that is there already:

    | before | missing | when these are pending |
    |---|---|---|
    | `signal_op` | `fence` | puts, stores; loads of what a wait has given |
    | `st`, `red`, `atomic_*` of a flag, relaxed | `fence` | stores; loads of what a wait has given |
    | an update of a signal | `fence` | another that may be of that signal at that rank, if one of them sets it |
    | `putmem_signal` | `fence` | earlier puts, and stores to another rank: its signal speaks for its own data |
    | `st`, `red`, `atomic_*` of a flag; `sync_all` | `quiet` | puts: only puts and signals stay behind them |
    | a store to the source of a put | `quiet` | that put, when it is `nbi` |
    | a load from, a store to, a put from the destination of a get | `quiet` | that get, when it is `nbi` |
    | a call of a function that communicates, or has no body here | `quiet` | anything |
    | the end of the kernel | `quiet` | `nbi` transfers, and signals on their way |

    The source or destination is all that is computed from the same argument: a store to another part of it waits too,
    and one through a pointer of unknown origin. Updates may be of one signal unless their argument, a constant, or the
    turn of a loop tells their signals or ranks apart; two that set the same value need nothing. A barrier and an
    acquiring load give as a wait does. A function that is called, and not inlined, counts as doing all that it does
    with every pointer it gets, and one that touches no memory needs nothing.

    A fence counts for the whole program, so it needs no barrier of the threads beside it. A flag is a cell of the
    signals that the kernel also waits for or updates as such, or an i64 on another rank. What a loop would order anew
    at each turn, though it comes from before, is ordered in front of it.

    Before::

        ditron.putmem %inbox, %outbox, %bytes on %right nbi : !tt.ptr<f32>, !tt.ptr<f32>
        ditron.signal_op %sig set %epoch on %right : !tt.ptr<i64>
        "tt.return"() : () -> ()

    After::

        ditron.putmem %inbox, %outbox, %bytes on %right nbi : !tt.ptr<f32>, !tt.ptr<f32>
        ditron.fence
        ditron.signal_op %sig set %epoch on %right : !tt.ptr<i64>
        ditron.quiet
        "tt.return"() : () -> ()
    """

    name: ClassVar[str] = "insert-fences"

    at_end: bool = option(True, "a quiet at the end of kernels that need one")

    def run(self, op: ir.Operation) -> None:
        for function in functions(op):
            for finding in scan(function, self.at_end):
                self._insert(finding)

    def _insert(self, finding: Finding) -> None:
        what, pending, needed_by = finding.what, finding.pending, finding.needed_by
        why = (
            f"{_NAMES.get(needed_by.name, 'this')}: {pending.what} would not be "
            f"{'ordered' if what == 'fence' else 'complete'} by then"
        )
        notes = [(pending.op, pending.what)]
        if finding.place is None:
            needed_by.emit_warning(
                f"'ditron.{what}' is missing before {why}; it cannot be inserted, because not all "
                "threads of the program come here",
                notes,
            )
            self.count("missing, and not inserted")
            return
        ir.Operation.create(f"ditron.{what}", loc=needed_by.location, ip=ir.InsertionPoint(finding.place))
        needed_by.emit_remark(f"inserted 'ditron.{what}' before {why}", notes)
        self.count("fences inserted" if what == "fence" else "quiets inserted")


_NAMES = {"tt.return": "the end of the kernel", "scf.yield": "the end of this branch, and so of the kernel"}
