"""Functions with branches: an early `return` in a kernel makes Triton write cf.br and cf.cond_br.

Each block becomes a block. Its scalar arguments stay arguments; a tile argument is a buffer, written before the branch.
"""

from __future__ import annotations

from ditron_compiler import ir

from .function import FunctionLowering, Lowered, Unsupported
from .ops_control import SCALAR, TILE, TOKEN, Carried, write_tiles


class Body:
    """The blocks of one function, old and new."""

    def __init__(self, fn: FunctionLowering, function: ir.Operation, region: ir.Region, entry: ir.Block):
        self.fn = fn
        self.region = region
        self.old = list(function.regions[0].blocks)
        self.new: dict[ir.Block, ir.Block] = {self.old[0]: entry}
        self.carried: dict[ir.Block, list[Carried]] = {self.old[0]: []}
        for block in self.old[1:]:
            carried = [Carried(fn, function, a) for a in block.arguments]
            if any(c.kind not in (TOKEN, SCALAR, TILE) for c in carried):
                raise Unsupported(
                    function, "the simulator has no tensor descriptor that crosses a branch: return at the end"
                )
            self.carried[block] = carried
            self.new[block] = fn.b.block(region, [t for c in carried for t in c.types])
            scalars = iter(self.new[block].arguments)
            for c, argument in zip(carried, block.arguments, strict=True):
                fn.env[argument] = c.inside([next(scalars)] if c.types else [])

    def lower(self) -> None:
        """Lower all blocks, in order; the builder is at the end of the entry block."""
        for block in self.old:
            if block != self.old[0]:
                self.fn.b.at_end(self.new[block])
            last = self.fn.lower_block(block)
            self.fn.b.loc = last.location
            self._terminate(block, last)

    def _terminate(self, block: ir.Block, last: ir.Operation) -> None:
        fn, b = self.fn, self.fn.b
        if last.name in ("tt.return", "tt.map_elementwise.return"):
            b.create("func.return", [], [fn.scalar(v) for v in last.operands])
        elif last.name == "cf.br":
            self._branch(last.successors[0], list(last.operands))
        elif last.name == "cf.cond_br":
            condition, *values = last.operands
            count = len(self.carried[last.successors[0]])
            edges = [b.block(self.region), b.block(self.region)]
            sizes = b.attr("array<i32: 1, 0, 0>")
            b.create("cf.cond_br", [], [fn.scalar(condition)], {"operandSegmentSizes": sizes}, successors=edges)
            for edge, target, passed in zip(edges, last.successors, (values[:count], values[count:]), strict=True):
                b.at_end(edge)
                self._branch(target, passed)
        else:
            raise Unsupported(last, f"the simulator has no lowering of '{last.name}'")

    def _branch(self, target: ir.Block, values: list[ir.Value]) -> None:
        fn, carried = self.fn, self.carried[target]
        passed: list[Lowered] = [fn.env[v] for v in values]
        write_tiles(fn, [(c.buffer, v) for c, v in zip(carried, passed, strict=True) if c.kind == TILE])
        scalars = [s for c, v in zip(carried, passed, strict=True) for s in c.scalars(v)]
        fn.b.create("cf.br", [], scalars, successors=[self.new[target]])
