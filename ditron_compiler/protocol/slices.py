"""The backward slice of what a kernel accesses and orders: which values matter, and whose tokens they depend on."""

from __future__ import annotations

from collections.abc import Callable

from ditron_compiler import ir
from ditron_compiler.analysis.words import compares_with_zero, is_data_word, is_low_half_of_words, shifts_out_low_half
from ditron_compiler.ir.dialects import cf, ditron, scf, tt
from ditron_compiler.protocol.effects import effect_of
from ditron_compiler.protocol.polls import waits_for_words

__all__ = ["BackwardSlice"]

_NO_TOKENS: frozenset[int] = frozenset()


class BackwardSlice:
    """Of one function.

    A value is needed when an address, a mask, an operand of an operation that orders, or a branch depends on it. An
    operation is live when it has an effect, or defines a value that is needed.
    """

    def __init__(self, function: ir.Operation):
        self._live: set[ir.Operation] = set()
        self._needed: set[ir.Value] = set()
        self._ordinals: dict[ir.Operation, int] = {}
        self._incoming: dict[ir.Value, list[ir.Value]] = {}  # of block arguments and results of regions
        self._operations: list[ir.Operation] = []
        self._definition: dict[ir.Value, ir.Operation] = {}
        for block in function.regions[0].blocks:
            self._collect(block)
        self._mark_live()
        self._users: dict[ir.Value, list[ir.Operation]] = {}
        self._passed_to: dict[ir.Value, list[ir.Value]] = {}
        self._stored: set[ir.Value] | None = None
        self._deciding: set[ir.Value] | None = None
        self._repeating: set[ir.Value] | None = None
        self._tokens: dict[ir.Value, frozenset[int]] = {}
        self._propagate_tokens()

    def is_live(self, op: ir.Operation) -> bool:
        """Whether the operation has to be executed."""
        return op in self._live

    def is_needed(self, value: ir.Value) -> bool:
        """Whether anything live depends on the value."""
        return value in self._needed

    def ordinal(self, op: ir.Operation) -> int:
        """The operation's position in the function."""
        return self._ordinals[op]

    def incoming(self) -> dict[ir.Value, list[ir.Value]]:
        """Of block arguments and results of regions: the values that may pass into them."""
        return self._incoming

    def operations(self) -> list[ir.Operation]:
        """All operations, in the function's order."""
        return self._operations

    def tokens(self, op: ir.Operation) -> frozenset[int]:
        """Ordinals of the waits whose tokens the operands of ``op`` depend on."""
        return _NO_TOKENS.union(*(self._tokens.get(v, _NO_TOKENS) for v in op.operands))

    def consumed(self) -> frozenset[int]:
        """Ordinals of the waits whose token a consume_token takes."""
        consumers = (op for op in self._operations if isinstance(op, ditron.ConsumeTokenOp))
        return _NO_TOKENS.union(*(self._tokens.get(op.token, _NO_TOKENS) for op in consumers))

    def is_stored(self, value: ir.Value) -> bool:
        """Whether data that is stored depends on the value."""
        if self._stored is None:
            self._stored = self._backwards([value for op in self._operations for value in _data_operands(op)])
        return value in self._stored

    def decides(self, value: ir.Value) -> bool:
        """Whether control, an address, a mask or what is sent depends on the value, or it leaves the function."""
        if self._deciding is None:
            roots = [operand for op in self._operations for operand in _deciding_operands(op)]
            self._deciding = self._backwards(roots)
        return value in self._deciding

    def repeats(self, value: ir.Value) -> bool:
        """Whether the condition of a ``while`` loop depends on the value."""
        if self._repeating is None:
            loops = (op for op in self._operations if isinstance(op, scf.WhileOp))
            self._repeating = self._backwards([op.regions[0].blocks[0].terminator.condition for op in loops])
        return value in self._repeating

    def readable_words(self, value: ir.Value) -> str:
        """The kind of words (words.py) of which what is loaded, 64 bits, is known as far as it is needed; or ``""``."""
        kinds = {"flagged": shifts_out_low_half, "data": compares_with_zero}
        return next((kind for kind, reads in kinds.items() if self._is_read_only_by(value, reads)), "")

    def _is_read_only_by(self, value: ir.Value, reads: Callable[[ir.Operation], bool]) -> bool:
        """Whether all that depends on the value, and is needed, depends on operations that ``reads`` it."""
        users, passed_to = self._find_users()
        seen, worklist = set(), [value]
        while worklist:
            value = worklist.pop()
            if value in seen or value not in self._needed:
                continue
            seen.add(value)
            worklist.extend(passed_to.get(value, ()))
            for op in users.get(value, ()):
                if value in _control_operands(op):
                    return False
                if isinstance(op, (scf.YieldOp, scf.ConditionOp, scf.ForOp, scf.WhileOp, cf.BranchOp)):
                    continue  # passed on, as noted above
                if any(result in self._needed for result in op.results) and reads(op):
                    continue
                if effect_of(op) is not None or not op.results or any(result in self._needed for result in op.results):
                    return False
        return True

    def is_waited_for(self, value: ir.Value) -> bool:
        """Whether the words that a load reads are only used behind a loop that waits until all of them are there."""
        users, passed_to = self._find_users()
        if not all(isinstance(op, (scf.WhileOp, scf.YieldOp)) for op in users.get(value, ())):
            return False
        targets = passed_to.get(value, ())
        return bool(targets) and all(
            isinstance(target, ir.BlockArgument) and waits_for_words(target.owner.owner, target) for target in targets
        )

    def _find_users(self) -> tuple[dict[ir.Value, list[ir.Operation]], dict[ir.Value, list[ir.Value]]]:
        """By value: the operations that it is an operand of, and the values that it is passed to."""
        if not self._users:
            for op in self._operations:
                for operand in op.operands:
                    self._users.setdefault(operand, []).append(op)
            for target, sources in self._incoming.items():
                for source in sources:
                    self._passed_to.setdefault(source, []).append(target)
        return self._users, self._passed_to

    def _backwards(self, worklist: list[ir.Value]) -> set[ir.Value]:
        """What values are made of."""
        found: set[ir.Value] = set()
        while worklist:
            value = worklist.pop()
            if value not in found:
                found.add(value)
                worklist.extend(self._incoming.get(value, ()))
                if value in self._definition and value not in self._incoming:
                    worklist.extend(self._definition[value].operands)
        return found

    # --- operations and the edges of regions ---------------------------------------------------------------------

    def _collect(self, block: ir.Block) -> None:
        for op in block.operations:
            self._ordinals[op] = len(self._operations)
            self._operations.append(op)
            for result in op.results:
                self._definition[result] = op
            for region in op.regions:
                for inner in region.blocks:
                    self._collect(inner)
            self._add_incoming(op)

    def _add_incoming(self, op: ir.Operation) -> None:
        """Note which values pass into a region, out of it, or to another block."""
        if isinstance(op, scf.ForOp):
            yielded = op.body.terminator.operands
            for argument, init, again, result in zip(op.inner_iter_args, op.initArgs, yielded, op.results, strict=True):
                self._incoming[argument] = [init, again]
                self._incoming[result] = [argument]  # which is needed with it, also where nothing in the body is
        elif isinstance(op, scf.IfOp):
            for region in op.regions:
                for block in region.blocks:
                    for result, value in zip(op.results, block.terminator.operands, strict=False):
                        self._incoming.setdefault(result, []).append(value)
        elif isinstance(op, scf.WhileOp):
            before, after = (region.blocks[0] for region in op.regions)
            passed, again = list(before.terminator.operands)[1:], list(after.terminator.operands)
            for argument, init, following in zip(before.arguments, op.operands, again, strict=True):
                self._incoming[argument] = [init, following]
            for argument, result, value in zip(after.arguments, op.results, passed, strict=True):
                self._incoming[argument] = self._incoming[result] = [value]
        elif isinstance(op, (cf.BranchOp, cf.CondBranchOp)):
            passed = iter(list(op.operands)[isinstance(op, cf.CondBranchOp) :])
            for successor in op.successors:
                for argument in successor.arguments:
                    self._incoming.setdefault(argument, []).append(next(passed))

    # --- liveness ------------------------------------------------------------------------------------------------

    def _mark_live(self) -> None:
        for op in self._operations:
            if effect_of(op) or isinstance(op, (tt.CallOp, tt.ReturnOp, cf.BranchOp, cf.CondBranchOp)):
                self._make_live(op)

    def _make_live(self, op: ir.Operation) -> None:
        if op in self._live:
            return
        self._live.add(op)
        for value in self._decisive_operands(op):
            self._need(value)
        parent = op.parent
        if parent is not None and not isinstance(parent, tt.FuncOp):
            self._make_live(parent)

    def _decisive_operands(self, op: ir.Operation) -> list[ir.Value]:
        """The operands that decide what ``op`` accesses, orders or branches to."""
        if (effect := effect_of(op)) is not None:
            return [value for value in effect.operands(op) if value is not None]
        if decides := _control_operands(op):
            return decides
        if isinstance(op, (scf.YieldOp, scf.ConditionOp, cf.BranchOp)):
            return []
        if is_low_half_of_words(op) or is_data_word(op):
            return []
        return list(op.operands)

    def _need(self, value: ir.Value) -> None:
        worklist = [value]
        while worklist:
            value = worklist.pop()
            if value in self._needed:
                continue
            self._needed.add(value)
            worklist.extend(self._incoming.get(value, ()))
            op = self._definition.get(value)
            if op is not None:
                self._make_live(op)

    # --- tokens --------------------------------------------------------------------------------------------------

    def _propagate_tokens(self) -> None:
        """Which waits each value depends on, to a fixpoint: loops carry values round."""
        changed = True
        while changed:
            changed = False
            for op in self._operations:
                if isinstance(op, ditron.ReturnsToken):
                    found = frozenset((self._ordinals[op],))
                else:
                    found = self.tokens(op)
                for result in op.results:
                    if result not in self._incoming:
                        changed |= self._add_tokens(result, found)
            for value, incoming in self._incoming.items():
                for source in incoming:
                    changed |= self._add_tokens(value, self._tokens.get(source, _NO_TOKENS))

    def _add_tokens(self, value: ir.Value, found: frozenset[int]) -> bool:
        before = self._tokens.get(value, _NO_TOKENS)
        if found <= before:
            return False
        self._tokens[value] = before | found
        return True


