"""Kernels for operations of a program that the driver has no call for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple

import triton.language as tl

import ditron.language as dl
from ditron._jit.compile import compile as compile_kernel
from ditron._jit.decorator import jit
from ditron._program.execute.kernels import kernel_function
from ditron_compiler import ir
from ditron_compiler.ir.dialects import ditron

__all__ = ["BuiltinPart", "builtin_kernel", "builtin_sequence"]


@jit
def _wait_value(signal_ptr, value, CMP: tl.constexpr):
    dl.signal_wait_until(signal_ptr, value, cmp=CMP)


@jit
def _wait_loaded(signal_ptr, value_ptr, CMP: tl.constexpr):
    dl.signal_wait_until(signal_ptr, tl.load(value_ptr), cmp=CMP)


@jit
def _write_loaded(signal_ptr, value_ptr, peer, RELEASES: tl.constexpr):
    """Without ``RELEASES`` a relaxed store: an earlier write of the same kernel has made the release fence."""
    if RELEASES:
        dl.notify(signal_ptr, peer, tl.load(value_ptr))
    else:
        dl.signal_op(signal_ptr, tl.load(value_ptr), peer)


@jit
def _add_value(signal_ptr, value, peer):
    dl.notify(signal_ptr, peer, value, op="add")


@jit
def _add_loaded(signal_ptr, value_ptr, peer):
    dl.notify(signal_ptr, peer, tl.load(value_ptr), op="add")


@jit
def _barrier():
    dl.barrier_all()


@jit
def _advance(count_ptr, values_ptr, before, SLOPES: tl.constexpr, OFFSETS: tl.constexpr):
    """Count a call, and compute the values that depend on the epoch.

    The count has two words, of which a kernel that counts (``with_count``) reads either and writes the other one.
    """
    count = tl.maximum(tl.maximum(tl.load(count_ptr), tl.load(count_ptr + 1)), before) + 1
    tl.store(count_ptr, count)
    tl.store(count_ptr + 1, count)
    for value in tl.static_range(len(SLOPES)):
        tl.store(values_ptr + value, SLOPES[value] * count + OFFSETS[value])


_KERNELS: dict[str, tuple[Callable, dict[str, str]]] = {
    "wait_value": (_wait_value, {"signal_ptr": "*i64:1", "value": "i64:1"}),
    "wait_loaded": (_wait_loaded, {"signal_ptr": "*i64:1", "value_ptr": "*i64:1"}),
    "write_loaded": (_write_loaded, {"signal_ptr": "*i64:1", "value_ptr": "*i64:1", "peer": "i32:1"}),
    "add_value": (_add_value, {"signal_ptr": "*i64:1", "value": "i64:1", "peer": "i32:1"}),
    "add_loaded": (_add_loaded, {"signal_ptr": "*i64:1", "value_ptr": "*i64:1", "peer": "i32:1"}),
    "barrier": (_barrier, {}),
    "advance": (_advance, {"count_ptr": "*i64:1", "values_ptr": "*i64:1", "before": "i64:1"}),
}


@cache
def builtin_kernel(kind: str, symbol: str, location: str, **constants: Any) -> str:
    """The text of a kernel for an operation of the program at ``location`` ("file:line:col").

    Reports of the sanitizer then name that line, and ``symbol``.
    """
    fn, signature = _KERNELS[kind]
    text = compile_kernel(fn, signature, constants, "sim", stop_after="ditron", locations=True).asm["ditron"]
    with ir.Context() as context:
        context.allow_unregistered_dialects = True
        module = ir.Module.parse(text)
        file, line, column = location.rsplit(":", 2)
        here = ir.Location.file(file, int(line), int(column))

        def move(op: Any) -> Any:
            op.location = here
            return ir.WalkResult.ADVANCE

        function = kernel_function(module)
        function.attributes["sym_name"] = ir.StringAttr.get(symbol)
        function.walk(move)
        return module.operation.get_asm(enable_debug_info=True, print_generic_op_form=True)


class BuiltinPart(NamedTuple):
    """A built-in kernel as part of a sequence: its kind, the location of its operation, and a constant."""

    kind: str
    location: str
    constant: tuple[str, Any]


def builtin_sequence(symbol: str, parts: Sequence[BuiltinPart]) -> str:
    """The text of one kernel that does what built-in kernels do, one after the other.

    Its parameters are theirs, in that order, and the context. Of the quiets at their ends one is left, at its end.
    """
    texts = [builtin_kernel(part.kind, symbol, part.location, **dict([part.constant])) for part in parts]
    with ir.Context() as context:
        context.allow_unregistered_dialects = True
        module, *others = [ir.Module.parse(text) for text in texts]
        function = kernel_function(module)
        block = function.entry_block
        *_, end = block.operations
        for other in others:
            body = kernel_function(other).entry_block
            *parameters, their_context = body.arguments
            mapping = {their_context: block.arguments[len(block.arguments) - 1]}
            for parameter in parameters:
                position = len(block.arguments) - 1
                mapping[parameter] = block.insert_argument(position, parameter.type, parameter.location)
            for op in list(body.operations)[:-1]:
                clone = op.clone(ip=ir.InsertionPoint(end), mapping=mapping)
                mapping |= dict(zip(op.results, clone.results, strict=True))
        quiets = [op for op in block.operations if ditron.SIGNALS_AT_END in op.attributes]
        for quiet in quiets[:-1]:
            quiet.erase()
        for quiet in quiets[-1:]:
            quiet.move_before(end)
        inputs = [argument.type for argument in block.arguments]
        function.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(inputs, []))
        return module.operation.get_asm(enable_debug_info=True, print_generic_op_form=True)
