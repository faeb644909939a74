"""Rank scope: the narrowest scope that surely contains a rank.

Ranks are numbered node by node: ``node * num_local_ranks + local_rank`` is this rank. A scope that is found is an upper
bound ("may be as far as"); ``World`` is always sound.
"""

from __future__ import annotations

from ditron_compiler import ir
from ditron_compiler.analysis.integer_range import is_below, is_induction_variable, signed_terms
from ditron_compiler.ir.dialects import arith, ditron, scf, tt
from ditron_compiler.ir.dialects.ditron import Scope
from ditron_compiler.ir.matchers import constant_int, defining_op, is_query, strip_integer_casts


def rank_scope(rank: ir.Value, at: ir.Operation) -> Scope:
    """The scope that contains ``rank`` where ``at`` uses it: ``GPU`` is this rank. Conditions around ``at`` count."""
    rank = strip_integer_casts(rank)
    op = defining_op(rank)
    if isinstance(op, arith.SelectOp):
        return max(rank_scope(op.true_value, at), rank_scope(op.false_value, at))
    if _is_own_rank(rank):
        return Scope.GPU
    if isinstance(op, arith.AddIOp) and any(
        _is_first_rank_of_node(first) and is_below(second, ditron.NumLocalRanksOp) for first, second in _commuted(op)
    ):
        return Scope.Node
    return _scope_by_conditions(rank, at)


def is_other_rank(rank: ir.Value) -> bool:
    """Whether ``rank`` is never this rank in a group of several, as ``(rank + 1) % num_ranks``."""
    op = defining_op(strip_integer_casts(rank))
    if not isinstance(op, (arith.RemSIOp, arith.RemUIOp)) or not is_query(op.rhs, ditron.NumRanksOp):
        return False
    terms = [(sign, term) for sign, term in signed_terms(op.lhs) if not is_query(term, ditron.NumRanksOp)]
    distance = [term for _, term in terms if not is_query(term, ditron.RankOp)]
    own = sum(sign for sign, term in terms if is_query(term, ditron.RankOp))
    if own != 1 or len(terms) != len(distance) + 1 or len(distance) != 1:
        return False
    return constant_int(distance[0]) == 1 or is_induction_variable(distance[0], first=1, count=ditron.NumRanksOp)


def _commuted(op: ir.Operation) -> list[tuple[ir.Value, ir.Value]]:
    return [(op.lhs, op.rhs), (op.rhs, op.lhs)]


def _is_own_rank(rank: ir.Value) -> bool:
    if is_query(rank, ditron.RankOp):
        return True
    op = defining_op(rank)
    return isinstance(op, arith.AddIOp) and any(
        _is_first_rank_of_node(first) and is_query(second, ditron.LocalRankOp) for first, second in _commuted(op)
    )


def _is_first_rank_of_node(value: ir.Value) -> bool:
    """``node * num_local_ranks``, or ``rank - local_rank``."""
    op = defining_op(strip_integer_casts(value))
    if isinstance(op, arith.MulIOp):
        return any(is_query(a, ditron.NodeOp) and is_query(b, ditron.NumLocalRanksOp) for a, b in _commuted(op))
    return isinstance(op, arith.SubIOp) and is_query(op.lhs, ditron.RankOp) and is_query(op.rhs, ditron.LocalRankOp)


def _scope_by_conditions(rank: ir.Value, at: ir.Operation) -> Scope:
    """What the ``scf.if`` around ``at`` imply, the innermost that implies anything."""
    inner, outer = at, at.parent
    while outer is not None and not isinstance(outer, tt.FuncOp):
        if isinstance(outer, scf.IfOp):
            holds = inner.block.region == outer.thenRegion
            implied = (_scope_by_comparison(test, rank, holds) for test in _conjuncts(outer.condition, holds))
            scope = min(implied, default=Scope.World)
            if scope is not Scope.World:
                return scope
        inner, outer = outer, outer.parent
    return Scope.World


def _conjuncts(condition: ir.Value, holds: bool) -> list[arith.CmpIOp]:
    """The comparisons that all hold if ``condition`` does, or of which none holds if it does not."""
    op = defining_op(condition)
    if isinstance(op, arith.AndIOp if holds else arith.OrIOp):
        return [test for operand in op.operands for test in _conjuncts(operand, holds)]
    return [op] if isinstance(op, arith.CmpIOp) else []


def _scope_by_comparison(comparison: arith.CmpIOp, rank: ir.Value, holds: bool) -> Scope:
    """What it implies that ``rank`` is compared with this rank, or its node with this node."""
    if comparison.predicate is not (arith.CmpIPredicate.eq if holds else arith.CmpIPredicate.ne):
        return Scope.World
    for a, b in _commuted(comparison):
        a = strip_integer_casts(a)
        if a == rank and _is_own_rank(strip_integer_casts(b)):
            return Scope.GPU
        op = defining_op(a)
        if (
            isinstance(op, (arith.DivSIOp, arith.DivUIOp))
            and strip_integer_casts(op.lhs) == rank
            and is_query(op.rhs, ditron.NumLocalRanksOp)
            and is_query(b, ditron.NodeOp)
        ):
            return Scope.Node
    return Scope.World
