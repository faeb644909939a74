"""Say what a kernel spends, for the simulator's clock."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ditron_compiler import ir
from ditron_compiler.analysis.call_graph import operations
from ditron_compiler.analysis.costs import cost_of
from ditron_compiler.ir.dialects import arith, ditron
from ditron_compiler.ir.pass_base import Pass

__all__ = ["InsertCosts"]


@dataclass(frozen=True)
class InsertCosts(Pass):
    """Insert a ``ditron.spend`` before each product, load and store of tiles.

    Products count by the width of their operands, loads and stores by bytes; what is computed element by element is
    taken to be hidden. A load whose value only products use counts nothing, as a product's rate is measured with its
    loads; with ``operations-per-byte``, a product of a tile so small that its loads take longer counts as many 16-bit
    operations as tensor cores do meanwhile. Memory of another rank is named by the pointer that ``symm_at`` gave.

    Before::

        tt.store %there, %sum : tensor<64x!tt.ptr<bf16>>

    After::

        %c128 = arith.constant 128 : i64
        ditron.spend store %c128 at %far : !tt.ptr<bf16>
        tt.store %there, %sum : tensor<64x!tt.ptr<bf16>>
    """

    name: ClassVar[str] = "insert-costs"
    operations_per_byte: int = 0

    def run(self, op: ir.Operation) -> None:
        i64 = ir.IntegerType.get_signless(64, context=op.context)
        for o in operations(op):
            spent = cost_of(o, self.operations_per_byte)
            if spent is not None:
                with o.location, ir.InsertionPoint(o):
                    ditron.SpendOp(spent.cost, arith.constant(i64, spent.amount), ptr=spent.place)
                self.count(f"{spent.cost.name.lower()} costs")
