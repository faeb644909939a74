"""How often a lazy tile's elements would be computed, and which loop-carried tiles are a start plus an offset.

The counts decide where recomputing costs more than a buffer (`FunctionLowering.materialize_if_cheaper`).
"""

from __future__ import annotations

from math import prod

from ditron_compiler import ir

from .elementwise import ELEMENTWISE
from .types import UnsupportedType, parse_type

ITERATIONS = 16.0  # that a loop is assumed to have
LAZY_OPS = frozenset(ELEMENTWISE) | {
    "tt.splat", "tt.expand_dims", "tt.broadcast", "tt.trans", "tt.reshape", "tt.join", "tt.split", "tt.cat",
    "tt.unsplat", "ditron.consume_token", "ditron.symm_at", "ditron.multicast_ptr",
}  # fmt: skip
_LOOPS = ("scf.for", "scf.while")
_UNIFORM = ("tt.splat", "arith.constant")


class Analysis:
    """Uses, loop depths and evaluation counts of one function."""

    def __init__(self, function: ir.Operation):
        self.uses: dict[ir.Value, list[tuple[ir.Operation, int]]] = {}
        self.depth: dict[ir.Operation, int] = {}
        self.block: dict[ir.Operation, ir.Block] = {}
        self.offset_arguments: dict[ir.Value, list[ir.Value]] = {}
        self._offset_inits: dict[tuple[ir.Operation, int], ir.Value] = {}
        self._offset_yields: set[tuple[ir.Operation, int]] = set()
        self._order: list[ir.Operation] = []
        self._evaluations: dict[ir.Value, float] = {}
        self._dot_depth: dict[ir.Value, int] = {}
        for block in function.regions[0].blocks:
            self._walk(block, 0)
        for op in self._order:
            if op.name == "scf.for":
                self._find_offsets(op)
        for op in reversed(self._order):
            for result in op.results:
                self._evaluations[result] = self._count(result)

    def evaluations(self, value: ir.Value) -> float:
        """How many elements of the tile `value` are needed in one run of the function."""
        return self._evaluations.get(value, 0.0)

    def runs(self, op: ir.Operation) -> float:
        """How often `op` is executed, assuming ITERATIONS per loop."""
        return ITERATIONS ** self.depth[op]

    def feeds_inner_dot(self, value: ir.Value, op: ir.Operation) -> bool:
        """Whether `value`, made by `op`, is the operand of a dot in a loop further inside."""
        return self._dot_depth.get(value, 0) > self.depth[op]

    def used_once(self, value: ir.Value) -> bool:
        return len(self.uses.get(value, ())) == 1

    # --- gathering ----------------------------------------------------------------------------------------------

    def _walk(self, block: ir.Block, depth: int) -> None:
        for view in block.operations:
            op = view.operation
            self._order.append(op)
            self.depth[op] = depth
            self.block[op] = block
            for number, operand in enumerate(op.operands):
                self.uses.setdefault(operand, []).append((op, number))
                if op.name == "tt.dot" and number < 2:
                    self._dot_depth[operand] = max(depth, self._dot_depth.get(operand, 0))
            inner = depth + (op.name in _LOOPS)
            for region in op.regions:
                for nested in region.blocks:
                    self._walk(nested, inner)

    def _find_offsets(self, loop: ir.Operation) -> None:
        """Carried tiles that only ever have uniform values added: `ptrs += BLOCK * stride`."""
        body = loop.regions[0].blocks[0]
        yields = [o for o in body.operations][-1].operation
        for number, argument in enumerate(list(body.arguments)[1:]):
            steps = self._uniform_steps(argument, yields.operands[number], body)
            if steps:
                self.offset_arguments[argument] = steps
                self._offset_inits[(loop, number + 3)] = argument
                self._offset_yields.add((yields, number))

    def _uniform_steps(self, argument: ir.Value, value: ir.Value, body: ir.Block) -> list[ir.Value]:
        steps: list[ir.Value] = []
        if not str(argument.type).startswith("tensor<"):
            return []
        while value != argument:
            if not isinstance(value, ir.OpResult):
                return []
            op = value.owner
            if op.name not in ("tt.addptr", "arith.addi") or self.block.get(op) != body:
                return []
            left, right = op.operands
            if _is_uniform(right):
                value, step = left, right
            elif op.name == "arith.addi" and _is_uniform(left):
                value, step = right, left
            else:
                return []
            steps.append(step)
        return steps

    def _count(self, value: ir.Value) -> float:
        return sum(self._per_use(op, number, value) for op, number in self.uses.get(value, ()))

    def _per_use(self, op: ir.Operation, number: int, value: ir.Value) -> float:
        if (op, number) in self._offset_yields:
            return 0.0
        carried = self._offset_inits.get((op, number))
        if carried is not None:
            return self._count(carried)
        if op.name in LAZY_OPS:
            asked = sum(self._evaluations.get(r, 0.0) for r in op.results)
            return asked / _repeats(op) if op.name in ("tt.broadcast", "tt.splat") else asked
        return size_of(value) * self.runs(op)


def _is_uniform(value: ir.Value) -> bool:
    return isinstance(value, ir.OpResult) and value.owner.name in _UNIFORM


def _repeats(op: ir.Operation) -> int:
    """How many neighbouring elements of a broadcast are one element of its operand: computed once for them all."""
    if op.name == "tt.splat":
        return max(1, int(size_of(op.results[0])))
    have, want = parse_type(str(op.operands[0].type)).shape, parse_type(str(op.results[0].type)).shape
    repeats = 1
    for h, w in zip(reversed(have), reversed(want), strict=True):
        if h != 1:
            break
        repeats *= w
    return repeats


def size_of(value: ir.Value) -> float:
    try:
        return float(prod(parse_type(str(value.type)).shape or ()))
    except UnsupportedType:
        return 1.0
