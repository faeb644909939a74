"""The program's place in the grid, assertions, prints and hints."""

from __future__ import annotations

import re
from collections.abc import Callable

from ditron_compiler import ir
from ditron_compiler.analysis.call_graph import only_prefetches
from ditron_compiler.ir.locations import user_text

from . import device_functions, inline_ptx
from .builder import Builder
from .elementwise import ELEMENTWISE, device_math, int_attribute
from .function import FunctionLowering, Unsupported, lowers
from .memory import guarded, zero
from .nest import LoopNest
from .rounding import UNO, to_bits
from .tiles import SplatTile
from .types import Elem


@lowers("tt.get_program_id")
def _program_id(fn: FunctionLowering, op: ir.Operation) -> None:
    fn.set(op, fn.grid[int_attribute(op, "axis")])


@lowers("tt.get_num_programs")
def _num_programs(fn: FunctionLowering, op: ir.Operation) -> None:
    fn.set(op, fn.grid[3 + int_attribute(op, "axis")])


@lowers("llvm.intr.assume", "gpu.barrier", "ttg.barrier", "ttg.local_barrier", "ub.poison",
        "tt.grid_dependency_wait", "tt.grid_dependency_launch_dependents")  # fmt: skip
def _nothing(fn: FunctionLowering, op: ir.Operation) -> None:
    """Hints, and barriers of a program that here is one thread; poison is any value, so zero.

    Launches follow each other here, so that one that depends on the one before (Triton 3.9's way to say so) has nothing
    to wait for.
    """
    for result in op.results:
        type = fn.type_of(result, op)
        value = None if type.elem is None else zero(fn.b, type.elem)
        fn.env[result] = SplatTile(type.shape, type.elem, value) if type.is_tile else value


@lowers("tt.extern_elementwise")
def _device_function(fn: FunctionLowering, op: ir.Operation) -> None:
    symbol = ir.StringAttr(op.attributes["symbol"]).value
    if device_math(symbol) is None and device_functions.find(symbol) is None:
        raise Unsupported(op, f"the simulator has no device function '{symbol}'; write it with tl.math operations")
    fn.lower_elementwise(op, ELEMENTWISE[op.name])


# What a kernel says of the launches before and after its own, which follow each other here; and barriers of a program,
# which here is one thread.
_NOTHING_TO_WAIT_FOR = re.compile(r"\s*(griddepcontrol\.(wait|launch_dependents)|bar\.sync\s+0)\s*;\s*(//.*)?")


@lowers("tt.elementwise_inline_asm")
def _assembly(fn: FunctionLowering, op: ir.Operation) -> None:
    if only_prefetches(op) or _NOTHING_TO_WAIT_FOR.fullmatch(ir.StringAttr(op.attributes["asm_string"]).value):
        return _nothing(fn, op)
    if inline_ptx.find(op) is not None:
        return fn.lower_elementwise(op, ELEMENTWISE[op.name])
    raise Unsupported(op, "the simulator has no inline assembly but single instructions on f32, as tanh.approx.f32: "
                          "write it with tl operations, here or in the branch of a tl.constexpr")  # fmt: skip


def text_address(fn: FunctionLowering, text: str) -> ir.Value:
    """Address of a constant C string."""
    symbol = fn.state.strings.setdefault(text, f"ditron_text_{len(fn.state.strings)}")
    return fn.b.op("llvm.mlir.addressof", "!llvm.ptr", global_name=fn.b.attr(f"@{symbol}"))


@lowers("tt.assert")
def _assert(fn: FunctionLowering, op: ir.Operation) -> None:
    condition = op.operands[0]
    tile = fn.tile_or_splat(condition, (), fn.type_of(condition, op).elem)
    message = ir.StringAttr(op.attributes["message"]).value or user_text(op.location)
    at = f" at idx ({', '.join(['%u'] * len(tile.shape))})" if tile.shape else ""
    form = text_address(fn, at + _literal(f": {message}" if message else ""))
    where = fn.where(op)
    with fn.nest(tile.shape) as nest:
        b = fn.b
        wrong = b.cmpi("eq", nest.element(tile), b.constant(tile.elem.carrier, 0))
        guarded(b, wrong, lambda: b.call_variadic("ditron_sim_assert_fail", [form, where], _index_values(fn, nest)))


@lowers("tt.print")
def _print(fn: FunctionLowering, op: ir.Operation) -> None:
    """Lines as a GPU prints them, by the same formats; of an element that several threads hold only one."""
    where, pid = fn.where(op), fn.grid[:3]
    prefix = _literal(ir.StringAttr(op.attributes["prefix"]).value)
    in_hex = "hex" in op.attributes and ir.BoolAttr(op.attributes["hex"]).value
    signed = list(ir.DenseI32ArrayAttr(op.attributes["isSigned"])) if "isSigned" in op.attributes else []
    if not op.operands:
        fn.b.call_variadic("ditron_sim_print", [text_address(fn, _PID_FORMAT + prefix), where], pid)
    for number, value in enumerate(op.operands):
        elem = fn.type_of(value, op).elem
        tile = fn.tile_or_splat(value, (), elem)
        form, promote = _spelling(elem, in_hex, bool(signed[number]) if number < len(signed) else True)
        which = f"(operand {number}) " if len(op.operands) > 1 else ""
        text = text_address(fn, f"{_PID_FORMAT} {_index_format(tile.shape)}{prefix}{which}{form}")
        with fn.nest(tile.shape) as nest:
            shown = promote(fn.b, nest.element(tile))
            fn.b.call_variadic("ditron_sim_print", [text, where], [*pid, *_index_values(fn, nest), shown])


_PID_FORMAT = "pid (%u, %u, %u)"


def _literal(text: str) -> str:
    """`text` in a format of printf's. A GPU takes all of it for a format: `%%` is `%` there, a `%d` is a mistake."""
    return re.sub("%%?", "%%", text)


def _index_format(shape: tuple[int, ...]) -> str:
    """An element's index, each as wide as the largest one of its dimension; no digits are asked for when that is 0."""
    return "idx (" + ", ".join(f"%{len(str(size - 1)) if size > 1 else 0}u" for size in shape) + ")"


def _index_values(fn: FunctionLowering, nest: LoopNest) -> list[ir.Value]:
    return [fn.b.resize(nest.value(index), 64, 32) for index in nest.idx]


def _spelling(elem: Elem, in_hex: bool, signed: bool) -> tuple[str, Callable[[Builder, ir.Value], ir.Value]]:
    """The format of one element, and what makes of it what printf expects."""
    wide = 64 if elem.bits == 64 else 32
    length = "ll" if wide == 64 else ""
    if elem.kind == "ptr":
        return "%p", lambda b, value: value
    if in_hex:  # of floats the bits, where a GPU prints 32 bits of something else
        extend = signed and elem.kind == "int"
        return (f"0x%0{elem.bits // 4}{length}x",
                lambda b, value: b.resize(to_bits(b, value, elem), elem.bits, wide, extend))  # fmt: skip
    if elem.kind == "int":
        return f"%{length}{'i' if signed else 'u'}", lambda b, value: b.resize(value, elem.bits, wide, signed)
    return "%f", lambda b, value: _unsigned_nan(b, value if elem.bits == 64 else b.op("arith.extf", "f64", value))


def _unsigned_nan(b: Builder, value: ir.Value) -> ir.Value:
    """An f64, of a NaN the one without a sign: x86's has one, a GPU's has not."""
    unordered = b.cmpf(UNO, value, value)
    return b.select(unordered, b.op("math.absf", "f64", value), value, "f64")
