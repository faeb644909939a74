"""The pass `lower-to-sim`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ditron_compiler import ir
from ditron_compiler.analysis.call_graph import operations
from ditron_compiler.ir.dialects import ditron, scf
from ditron_compiler.ir.pass_base import Pass, option

from . import (  # noqa: F401
    device_library,
    ops_atomic,
    ops_control,
    ops_descriptor,
    ops_ditron,
    ops_division,
    ops_dot,
    ops_map,
    ops_memory,
    ops_program,
    ops_reduce,
    ops_scaled,
    ops_shape,
)
from .abi import VARIADIC
from .branches import Body
from .builder import Builder, variadic
from .function import GRID, FunctionLowering, Lowered, ModuleState, Unsupported, lowers, new_function
from .memory import from_i64
from .tiles import DescriptorValue
from .types import Shaped, UnsupportedType, parse_type

LOCATIONS = "ditron.locs"
# The dot routines keep no pointer; telling LLVM so lets it keep treating tile buffers as private to the function.
_DOT_ARGUMENTS = "[{llvm.nocapture}, {llvm.nocapture}, {llvm.nocapture}, {}, {}, {}, {}, {}, {}]"


@dataclass(frozen=True)
class LowerToSim(Pass):
    """Lower a kernel to scalar loops for the simulator.

    One program of the kernel becomes one C function: tiles turn into loop nests over static buffers, ditron operations
    into calls of the machine (runtime/sim/abi/abi.h). Nothing is computed tile by tile: a chain of elementwise
    operations is one loop body in the nest of the store, dot, reduction or yield that needs it; loads stay where they
    are.

    Before::

        tt.func @copy(%x: !tt.ptr<f32>, %n: i32) {
          %range = tt.make_range {start = 0, end = 64} : tensor<64xi32>
          ...
          tt.store %addresses, %values, %mask
        }

    After::

        func.func @copy(%args: !llvm.ptr, %pid0: i32, ..., %n2: i32) {
          %buffer = llvm.alloca ... x !llvm.array<64 x f32>
          scf.for %i = %c0 to %c64 step %c1 : i64 { ... }
        }

    The module attribute `ditron.locs` lists the Python lines that the calls' location arguments index. Operations that
    the simulator does not have are errors at the user's line.
    """

    name: ClassVar[str] = "lower-to-sim"
    anchor: ClassVar[str] = "builtin.module"

    checks: str = option(
        "ends",
        "accesses that the machine checks for null and for the bounds of tensors: the ends of each tile "
        "(ends), every element (all, slow), or none",
        one_of=("ends", "all", "none"),
    )

    races: bool = option(False, "tell the machine of every byte that is loaded or stored, to find races")

    def run(self, op: ir.Operation) -> None:
        module = op.operation
        state = ModuleState(checks=self.checks, races=self.races)
        body = module.regions[0].blocks[0]
        functions = [view.operation for view in body.operations if view.operation.name == "tt.func"]
        try:
            with module.context:
                for function in functions:
                    _refuse_warp_specialization(function)
                    lower_function(function, state)
                finish_module(module, state)
        except Unsupported as error:
            error.op.emit_error(str(error))
            return
        for function in reversed(functions):
            function.erase()


def _refuse_warp_specialization(function: ir.Operation) -> None:
    """As on GPUs: a program is one thread here, and would not show that the other warps never come."""
    every = operations(function)
    if any("tt.warp_specialize" in op.attributes for op in every if isinstance(op, scf.ForOp)):
        for op in every:
            # tl.debug_barrier is of the warps that come to it.
            if isinstance(op, ditron.ProgramWide) and not isinstance(op, ditron.SyncThreadsOp):
                raise Unsupported(
                    op,
                    f"'{op.name}' synchronizes all threads of the program, but the kernel has a loop with "
                    "warp_specialize=True, whose other warps do not reach it; remove warp_specialize=True",
                )


def lower_function(function: ir.Operation, state: ModuleState) -> None:
    """Put the lowered function before `function`, which stays."""
    if not function.regions[0].blocks:
        return
    name = ir.StringAttr(function.attributes["sym_name"]).value
    entry = function.regions[0].blocks[0]
    outputs = [_result_type(function, t) for t in ir.FunctionType(_function_type(function)).results]
    is_kernel = not _is_private(function)
    inputs = ["!llvm.ptr"] if is_kernel else [_argument_type(function, a).elem.carrier for a in entry.arguments]
    b = Builder(state.types, function.location)
    lowered = new_function(b, function, name, [*inputs, *GRID], outputs, private=not is_kernel)
    block = b.block(lowered.regions[0], [*inputs, *GRID])
    b.enter(block)
    arguments = list(block.arguments)
    fn = FunctionLowering(function, state, b, arguments[len(inputs) :])
    if is_kernel:
        _bind_slots(fn, function, arguments[0], list(entry.arguments))
    else:
        fn.env.update(zip(entry.arguments, arguments[: len(inputs)], strict=True))
    Body(fn, function, lowered.regions[0], block).lower()
    for symbol, signature in b.called.items():
        state.declared.setdefault(symbol, signature)
    state.defined.add(name)


def _bind_slots(fn: FunctionLowering, function: ir.Operation, args: ir.Value, arguments: list[ir.Value]) -> None:
    """Read the argument slots; a tensor descriptor's shape and strides are the arguments behind it.

    Behind all arguments there is a slot for each descriptor: whether it pads with NaNs.
    """
    b = fn.b
    types = [_argument_type(function, a) for a in arguments]
    values: list[Lowered] = []
    for number, type in enumerate(types):
        slot = b.gep(args, b.constant("i64", number), "i64")
        if type.block is not None or type.elem.kind == "ptr":
            values.append(b.load(slot, "!llvm.ptr"))
        else:
            values.append(from_i64(b, b.load(slot, "i64"), type.elem))
    descriptors = [number for number, type in enumerate(types) if type.block is not None]
    for behind, number in enumerate(descriptors, len(types)):
        type = types[number]
        rank = len(type.block.shape)
        shape, strides = values[number + 1 : number + 1 + rank], values[number + 1 + rank : number + 1 + 2 * rank]
        if len(strides) != rank or any(not isinstance(v, ir.Value) for v in (*shape, *strides)):
            raise Unsupported(function, "expected a tensor descriptor argument to be followed by its shape and strides")
        pad_nan = b.cmpi("ne", b.load(b.gep(args, b.constant("i64", behind), "i64"), "i64"), b.constant("i64", 0))
        values[number] = DescriptorValue(type.block.shape, type.block.elem, values[number], shape, strides, pad_nan)
    fn.env.update(zip(arguments, values, strict=True))


def _argument_type(function: ir.Operation, argument: ir.Value) -> Shaped:
    try:
        type = parse_type(str(argument.type))
    except UnsupportedType as error:
        raise Unsupported(function, f"the simulator has no {error}") from None
    if type.shape is not None or type.is_token:
        raise Unsupported(
            function, f"the simulator has no {_kind(function)} arguments that are tiles{_way_out(function)}"
        )
    return type


def _result_type(function: ir.Operation, type: ir.Type) -> str:
    parsed = parse_type(str(type))
    if parsed.shape is not None or parsed.elem is None:
        raise Unsupported(
            function, f"the simulator has no {_kind(function)} results that are tiles{_way_out(function)}"
        )
    return parsed.elem.carrier


def _kind(function: ir.Operation) -> str:
    return "function" if _is_private(function) else "kernel"


def _way_out(function: ir.Operation) -> str:
    return "; drop noinline" if _is_private(function) else ": pass a pointer, and load from it"


def _function_type(function: ir.Operation) -> ir.Type:
    return ir.TypeAttr(function.attributes["function_type"]).value


def _is_private(function: ir.Operation) -> bool:
    return "sym_visibility" in function.attributes and (
        ir.StringAttr(function.attributes["sym_visibility"]).value == "private"
    )


@lowers("tt.call")
def _call(fn: FunctionLowering, op: ir.Operation) -> None:
    """A noinline function takes and gives scalars; it also gets the program's place in the grid."""
    operands = [fn.env[v] for v in op.operands]
    types = [fn.type_of(r, op) for r in op.results]
    if any(not isinstance(v, ir.Value) for v in operands) or any(t.shape is not None or t.elem is None for t in types):
        raise Unsupported(op, "the simulator calls noinline functions with scalars only; drop noinline from this one")
    callee = ir.FlatSymbolRefAttr(op.attributes["callee"]).value
    results = tuple(t.elem.carrier for t in types)
    fn.set(op, *fn.call(callee, [*operands, *fn.grid], results))


