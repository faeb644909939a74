"""Lowering to GPUs: from ``ditron`` operations to calls of the device libraries, on NVIDIA and AMD alike.

An operation becomes ``tt.extern_elementwise`` of a function ``ditron_*`` (runtime/README.md), which Triton carries
through its passes and links in; or, where Triton has the operation (atomics), Triton's own. Each thread of a program
executes such a call. ``table.TABLE`` has a row per operation.
"""

from __future__ import annotations

from ditron_compiler import ir
from ditron_compiler.analysis.divergence import divergent_values
from ditron_compiler.ir.dialects import ditron, scf, tt
from ditron_compiler.ir.pass_base import PassFailure
from ditron_compiler.lowering.gpu.builder import GPU, Lowering, LoweringError
from ditron_compiler.lowering.gpu.control_flow import keep_waits_in_order, verify_convergence
from ditron_compiler.lowering.gpu.sanitizer import SANITIZER_TABLE
from ditron_compiler.lowering.gpu.table import TABLE

__all__ = ["lower_module"]


def lower_module(module: ir.Operation, gpu: GPU) -> None:
    """Lower every ``ditron`` operation of ``module`` in place.

    Raises PassFailure after diagnostics when an operation has no lowering on this target.
    """
    functions = [op for op in module.regions[0].blocks[0] if isinstance(op, tt.FuncOp)]
    if not all([_lower_function(function, gpu) for function in functions]):  # a list: each gets its diagnostics
        raise PassFailure


def _lower_function(function: tt.FuncOp, gpu: GPU) -> bool:
    table = SANITIZER_TABLE if gpu.sanitize else TABLE
    operations: list[ir.Operation] = []
    function.walk(operations.append)
    ours = [op for op in operations if op.name.startswith("ditron.")]
    if not ours:
        return True
    lowering = Lowering(function, gpu, operations, divergent_values(function, ours))
    ok = verify_convergence(ours, [op for op in operations if isinstance(op, scf.ForOp)], lowering.divergent)
    for op in ours:
        if gpu.no_multicast and isinstance(op, ditron.RequiresMulticast):
            op.emit_error(f"'{op.name}' is not supported on {gpu.name}: {gpu.no_multicast}")
            ok = False
        elif type(op) not in table:
            op.emit_error(f"'{op.name}' has no lowering to {gpu.name}; it must be lowered by an earlier pass")
            ok = False
    if not ok:
        return False
    keep_waits_in_order(ours)
    for op in ours:
        row = table[type(op)]
        lowering.at(op)
        try:
            if row.publishes(op) and lowering.publishes_tma_stores(op):
                lowering.call("ditron_tma_release", [], lowering.i32)
            row.lower(lowering, op)
        except LoweringError as error:
            op.emit_error(str(error))
            return False
    return True
