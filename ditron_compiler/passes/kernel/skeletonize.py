"""Leave of a kernel what decides when things happen, and drop the data."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Set
from dataclasses import dataclass
from typing import ClassVar

from ditron_compiler import ir
from ditron_compiler.analysis.alias import underlying_objects
from ditron_compiler.analysis.call_graph import functions, operations
from ditron_compiler.analysis.costs import FLOATS, element_type, is_float
from ditron_compiler.analysis.divergence import control_operands
from ditron_compiler.analysis.slicing import incoming_values, reaching_values
from ditron_compiler.analysis.words import compares_with_zero, is_data_word, is_low_half_of_words, word_kind
from ditron_compiler.ir.dialects import arith, cf, ditron, scf, tt
from ditron_compiler.ir.matchers import defining_op
from ditron_compiler.ir.pass_base import Pass, PassFailure

__all__ = ["Skeletonize"]

_ADVICE = (
    "timing-only mode computes no floating-point data: say how often a condition is true, by dl.expect(condition, "
    "probability), pass data as an integer tensor, or predict without --timing-only"
)
_ENDLESS = (
    "this loop would never end, as timing-only mode draws its condition and that is always true: give dl.expect a "
    "probability below 1 (of 1 - 1/n, the loop has n iterations on average)"
)


_TRANSFERS = (ditron.PutmemOp, ditron.PutmemSignalOp, ditron.GetmemOp)


@dataclass(frozen=True)
class Skeletonize(Pass):
    """Drop floating-point data: only addresses, signals, integers and branches stay, and what ``insert-costs`` counted.

    Stores of floats are erased, puts and gets of them are marked to take time only, and every float is 0 elsewhere, in
    words that are stored beside an epoch too, so that ``canonicalize`` erases what computed it; words of nothing but
    floats' bits, which are never 0, are 1. Integers are loaded and computed as they are: routing, lengths, queues of
    tasks. A condition that depends on floating-point data is drawn when it is known how probable it is
    (``ditron.expect``); any other branch, address or signal that depends on it is an error.

    Before::

        %token = ditron.wait %sig[%c1] ge %epoch : !tt.ptr<i64>
        %tile = tt.load %pointers : tensor<64x!tt.ptr<bf16>>
        tt.store %others, %tile : tensor<64x!tt.ptr<bf16>>

    After::

        %token = ditron.wait %sig[%c1] ge %epoch : !tt.ptr<i64>
    """

    name: ClassVar[str] = "skeletonize"

    def run(self, op: ir.Operation) -> None:
        every = operations(op)
        for o in every:
            if _stores_floats(o):
                o.erase()
                self.count("stores erased")
            elif isinstance(o, _TRANSFERS) and is_float(o.operands[0].type.pointee_type):
                o.attributes[FLOATS] = ir.UnitAttr.get()
        for o in operations(op):
            if isinstance(o, ditron.ExpectOp) and o.condition is not None and list(_made_of_floats([o.condition])):
                _draw(o)
                self.count("conditions drawn")
        data_words = _loads_of_data_words(operations(op))
        for instead, is_of_floats in ((0, is_low_half_of_words), (1, is_data_word)):
            for o in [o for o in operations(op) if is_of_floats(o)]:
                with o.location, ir.InsertionPoint(o):
                    o.results[0].replace_all_uses_with(arith.constant(o.results[0].type, instead))
                self.count("words without floats")
        every = operations(op)
        _check(every, data_words)
        for function in functions(op):
            self._drop_floats(function)

    def _drop_floats(self, function: tt.FuncOp) -> None:
        """Put 0 for every float that is computed, loaded or carried by a loop."""
        if not len(function.regions[0]):
            return
        block = function.regions[0].blocks[0]
        zeros: dict[str, ir.Value] = {}

        def zero(type_: ir.Type) -> ir.Value:
            if str(type_) not in zeros:
                with function.location, ir.InsertionPoint.at_block_begin(block):
                    zeros[str(type_)] = arith.constant(type_, 0.0)
            return zeros[str(type_)]

        for o in operations(function):
            arguments = [
                argument
                for region in o.regions
                for inner in region.blocks
                for argument in inner.arguments
                if isinstance(o, (scf.ForOp, scf.WhileOp))
            ]
            for value in (*o.results, *arguments):
                if is_float(value.type) and not isinstance(o, arith.ConstantOp):
                    value.replace_all_uses_with(zero(value.type))
                    self.count("floats dropped")


def _stores_floats(op: ir.Operation) -> bool:
    """Whether all that an operation does is to write floats, or to print."""
    if isinstance(op, (tt.PrintOp, tt.AssertOp)):
        return True
    if isinstance(op, (tt.StoreOp, tt.DescriptorStoreOp, tt.DescriptorScatterOp, tt.DescriptorReduceOp)):
        return is_float((op.value if isinstance(op, tt.StoreOp) else op.src).type)
    is_atomic = isinstance(op, (tt.AtomicRMWOp, ditron.AtomicAddOp, ditron.RedOp))
    return is_atomic and is_float(op.operands[1].type) and not any(True for r in op.results for _ in r.uses)


def _draw(expect: ditron.ExpectOp) -> None:
    """Have the simulator draw a condition instead of what depends on floating-point data."""
    if expect.probability.value == 1:
        for use in expect.result.uses:
            if isinstance(use.owner, scf.ConditionOp):
                use.owner.parent.emit_error(_ENDLESS)
                raise PassFailure
    with expect.location, ir.InsertionPoint(expect):
        drawn = ditron.ExpectOp(expect.probability, uniform=expect.uniform)
    expect.result.replace_all_uses_with(drawn.result)
    expect.erase()


def _loads_of_data_words(every: list[ir.Operation]) -> set[ir.Operation]:
    """Atomic loads of the buffers that data words are stored to, in this module."""
    stores = [o for o in every if isinstance(o, ditron.StOp) and word_kind(o.value) == "data"]
    roots = {origin.root for store in stores for origin in underlying_objects(store.ptr)}
    loads = [o for o in every if isinstance(o, ditron.LdOp)] if roots else []
    return {load for load in loads if any(origin.root in roots for origin in underlying_objects(load.ptr))}


def _check(every: list[ir.Operation], data_words: Set[ir.Operation]) -> None:
    """Emit an error where what stays depends on floating-point data, or on ``data_words`` that are loaded."""
    wrong = False
    for value in _made_of_floats([value for op in every for value in _needed(op)], data_words):
        op = defining_op(value)
        made = f"by the {element_type(value.type)} that '{op.name}' makes of it"
        if isinstance(op, ditron.LdOp):
            made = "by words of it that are loaded here"
        op.emit_error(f"what the kernel does depends on floating-point data, {made}: {_ADVICE}")
        wrong = True
    if wrong:
        raise PassFailure


def _made_of_floats(values: list[ir.Value], data_words: Set[ir.Operation] = frozenset()) -> Iterator[ir.Value]:
    """What ``values`` depend on and an operation makes of floats: comparisons, conversions, and ``data_words`` that are
    loaded, of which is only known that they are not 0.
    """
    worklist = list(values)
    seen: set[ir.Value] = set()
    while worklist:
        value = worklist.pop()
        if value in seen or is_float(value.type):
            continue
        seen.add(value)
        op = defining_op(value)
        if incoming := incoming_values(value):
            worklist += [*incoming, *_chosen_by(op or value.owner.owner)]
        elif (
            op is not None and any(is_float(operand.type) for operand in op.operands) and not isinstance(op, tt.LoadOp)
        ):
            yield value
        elif op in data_words:
            yield value
        elif op is not None and compares_with_zero(op) and _are_loaded(op.operands[0], data_words):
            continue
        elif op is not None:
            worklist += op.operands


def _are_loaded(value: ir.Value, words: Set[ir.Operation]) -> bool:
    """Whether a value is what one of these loads gives, or a constant that a loop begins with."""
    sources = {defining_op(source) for source in reaching_values(value)}
    return not words.isdisjoint(sources) and all(op in words or isinstance(op, arith.ConstantOp) for op in sources)


def _chosen_by(op: ir.Operation) -> Iterable[ir.Value]:
    """What decides which value a select, an if or a loop gives."""
    return [op.condition] if isinstance(op, arith.SelectOp) else control_operands(op)


def _needed(op: ir.Operation) -> list[ir.Value]:
    """The operands of an operation that decide what a kernel does."""
    if isinstance(op, (scf.ForOp, scf.IfOp, scf.WhileOp)):
        if all(inner is op or inner.is_memory_effect_free or _is_read(inner) for inner in operations(op)):
            return []
        return list(control_operands(op))
    if isinstance(op, (cf.BranchOp, cf.CondBranchOp)):  # an early return, and what a helper that has one returns
        return list(op.operands)
    if op.is_memory_effect_free or len(op.regions) or _is_read(op):
        return []
    return list(op.operands)


def _is_read(op: ir.Operation) -> bool:
    """Whether an operation only reads memory, and so is erased when nobody uses what it read."""
    return isinstance(op, (tt.LoadOp, tt.DescriptorLoadOp, tt.DescriptorGatherOp))
