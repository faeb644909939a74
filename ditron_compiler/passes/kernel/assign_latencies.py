"""Tell Triton's pipeliner how many iterations ahead of its use each load of a loop is issued."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ditron_compiler import ir
from ditron_compiler.analysis.call_graph import functions, operations
from ditron_compiler.analysis.memory_order_transfer import acquires
from ditron_compiler.ir.dialects import ditron, scf
from ditron_compiler.ir.pass_base import Pass

__all__ = ["AHEAD", "AssignLatencies"]

#: Of a load, what `dl.load_ahead` asks for, in iterations.
AHEAD = "ditron.load_ahead"

_LOADS = ("tt.load", "tt.descriptor_load", "tt.descriptor_gather")


@dataclass(frozen=True)
class AssignLatencies(Pass):
    """Let Triton's pipeliner issue loads of a loop as many iterations ahead as `dl.load_ahead` asks for.

    A load that is marked gets the attribute ``tt.latency`` that the pipeliner reads. As it pipelines no load without
    one in a loop that has some, such a load is an error; so is a mark on what is no load, or none of a loop's body, and
    one in a loop that waits or copies between ranks: loads of later iterations would be in front of that.

    Before::

        scf.for %i = %c0 to %n step %c1 {
          %b = tt.descriptor_load %weight[%column, %i] {ditron.load_ahead = 5 : i32}
          %a = tt.descriptor_load %rows[%row, %i] {ditron.load_ahead = 2 : i32}

    After::

        scf.for %i = %c0 to %n step %c1 {
          %b = tt.descriptor_load %weight[%column, %i] {tt.latency = 5 : i32}
          %a = tt.descriptor_load %rows[%row, %i] {tt.latency = 2 : i32}
    """

    name: ClassVar[str] = "assign-latencies"

    def run(self, op: ir.Operation) -> None:
        for function in functions(op):
            marked = [each for each in operations(function) if AHEAD in each.attributes]
            loops = {each.parent: None for each in marked if _is_load_of_a_loop(each)}  # each once, in their order
            for loop in loops:
                _check_others(loop)
            for each in marked:
                self.count("loads issued ahead as asked for")
                each.attributes["tt.latency"] = each.attributes[AHEAD]
                del each.attributes[AHEAD]


def _is_load_of_a_loop(op: ir.Operation) -> bool:
    """Whether ``op``, which is marked, can be; reports why not."""
    if op.name not in _LOADS:
        op.emit_error(
            f"'{op.name}' is not a load: dl.load_ahead takes what tl.load or a descriptor's load returns, as it is"
        )
    elif op.parent.name != scf.ForOp.OPERATION_NAME:
        op.emit_error("dl.load_ahead is of a load in the body of a for loop, and not under a condition in it")
    else:
        return True
    return False


def _check_others(loop: ir.Operation) -> None:
    """Report the loads of a loop that has marked ones which are not, and what keeps it from being pipelined."""
    block = loop.regions[0].blocks[0]
    marked = next(op for op in block if AHEAD in op.attributes)
    for op in operations(loop):
        if acquires(op) or isinstance(op, ditron.MemoryTransferOpInterface):
            marked.emit_error(
                f"dl.load_ahead: the loop contains '{op.name}', which loads of later iterations must not be in front "
                "of: have that in a loop around it, once for several steps"
            )
            return
    for op in block:
        if op.name in _LOADS and AHEAD not in op.attributes:
            op.emit_error(
                "this load would not be pipelined, as another one of its loop says dl.load_ahead: say it of all"
            )
