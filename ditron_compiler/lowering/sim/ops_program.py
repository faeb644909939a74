"""The program's place in the grid, assertions, prints and hints."""

from __future__ import annotations

from ditron_compiler import ir

from . import device_functions
from .elementwise import ELEMENTWISE, device_math, int_attribute
from .function import FunctionLowering, Unsupported, lowers
from .memory import guarded, to_i64, zero
from .tiles import Splat
from .types import F32, Elem


@lowers("tt.get_program_id")
def _program_id(fn: FunctionLowering, op: ir.Operation) -> None:
    fn.set(op, fn.grid[int_attribute(op, "axis")])


@lowers("tt.get_num_programs")
def _num_programs(fn: FunctionLowering, op: ir.Operation) -> None:
    fn.set(op, fn.grid[3 + int_attribute(op, "axis")])


@lowers("llvm.intr.assume", "gpu.barrier", "ttg.barrier", "ttg.local_barrier", "ub.poison")
def _nothing(fn: FunctionLowering, op: ir.Operation) -> None:
    """Hints, and barriers of a program that here is one thread; poison is any value, so zero."""
    for result in op.results:
        type = fn.type_of(result, op)
        value = None if type.elem is None else zero(fn.b, type.elem)
        fn.env[result] = Splat(type.shape, type.elem, value) if type.is_tile else value


@lowers("tt.extern_elementwise")
def _device_function(fn: FunctionLowering, op: ir.Operation) -> None:
    symbol = ir.StringAttr(op.attributes["symbol"]).value
    if device_math(symbol) is None and device_functions.find(symbol) is None:
        raise Unsupported(op, f"the simulator has no device function '{symbol}'; write it with tl.math operations")
    fn.lower_elementwise(op, ELEMENTWISE[op.name])


@lowers("tt.elementwise_inline_asm")
def _assembly(fn: FunctionLowering, op: ir.Operation) -> None:
    raise Unsupported(op, "the simulator has no inline assembly, which is one GPU's: write it with tl operations, here "
                          "or in the branch of a tl.constexpr")  # fmt: skip


def text_address(fn: FunctionLowering, text: str) -> ir.Value:
    """Address of a constant C string."""
    symbol = fn.state.strings.setdefault(text, f"ditron_text_{len(fn.state.strings)}")
    return fn.b.op("llvm.mlir.addressof", "!llvm.ptr", global_name=fn.b.attr(f"@{symbol}"))


@lowers("tt.assert")
def _assert(fn: FunctionLowering, op: ir.Operation) -> None:
    condition = op.operands[0]
    tile = fn.tile_or_splat(condition, (), fn.type_of(condition, op).elem)
    message = text_address(fn, ir.StringAttr(op.attributes["message"]).value)
    where = fn.where(op)
    with fn.nest(tile.shape) as nest:
        b = fn.b
        wrong = b.cmpi("eq", nest.element(tile), b.constant(tile.elem.carrier, 0))
        guarded(b, wrong, lambda: fn.call("ditron_sim_assert_fail", [message, where]) and None)


@lowers("tt.print")
def _print(fn: FunctionLowering, op: ir.Operation) -> None:
    said = ir.StringAttr(op.attributes["prefix"]).value.lstrip()
    where = fn.where(op)
    signed = list(ir.DenseI32ArrayAttr(op.attributes["isSigned"])) if "isSigned" in op.attributes else []
    for number, value in enumerate(op.operands):
        prefix = text_address(fn, f"{said}(operand {number}) " if len(op.operands) > 1 else said)
        elem = fn.type_of(value, op).elem
        tile = fn.tile_or_splat(value, (), elem)
        dtype = _print_dtype(elem, bool(signed[number]) if number < len(signed) else True)
        with fn.nest(tile.shape) as nest:
            strides = [1] * len(tile.shape)
            for k in reversed(range(len(strides) - 1)):
                strides[k] = strides[k + 1] * tile.shape[k + 1]
            linear = nest.value(nest.linear(nest.idx, strides))
            index = fn.b.resize(linear, 64, 32) if tile.shape else fn.i32(-1)
            element = nest.element(tile)
            # Types that the ABI has no number for are printed as the carrier.
            bits = to_i64(fn.b, element, F32 if elem.narrow and elem.abi_dtype is None else elem)
            if elem.kind == "int" and elem.bits < 32 and dtype == _UNSIGNED_I32:
                bits = fn.b.binary("arith.andi", bits, fn.b.constant("i64", (1 << elem.bits) - 1), "i64")
            fn.call("ditron_sim_print", [prefix, bits, fn.i32(dtype), index, where])


_UNSIGNED_I32 = 6


def _print_dtype(elem: Elem, signed: bool) -> int:
    if elem.kind == "ptr":
        return _UNSIGNED_I32 + 1
    if elem.kind == "int":
        return (1 if elem.bits == 64 else 0) + (0 if signed else _UNSIGNED_I32)
    return F32.abi_dtype if elem.abi_dtype is None else elem.abi_dtype


