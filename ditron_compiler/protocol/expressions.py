"""Operations that only compute, as Python expressions over :mod:`.values`; what is not listed is not known."""

from __future__ import annotations

from collections.abc import Callable

from ditron_compiler import ir

__all__ = ["EXPRESSIONS", "bits_of", "constant", "itemsize", "shape_of"]

#: Name -> the expression of an operation, given the names of its operands.
EXPRESSIONS: dict[str, Callable[[ir.Operation, list[str]], str]] = {}

_SIGNED = {0: "==", 1: "!=", 2: "<", 3: "<=", 4: ">", 5: ">="}


def shape_of(kind: ir.Type) -> tuple[int, ...]:
    """Extents of a tensor; empty for a scalar."""
    return tuple(ir.RankedTensorType(kind).shape) if ir.RankedTensorType.isinstance(kind) else ()


def _element(kind: ir.Type) -> ir.Type:
    return ir.RankedTensorType(kind).element_type if ir.RankedTensorType.isinstance(kind) else kind


def bits_of(kind: ir.Type) -> int:
    """Width of the elements; 64 for what has none (index, pointers)."""
    text = str(_element(kind))
    digits = "".join(c for c in text.partition("E")[0] if c.isdigit()) if text[:1] in "ifb" else ""
    return int(digits) if digits else 64


