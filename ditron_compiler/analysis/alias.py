"""Where a pointer comes from, how it is aligned, and how to change the address that it is computed from."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from math import gcd

from ditron_compiler import ir

__all__ = [
    "WIDTH",
    "Origin",
    "Sum",
    "Untraceable",
    "constant",
    "defined_in",
    "defining",
    "divisibility",
    "is_argument",
    "narrow",
    "origins",
    "plus_constant",
    "rebase",
    "sources",
]

#: Operations that give a number another width.
WIDTH = ("arith.extsi", "arith.extui", "arith.trunci")

# Operations that only place the pointers of operand 0; other operands stay as they are.
_PLACING = {
    "tt.addptr",
    "tt.splat",
    "tt.broadcast",
    "tt.expand_dims",
    "tt.reshape",
    "tt.trans",
    "tt.bitcast",
    "tt.unsplat",
    "ttg.convert_layout",
}
# What else leads back to operand 0, for those who only ask where a pointer comes from.
_LEADING = _PLACING | {
    "ditron.consume_token",
    "tt.make_tensor_descriptor",
    "tt.make_tensor_ptr",
    "tt.advance",
    "ditron.multicast_ptr",
}
_ANY = 1 << 30  # the alignment of 0


def defining(value: ir.Value) -> ir.Operation | None:
    """The operation whose result ``value`` is; None for a block argument."""
    return value.owner if isinstance(value, ir.OpResult) else None


def constant(value: ir.Value) -> int | None:
    """The integer that ``value`` always is, or each of its elements; None when that is not known."""
    op = defining(value)
    if op is None or op.name != "arith.constant":
        return None
    attribute = op.attributes["value"]
    if ir.DenseElementsAttr.isinstance(attribute):
        dense = ir.DenseElementsAttr(attribute)
        attribute = dense.get_splat_value() if dense.is_splat else attribute
    return ir.IntegerAttr(attribute).value if ir.IntegerAttr.isinstance(attribute) else None


def narrow(value: ir.Value) -> ir.Value:
    """``value`` without conversions of width: numbers of ranks and of programs fit in any."""
    while (op := defining(value)) is not None and op.name in WIDTH:
        value = op.operands[0]
    return value


def defined_in(value: ir.Value, op: ir.Operation) -> bool:
    """Whether ``value`` is made in a region of ``op``."""
    owner = value.owner if isinstance(value, ir.OpResult) else value.owner.owner
    return op.is_ancestor(owner) and (owner != op or not isinstance(value, ir.OpResult))


# Where from ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Origin:
    """A value that pointers are computed from, mostly a kernel's argument, and on which rank the object is.

    ``rank`` is the operand of the ``symm_at`` on the way; None is this rank.
    """

    root: ir.Value
    rank: ir.Value | None = None


def origins(pointer: ir.Value) -> frozenset[Origin]:
    """Everything that a pointer, a tensor of pointers or a descriptor may be computed from."""
    found: set[Origin] = set()
    seen: set[tuple[ir.Value, ir.Value | None]] = set()
    worklist: list[tuple[ir.Value, ir.Value | None]] = [(pointer, None)]
    while worklist:
        value, rank = worklist.pop()
        if (value, rank) in seen:
            continue
        seen.add((value, rank))
        op = defining(value)
        if op is not None and op.name == "ditron.symm_at":
            worklist.append((op.operands[0], op.operands[1]))
        elif op is not None and op.name in _LEADING:
            worklist.append((op.operands[0], rank))
        elif passed_on := sources(value):
            worklist += [(source, rank) for source in passed_on]
        else:
            found.add(Origin(value, rank))
    return frozenset(found)


def is_argument(root: ir.Value) -> bool:
    """Whether ``root`` is an argument of the function; of an argument more is known than of a loaded pointer."""
    if isinstance(root, ir.OpResult):
        return False
    function = root.owner.owner
    return function is not None and function.name == "tt.func" and root.owner == function.regions[0].blocks[0]


def sources(value: ir.Value) -> list[ir.Value]:
    """The values that ``value`` is one of, after a select, an if or a loop; none when it is made by its operation."""
    op = defining(value)
    if op is None:
        return _sources_of_argument(value)
    index = value.result_number
    if op.name == "arith.select":
        return list(op.operands)[1:]
    if op.name == "scf.if":
        return [region.blocks[0].terminator.operands[index] for region in op.regions if len(region)]
    if op.name == "scf.for":
        return [op.operands[3 + index], op.regions[0].blocks[0].terminator.operands[index]]
    if op.name == "scf.while":
        return [op.regions[0].blocks[0].terminator.operands[1 + index]]
    return []


def _sources_of_argument(value: ir.Value) -> list[ir.Value]:
    """The same of what a loop carries into its body."""
    loop, index = value.owner.owner, value.arg_number
    if loop is not None and loop.name == "scf.for" and index > 0:
        return [loop.operands[2 + index], value.owner.terminator.operands[index - 1]]
    if loop is not None and loop.name == "scf.while":
        before, after = (region.blocks[0] for region in loop.regions)
        if value.owner == after:
            return [before.terminator.operands[1 + index]]
        return [loop.operands[index], after.terminator.operands[index]]
    return []


# Which element -----------------------------------------------------------------------------------------------------


def plus_constant(value: ir.Value) -> tuple[ir.Value | None, int]:
    """``value`` as something plus a constant; the something is None when all of it is constant."""
    offset = 0
    while (op := defining(value)) is not None and op.name in ("arith.addi", "arith.subi"):
        right = constant(op.operands[1])
        if right is None:
            break
        offset += right if op.name == "arith.addi" else -right
        value = op.operands[0]
    known = constant(value)
    return (value, offset) if known is None else (None, offset + known)


@dataclass(frozen=True)
class Sum:
    """A scalar pointer or integer, taken apart: ``base + symbols + number``; ``base`` is None for an integer.

    ``symbols`` has how often each is added: ``base + k + k`` is not ``base + k``.
    """

    base: ir.Value | None
    symbols: frozenset[tuple[ir.Value, int]]
    number: int

    @staticmethod
    def of(value: ir.Value) -> Sum:
        number = 0
        symbols: Counter[ir.Value] = Counter()
        terms: list[ir.Value] = []
        while (op := defining(value)) is not None and op.name == "tt.addptr":
            terms.append(op.operands[1])
            value = op.operands[0]
        base: ir.Value | None = value
        if ir.IntegerType.isinstance(value.type):
            base = None
            terms.append(value)
        for term in terms:
            symbol, offset = plus_constant(term)
            number += offset
            if symbol is not None:
                symbols[symbol] += 1
        return Sum(base, frozenset(symbols.items()), number)

    def differs(self, other: Sum) -> bool:
        """Whether the two are never equal, as far as their constants tell."""
        return self.base == other.base and self.symbols == other.symbols and self.number != other.number


# Alignment ----------------------------------------------------------------------------------------------------------


def divisibility(value: ir.Value) -> int:
    """The largest known power of two that divides ``value``, an integer or an address in bytes; 1 when none is known.

    Of a tensor, that divides its first element.
    """
    return max(_divisibility(value, set()), 1)


def _divisibility(value: ir.Value, open_loops: set[ir.Value]) -> int:
    if value in open_loops:
        return _ANY  # around a loop: what it began with decides
    op = defining(value)
    if op is None:
        function = value.owner.owner
        if function is not None and function.name == "tt.func":
            return _of_argument(function, value.arg_number)
    else:
        if "tt.divisibility" in op.attributes:
            return _annotated(op.attributes["tt.divisibility"])
        if (number := constant(value)) is not None:
            return _power(number)
        if op.name in _COMBINED:
            return _COMBINED[op.name](*(_divisibility(operand, open_loops) for operand in op.operands))
        if op.name == "tt.addptr":
            base, offset = (_divisibility(operand, open_loops) for operand in op.operands)
            return gcd(base, offset * _pointee_bytes(op.operands[0].type))
        if op.name in _LEADING or op.name in ("ditron.symm_at", *WIDTH):
            return _divisibility(op.operands[0], open_loops)
    passed_on = sources(value)
    return gcd(*(_divisibility(source, open_loops | {value}) for source in passed_on)) if passed_on else 1


_COMBINED: dict[str, Callable[[int, int], int]] = {
    "arith.addi": gcd,
    "arith.subi": gcd,
    "arith.minsi": gcd,
    "arith.maxsi": gcd,
    "arith.muli": lambda a, b: min(a * b, _ANY),
}


def _of_argument(function: ir.Operation, index: int) -> int:
    if "arg_attrs" not in function.attributes:
        return 1
    arguments = ir.ArrayAttr(function.attributes["arg_attrs"])
    known = ir.DictAttr(arguments[index]) if index < len(arguments) else {}
    return _annotated(known["tt.divisibility"]) if "tt.divisibility" in known else 1


def _annotated(attribute: ir.Attribute) -> int:
    """What Triton's ``tt.divisibility`` says: an integer, or a vector of one per dimension."""
    if ir.IntegerAttr.isinstance(attribute):
        return _power(ir.IntegerAttr(attribute).value)
    return _power(gcd(*ir.DenseIntElementsAttr(attribute)))


