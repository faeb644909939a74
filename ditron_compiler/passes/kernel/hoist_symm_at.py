"""Translate addresses once: on the scalar base, outside of loops, and without duplicates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ditron_compiler import ir
from ditron_compiler.analysis.alias import UnderlyingObject, underlying_objects
from ditron_compiler.analysis.call_graph import OPAQUE, functions, operations
from ditron_compiler.analysis.dominance import ScopedTable, walk_in_dominance_order
from ditron_compiler.analysis.integer_range import RANK_COUNTS, is_below
from ditron_compiler.analysis.match_failure import MatchFailure
from ditron_compiler.analysis.rank_scope import rank_scope
from ditron_compiler.analysis.rebasing import rebase
from ditron_compiler.analysis.slicing import is_defined_in
from ditron_compiler.ir.dialects import arith, ditron, scf, tt
from ditron_compiler.ir.matchers import constant_int, defining_op, is_function_argument, is_query
from ditron_compiler.ir.pass_base import Pass

__all__ = ["HoistSymmAt"]


@dataclass(frozen=True)
class HoistSymmAt(Pass):
    """Apply ``symm_at`` to the scalar base of its pointers, hoist it out of loops, and eliminate common subexpressions.

    A peer's heap is this rank's at another address, so ``symm_at(base + offsets) = symm_at(base) + offsets``. On the
    base it is one call and not one per element, its result has the alignment that is known of the base, mostly a
    kernel's argument, and it is the same for all pointers computed from that base.

    Across nodes ``symm_at`` is null, which ``symm_at(base) + offsets`` is not: a pointer whose address is observed,
    converted to an integer to compare it with null, or passed to a function or assembly, stays where it is computed.

    With a tensor of ranks it stays where it is, unless all ranks are one scalar.

    It leaves a loop when the base and the rank are loop-invariant, and either the loop has at least one iteration or
    the rank is in range by construction (``(rank + 1) % num_ranks``). It never leaves an ``if``, whose condition may be
    what keeps the rank in range.

    Before::

        scf.for %i = %c0 to %n step %c64 : i32 {
          %chunk = tt.addptr %box, %i : !tt.ptr<bf16>, i32
          %there = ditron.symm_at %chunk on %right : !tt.ptr<bf16>
          tt.store %there, %x : !tt.ptr<bf16>
        }

    After::

        %peer = ditron.symm_at %box on %right : !tt.ptr<bf16>
        scf.for %i = %c0 to %n step %c64 : i32 {
          %there = tt.addptr %peer, %i : !tt.ptr<bf16>, i32
          tt.store %there, %x : !tt.ptr<bf16>
        }
    """

    name: ClassVar[str] = "hoist-symm-at"

    def run(self, op: ir.Operation) -> None:
        for function in functions(op):
            found = [_with_scalar_rank(o) for o in operations(function) if isinstance(o, ditron.SymmAtOp)]
            observed = _observed(function) if found else set()
            for translation in found:
                if ir.RankedTensorType.isinstance(translation.rank.type):
                    continue
                objects = {UnderlyingObject(o.root, translation.rank) for o in underlying_objects(translation.ptr)}
                if objects & observed or any(_may_be_any(o.root) for o in observed):
                    translation.emit_remark(
                        "this symm_at was not moved to a scalar base, because its address, null or not, may be observed"
                    )
                    self.count("left because the address may be observed")
                    continue
                for moved in self._to_base(translation):
                    self._out_of_loops(moved)
            if found:
                self._eliminate_common_subexpressions(function)

    def _to_base(self, op: ditron.SymmAtOp) -> list[ditron.SymmAtOp]:
        """The translations that replace ``op``: on scalar bases where they are found."""
        pointer, rank = op.ptr, op.rank
        made: list[ditron.SymmAtOp] = []

        def make(name: str, operands: list[ir.Value], type_: ir.Type, attributes: dict) -> ir.Value:
            return ir.Operation.create(
                name,
                results=[type_],
                operands=operands,
                attributes=attributes,
                loc=op.location,
                ip=ir.InsertionPoint(op),
            ).results[0]

        def translate(base: ir.Value) -> ir.Value:
            if base == pointer:
                made.append(op)
                return op.result
            made.append(ditron.SymmAtOp(base, rank, loc=op.location, ip=ir.InsertionPoint(op)))
            return made[-1].result

        try:
            result = rebase(pointer, translate, make, stop=_is_select)
        except MatchFailure:
            return []  # the lowering reports it
        if result != op.result:
            op.result.replace_all_uses_with(result)
            op.erase()
            self.count("moved to a scalar base")
        return made

    def _out_of_loops(self, op: ditron.SymmAtOp) -> None:
        loop = op.parent
        while isinstance(loop, scf.ForOp | scf.WhileOp):
            runs = _has_iterations(loop) or isinstance(loop, scf.WhileOp) and op.block.region == loop.regions[0]
            if not (
                runs or is_below(op.rank, ditron.NumRanksOp) or rank_scope(op.rank, loop) is not ditron.Scope.World
            ):
                return
            moving: list[ir.Operation] = []
            if not all(_can_leave(operand, loop, moving) for operand in op.operands):
                return
            for inner in [*moving, op]:
                inner.move_before(loop)
            self.count("moved out of a loop")
            loop = op.parent

    def _eliminate_common_subexpressions(self, function: ir.Operation) -> None:
        table: ScopedTable[tuple[ir.Value, ir.Value], ir.Value] = ScopedTable()
        for op in walk_in_dominance_order(function.regions[0], table):
            if not isinstance(op, ditron.SymmAtOp):
                continue
            key = op.ptr, op.rank
            same = next(iter(table.lookup(key)), None)
            if same is None:
                table.insert(key, op.result)
            else:
                op.result.replace_all_uses_with(same)
                op.erase()
                self.count("common subexpressions eliminated")


def _with_scalar_rank(op: ditron.SymmAtOp) -> ditron.SymmAtOp:
    """``op`` itself, or what replaces it: one on the scalar that all its ranks are."""
    rank = op.rank
    while isinstance(defining_op(rank), tt.BroadcastOp | tt.ExpandDimsOp | tt.SplatOp):
        rank = defining_op(rank).operands[0]
    if rank == op.rank or ir.RankedTensorType.isinstance(rank.type):
        return op
    scalar = ditron.SymmAtOp(op.ptr, rank, loc=op.location, ip=ir.InsertionPoint(op))
    op.result.replace_all_uses_with(scalar.result)
    op.erase()
    return scalar


def _observed(function: ir.Operation) -> set[UnderlyingObject]:
    """The objects of the pointers whose address itself is used, perhaps to compare it with null."""
    return {
        found
        for op in operations(function)
        if isinstance(op, (*OPAQUE, tt.PtrToIntOp, tt.ReturnOp))
        for operand in op.operands
        if "!tt.ptr" in str(operand.type)
        for found in underlying_objects(operand)
    }


def _may_be_any(root: ir.Value) -> bool:
    """Whether ``root`` is a block argument inside the function, and so perhaps any pointer of the kernel."""
    return defining_op(root) is None and not is_function_argument(root)


def _is_select(pointer: ir.Value) -> bool:
    """Two bases would be two calls."""
    return isinstance(defining_op(pointer), arith.SelectOp)


def _can_leave(value: ir.Value, loop: ir.Operation, moving: list[ir.Operation]) -> bool:
    """Whether ``value`` can be computed before ``loop``; adds to ``moving``, in order, the operations to move."""
    if not is_defined_in(value, loop):
        return True
    op = defining_op(value)
    if op is None or len(op.regions) or not (op.is_pure or _divides_by_count(op)):
        return False
    if op in moving:
        return True
    if not all(_can_leave(operand, loop, moving) for operand in op.operands):
        return False
    moving.append(op)
    return True


def _is_count(value: ir.Value) -> bool:
    """Whether ``value`` is a number of ranks, of which there is at least one."""
    return any(is_query(value, count) for count in RANK_COUNTS)


def _divides_by_count(op: ir.Operation) -> bool:
    """Whether ``op`` is a division that is pure, since its divisor is not 0."""
    divisions = arith.RemSIOp | arith.RemUIOp | arith.DivSIOp | arith.DivUIOp
    return isinstance(op, divisions) and _is_count(op.rhs)


def _has_iterations(loop: ir.Operation) -> bool:
    """Whether a loop is known to have at least one iteration."""
    if not isinstance(loop, scf.ForOp):
        return False
    first, last = constant_int(loop.lowerBound), constant_int(loop.upperBound)
    if first is None:
        return False
    if last is not None:
        return first < last
    return first <= 0 and _is_count(loop.upperBound)
