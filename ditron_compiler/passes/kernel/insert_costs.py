"""Say what a kernel spends, for the simulator's clock."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from ditron_compiler import ir
from ditron_compiler.analysis.call_graph import operations
from ditron_compiler.analysis.costs import LOADS, PRODUCTS, OperationCost, bytes_of, cost_of, feeds_products
from ditron_compiler.analysis.element_costs import ElementCost, element_cost
from ditron_compiler.analysis.operand_reads import OperandStream, operand_stream
from ditron_compiler.ir.dialects import arith, ditron, scf, tt
from ditron_compiler.ir.dialects.ditron import Cost
from ditron_compiler.ir.pass_base import Pass

__all__ = ["InsertCosts"]

_STAGES = "tt.num_stages"  # of a loop, by tl.range(num_stages=)


@dataclass(frozen=True)
class InsertCosts(Pass):
    """Insert a ``ditron.spend`` before each product, load and store of tiles, and for operations on elements.

    Products count by the width of their operands, loads and stores by bytes, those whose masks depend on integers that
    are loaded by bytes of the elements that are, operations on the elements of tiles by
    number, exponentials and square roots among them apart. Memory of another rank is named by the pointer that
    ``symm_at`` gave.

    What a product's operands are loaded from is said in front of the loop over K: bytes, and where they begin, so that
    programs that read the same can share it. With ``operations-per-kb``, a product of a tile so small that its operands
    take longer to pass shared memory, where ``num-warps`` warps read them, counts as many 16-bit operations as tensor
    cores do meanwhile. With ``load-ns``, a loop of ``num-stages`` stages, or as many as it says, takes at least that
    long, and ``load-ns-per-kb`` for what is loaded, for every ``num-stages - 1`` iterations.

    Before::

        tt.store %there, %sum : tensor<64x!tt.ptr<bf16>>

    After::

        %c128 = arith.constant 128 : i64
        ditron.spend store %c128 at %far : !tt.ptr<bf16>
        tt.store %there, %sum : tensor<64x!tt.ptr<bf16>>
    """

    name: ClassVar[str] = "insert-costs"
    operations_per_kb: int = 0
    load_ns: int = 0
    load_ns_per_kb: int = 0
    num_warps: int = 4
    num_stages: int = 3

    def run(self, op: ir.Operation) -> None:
        every = operations(op)
        loads = [o for o in every if isinstance(o, LOADS) and feeds_products(o.results[0])]
        streams = [stream for load in loads if (stream := operand_stream(load)) is not None]
        self._spend_on_operands(streams)
        for o in every:
            spent = self._cost_of(o)
            if spent is not None:
                self._spend(o, spent)
        self._spend_on_elements(every)

    def _cost_of(self, op: ir.Operation) -> OperationCost | None:
        return cost_of(op, self.operations_per_kb, self.num_warps)

    def _spend(self, before: ir.Operation, spent: OperationCost) -> None:
        """Before an operation; of a loop in which nothing but its time is of interest to others, all in front of it."""
        loop, cost = before.block.owner, spent.cost
        if spent.place is None and spent.mask is None and isinstance(loop, scf.ForOp) and _is_quiet(loop):
            self._spend_in_loop(loop, cost, spent.amount)
            return
        i64 = ir.IntegerType.get_signless(64, context=before.context)
        with before.location, ir.InsertionPoint(before):
            amount = arith.constant(i64, spent.amount)
            if spent.mask is not None:
                amount = arith.muli(arith.extui(i64, _number_of(spent.mask)), amount)
            ditron.SpendOp(cost, amount, [] if spent.place is None else [spent.place])
        self.count(f"{cost.name.lower()} costs")

    def _spend_in_loop(self, loop: scf.ForOp, cost: Cost, amount: int, place: Sequence[ir.Value] = ()) -> None:
        """``amount`` for each iteration, in front of the loop."""
        i64 = ir.IntegerType.get_signless(64, context=loop.context)
        with loop.location, ir.InsertionPoint(loop):
            kind = loop.step.type
            less = arith.subi(loop.step, arith.constant(kind, 1))
            count = arith.divsi(arith.addi(arith.subi(loop.upperBound, loop.lowerBound), less), loop.step)
            is_index = isinstance(kind, ir.IndexType)
            wide = arith.index_cast(i64, count) if is_index else count if kind == i64 else arith.extsi(i64, count)
            ditron.SpendOp(cost, arith.muli(wide, arith.constant(i64, amount)), [*place])
        self.count(f"{cost.name.lower()} costs")

    def _spend_on_elements(self, every: list[ir.Operation]) -> None:
        """One sum for all between two points of a block where the program may communicate."""
        sums: dict[ir.Block, ElementCost] = defaultdict(ElementCost)
        for o in every:
            if o.block is None:
                continue
            sums[o.block] += element_cost(o)
            may_communicate = o.name.startswith("ditron.") and not o.is_memory_effect_free
            if may_communicate or o == o.block.terminator:
                spent = sums.pop(o.block)
                for cost, amount in ((Cost.Vector, spent.vector), (Cost.Special, spent.special)):
                    if amount:
                        self._spend(o, OperationCost(cost, amount))

    def _spend_on_operands(self, streams: list[OperandStream]) -> None:
        by_loop: dict[scf.ForOp, list[OperandStream]] = defaultdict(list)
        for stream in streams:
            by_loop[stream.loop].append(stream)
        for loop, inside in by_loop.items():
            spent = [self._cost_of(o) for o in loop.body]
            products = sum(one.amount for one in spent if one is not None and one.cost in PRODUCTS)
            if not products:
                continue
            self._spend_in_loop(loop, Cost.Loop, products)
            loaded = [bytes_of(stream.load.results[0].type) for stream in inside]
            for stream, nbytes in zip(inside, loaded, strict=True):
                self._spend_in_loop(loop, Cost.Operand, nbytes, stream.place())
            own = loop.attributes[_STAGES] if _STAGES in loop.attributes else None
            stages = self.num_stages if own is None else ir.IntegerAttr(own).value
            ns = round((self.load_ns + self.load_ns_per_kb * sum(loaded) / 1024) / max(stages - 1, 1))
            if ns:
                self._spend_in_loop(loop, Cost.Latency, ns)


def _number_of(mask: ir.Value) -> ir.Value:
    """Build the number of elements for which a mask holds, as i32."""
    kind = ir.RankedTensorType(mask.type)
    i32 = ir.IntegerType.get_signless(32, context=mask.context)
    number = arith.extui(ir.RankedTensorType.get(list(kind.shape), i32), mask)
    for _ in kind.shape:
        number = tt.sum_of_axis(number)
    return number


def _is_quiet(loop: scf.ForOp) -> bool:
    """Whether a loop does nothing but compute and load, so that it does not matter when in it time is spent."""
    return all(o == loop or o.is_memory_effect_free or isinstance(o, LOADS) for o in operations(loop))
