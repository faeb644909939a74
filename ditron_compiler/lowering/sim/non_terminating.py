"""Calls that may be made without end: those in a ``while`` loop that is not known to terminate.

The machine takes a program that reads the same values again and again as waiting, and it is a deadlock when all do.
A call outside of such loops is made a bounded number of times: a program that makes one makes progress.
"""

from __future__ import annotations

from ditron_compiler import ir
from ditron_compiler.analysis.slicing import is_defined_in
from ditron_compiler.ir.dialects.enums import PREDICATES
from ditron_compiler.ir.matchers import constant_int, defining_op
from ditron_compiler.lowering.sim.elementwise import int_attribute

_BELOW = [PREDICATES[name] for name in ("slt", "sle", "ult", "ule")]
_ABOVE = [PREDICATES[name] for name in ("sgt", "sge", "ugt", "uge")]
_WIDENING = ("arith.extsi", "arith.extui", "arith.index_cast")
_POSITIVE = ("tt.get_num_programs", "ditron.num_ranks")


def may_repeat(op: ir.Operation) -> bool:
    """Whether a program may execute ``op`` without end, within the function that it is in."""
    while (op := op.parent) is not None:
        op = op.operation
        if (op.name == "scf.while" and not _terminates(op)) or _has_back_edge(op):
            return True
    return False


def _has_back_edge(op: ir.Operation) -> bool:
    """Whether branches between the blocks of ``op`` have a back edge."""
    for region in op.regions:
        seen: set[ir.Block] = set()
        for block in region.blocks if len(region.blocks) > 1 else ():
            seen.add(block)
            if any(target in seen for target in _last(block).successors):
                return True
    return False


def _last(block: ir.Block) -> ir.Operation:
    return block.operations[len(block.operations) - 1].operation


def _terminates(loop: ir.Operation) -> bool:
    """Whether an ``scf.while`` terminates: it continues only while an induction variable that grows is below an
    invariant bound, or one that falls is above it."""
    head, body = (region.blocks[0] for region in loop.regions)
    test, *passed = _last(head).operands
    handed = list(_last(body).operands)

    def trace(value: ir.Value) -> ir.Value:
        """``value`` traced to the loop's head."""
        while (op := defining_op(value)) is not None and op.name in _WIDENING:
            value = op.operands[0]
        return passed[value.arg_number] if op is None and value.owner == body else value

    def step(value: ir.Value) -> int:
        """1 when ``value`` grows in each iteration, -1 when it falls, 0 when neither is known."""
        value = trace(value)
        if defining_op(value) is not None or value.owner != head:
            return 0
        op = defining_op(trace(handed[value.arg_number]))
        if op is None or op.name not in ("arith.addi", "arith.subi"):
            return 0
        first, second = (trace(operand) for operand in op.operands)
        if op.name == "arith.subi":
            return -_sign(second) if first == value else 0
        return _sign(second) if first == value else _sign(first) if second == value else 0

    def ends(op: ir.Operation | None) -> bool:
        if op is None or op.name not in ("arith.andi", "arith.cmpi"):
            return False
        if op.name == "arith.andi":
            return any(ends(defining_op(operand)) for operand in op.operands)
        left, right = op.operands
        predicate = int_attribute(op, "predicate")
        way = 1 if predicate in _BELOW else -1 if predicate in _ABOVE else 0
        ways = ((left, right, way), (right, left, -way))
        return bool(way) and any(step(moves) == to and _is_invariant(limit, loop) for moves, limit, to in ways)

    return ends(defining_op(test))


def _sign(value: ir.Value) -> int:
    """1 when ``value`` is known to be positive, -1 when negative, else 0."""
    number, op = constant_int(value), defining_op(value)
    if number is None:
        return int(op is not None and op.name in _POSITIVE)
    return (number > 0) - (number < 0)


def _is_invariant(value: ir.Value, loop: ir.Operation) -> bool:
    """Whether ``value`` is invariant in ``loop``."""
    if not is_defined_in(value, loop):
        return True
    op = defining_op(value)
    return op is not None and (op.name in _POSITIVE or (
        op.name.startswith("arith.") and all(_is_invariant(operand, loop) for operand in op.operands)))  # fmt: skip
