"""Follow a value through structured control flow."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import Any, Generic, TypeVar

from ditron_compiler import ir
from ditron_compiler.ir.matchers import defining_op, is_function_argument

__all__ = ["Known", "backward_slice", "in_dominance_order", "incoming_values", "is_defined_in", "retype"]

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


def retype(values: Iterable[ir.Value], new_type: ir.Type) -> list[ir.OpOperand]:
    """Give ``values``, and every value that they become through scf control flow and selects, the type ``new_type``.

    Returns the uses that end there: those by operations which do not pass the value on.
    """
    seen: set[ir.Value] = set()
    worklist = list(values)
    ends: list[ir.OpOperand] = []
    while worklist:
        value = worklist.pop()
        if value in seen:
            continue
        seen.add(value)
        value.set_type(new_type)
        for use in value.uses:
            passed_on = list(_becomes(use))
            worklist += passed_on
            if not passed_on:
                ends.append(use)
    return ends


def _becomes(use: ir.OpOperand) -> Iterator[ir.Value]:
    """The values that an operand turns into inside, after, or in the next iteration of its operation."""
    op, index = use.owner, use.operand_number
    name = op.name
    if name == "scf.for" and index >= 3:  # lower bound, upper bound and step come first
        yield from _loop_carried(op, index - 3)
    elif name == "scf.while":
        yield op.regions[0].blocks[0].arguments[index]
    elif name == "scf.condition" and index >= 1:
        yield op.parent.results[index - 1]
        yield op.parent.regions[1].blocks[0].arguments[index - 1]
    elif name == "scf.yield":
        parent = op.parent
        if parent.name == "scf.for":
            yield from _loop_carried(parent, index)
        elif parent.name == "scf.while":
            yield parent.regions[0].blocks[0].arguments[index]
        else:
            yield parent.results[index]
    elif name == "arith.select" and index >= 1:
        yield op.results[0]


def _loop_carried(loop: ir.Operation, index: int) -> Iterator[ir.Value]:
    yield loop.regions[0].blocks[0].arguments[index + 1]  # the induction variable comes first
    yield loop.results[index]


def is_defined_in(value: ir.Value, op: ir.Operation) -> bool:
    """Whether ``value`` is defined in a region of ``op``."""
    owner = value.owner if isinstance(value, ir.OpResult) else value.owner.owner
    return op.is_ancestor(owner) and (owner != op or not isinstance(value, ir.OpResult))


def incoming_values(value: ir.Value) -> list[ir.Value]:
    """The values of which ``value`` is one, as those of a phi: by a select, an if or a loop; none for other values."""
    op = defining_op(value)
    if op is None:
        return _incoming_values_of_argument(value)
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


def _incoming_values_of_argument(value: ir.Value) -> list[ir.Value]:
    """The same of an argument of a loop's body."""
    loop, index = value.owner.owner, value.arg_number
    if loop is not None and loop.name == "scf.for" and index > 0:
        return [loop.operands[2 + index], value.owner.terminator.operands[index - 1]]
    if loop is not None and loop.name == "scf.while":
        before, after = (region.blocks[0] for region in loop.regions)
        if value.owner == after:
            return [before.terminator.operands[1 + index]]
        return [loop.operands[index], after.terminator.operands[index]]
    return []


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
        elif (around := value.owner.owner).name == "scf.for" and value.arg_number == 0:
            worklist += list(around.operands)[:3]
            continue
        else:
            worklist += around.operands
            regions = [value.owner.region]
        for region in regions:
            for block in region:
                if block.terminator is not None:
                    worklist += block.terminator.operands


class Known(Generic[K, V]):
    """What is known where an operation stands, by keys that say what it is about."""

    def __init__(self) -> None:
        self._of: dict[K, list[V]] = {}
        self._keys: list[K] = []  # in the order of what was added

    def about(self, key: K) -> Sequence[V]:
        """What was added by ``key``, the earliest first."""
        return self._of.get(key, ())

    def add(self, key: K, value: V) -> None:
        """From here on ``value`` is known, as far as the operation reached dominates."""
        self._of.setdefault(key, []).append(value)
        self._keys.append(key)

    def __len__(self) -> int:
        return len(self._keys)

    def forget(self, length: int) -> None:
        """All but the ``length`` things that were known first."""
        while len(self._keys) > length:
            self._of[self._keys.pop()].pop()


def in_dominance_order(region: ir.Region, known: Known[Any, Any]) -> Iterator[ir.Operation]:
    """Every operation of ``region``, after those that come before it.

    What the caller adds to ``known`` when it is given an operation is there for all operations which that one
    dominates, and for no others. An operation comes after those in its regions.
    """
    before = len(known)
    for index, block in enumerate(region):
        entered = len(known)
        for op in list(block):
            for inner in op.regions:
                yield from in_dominance_order(inner, known)
            yield op
        if index:  # the first block comes before all others; of those nothing is known but that
            known.forget(entered)
    known.forget(before)
