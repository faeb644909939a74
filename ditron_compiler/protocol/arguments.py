"""What a kernel does with its arguments, and with the number of ranks, that decides how many calls and ranks show it.

Through which it may write; which of them it takes modulo a constant, as the call's number to choose a buffer; which
constants the number of ranks is compared with.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from ditron_compiler import ir
from ditron_compiler.ir.dialects import arith, ditron, scf, tt
from ditron_compiler.ir.locations import user_line
from ditron_compiler.protocol.effects import effect_of
from ditron_compiler.protocol.ir_values import constant
from ditron_compiler.protocol.slices import BackwardSlice

__all__ = ["ArgumentUses", "Period", "argument_uses"]

#: Method of an effect -> its operands that say where it writes.
_WRITES = {
    "write": (0,),
    "write_box": (0,),
    "atomic": (0,),
    "cas": (0,),
    "st": (0,),
    "multimem_write": (0,),
    "put": (0,),
    "put_signal": (0, 3),
    "notify": (0,),
    "get": (0,),
    "ll_put": (0,),
    "ll_get": (0,),
}
_SCALES = (arith.DivSIOp, arith.DivUIOp)
_SHIFTS = (arith.ShRSIOp, arith.ShRUIOp)
_KEEPS = (
    arith.AddIOp,
    arith.SubIOp,
    arith.MulIOp,
    arith.ExtSIOp,
    arith.ExtUIOp,
    arith.TruncIOp,
    arith.IndexCastOp,
)
_REMAINDERS = (arith.RemSIOp, arith.RemUIOp)
_RANKS = "ranks"
_FIVE = 5  # ranks: the first group that is larger than those that are always looked at


@dataclass(frozen=True)
class Period:
    """After so many calls (times the number of ranks, with ``of_ranks``) a value that an argument gives comes again."""

    calls: int
    of_ranks: bool
    loc: str


@dataclass(frozen=True)
class ArgumentUses:
    """Attributes:

    written: numbers of the arguments through which the kernel may write; -1: through addresses in memory.
    periods: by argument. ranks: groups of so many ranks are needed to see all that depends on their number.
    """

    written: frozenset[int] = frozenset()
    periods: dict[int, tuple[Period, ...]] = field(default_factory=dict)
    ranks: frozenset[int] = frozenset()


def argument_uses(function: ir.Operation, module: ir.Module) -> ArgumentUses:
    """What a function, and those that it calls, do with its arguments."""
    functions = {f.sym_name.value: f for f in module.body.operations if isinstance(f, tt.FuncOp)}
    return _uses(function, functions, frozenset())


def _uses(function: ir.Operation, functions: dict[str, ir.Operation], around: frozenset[str]) -> ArgumentUses:
    flow = _Flow(function)
    written: set[int] = set()
    periods: dict[int, list[Period]] = {}
    ranks: set[int] = set()

    for op in flow.operations:
        for value in _written_through(op):
            written |= flow.sources(value)
        for number, period in flow.periods(op):
            periods.setdefault(number, []).append(period)
        ranks |= flow.rank_counts(op)
        callee = functions.get(op.callee.value) if isinstance(op, tt.CallOp) else None
        if callee is None:
            continue
        name = callee.sym_name.value
        if name in around:
            written |= set().union(*map(flow.sources, op.operands))
            continue
        inner = _uses(callee, functions, around | {name})
        operands = list(op.operands)
        ranks |= inner.ranks
        for number in inner.written:
            written |= flow.sources(operands[number]) if number >= 0 else {number}
        for number, found in inner.periods.items():
            for source in flow.linear(operands[number]):
                if source != _RANKS:
                    periods.setdefault(source, []).extend(found)
    return ArgumentUses(
        frozenset(written),
        {key: tuple(dict.fromkeys(found)) for key, found in periods.items()},
        frozenset(ranks),
    )


def _written_through(op: ir.Operation) -> Iterator[ir.Value]:
    effect = effect_of(op)
    if effect is None:
        return
    if effect.method == "not_followed":
        yield from op.operands
        return
    operands = list(effect.operands(op))
    for number in _WRITES.get(effect.method, ()):
        yield operands[number]


class _Flow:
    """What the values of one function are made of."""

    def __init__(self, function: ir.Operation):
        slices = BackwardSlice(function)
        self.operations, self._incoming = slices.operations(), slices.incoming()
        self._arguments = {value: n for n, value in enumerate(function.regions[0].blocks[0].arguments)}
        self._definition = {result: op for op in self.operations for result in op.results}
        self._sources: dict[ir.Value, frozenset[int]] = {}
        self._linear: dict[ir.Value, dict[int | str, int]] = {}

    def sources(self, value: ir.Value) -> frozenset[int]:
        """The arguments that a value is made of."""
        if value not in self._sources:
            found, seen, worklist = set(), {value}, [value]
            while worklist:
                at = worklist.pop()
                if at in self._arguments:
                    found.add(self._arguments[at])
                op = self._definition.get(at)
                more = list(self._incoming.get(at, ()))
                if isinstance(op, tt.AddPtrOp):
                    more = [op.operands[0]]
                elif op is not None and not more and effect_of(op) is None:
                    more = list(op.operands)
                elif isinstance(op, (ditron.SymmAtOp, ditron.MulticastPtrOp)):
                    more = [op.operands[0]]
                elif isinstance(op, (tt.LoadOp, ditron.LdOp)):
                    found.add(-1)
                for following in more:
                    if following not in seen:
                        seen.add(following)
                        worklist.append(following)
            self._sources[value] = frozenset(found)
        return self._sources[value]

    def linear(self, value: ir.Value) -> dict[int | str, int]:
        """The arguments (and the number of ranks) that a value grows with, and how slowly: by one in so many calls."""
        if value in self._linear:
            return self._linear[value]
        self._linear[value] = {}
        op = self._definition.get(value)
        found: dict[int | str, int] = {}
        if value in self._arguments:
            found = {self._arguments[value]: 1}
        elif isinstance(op, ditron.NumRanksOp):
            found = {_RANKS: 1}
        elif isinstance(op, _KEEPS):
            for operand in op.operands:
                found |= self.linear(operand)
        elif isinstance(op, (*_SCALES, *_SHIFTS)):
            by = self.constant(op.operands[1])
            if by is not None and by > 0:
                factor = by if isinstance(op, _SCALES) else 1 << min(by, 32)
                found = {key: scale * factor for key, scale in self.linear(op.operands[0]).items()}
        self._linear[value] = found
        return found

    def constant(self, value: ir.Value) -> int | None:
        """The value of an integer constant."""
        op = self._definition.get(value)
        found = constant(op) if isinstance(op, arith.ConstantOp) else None
        return found if isinstance(found, int) and not isinstance(found, bool) else None

    def periods(self, op: ir.Operation) -> Iterator[tuple[int, Period]]:
        """The arguments that an operation takes modulo a number."""
        if not isinstance(op, (*_REMAINDERS, arith.AndIOp)):
            return
        low, by = op.operands
        modulus = self.constant(by)
        if isinstance(op, arith.AndIOp) and modulus is not None:
            modulus = 1 << modulus.bit_length() if modulus > 0 else None
        of_ranks = isinstance(op, _REMAINDERS) and isinstance(self._definition.get(by), ditron.NumRanksOp)
        if of_ranks or (modulus is not None and modulus > 0):
            for number, scale in self.linear(low).items():
                if number != _RANKS:
                    yield number, Period(scale * (1 if of_ranks else modulus), of_ranks, user_line(op.location))

    def rank_counts(self, op: ir.Operation) -> set[int]:
        """Groups that show what an operation does with the number of ranks: beyond the constants that it knows."""
        if isinstance(op, (arith.CmpIOp, arith.MinSIOp, arith.MaxSIOp)):
            a, b = op.operands
            for value, other in ((a, b), (b, a)):
                bound = self.constant(other)
                scale = self.linear(value).get(_RANKS)
                if bound is not None and bound > 1 and scale is not None:
                    return {bound * scale + 1, _FIVE}
        elif isinstance(op, scf.ForOp) and self.linear(op.upperBound).get(_RANKS, 1) > 1:
            return {_FIVE}
        elif isinstance(op, _REMAINDERS) and _RANKS in self.linear(op.operands[1]):
            distance = self._definition.get(op.operands[0])  # to another rank, of the group's ring
            if isinstance(distance, arith.AddIOp):
                by = [self._definition.get(operand) for operand in distance.operands]
                far = max((self.constant(operand) or 0 for operand in distance.operands), default=0)
                powers = any(isinstance(one, arith.ShLIOp) for one in by)
                return ({2 * far + 1, _FIVE} if far > 1 else set()) | ({_FIVE} if powers else set())
        return set()
