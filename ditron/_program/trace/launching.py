"""Launching a ``ditron.jit`` kernel in a trace: its ``tt.func`` joins the module, and the launch is an operation.

The kernel is specialized as Triton does: for constants, for the types of its arguments, and for which are divisible by
16. For a symbolic integer that is what follows from the program's arguments, so that the module is valid on every rank,
in every call that has the same trace.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import triton.language as tl
from triton._C.libtriton import ir as triton_ir
from triton.compiler.errors import CompilationError
from triton.runtime.jit import create_function_from_signature
from triton.tools.tensor_descriptor import TensorDescriptor

from ditron._program.trace.buffers import Buffer, as_buffer, mixed
from ditron._program.trace.tracer import Tracer
from ditron._program.trace.values import Cond, Float, Int, Symbol, _python_int, as_int, condition, describe
from ditron_compiler import ir
from ditron_compiler.errors import CompileError
from ditron_compiler.frontend.diagnostics import explained
from ditron_compiler.frontend.source import CONTEXT_ARGUMENT, DitronSource
from ditron_compiler.frontend.targets import backend_of
from ditron_compiler.ir.dialects import arith, tt
from ditron_compiler.ir.dialects import ditron as dialect
from ditron_compiler.source_location import caller

__all__ = ["launch"]

_FLOATS = {"fp16": "f16", "bf16": "bf16", "fp32": "f32", "fp64": "f64"}
# Kernels as text of our MLIR, by the hash of their source and options.
_texts: dict[str, str] = {}


class _Pointer:
    """A buffer as Triton's specialization sees it: a dtype and the alignment of an address."""

    def __init__(self, buffer: Buffer):
        self.dtype, self._address = buffer.dtype, 16 if buffer.align % 16 == 0 else 1

    def data_ptr(self) -> int:
        return self._address


def _representative(tracer: Tracer, name: str, value: Any) -> Any:
    """A value with the type and divisibility of ``value``, for which Triton specializes the kernel."""
    if isinstance(value, Buffer):
        return _Pointer(value)
    if isinstance(value, Int):
        return (1 << 40 if value.wide else 0) + (16 if value.divisor % 16 == 0 else 17)
    if isinstance(value, Cond):
        return True
    if isinstance(value, Float):
        return 0.5
    if isinstance(value, TensorDescriptor):
        return _representative_descriptor(tracer, name, value)
    if hasattr(value, "data_ptr"):
        as_buffer(tracer, value, f"argument {name!r} of the kernel")
    if isinstance(value, (tuple, list)):  # Triton's tuples
        return tuple(_representative(tracer, f"{name}[{i}]", element) for i, element in enumerate(value))
    return value


def _representative_descriptor(tracer: Tracer, name: str, value: TensorDescriptor) -> TensorDescriptor:
    """A descriptor of the same block and dtype."""
    base = as_buffer(tracer, value.base, f"what argument {name!r} of the kernel, a tensor descriptor, describes")
    if getattr(value, "round_f32_to_tf32", False):
        tracer.fail(f"argument {name!r} of the kernel: a descriptor in a program cannot have round_f32_to_tf32")
    rank = len(value.block_shape)
    return TensorDescriptor(_Pointer(base.root), [16] * rank, [16] * (rank - 1) + [1], value.block_shape, value.padding)


def _holds_symbols(value: Any) -> bool:
    """Whether it is a symbolic value, or a tuple with one in it, nested or not."""
    return isinstance(value, Symbol) or isinstance(value, (tuple, list)) and any(map(_holds_symbols, value))


def _expect_known(tracer: Tracer, name: str, value: Any, what: str) -> None:
    """Raise for a symbolic value where the compiler needs a number."""
    if isinstance(value, tl.constexpr):
        value = value.value
    if _holds_symbols(value):
        tracer.fail(
            f"{name!r} is {what} of the kernel, which is compiled for its value, and is given "
            f"{describe(value)}, which is not known while the program is traced: give it a number, such as a "
            "keyword-only parameter of the program, or make it an ordinary parameter of the kernel"
        )


