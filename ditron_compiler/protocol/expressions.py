"""Operations that only compute, as Python expressions over :mod:`.values`; results of others are UNKNOWN."""

from __future__ import annotations

from collections.abc import Callable

from ditron_compiler import ir
from ditron_compiler.analysis.words import is_data_word, is_low_half_of_words
from ditron_compiler.ir.dialects import arith, ditron, tt
from ditron_compiler.protocol.ir_values import bits_of, bits_of_name, integer, itemsize, shape_of

__all__ = ["EXPRESSIONS", "descriptor_block"]

#: Class -> the expression of an operation, or one for each of its results, given the names of its operands.
EXPRESSIONS: dict[type, Callable[[ir.Operation, list[str]], str | list[str]]] = {}

_Predicate = arith.CmpIPredicate
_SIGNED = {
    _Predicate.eq: "==",
    _Predicate.ne: "!=",
    _Predicate.slt: "<",
    _Predicate.sle: "<=",
    _Predicate.sgt: ">",
    _Predicate.sge: ">=",
}


def _expression(*classes: type) -> Callable:
    def register(make: Callable[[ir.Operation, list[str]], str]) -> Callable:
        EXPRESSIONS.update(dict.fromkeys(classes, make))
        return make

    return register


for _class, _sign in {
    arith.AddIOp: "+",
    arith.SubIOp: "-",
    arith.MulIOp: "*",
    arith.OrIOp: "|",
    arith.XOrIOp: "^",
    arith.ShLIOp: "<<",
    arith.ShRSIOp: ">>",
}.items():
    EXPRESSIONS[_class] = lambda op, a, sign=_sign: f"{a[0]} {sign} {a[1]}"
for _class, _function in {
    arith.DivSIOp: "sdiv",
    arith.RemSIOp: "srem",
    arith.MinSIOp: "smin",
    arith.MaxSIOp: "smax",
}.items():
    EXPRESSIONS[_class] = lambda op, a, f=_function: f"{f}({', '.join(a)})"
for _class, _function in {
    arith.DivUIOp: "udiv",
    arith.RemUIOp: "urem",
    arith.ShRUIOp: "shrui",
    arith.MinUIOp: "umin",
    arith.MaxUIOp: "umax",
}.items():
    EXPRESSIONS[_class] = lambda op, a, f=_function: f"{f}({a[0]}, {a[1]}, {bits_of(op.lhs.type)})"


@_expression(arith.AndIOp)
def _andi(op: ir.Operation, a: list[str]) -> str:
    """In a word that is stored, bits of a float below an integer count as 0 (words.py)."""
    return "0" if is_low_half_of_words(op) else f"{a[0]} & {a[1]}"


@_expression(arith.SelectOp)
def _select(op: ir.Operation, a: list[str]) -> str:
    """A word of floats' bits counts as 1 (words.py)."""
    return "1" if is_data_word(op) else f"select({', '.join(a)})"


@_expression(arith.CeilDivSIOp)
def _ceildiv(op: ir.Operation, a: list[str]) -> str:
    return f"-(-{a[0]} // {a[1]})"


@_expression(arith.FloorDivSIOp)
def _floordiv(op: ir.Operation, a: list[str]) -> str:
    return f"{a[0]} // {a[1]}"


@_expression(arith.CmpIOp)
def _cmpi(op: arith.CmpIOp, a: list[str]) -> str:
    predicate = op.predicate
    if predicate in _SIGNED:
        return f"{a[0]} {_SIGNED[predicate]} {a[1]}"
    bits, swapped = bits_of(op.lhs.type), predicate in (_Predicate.ule, _Predicate.ugt)
    less = f"ult({a[1]}, {a[0]}, {bits})" if swapped else f"ult({a[0]}, {a[1]}, {bits})"
    return less if predicate in (_Predicate.ult, _Predicate.ugt) else f"({less}) ^ True"


