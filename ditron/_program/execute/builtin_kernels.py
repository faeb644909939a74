"""Kernels for operations of a program that the driver has no call for."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import triton.language as tl

import ditron.language as dl
from ditron._jit.compile import compile as compile_kernel
from ditron._jit.decorator import jit
from ditron._program.execute.kernels import kernel_function
from ditron_compiler import ir

__all__ = ["builtin_kernel"]


@jit
def _wait_value(signal_ptr, value, CMP: tl.constexpr):
    dl.signal_wait_until(signal_ptr, value, cmp=CMP)


@jit
def _wait_loaded(signal_ptr, value_ptr, CMP: tl.constexpr):
    dl.signal_wait_until(signal_ptr, tl.load(value_ptr), cmp=CMP)


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
