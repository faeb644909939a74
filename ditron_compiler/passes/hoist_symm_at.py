"""Translate addresses once: on the scalar base, outside of loops, and not twice."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ditron_compiler import ir
from ditron_compiler.analysis.alias import UnderlyingObject, underlying_objects
from ditron_compiler.analysis.call_graph import OPAQUE, functions, operations
from ditron_compiler.analysis.match_failure import MatchFailure
from ditron_compiler.analysis.rank_variance import Place, is_query, is_within, place
from ditron_compiler.analysis.rebasing import rebase
from ditron_compiler.analysis.slicing import Known, in_dominance_order, is_defined_in
from ditron_compiler.ir.matchers import constant_int, defining_op, is_function_argument
from ditron_compiler.ir.pass_base import Pass

__all__ = ["HoistSymmAt"]


@dataclass(frozen=True)
class HoistSymmAt(Pass):
    """Apply ``symm_at`` to the scalar base of its pointers, move it out of loops, and drop what is left of doubles.

    A peer's heap is this rank's moved as a whole, so ``symm_at(base + offsets) = symm_at(base) + offsets``. On the base
    it is one call and not one per element, its result has the alignment that is known of the base, mostly a kernel's
    argument, and it is the same for all pointers computed from that base.

    Across nodes ``symm_at`` is null, which that of the base plus offsets is not: what a kernel makes an integer of, to
    compare it with null, or hands to a function or assembly, stays where it is computed.

    It leaves a loop when the base and the rank are the same at every turn, and either the loop runs at least once or
    the rank is one by construction (``(rank + 1) % num_ranks``): that of a loop without a turn need not exist. It never
    leaves an ``if``, whose condition may be what keeps the rank in range.

    Before::

        scf.for %i = %c0 to %n step %c64 : i32 {
          %chunk = "tt.addptr"(%box, %i) : (!tt.ptr<bf16>, i32) -> !tt.ptr<bf16>
          %there = ditron.symm_at %chunk on %right : !tt.ptr<bf16>
          "tt.store"(%there, %x) : (!tt.ptr<bf16>, bf16) -> ()
        }

    After::

        %peer = ditron.symm_at %box on %right : !tt.ptr<bf16>
        scf.for %i = %c0 to %n step %c64 : i32 {
          %there = "tt.addptr"(%peer, %i) : (!tt.ptr<bf16>, i32) -> !tt.ptr<bf16>
          "tt.store"(%there, %x) : (!tt.ptr<bf16>, bf16) -> ()
        }
    """

    name: ClassVar[str] = "hoist-symm-at"

    def run(self, op: ir.Operation) -> None:
        for function in functions(op):
            found = [o for o in operations(function) if o.name == "ditron.symm_at"]
            looked_at = _looked_at(function) if found else set()
            for translated in found:
                pointer, rank = translated.operands
                mine = {UnderlyingObject(origin.root, rank) for origin in underlying_objects(pointer)}
                if mine & looked_at or any(_may_be_any(origin.root) for origin in looked_at):
                    translated.emit_remark(
                        "this symm_at was not moved to a scalar base, because what the address is, "
                        "null or not, may matter"
                    )
                    self.count("left where the address matters")
                    continue
                for moved in self._to_base(translated):
                    self._out_of_loops(moved)
            if found:
                self._drop_doubles(function)

    def _to_base(self, op: ir.Operation) -> list[ir.Operation]:
        """What translates in place of ``op``: on scalar bases where they are found."""
        pointer, rank = op.operands
        made: list[ir.Operation] = []

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
                return op.results[0]
            result = make("ditron.symm_at", [base, rank], base.type, {})
            made.append(result.owner)
            return result

        try:
            result = rebase(pointer, translate, make, stop=_is_select)
        except MatchFailure:
            return []  # the lowering says what to do
        if result != op.results[0]:
            op.results[0].replace_all_uses_with(result)
            op.erase()
            self.count("moved to a scalar base")
        return made

    def _out_of_loops(self, op: ir.Operation) -> None:
        loop = op.parent
        while loop.name in ("scf.for", "scf.while"):
            runs = _runs(loop) or loop.name == "scf.while" and op.block.region == loop.regions[0]
            rank = op.operands[1]
            if not (runs or is_within(rank, "num_ranks") or place(rank, loop) != Place.ANYWHERE):
                return
            moving: list[ir.Operation] = []
            if not all(_can_leave(operand, loop, moving) for operand in op.operands):
                return
            for inner in [*moving, op]:
                inner.move_before(loop)
            self.count("moved out of a loop")
            loop = op.parent

    def _drop_doubles(self, function: ir.Operation) -> None:
        known: Known[tuple[ir.Value, ir.Value], ir.Value] = Known()
        for op in in_dominance_order(function.regions[0], known):
            if op.name != "ditron.symm_at":
                continue
            pointer_and_rank = tuple(op.operands)
            same = next(iter(known.about(pointer_and_rank)), None)
            if same is None:
                known.add(pointer_and_rank, op.results[0])
            else:
                op.results[0].replace_all_uses_with(same)
                op.erase()
                self.count("doubles dropped")


def _looked_at(function: ir.Operation) -> set[UnderlyingObject]:
    """Where the pointers come from whose address itself is used, perhaps to see whether it is null."""
    return {
        origin
        for op in operations(function)
        if op.name in _LOOK_AT
        for operand in op.operands
        if "!tt.ptr" in str(operand.type)
        for origin in underlying_objects(operand)
    }


def _may_be_any(root: ir.Value) -> bool:
    """Whether ``root`` is what a branch brings, and so perhaps any pointer of the kernel."""
    return defining_op(root) is None and not is_function_argument(root)


_LOOK_AT = (*OPAQUE, "tt.ptr_to_int", "tt.return")


def _is_select(pointer: ir.Value) -> bool:
    """Two bases would be two calls."""
    op = defining_op(pointer)
    return op is not None and op.name == "arith.select"


def _can_leave(value: ir.Value, loop: ir.Operation, moving: list[ir.Operation]) -> bool:
    """Whether ``value`` can be made before ``loop``; ``moving`` then has, in order, what is to be moved for that."""
    if not is_defined_in(value, loop):
        return True
    op = defining_op(value)
    if op is None or len(op.regions) or not (op.is_pure or _divides_safely(op)):
        return False
    if op in moving:
        return True
    if not all(_can_leave(operand, loop, moving) for operand in op.operands):
        return False
    moving.append(op)
    return True


def _divides_safely(op: ir.Operation) -> bool:
    """A division by a number of ranks, which is not 0."""
    return op.name in ("arith.remsi", "arith.remui", "arith.divsi", "arith.divui") and any(
        is_query(op.operands[1], count) for count in ("num_ranks", "num_local_ranks")
    )


def _runs(loop: ir.Operation) -> bool:
    """Whether a loop is known to run at least once."""
    if loop.name != "scf.for":
        return False
    first, last = (constant_int(bound) for bound in list(loop.operands)[:2])
    if first is None:
        return False
    if last is not None:
        return first < last
    return first <= 0 and any(is_query(loop.operands[1], count) for count in ("num_ranks", "num_local_ranks"))