def finish_module(module: ir.Operation, state: ModuleState) -> None:
    """Declare what was called, define the strings, and leave the location table."""
    body = module.regions[0].blocks[0]
    ip, loc = ir.InsertionPoint.at_block_begin(body), module.location
    for symbol, (inputs, outputs) in state.declared.items():
        if symbol in state.defined:
            continue
        attrs = {
            "sym_name": ir.StringAttr.get(symbol),
            "function_type": ir.TypeAttr.get(ir.FunctionType.get(inputs, outputs)),
            "sym_visibility": ir.StringAttr.get("private"),
        }
        if symbol in VARIADIC:
            attrs["function_type"] = ir.Attribute.parse(variadic(inputs))
            ir.Operation.create("llvm.func", attributes=attrs, regions=1, loc=loc, ip=ip)
            continue
        if symbol.startswith("ditron_sim_dot_"):
            attrs["arg_attrs"] = ir.Attribute.parse(_DOT_ARGUMENTS)
        ir.Operation.create("func.func", attributes=attrs, regions=1, loc=loc, ip=ip)
    for text, symbol in state.strings.items():
        data = text.encode() + b"\0"
        attrs = {
            "sym_name": ir.StringAttr.get(symbol),
            "global_type": ir.TypeAttr.get(ir.Type.parse(f"!llvm.array<{len(data)} x i8>")),
            "linkage": ir.Attribute.parse("#llvm.linkage<internal>"),
            "constant": ir.UnitAttr.get(),
            "value": ir.StringAttr.get(text + "\0"),
            "addr_space": ir.IntegerAttr.get(ir.IntegerType.get_signless(32), 0),
        }
        ir.Operation.create("llvm.mlir.global", attributes=attrs, regions=1, loc=loc, ip=ip)
    module.attributes[LOCATIONS] = ir.ArrayAttr.get([ir.StringAttr.get(line) for line in state.locations.lines])
