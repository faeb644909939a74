"""Which values matter to the order of things, and which wait's token each of them hangs on."""

from __future__ import annotations

from ditron_compiler import ir
from ditron_compiler.protocol.effects import EFFECTS

__all__ = ["Slices"]


class Slices:
    """Facts about one function.

    A value is needed when an address, a mask, an operand of an operation that orders, or a branch depends on it. An
    operation is live when it has an effect, or makes what is needed.
    """

    def __init__(self, function: ir.Operation):
        self._live: set[ir.Operation] = set()
        self._needed: set[ir.Value] = set()
        self._numbers: dict[ir.Operation, int] = {}
        self._sources: dict[ir.Value, list[ir.Value]] = {}  # block arguments and results of regions: what they may be
        self._operations: list[ir.Operation] = []
        self._owner: dict[ir.Value, ir.Operation] = {}
        for block in function.regions[0].blocks:
            self._scan(block, None)
        self._mark()
        self._ties: dict[ir.Value, frozenset[int]] = {}
        self._tie()

    def is_live(self, op: ir.Operation) -> bool:
        """Whether the operation has to be carried out."""
        return op in self._live

    def is_needed(self, value: ir.Value) -> bool:
        return value in self._needed

    def number(self, op: ir.Operation) -> int:
        """The operation's place in the function."""
        return self._numbers[op]

    def ties(self, op: ir.Operation) -> frozenset[int]:
        """Numbers of the waits whose tokens the operands of ``op`` depend on."""
        return frozenset().union(*(self._ties.get(v, frozenset()) for v in op.operands))

    def consumed(self) -> frozenset[int]:
        """Numbers of the waits whose token somebody consumes."""
        return frozenset().union(
            *(
                self._ties.get(op.operands[1], frozenset())
                for op in self._operations
                if op.name == "ditron.consume_token"
            )
        )

    # --- what is there -------------------------------------------------------------------------------------------

    def _scan(self, block: ir.Block, parent: ir.Operation | None) -> None:
        for view in block.operations:
            op = view.operation if isinstance(view, ir.OpView) else view
            self._numbers[op] = len(self._operations)
            self._operations.append(op)
            for result in op.results:
                self._owner[result] = op
            for region in op.regions:
                for inner in region.blocks:
                    self._scan(inner, op)
            self._flow(op)

    def _flow(self, op: ir.Operation) -> None:
        """Note where values cross the edge of a region or a block."""
        operands = list(op.operands)
        if op.name == "scf.for":
            block = op.regions[0].blocks[0]
            yielded = list(block.operations[len(block.operations) - 1].operands)
            for argument, start, again, result in zip(
                list(block.arguments)[1:], operands[3:], yielded, op.results, strict=True
            ):
                self._sources[argument] = self._sources[result] = [start, again]
        elif op.name == "scf.if":
            for region in op.regions:
                for block in region.blocks:
                    terminator = block.operations[len(block.operations) - 1]
                    for result, value in zip(op.results, terminator.operands, strict=False):
                        self._sources.setdefault(result, []).append(value)
        elif op.name == "scf.while":
            before, after = op.regions[0].blocks[0], op.regions[1].blocks[0]
            passed = list(before.operations[len(before.operations) - 1].operands)[1:]
            again = list(after.operations[len(after.operations) - 1].operands)
            for argument, start, next_ in zip(before.arguments, operands, again, strict=True):
                self._sources[argument] = [start, next_]
            for argument, result, value in zip(after.arguments, op.results, passed, strict=True):
                self._sources[argument] = self._sources[result] = [value]
        elif op.name in ("cf.br", "cf.cond_br"):
            at = 0 if op.name == "cf.br" else 1
            for successor in op.successors:
                for argument in successor.arguments:
                    self._sources.setdefault(argument, []).append(operands[at])
                    at += 1

    # --- what matters --------------------------------------------------------------------------------------------

    def _mark(self) -> None:
        for op in self._operations:
            if op.name in EFFECTS or op.name in ("tt.call", "tt.return", "cf.br", "cf.cond_br"):
                self._enliven(op)

    def _enliven(self, op: ir.Operation) -> None:
        if op in self._live:
            return
        self._live.add(op)
        operands = list(op.operands)
        if op.name in EFFECTS:
            wanted = [operands[i] for i in EFFECTS[op.name].operands(op) if i < len(operands)]
        elif op.name == "scf.for":
            wanted = operands[:3]
        elif op.name in ("scf.if", "cf.cond_br"):
            wanted = operands[:1]
        elif op.name == "scf.while":
            block = op.regions[0].blocks[0]
            wanted = [block.operations[len(block.operations) - 1].operands[0]]
        elif op.name in ("scf.yield", "scf.condition", "cf.br"):
            wanted = []
        else:
            wanted = operands
        for value in wanted:
            self._need(value)
        parent = op.parent
        if parent is not None and parent.name != "tt.func":
            self._enliven(parent)

    def _need(self, value: ir.Value) -> None:
        work = [value]
        while work:
            value = work.pop()
            if value in self._needed:
                continue
            self._needed.add(value)
            work.extend(self._sources.get(value, ()))
            op = self._owner.get(value)
            if op is not None:
                self._enliven(op)

    # --- tokens --------------------------------------------------------------------------------------------------

    def _tie(self) -> None:
        """Which waits each value depends on, until nothing changes: loops carry values round."""
        changed = True
        while changed:
            changed = False
            for op in self._operations:
                if op.name in ("ditron.wait", "ditron.ll_get"):
                    found = frozenset((self._numbers[op],))
                else:
                    found = frozenset().union(*(self._ties.get(v, frozenset()) for v in op.operands))
                for result in op.results:
                    if result not in self._sources:
                        changed |= self._add(result, found)
            for value, sources in self._sources.items():
                for source in sources:
                    changed |= self._add(value, self._ties.get(source, frozenset()))

    def _add(self, value: ir.Value, found: frozenset[int]) -> bool:
        before = self._ties.get(value, frozenset())
        if found <= before:
            return False
        self._ties[value] = before | found
        return True