def _power(number: int) -> int:
    """The largest power of two that divides ``number``; it survives arithmetic that wraps around."""
    return number & -number if number else _ANY


def _pointee_bytes(type_: ir.Type) -> int:
    bits = re.search(r"!tt\.ptr<[a-z]+(\d+)", str(type_))
    return max(int(bits[1]) // 8, 1) if bits else 1


# Another address ----------------------------------------------------------------------------------------------------


class Untraceable(Exception):
    """No scalar base was found; ``value`` is where the search ended."""

    def __init__(self, value: ir.Value):
        self.value = value


def rebase(
    pointer: ir.Value,
    change: Callable[[ir.Value], ir.Value],
    make: Callable[[str, list[ir.Value], ir.Type, dict[str, ir.Attribute]], ir.Value],
    stop: Callable[[ir.Value], bool] = lambda value: False,
) -> ir.Value:
    """``pointer`` with ``change`` applied to its scalar base: ``f(base + offsets) = f(base) + offsets``.

    That holds for what moves the heap as a whole. ``make(name, operands, result type, attributes)`` makes the
    operations anew that lead from the base to the pointer; the way back ends at a scalar that ``stop`` accepts.

    Raises Untraceable for a tensor of pointers that was loaded, carried around a loop, or otherwise not computed from
    one base.
    """
    op = defining(pointer)
    tensor = ir.RankedTensorType.isinstance(pointer.type)
    if tensor or not stop(pointer):
        if op is not None and op.name in _PLACING:
            operands = list(op.operands)
            operands[0] = rebase(operands[0], change, make, stop)
            return make(op.name, operands, pointer.type, {name: op.attributes[name] for name in op.attributes.keys()})
        if op is not None and op.name == "arith.select":
            return make(
                op.name,
                [op.operands[0], *(rebase(v, change, make, stop) for v in list(op.operands)[1:])],
                pointer.type,
                {},
            )
        if tensor:
            raise Untraceable(pointer)
    return change(pointer)
