"""Kernels of a program's module, compiled for the simulator and for GPUs; and the small ones that executors add.

A kernel is the text of a module that holds its ``tt.func``: that is compiled, not the Python function it came from.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from functools import cache
from types import SimpleNamespace
from typing import Any

import triton
import triton.language as tl
from triton.backends.compiler import Language
from triton.compiler import ASTSource, CompiledKernel

import ditron.language as dl
from ditron._jit.decorator import jit, load_in
from ditron_compiler import ir
from ditron_compiler.frontend.diagnostics import raise_compile_errors
from ditron_compiler.frontend.libraries import device_libraries
from ditron_compiler.frontend.source import compiler_key, lower_to_triton
from ditron_compiler.frontend.targets import Target

__all__ = ["DeviceKernel", "added_kernel", "by_pointer", "compile_for_gpu", "parameters_of"]

_hooks = triton.knobs.runtime  # profilers set them
_TYPES = {"f16": "fp16", "f32": "fp32", "f64": "fp64", "f8E4M3FN": "fp8e4nv", "f8E5M2": "fp8e5"}


def _function(module: ir.Module) -> Any:
    return next(op.operation for op in module.body.operations if op.operation.name == "tt.func")


def parameters_of(text: str) -> list[str]:
    """The MLIR type of each parameter of the kernel in ``text``, the hidden context included."""
    with ir.Context() as context:
        context.allow_unregistered_dialects = True
        function = _function(ir.Module.parse(text))
        return [str(kind) for kind in ir.FunctionType(ir.TypeAttr(function.attributes["function_type"]).value).inputs]


def _triton_type(spelled: str) -> str:
    pointee = re.fullmatch(r"!tt\.ptr<([^,>]+)(?:, \d+)?>", spelled)
    return f"*{_TYPES.get(pointee[1], pointee[1])}" if pointee else _TYPES.get(spelled, spelled)


class _ModuleSource(ASTSource):
    """What ``triton.compile`` is given in place of a Python function."""

    def __init__(self, text: str, symbol: str, target: Target):
        self.text, self.name, self.target = text, symbol, target
        self.ext, self.language = "ttir", Language.TRITON
        self.signature = {f"arg{index}": _triton_type(kind) for index, kind in enumerate(parameters_of(text))}
        self.constants: dict = {}
        self.attrs: dict = {}
        self.fn = SimpleNamespace(arg_names=list(self.signature), launch_metadata=None, __name__=symbol)

    def hash(self) -> str:
        return hashlib.sha256(f"{self.text}-{compiler_key(self.target)}".encode()).hexdigest()

    def make_ir(self, target: Any, options: Any, codegen_fns: dict, module_map: dict, context: Any) -> Any:
        with ir.Context() as ours, raise_compile_errors():
            ours.allow_unregistered_dialects = True
            return lower_to_triton(ir.Module.parse(self.text), self.target, options, context, lambda *_: None)


def compile_for_gpu(text: str, symbol: str, options: Mapping[str, Any], target: Target) -> CompiledKernel:
    """The machine code of the kernel in ``text``, from Triton's cache where it is there."""
    options = dict(options)
    options["extern_libs"] = dict(options.get("extern_libs") or {}) | device_libraries(target)
    return triton.compile(_ModuleSource(text, symbol, target), target=target.gpu_target(), options=options)


class DeviceKernel:
    """A kernel that is compiled and loaded: ``launch(grid, stream, arguments)``."""

    def __init__(self, text: str, symbol: str, options: Mapping[str, Any], target: Target, group: Any):
        self.kernel = load_in(compile_for_gpu(text, symbol, options, target), lambda: group)
        self.parameters = parameters_of(text)
        self._run, self._function = self.kernel.run, self.kernel.function
        self._packed = self.kernel.packed_metadata

    def launch(self, grid: tuple[int, int, int], stream: int, arguments: list) -> None:
        """Put it on a stream; ``arguments`` are addresses and numbers, the context's address last."""
        enter, leave = _hooks.launch_enter_hook, _hooks.launch_exit_hook
        if not getattr(enter, "calls", enter) and not getattr(leave, "calls", leave):
            return self._run(*grid, stream, self._function, self._packed, None, None, None, *arguments)
        about = self.kernel.launch_metadata(grid, stream, *arguments)
        self._run(*grid, stream, self._function, self._packed, about, enter, leave, *arguments)


# Kernels that executors add ---------------------------------------------------------------------------------------


@jit
def _wait_value(signal_ptr, value, CMP: tl.constexpr):
    dl.signal_wait_until(signal_ptr, value, cmp=CMP)