@_expression(arith.ExtSIOp)
def _extsi(op: ir.Operation, a: list[str]) -> str:
    return f"-({a[0]} * 1)" if bits_of(op.in_.type) == 1 else a[0]


@_expression(arith.ExtUIOp)
def _extui(op: ir.Operation, a: list[str]) -> str:
    return f"extui({a[0]}, {bits_of(op.in_.type)})"


@_expression(arith.TruncIOp)
def _trunci(op: ir.Operation, a: list[str]) -> str:
    return f"trunc({a[0]}, {bits_of(op.results[0].type)})"


@_expression(
    arith.IndexCastOp,
    arith.IndexCastUIOp,
    tt.SplatOp,
    tt.BroadcastOp,
    tt.UnsplatOp,
    tt.BitcastOp,
    tt.PtrToIntOp,
    ditron.ConsumeTokenOp,
    ditron.ShflOp,
)
def _same(op: ir.Operation, a: list[str]) -> str:
    return a[0]


@_expression(ditron.ExpectOp)
def _expect(op: ditron.ExpectOp, a: list[str]) -> str:
    return a[0] if a else "UNKNOWN"


@_expression(tt.IntToPtrOp)
def _int_to_ptr(op: ir.Operation, a: list[str]) -> str:
    return f"P.pointer({a[0]})"


@_expression(tt.AddPtrOp)
def _addptr(op: ir.Operation, a: list[str]) -> str:
    return f"offset({a[0]}, {a[1]}, {itemsize(op.ptr.type)})"


@_expression(tt.GetProgramIdOp)
def _program_id(op: ir.Operation, a: list[str]) -> str:
    return f"P.pid[{integer(op, 'axis')}]"


@_expression(tt.GetNumProgramsOp)
def _num_programs(op: ir.Operation, a: list[str]) -> str:
    return f"P.grid[{integer(op, 'axis')}]"


@_expression(tt.MakeRangeOp)
def _make_range(op: ir.Operation, a: list[str]) -> str:
    return f"arange({integer(op, 'start')}, {integer(op, 'end')})"


@_expression(tt.ExpandDimsOp)
def _expand_dims(op: ir.Operation, a: list[str]) -> str:
    return f"expand({a[0]}, {integer(op, 'axis')})"


@_expression(tt.ReshapeOp)
def _reshape(op: ir.Operation, a: list[str]) -> str:
    return f"reshaped({a[0]}, {shape_of(op.src.type)}, {shape_of(op.result.type)})"


@_expression(tt.TransOp)
def _trans(op: ir.Operation, a: list[str]) -> str:
    return f"transposed({a[0]}, {tuple(op.order)})"


_COMBINED = {
    arith.AddIOp: "add",
    arith.MulIOp: "mul",
    arith.MinSIOp: "min",
    arith.MaxSIOp: "max",
    arith.MinUIOp: "min",
    arith.MaxUIOp: "max",
    arith.AndIOp: "and",
    arith.OrIOp: "or",
    arith.XOrIOp: "xor",
}


def _combination(op: ir.Operation) -> str:
    """How a reduction or scan combines two elements; empty if by more than one operation."""
    *body, _ = list(op.regions[0].blocks[0].operations)
    return _COMBINED.get(type(body[0]), "") if len(body) == 1 else ""


@_expression(tt.ReduceOp)
def _reduce(op: ir.Operation, a: list[str]) -> str | list[str]:
    shape, axis = shape_of(op.operands[0].type), integer(op, "axis")
    if len(a) == 1:
        return f"reduced({_combination(op)!r}, {a[0]}, {shape}, {axis})"
    body = list(op.regions[0].blocks[0].operations)
    compared = [o.predicate for o in body if isinstance(o, arith.CmpIOp)]
    if len(a) != 2 or not {_Predicate.sgt, _Predicate.slt} & set(compared):
        return "UNKNOWN"
    largest = _Predicate.sgt in compared
    return [f"reduced_with_index({largest}, {value}, {a[0]}, {a[1]}, {shape}, {axis})" for value in (True, False)]


