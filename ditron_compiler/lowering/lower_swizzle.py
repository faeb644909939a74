"""Tile order: ``ditron.swizzle`` becomes arithmetic."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ditron_compiler import ir
from ditron_compiler.ir.dialects.enums import keyword
from ditron_compiler.ir.pass_base import Pass, option
from ditron_compiler.lowering.tile_order import ORDERS, Nodes

__all__ = ["LowerSwizzle"]


@dataclass(frozen=True)
class LowerSwizzle(Pass):
    """Compute the order in which a rank visits tiles.

    The order is described, and written down, in ``lowering/tile_order.py``. It takes straight-line i32 arithmetic: no
    table, no loop, no exchange between threads. Where all ranks are on one node (``one-node``, or team node), one
    swizzle with a constant block is 33 operations in gather mode and 29 in scatter mode after canonicalize and cse, of
    which 9 and 10 do not depend on the tile and leave the loop of a persistent kernel; 2 are divisions by a number that
    is not constant. Across nodes it is 64 and 60, 13 and 15 of them once, 3 such divisions.

    Before::

        %m = ditron.swizzle gather %tile of %size by %block

    After::

        %rank = ditron.rank
        %num_ranks = ditron.num_ranks
        // shard = ceil(size / num_ranks); rotate by ceil(rank * shard / block); find the shard of the tile's last row;
        // move the tile that straddles its beginning to its end
        %m = arith.select ...
    """

    name: ClassVar[str] = "lower-swizzle"
    anchor: ClassVar[str] = "builtin.module"
    one_node: bool = option(False, "all ranks are on one node, as under transport p2p")

    def run(self, op: ir.Operation) -> None:
        found: list[ir.Operation] = []
        op.walk(lambda o: found.append(o) if o.name == "ditron.swizzle" else None)
        for swizzle in found:
            _lower(swizzle, self.one_node)
            self.count("swizzles lowered")


def _lower(op: ir.Operation, one_node: bool) -> None:
    with op.location, ir.InsertionPoint(op):
        tile, size, block = (_Number(operand) for operand in op.operands)
        team = op.attributes["team"]
        rank, num_ranks = _query("rank", team=team), _query("num_ranks", team=team)
        nodes = None
        # A node is one node; and nobody says how the world is spread, if the group is a part of it.
        if keyword(team) == "group" and not one_node:
            nodes = Nodes(_query("node"), _query("local_rank"), _query("num_local_ranks"))
        result = ORDERS[keyword(op.attributes["mode"])](tile, size, block, rank, num_ranks, nodes)
    op.result.replace_all_uses_with(result.value)
    op.erase()


def _query(name: str, **attributes: ir.Attribute) -> _Number:
    i32 = ir.IntegerType.get_signless(32)
    return _Number(ir.Operation.create(f"ditron.{name}", results=[i32], attributes=attributes).result)


def _binary(name: str, predicate: int | None = None, swapped: bool = False):
    """A method that emits an arith operation of the number and another number, or integer."""

    def method(self: _Number, other: _Number | int) -> _Number:
        a, b = self.value, _Number.of(other).value
        attributes, results = {}, [a.type]
        if predicate is not None:
            i64 = ir.IntegerType.get_signless(64)
            attributes, results = {"predicate": ir.IntegerAttr.get(i64, predicate)}, [ir.IntegerType.get_signless(1)]
        operands = [b, a] if swapped else [a, b]
        return _Number(
            ir.Operation.create(f"arith.{name}", results=results, operands=operands, attributes=attributes).result
        )

    return method


class _Number:
    """An i32 (or i1) value with the operators that the orders are written in; each emits one operation of arith.

    Floor and ceiling division are not among them, which Triton's conversion does not know. Division rounds towards
    zero: the orders divide nothing negative.
    """

    def __init__(self, value: ir.Value):
        self.value = value

    @staticmethod
    def of(number: _Number | int) -> _Number:
        if isinstance(number, _Number):
            return number
        i32 = ir.IntegerType.get_signless(32)
        value = ir.IntegerAttr.get(i32, number)
        return _Number(ir.Operation.create("arith.constant", results=[i32], attributes={"value": value}).result)

    def where(self, yes: _Number | int, no: _Number | int) -> _Number:
        operands = [self.value, _Number.of(yes).value, _Number.of(no).value]
        return _Number(ir.Operation.create("arith.select", results=[operands[1].type], operands=operands).result)

    __add__ = _binary("addi")
    __sub__ = _binary("subi")
    __mul__ = _binary("muli")
    __floordiv__ = _binary("divsi")
    __mod__ = _binary("remsi")
    __radd__ = _binary("addi", swapped=True)
    __rsub__ = _binary("subi", swapped=True)
    minimum = _binary("minsi")
    maximum = _binary("maxsi")
    minimum_unsigned = _binary("minui")
    both = _binary("andi")
    # Predicates as arith numbers them.
    __eq__ = _binary("cmpi", 0)
    __ne__ = _binary("cmpi", 1)
    __lt__ = _binary("cmpi", 2)
    __gt__ = _binary("cmpi", 4)
    __ge__ = _binary("cmpi", 5)
    at_least_unsigned = _binary("cmpi", 9)
    __hash__ = None