def launch(tracer: Tracer, fn: Any, grid: Any, args: tuple, kwargs: dict) -> None:
    """Record ``fn[grid](*args, **kwargs)``. Raises CompileError for what a launch cannot be given."""
    names = [parameter.name for parameter in fn.params]
    if len(args) > len(names) - 1:
        tracer.fail(f"kernel {fn.__name__!r} takes {len(names) - 1} arguments, got {len(args)}")
    given = dict(zip(names, args, strict=False)) | kwargs
    backend = backend_of(tracer.target)
    binder = create_function_from_signature(fn.launch_signature, fn.params, backend)
    compiled_in = {parameter.name for parameter in fn.params if parameter.is_constexpr}
    for name, value in given.items():
        if name in compiled_in or name not in names:  # a constexpr, or an option of the launch
            _expect_known(tracer, name, value, "a constexpr" if name in compiled_in else "an option")
    representatives = {name: _representative(tracer, name, value) for name, value in given.items()}
    try:
        bound, specialization, _ = binder(**representatives)
        for hook in fn.pre_run_hooks:
            hook(**given)
        options = {name: value for name, value in kwargs.items() if name not in names}
        parsed, signature, constexprs, attrs = fn._pack_args(
            backend, dict(representatives), bound, specialization, options
        )
    except (TypeError, KeyError, AssertionError) as error:  # the last one of Triton's options, as of num_warps=3
        tracer.fail(f"launch of kernel {fn.__name__!r}: {error.args[0] if error.args else error}")
    with _launched_here(tracer, fn.__name__):
        text = _mixed_text(tracer, fn, signature, constexprs, attrs, backend, parsed)
    symbol = _add_kernel(tracer, fn.__name__, text)
    operands: list[ir.Value] = []
    for name, kind in signature.items():
        if name != CONTEXT_ARGUMENT:
            _add_operands(tracer, symbol, operands, name, kind, given.get(name, bound[name]))
    meta = {name: given.get(name, value) for name, value in bound.items()}
    extents = grid(meta) if callable(grid) else grid
    extents = tuple(extents) if isinstance(extents, Sequence) else (extents,)
    if not 1 <= len(extents) <= 3:
        tracer.fail(f"launch of kernel {fn.__name__!r}: expected a grid of one to three extents, got {len(extents)}")
    counts = mixed(tracer, extents, "an extent of the grid")
    stream = tracer.streams[-1].use() if tracer.streams else None
    tracer.emit(dialect.LaunchOp, symbol, counts, operands, stream=stream, options=_options(tracer, options))


@contextmanager
def _launched_here(tracer: Tracer, name: str) -> Iterator[None]:
    """Within it, compile errors are raised at the kernel's line, with a note at the launch's."""
    try:
        yield
    except (CompileError, CompilationError) as error:
        known = error if isinstance(error, CompileError) else explained(error)
        if known is None:
            tracer.fail(f"kernel {name!r} does not compile: {error}")
        here = caller()
        note = (here.file, here.line, here.column, f"kernel {name!r} is launched here")
        raise CompileError(known.message, known.file, known.line, known.column, (*known.notes, note)) from error


def _add_operands(tracer: Tracer, symbol: str, operands: list[ir.Value], name: str, kind: Any, value: Any) -> None:
    """Add the operands for a parameter of Triton type ``kind``: several for tuples and descriptors, none for None."""
    if isinstance(kind, tuple):
        for index, (inner, element) in enumerate(zip(kind, value, strict=True)):
            _add_operands(tracer, symbol, operands, f"{name}[{index}]", inner, element)
    elif isinstance(value, TensorDescriptor):
        operands += _descriptor_operands(tracer, symbol, len(operands), value)
    elif kind != "constexpr":
        operands.append(_operand(tracer, name, kind, value))


def _operand(tracer: Tracer, name: str, kind: Any, value: Any) -> ir.Value:
    """The operand for a parameter of Triton type ``kind``."""
    what = f"argument {name!r} of the kernel"
    if kind.startswith("*"):
        return as_buffer(tracer, value, what).use()
    if isinstance(value, Cond) or kind in ("u1", "i1"):
        return condition(tracer, value)
    if kind in _FLOATS:
        if isinstance(value, Float):
            if kind != "fp32":
                tracer.fail(f"{what} is {kind}, and is given a float argument of the program, which is fp32")
            return value.use()
        if isinstance(value, Int):
            tracer.fail(f"{what} is a float, and is given a symbolic integer: let the kernel convert it")
        return tracer.emit(arith.ConstantOp, ir.Type.parse(_FLOATS[kind], tracer.module.context), float(value)).result
    return _number(tracer, value, int(kind[1:]), what)


def _number(tracer: Tracer, value: Any, bits: int, what: str) -> ir.Value:
    """An integer in as many bits."""
    number = as_int(tracer, value, what)
    if bits == 64:
        return number
    narrow = ir.IntegerType.get_signless(bits, context=tracer.module.context)
    known = _python_int(value)
    if known is not None:
        return tracer.emit(arith.ConstantOp, narrow, known).result
    return tracer.emit(arith.TruncIOp, narrow, number).result