#: Operations that write the operand `value`.
_STORES = (tt.StoreOp, ditron.StOp, ditron.RedOp, ditron.AtomicAddOp)


def _control_operands(op: ir.Operation) -> list[ir.Value]:
    """What decides how often, or whether, the regions or successors of an operation run; empty where it has none."""
    if isinstance(op, scf.ForOp):
        return [op.lowerBound, op.upperBound, op.step]
    if isinstance(op, (scf.IfOp, cf.CondBranchOp)):
        return [op.condition]
    return [op.regions[0].blocks[0].terminator.condition] if isinstance(op, scf.WhileOp) else []


def _deciding_operands(op: ir.Operation) -> list[ir.Value]:
    """The operands of an operation on which control, addresses, masks or signals depend."""
    if decides := _control_operands(op):
        return decides
    if isinstance(op, (tt.CallOp, tt.ReturnOp)):
        return list(op.operands)
    if (effect := effect_of(op)) is None:
        return []
    data = _data_operands(op)
    return [value for value in effect.operands(op) if value is not None and value not in data]


def _data_operands(op: ir.Operation) -> list[ir.Value]:
    """The operands of an operation that are data which it writes."""
    if isinstance(op, _STORES):
        return [op.value]
    if isinstance(op, (tt.DescriptorStoreOp, tt.DescriptorReduceOp)):
        return [op.src]
    return [op.val] if isinstance(op, tt.AtomicRMWOp) else []