@_expression(tt.ScanOp)
def _scan(op: ir.Operation, a: list[str]) -> str:
    if len(a) != 1:
        return "UNKNOWN"
    reverse = "reverse" in op.attributes and bool(ir.BoolAttr(op.attributes["reverse"]).value)
    return f"scanned({_combination(op)!r}, {a[0]}, {shape_of(op.operands[0].type)}, {integer(op, 'axis')}, {reverse})"


@_expression(tt.HistogramOp)
def _histogram(op: ir.Operation, a: list[str]) -> str:
    mask = a[1] if len(a) > 1 else "True"
    return f"histogram({a[0]}, {mask}, {shape_of(op.operands[0].type)}, {shape_of(op.results[0].type)[0]})"


@_expression(tt.GatherOp)
def _gather(op: ir.Operation, a: list[str]) -> str:
    shapes = ", ".join(str(shape_of(operand.type)) for operand in op.operands)
    return f"gathered({a[0]}, {a[1]}, {shapes}, {integer(op, 'axis')})"


@_expression(tt.JoinOp)
def _join(op: ir.Operation, a: list[str]) -> str:
    return f"joined({a[0]}, {a[1]}, {shape_of(op.operands[0].type)})"


@_expression(tt.CatOp)
def _cat(op: ir.Operation, a: list[str]) -> str:
    return f"catenated({a[0]}, {a[1]}, {shape_of(op.operands[0].type)})"


@_expression(tt.SplitOp)
def _split(op: ir.Operation, a: list[str]) -> list[str]:
    return [f"split_part({a[0]}, {shape_of(op.operands[0].type)}, {part})" for part in (0, 1)]


@_expression(tt.MakeTensorDescOp)
def _descriptor(op: ir.Operation, a: list[str]) -> str:
    rank = len(op.shape)
    block, size = descriptor_block(op.result.type)
    return f"BlockDescriptor({a[0]}, ({', '.join(a[1 : 1 + rank])},), ({', '.join(a[1 + rank :])},), {block}, {size})"


def descriptor_block(kind: ir.Type) -> tuple[tuple[int, ...], int]:
    """Block and element size of ``!tt.tensordesc<tensor<128x64xbf16>>``; later Tritons write ``<128x64xbf16>``."""
    inner = str(kind).removeprefix("!tt.tensordesc<").removeprefix("tensor<").split(",")[0].rstrip(">")
    *extents, element = inner.split("x")
    return tuple(int(extent) for extent in extents), max(bits_of_name(element, 8) // 8, 1)


@_expression(ditron.RankOp, ditron.NumRanksOp)
def _team_query(op: ditron.RankOp | ditron.NumRanksOp, a: list[str]) -> str:
    if op.team is ditron.Team.World:
        return "P.machine.scenario.ranks" if isinstance(op, ditron.NumRanksOp) else "P.home"
    local = "local_" if op.team is ditron.Team.Node else ""
    return f"P.num_{local}ranks" if isinstance(op, ditron.NumRanksOp) else f"P.{local}rank"


@_expression(ditron.LocalRankOp, ditron.NumLocalRanksOp, ditron.NodeOp)
def _query(op: ir.Operation, a: list[str]) -> str:
    return f"P.{op.name.removeprefix('ditron.')}"


@_expression(ditron.ThreadIdOp, ditron.LaneIdOp, ditron.WarpIdOp)
def _first_thread(op: ir.Operation, a: list[str]) -> str:
    return "0"


@_expression(ditron.NumThreadsOp)
def _num_threads(op: ir.Operation, a: list[str]) -> str:
    return "1"


@_expression(ditron.BallotOp)
def _ballot(op: ir.Operation, a: list[str]) -> str:
    return f"{a[0]} * 1"