def itemsize(kind: ir.Type) -> int:
    """Bytes of what a pointer, or a tile of them, points to."""
    text = str(_element(kind))
    inner = text[len("!tt.ptr<") :].split(",")[0].rstrip(">") if text.startswith("!tt.ptr<") else text
    if inner.startswith("tensor") or inner.startswith("!"):
        return 8
    digits = "".join(c for c in inner.partition("E")[0] if c.isdigit())
    return max(int(digits or 64) // 8, 1)


def integer(op: ir.Operation, name: str, default: int = 0) -> int:
    """An integer attribute."""
    return ir.IntegerAttr(op.attributes[name]).value if name in op.attributes else default


def constant(op: ir.Operation) -> object:
    """The value of ``arith.constant``: an integer, a truth value, a list of integers, or None for what is neither."""
    value = op.attributes["value"]
    if ir.DenseElementsAttr.isinstance(value):
        dense = ir.DenseElementsAttr(value)
        if not ir.DenseIntElementsAttr.isinstance(value):
            return None
        if dense.is_splat:
            return _plain(dense.get_splat_value(), bits_of(op.results[0].type))
        return [_plain(item, 64) for item in dense]
    return _plain(value, bits_of(op.results[0].type))


def _plain(value: object, bits: int) -> object:
    if isinstance(value, ir.Attribute):
        if not ir.IntegerAttr.isinstance(value):
            return None
        value = ir.IntegerAttr(value).value
    return bool(value) if bits == 1 else int(value)


def _expression(*names: str) -> Callable:
    def register(make: Callable[[ir.Operation, list[str]], str]) -> Callable:
        EXPRESSIONS.update(dict.fromkeys(names, make))
        return make

    return register


for _name, _sign in {
    "addi": "+",
    "subi": "-",
    "muli": "*",
    "andi": "&",
    "ori": "|",
    "xori": "^",
    "shli": "<<",
    "shrsi": ">>",
}.items():
    EXPRESSIONS[f"arith.{_name}"] = lambda op, a, sign=_sign: f"{a[0]} {sign} {a[1]}"
for _name, _function in {
    "divsi": "sdiv",
    "remsi": "srem",
    "minsi": "smin",
    "maxsi": "smax",
    "select": "select",
}.items():
    EXPRESSIONS[f"arith.{_name}"] = lambda op, a, f=_function: f"{f}({', '.join(a)})"
for _name, _function in {"divui": "udiv", "remui": "urem", "shrui": "shrui", "minui": "umin", "maxui": "umax"}.items():
    EXPRESSIONS[f"arith.{_name}"] = lambda op, a, f=_function: f"{f}({a[0]}, {a[1]}, {bits_of(op.operands[0].type)})"


@_expression("arith.ceildivsi")
def _ceildiv(op: ir.Operation, a: list[str]) -> str:
    return f"-(-{a[0]} // {a[1]})"


@_expression("arith.floordivsi")
def _floordiv(op: ir.Operation, a: list[str]) -> str:
    return f"{a[0]} // {a[1]}"


@_expression("arith.cmpi")
def _cmpi(op: ir.Operation, a: list[str]) -> str:
    predicate = integer(op, "predicate")
    if predicate < 6:
        return f"{a[0]} {_SIGNED[predicate]} {a[1]}"
    bits = bits_of(op.operands[0].type)
    less = f"ult({a[0]}, {a[1]}, {bits})" if predicate in (6, 9) else f"ult({a[1]}, {a[0]}, {bits})"
    return less if predicate in (6, 8) else f"({less}) ^ True"


@_expression("arith.extsi")
def _extsi(op: ir.Operation, a: list[str]) -> str:
    return f"-({a[0]} * 1)" if bits_of(op.operands[0].type) == 1 else a[0]


@_expression("arith.extui")
def _extui(op: ir.Operation, a: list[str]) -> str:
    return f"extui({a[0]}, {bits_of(op.operands[0].type)})"


@_expression("arith.trunci")
def _trunci(op: ir.Operation, a: list[str]) -> str:
    return f"trunc({a[0]}, {bits_of(op.results[0].type)})"


@_expression(
    "arith.index_cast",
    "arith.index_castui",
    "tt.splat",
    "tt.broadcast",
    "tt.unsplat",
    "tt.bitcast",
    "tt.ptr_to_int",
    "tt.int_to_ptr",
    "ditron.consume_token",
    "ditron.shfl",
    "builtin.unrealized_conversion_cast",
)
def _same(op: ir.Operation, a: list[str]) -> str:
    return a[0]


@_expression("tt.addptr")
def _addptr(op: ir.Operation, a: list[str]) -> str:
    return f"{a[0]} + {a[1]} * {itemsize(op.operands[0].type)}"


@_expression("tt.get_program_id")
def _program_id(op: ir.Operation, a: list[str]) -> str:
    return f"P.pid[{integer(op, 'axis')}]"


@_expression("tt.get_num_programs")
def _num_programs(op: ir.Operation, a: list[str]) -> str:
    return f"P.grid[{integer(op, 'axis')}]"


@_expression("tt.make_range")
def _make_range(op: ir.Operation, a: list[str]) -> str:
    return f"arange({integer(op, 'start')}, {integer(op, 'end')})"


@_expression("tt.expand_dims")
def _expand_dims(op: ir.Operation, a: list[str]) -> str:
    return f"expand({a[0]}, {integer(op, 'axis')})"


@_expression("tt.reshape")
def _reshape(op: ir.Operation, a: list[str]) -> str:
    return f"reshaped({a[0]}, {shape_of(op.operands[0].type)}, {shape_of(op.results[0].type)})"


@_expression("tt.trans")
def _trans(op: ir.Operation, a: list[str]) -> str:
    return f"transposed({a[0]}, {tuple(ir.DenseI32ArrayAttr(op.attributes['order']))})"


@_expression("tt.make_tensor_descriptor")
def _descriptor(op: ir.Operation, a: list[str]) -> str:
    rank = (len(a) - 1) // 2
    block, size = descriptor_block(op.results[0].type)
    return f"Descriptor({a[0]}, ({', '.join(a[1 : 1 + rank])},), ({', '.join(a[1 + rank :])},), {block}, {size})"


def descriptor_block(kind: ir.Type) -> tuple[tuple[int, ...], int]:
    """Block and element size of ``!tt.tensordesc<tensor<128x64xbf16>>``."""
    inner = str(kind).partition("tensor<")[2].split(",")[0].rstrip(">")
    *extents, element = inner.split("x")
    return tuple(int(extent) for extent in extents), max(int("".join(c for c in element if c.isdigit()) or 8) // 8, 1)


@_expression("ditron.rank", "ditron.num_ranks")
def _team_query(op: ir.Operation, a: list[str]) -> str:
    node = "node" in str(op.attributes["team"]) if "team" in op.attributes else False
    return (
        f"P.{'local_rank' if node else 'rank'}"
        if op.name == "ditron.rank"
        else f"P.{'num_local_ranks' if node else 'num_ranks'}"
    )


@_expression("ditron.local_rank", "ditron.num_local_ranks", "ditron.node")
def _query(op: ir.Operation, a: list[str]) -> str:
    return f"P.{op.name[7:]}"


@_expression("ditron.thread_id", "ditron.lane_id", "ditron.warp_id")
def _first_thread(op: ir.Operation, a: list[str]) -> str:
    return "0"


@_expression("ditron.num_threads")
def _num_threads(op: ir.Operation, a: list[str]) -> str:
    return "1"


@_expression("ditron.ballot")
def _ballot(op: ir.Operation, a: list[str]) -> str:
    return f"{a[0]} * 1"
