"""Slices of the use-def graph, through structured control flow. A slice is an over-approximation ("may")."""

from __future__ import annotations

from collections.abc import Iterator

from ditron_compiler import ir
from ditron_compiler.ir.dialects import arith, scf
from ditron_compiler.ir.matchers import defining_op, is_function_argument


def is_defined_in(value: ir.Value, op: ir.Operation) -> bool:
    """Whether ``value`` is defined in a region of ``op``."""
    owner = value.owner if isinstance(value, ir.OpResult) else value.owner.owner
    return op.is_ancestor(owner) and (owner != op or not isinstance(value, ir.OpResult))


def is_invariant(value: ir.Value, loop: ir.Operation) -> bool:
    """Whether ``value`` is the same in every iteration of ``loop`` ("must"): it is defined outside, or computed in the
    loop by operations without effects and regions from such values."""
    if not is_defined_in(value, loop):
        return True
    op = defining_op(value)
    return (
        op is not None
        and op.is_memory_effect_free
        and not len(op.regions)
        and all(is_invariant(operand, loop) for operand in op.operands)
    )


def incoming_values(value: ir.Value) -> list[ir.Value]:
    """The values of which ``value`` is one, as those of a phi: by a select, an if or a loop; none for other values."""
    op = defining_op(value)
    if op is None:
        return _incoming_values_of_argument(value)
    index = value.result_number
    if isinstance(op, arith.SelectOp):
        return [op.true_value, op.false_value]
    if isinstance(op, scf.IfOp):
        return [region.blocks[0].terminator.operands[index] for region in op.regions if len(region)]
    if isinstance(op, scf.ForOp):
        return [op.initArgs[index], op.body.terminator.operands[index]]
    if isinstance(op, scf.WhileOp):
        return [op.before_block.terminator.args[index]]
    return []


def _incoming_values_of_argument(value: ir.Value) -> list[ir.Value]:
    """The same of an argument of a loop's body."""
    loop, index = value.owner.owner, value.arg_number
    if isinstance(loop, scf.ForOp) and index > 0:
        return [loop.initArgs[index - 1], value.owner.terminator.operands[index - 1]]
    if isinstance(loop, scf.WhileOp):
        if value.owner == loop.after_block:
            return [loop.before_block.terminator.args[index]]
        return [loop.inits[index], loop.after_block.terminator.operands[index]]
    return []


def reaching_values(value: ir.Value) -> set[ir.Value]:
    """The values of which ``value`` is one, through any number of selects, ifs and loops: ``value`` itself without."""
    found: set[ir.Value] = set()
    seen: set[ir.Value] = set()
    worklist = [value]
    while worklist:
        value = worklist.pop()
        if value not in seen:
            seen.add(value)
            worklist += (incoming := incoming_values(value))
            if not incoming:
                found.add(value)
    return found


def backward_slice(value: ir.Value) -> Iterator[ir.Value]:
    """``value`` and every value of the function that it depends on, each once.

    An induction variable depends on the bounds and the step; a result or an iteration argument of control flow on all
    operands of the operation, on what its regions yield, and on its condition.
    """
    seen: set[ir.Value] = set()
    worklist = [value]
    while worklist:
        value = worklist.pop()
        if value in seen:
            continue
        seen.add(value)
        yield value
        op = defining_op(value)
        if op is not None:
            worklist += op.operands
            regions = op.regions
        elif is_function_argument(value):
            continue
        elif isinstance(parent := value.owner.owner, scf.ForOp) and value.arg_number == 0:
            worklist += [parent.lowerBound, parent.upperBound, parent.step]
            continue
        else:
            worklist += parent.operands
            regions = [value.owner.region]
        for region in regions:
            for block in region:
                if block.terminator is not None:
                    worklist += block.terminator.operands
