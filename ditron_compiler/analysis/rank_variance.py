"""What is known of a number of a rank: is it this rank, on this node, another one, or a rank at all.

Ranks are numbered node by node: ``node * num_local_ranks + local_rank`` is this rank.
"""

from __future__ import annotations

import enum
from collections.abc import Collection

from ditron_compiler import ir
from ditron_compiler.ir.dialects.enums import keyword, predicate
from ditron_compiler.ir.matchers import constant_int, defining_op, strip_integer_casts

__all__ = ["Place", "is_other", "is_query", "is_within", "place"]


class Place(enum.IntEnum):
    """How far away a rank can be; the values are those of the scopes that reach so far."""

    SELF = 0
    NODE = 1
    ANYWHERE = 2


def place(rank: ir.Value, at: ir.Operation) -> Place:
    """The farthest that ``rank`` can be, used by ``at``; conditions around ``at`` count."""
    rank = strip_integer_casts(rank)
    op = defining_op(rank)
    if op is not None and op.name == "arith.select":
        return max(place(op.operands[1], at), place(op.operands[2], at))
    if _is_own(rank):
        return Place.SELF
    if (
        op is not None
        and op.name == "arith.addi"
        and any(_is_first_of_node(first) and is_within(second, "num_local_ranks") for first, second in _both_ways(op))
    ):
        return Place.NODE
    return _guarded(rank, at)


def is_other(rank: ir.Value) -> bool:
    """Whether ``rank`` is another rank than this one wherever there are several: ``(rank + 1) % num_ranks``."""
    op = defining_op(strip_integer_casts(rank))
    if op is None or op.name not in ("arith.remsi", "arith.remui") or not is_query(op.operands[1], "num_ranks"):
        return False
    terms = [(sign, term) for sign, term in _terms(op.operands[0]) if not is_query(term, "num_ranks")]
    distance = [term for _, term in terms if not is_query(term, "rank")]
    if (1, True) != (sum(sign for sign, term in terms if is_query(term, "rank")), len(terms) == len(distance) + 1):
        return False
    return len(distance) == 1 and (constant_int(distance[0]) == 1 or _is_index(distance[0], first=1, count="num_ranks"))


def is_within(index: ir.Value, count: str, known: Collection[ir.Value] = ()) -> bool:
    """Whether ``0 <= index < count``, which is "num_ranks" or "num_local_ranks"; it is so of the values ``known``."""
    index = strip_integer_casts(index)
    if constant_int(index) == 0 or index in known:  # there is at least one rank
        return True
    if is_query(index, "rank" if count == "num_ranks" else "local_rank"):
        return True
    if count == "num_ranks" and is_query(index, "local_rank"):
        return True
    op = defining_op(index)
    if op is not None and op.name == "arith.remui":
        return is_query(op.operands[1], count)
    if op is not None and op.name == "arith.remsi":
        return is_query(op.operands[1], count) and _is_positive(op.operands[0], count, known)
    return _is_index(index, first=0, count=count)


def is_query(value: ir.Value, what: str) -> bool:
    """Whether ``value`` is ``ditron.<what>`` of the group."""
    op = defining_op(strip_integer_casts(value))
    return (
        op is not None
        and op.name == f"ditron.{what}"
        and ("team" not in op.attributes or keyword(op.attributes["team"]) == "group")
    )


def _terms(value: ir.Value, sign: int = 1) -> list[tuple[int, ir.Value]]:
    """What is added up to ``value``, each with 1, or with -1 when it is subtracted."""
    value = strip_integer_casts(value)
    op = defining_op(value)
    if op is None or op.name not in ("arith.addi", "arith.subi"):
        return [(sign, value)]
    return _terms(op.operands[0], sign) + _terms(op.operands[1], sign if op.name == "arith.addi" else -sign)


def _both_ways(op: ir.Operation) -> list[tuple[ir.Value, ir.Value]]:
    a, b = op.operands
    return [(a, b), (b, a)]


def _is_own(rank: ir.Value) -> bool:
    if is_query(rank, "rank"):
        return True
    op = defining_op(rank)
    return (
        op is not None
        and op.name == "arith.addi"
        and any(_is_first_of_node(first) and is_query(second, "local_rank") for first, second in _both_ways(op))
    )