def _descriptor_operands(tracer: Tracer, symbol: str, index: int, value: TensorDescriptor) -> Iterator[ir.Value]:
    """The operands for a descriptor, which is parameter ``index`` of the kernel: itself, its sizes and its strides.

    For hardware without TMA, Triton has taken it apart: a pointer, the same numbers as i64, and flags.
    """
    kernel = next(
        op
        for op in tracer.module.body.operations
        if isinstance(op, tt.FuncOp) and ir.StringAttr(op.sym_name).value == symbol
    )
    size, stride = "a size of a tensor descriptor", "a stride of a tensor descriptor"
    buffer = as_buffer(tracer, value.base, "what a tensor descriptor describes").use()
    parameter = kernel.arguments[index].type
    if isinstance(parameter, tt.PointerType):
        yield buffer
        for number in value.shape:
            yield _number(tracer, number, 64, size)
        for number in value.strides:
            yield _number(tracer, number, 64, stride)
        flags = [value.padding == "nan", False]  # the second one from Triton 3.8 on: round_f32_to_tf32
        first = index + 1 + 2 * len(value.shape)
        for argument, flag in zip(kernel.arguments[first : first + 2], flags, strict=True):
            if str(argument.type) == "i1":
                yield condition(tracer, flag)
    else:
        sizes, strides = mixed(tracer, value.shape, size), mixed(tracer, value.strides, stride)
        nan = value.padding == "nan"
        yield tracer.emit(dialect.TensorDescriptorOp, parameter, buffer, sizes, strides, nan_padding=nan).result
    for number in value.shape:
        yield _number(tracer, number, 32, size)
    for number in value.strides:
        yield _number(tracer, number, 64, stride)


def _options(tracer: Tracer, options: dict[str, Any]) -> Any:
    """Triton's options that were given, as an attribute."""
    context, attributes = tracer.module.context, {}
    for name, value in options.items():
        if isinstance(value, bool):
            attributes[name] = ir.BoolAttr.get(value, context=context)
        elif isinstance(value, int):
            attributes[name] = ir.IntegerAttr.get(ir.IntegerType.get_signless(64, context=context), value)
        elif isinstance(value, str):
            attributes[name] = ir.StringAttr.get(value, context=context)
        elif value is not None:
            tracer.fail(
                f"option {name!r} of a launch in a program must be a number, a bool or a string, got {describe(value)}"
            )
    return ir.DictAttr.get(attributes, context=context) if attributes else None


def _mixed_text(
    tracer: Tracer, fn: Any, signature: dict, constexprs: dict, attrs: dict, backend: Any, options: Any
) -> str:
    """The kernel in tt and ditron operations, in generic form with locations."""
    source = DitronSource(
        fn, signature, constexprs, attrs, target=tracer.target, instrumentation=tracer.instrumentation
    )
    key = f"{source.hash()}-{options.hash()}"
    if key not in _texts or tracer.instrumentation is not None:
        context = triton_ir.context()
        triton_ir.load_dialects(context)
        backend.load_dialects(context)
        module = source.make_mixed(
            tracer.target.gpu_target(),
            options,
            backend.get_codegen_implementation(options),
            backend.get_module_map(),
            context,
        )
        _texts[key] = module.operation.get_asm(enable_debug_info=True, print_generic_op_form=True)
    return _texts[key]


def _add_kernel(tracer: Tracer, name: str, text: str) -> str:
    """Put a kernel's functions into the program's module, once, and return its symbol."""
    if text in tracer.kernels:
        return tracer.kernels[text]
    taken = {tracer.name, *tracer.kernels.values()}
    symbol = next(
        candidate
        for number in range(len(taken) + 1)
        if (candidate := f"{name}_{number}" if number else name) not in taken
    )
    functions = list(ir.Module.parse(text, tracer.module.context).body.operations)
    if len(functions) != 1:
        tracer.fail(
            f"kernel {name!r} calls functions that are not inlined: launch it outside of a program, or let its "
            "helpers be inlined (no noinline=True)"
        )
    kernel = functions[0].operation
    kernel.attributes["sym_name"] = ir.StringAttr.get(symbol, context=tracer.module.context)
    kernel.detach_from_parent()
    ir.InsertionPoint(tracer.module.body).insert(kernel)
    tracer.kernels[text] = symbol
    return symbol