@jit
def _wait_cell(signal_ptr, value_ptr, CMP: tl.constexpr):
    dl.signal_wait_until(signal_ptr, tl.load(value_ptr), cmp=CMP)


@jit
def _add_value(signal_ptr, value, peer):
    dl.notify(signal_ptr, peer, value, op="add")


@jit
def _add_cell(signal_ptr, value_ptr, peer):
    dl.notify(signal_ptr, peer, tl.load(value_ptr), op="add")


@jit
def _barrier():
    dl.barrier_all()


@jit
def _advance(count_ptr, cells_ptr, before, SLOPES: tl.constexpr, OFFSETS: tl.constexpr):
    """Count a call, and compute what depends on its number."""
    count = tl.load(count_ptr) + 1
    tl.store(count_ptr, count)
    for cell in tl.static_range(len(SLOPES)):
        tl.store(cells_ptr + cell, SLOPES[cell] * (count + before) + OFFSETS[cell])


_ADDED: dict[str, tuple[Callable, dict[str, str]]] = {
    "wait_value": (_wait_value, {"signal_ptr": "*i64:1", "value": "i64:1"}),
    "wait_cell": (_wait_cell, {"signal_ptr": "*i64:1", "value_ptr": "*i64:1"}),
    "add_value": (_add_value, {"signal_ptr": "*i64:1", "value": "i64:1", "peer": "i32:1"}),
    "add_cell": (_add_cell, {"signal_ptr": "*i64:1", "value_ptr": "*i64:1", "peer": "i32:1"}),
    "barrier": (_barrier, {}),
    "advance": (_advance, {"count_ptr": "*i64:1", "cells_ptr": "*i64:1", "before": "i64:1"}),
}


@cache
def added_kernel(kind: str, symbol: str, place: str, **constants: Any) -> str:
    """The text of a small kernel that stands for an operation of the program at ``place`` ("file:line:col").

    Reports of checked mode then name that line, and ``symbol``.
    """
    from ditron._jit.compile import compile as compile_kernel

    fn, signature = _ADDED[kind]
    text = compile_kernel(fn, signature, constants, "sim", stop_after="ditron", locations=True).asm["ditron"]
    with ir.Context() as context:
        context.allow_unregistered_dialects = True
        module = ir.Module.parse(text)
        file, line, column = place.rsplit(":", 2)
        here = ir.Location.file(file, int(line), int(column))

        def move(op: Any) -> Any:
            op.location = here
            return ir.WalkResult.ADVANCE

        function = _function(module)
        function.attributes["sym_name"] = ir.StringAttr.get(symbol)
        function.walk(move)
        return module.operation.get_asm(enable_debug_info=True, print_generic_op_form=True)


def by_pointer(text: str, indices: tuple[int, ...]) -> str:
    """The kernel in ``text`` with some of its integers passed by pointers to int64, which it loads at its beginning.

    That is how a captured launch gets the epoch, which is not known when it is captured.
    """
    with ir.Context() as context:
        context.allow_unregistered_dialects = True
        module = ir.Module.parse(text)
        function = _function(module)
        inputs = list(ir.FunctionType(ir.TypeAttr(function.attributes["function_type"]).value).inputs)
        body = function.regions[0].blocks[0]
        first = next(iter(body.operations)).operation
        i64, pointer = ir.IntegerType.get_signless(64), ir.Type.parse("!tt.ptr<i64>")
        with function.location:
            for index in indices:
                argument, kind = body.arguments[index], inputs[index]
                load = ir.Operation.create(
                    "tt.load",
                    results=[i64],
                    operands=[argument],
                    attributes=_load_attributes(),
                    ip=ir.InsertionPoint.before(first),
                )
                value = load.results[0]
                if kind != i64:
                    value = ir.Operation.create(
                        "arith.trunci", results=[kind], operands=[value], ip=ir.InsertionPoint.before(first)
                    ).results[0]
                argument.replace_all_uses_except(value, [load])
                argument.set_type(pointer)
                inputs[index] = pointer
        function.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(inputs, []))
        return module.operation.get_asm(enable_debug_info=True, print_generic_op_form=True)


def _load_attributes() -> dict[str, Any]:
    i32 = ir.IntegerType.get_signless(32)
    return {
        "cache": ir.IntegerAttr.get(i32, 1),
        "evict": ir.IntegerAttr.get(i32, 1),
        "isVolatile": ir.BoolAttr.get(False),
        "operandSegmentSizes": ir.DenseI32ArrayAttr.get([1, 0, 0]),
    }