def _is_first_of_node(value: ir.Value) -> bool:
    """``node * num_local_ranks``, or ``rank - local_rank``."""
    op = defining_op(strip_integer_casts(value))
    if op is not None and op.name == "arith.muli":
        return any(is_query(a, "node") and is_query(b, "num_local_ranks") for a, b in _both_ways(op))
    return (
        op is not None
        and op.name == "arith.subi"
        and is_query(op.operands[0], "rank")
        and is_query(op.operands[1], "local_rank")
    )


def _is_positive(value: ir.Value, count: str, known: Collection[ir.Value]) -> bool:
    """Whether ``value`` is not negative, of sums of ranks and counts of them: ``rank + num_ranks - step``."""
    value = strip_integer_casts(value)
    number = constant_int(value)
    if number is not None:
        return number >= 0
    op = defining_op(value)
    if op is None:
        return _is_index(value, first=0, count=None)
    if op.name in ("arith.addi", "arith.subi"):
        terms = _terms(value)
        taken = [term for sign, term in terms if sign < 0]
        counts = sum(sign > 0 and is_query(term, count) for sign, term in terms)  # each makes up for one that is taken
        return (
            len(taken) <= counts
            and all(constant_int(term) == 1 or is_within(term, count, known) for term in taken)
            and all(sign < 0 or _is_positive(term, count, known) for sign, term in terms)
        )
    if op.name in ("arith.muli", "arith.divsi", "arith.remsi", "arith.minsi"):
        return all(_is_positive(operand, count, known) for operand in op.operands)
    return op.name in ("tt.get_program_id", "tt.get_num_programs") or op.name in _COUNTS


_COUNTS = {f"ditron.{name}" for name in ("rank", "num_ranks", "local_rank", "num_local_ranks", "node")}


def _is_index(value: ir.Value, first: int, count: str | None) -> bool:
    """Whether ``value`` counts up in a loop from ``first`` or more to below ``count``, or to anywhere."""
    if isinstance(value, ir.OpResult):
        return False
    loop = value.owner.owner
    if loop is None or loop.name != "scf.for" or value.arg_number != 0:
        return False
    lower, upper, step = list(loop.operands)[:3]
    begin, stride = constant_int(lower), constant_int(step)
    return (
        begin is not None
        and begin >= first
        and stride is not None
        and stride > 0
        and (count is None or is_query(upper, count))
    )


def _guarded(rank: ir.Value, at: ir.Operation) -> Place:
    """What the conditions say under which ``at`` is reached."""
    inner, outer = at, at.parent
    while outer is not None and outer.name != "tt.func":
        if outer.name == "scf.if":
            holds = inner.block.region == outer.regions[0]
            known = min(
                (_says(fact, rank, holds) for fact in _conjuncts(outer.operands[0], holds)), default=Place.ANYWHERE
            )
            if known != Place.ANYWHERE:
                return known
        inner, outer = outer, outer.parent
    return Place.ANYWHERE


def _conjuncts(condition: ir.Value, holds: bool) -> list[ir.Operation]:
    """The comparisons that all hold, or none of which does."""
    op = defining_op(condition)
    if op is None:
        return []
    if op.name == ("arith.andi" if holds else "arith.ori"):
        return [fact for operand in op.operands for fact in _conjuncts(operand, holds)]
    return [op] if op.name == "arith.cmpi" else []


def _says(comparison: ir.Operation, rank: ir.Value, holds: bool) -> Place:
    """What ``comparison`` says of ``rank``: equal to this rank, or its node to this node."""
    if predicate(comparison) != ("eq" if holds else "ne"):
        return Place.ANYWHERE
    for a, b in _both_ways(comparison):
        a = strip_integer_casts(a)
        if a == rank and _is_own(strip_integer_casts(b)):
            return Place.SELF
        op = defining_op(a)
        if (
            op is not None
            and op.name in ("arith.divsi", "arith.divui")
            and strip_integer_casts(op.operands[0]) == rank
            and is_query(op.operands[1], "num_local_ranks")
            and is_query(b, "node")
        ):
            return Place.NODE
    return Place.ANYWHERE
