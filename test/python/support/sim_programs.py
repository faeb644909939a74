"""Run a plain Triton kernel through Triton's frontend, lower-to-sim and the JIT, on one simulated rank."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import torch
import triton
from triton._C.libtriton import ir as triton_ir
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.compiler.compiler import make_backend

from ditron import sim
from ditron_compiler.frontend import handover
from ditron_compiler.sim_compiler import SimKernel, compile_module

_TYPES = {
    torch.float32: "fp32", torch.float64: "fp64", torch.float16: "fp16", torch.bfloat16: "bf16", torch.int8: "i8",
    torch.int16: "i16", torch.int32: "i32", torch.int64: "i64", torch.uint8: "u8", torch.uint16: "u16",
    torch.uint32: "u32", torch.uint64: "u64", torch.bool: "i1", torch.float8_e5m2: "fp8e5",
    torch.float8_e4m3fn: "fp8e4nv",
}  # fmt: skip
_TARGET = GPUTarget("cuda", 90, 32)
_kernels: dict[tuple, SimKernel] = {}


def ttir(fn: triton.JITFunction, signature: dict[str, str], constexprs: dict[str, Any], debug: bool = False) -> str:
    """The kernel's optimised TTIR in generic form, with locations."""
    backend = make_backend(_TARGET)
    options = backend.parse_options({"debug": debug})
    context = triton_ir.context()
    triton_ir.load_dialects(context)
    backend.load_dialects(context)
    names = list(signature)
    source = ASTSource(fn, signature, {(names.index(k),): v for k, v in constexprs.items()})
    codegen, modules = backend.get_codegen_implementation(options), backend.get_module_map()
    module = source.make_ir(_TARGET, options, codegen, modules, context)
    module = backend.make_ttir(module, {}, options, 90)
    return handover.print_generic(module)


def compile_kernel(
    fn: triton.JITFunction, signature: dict[str, str], constexprs: dict[str, Any], debug: bool = False
) -> SimKernel:
    """Compile for the simulator; remembered for the process. `debug` keeps device_assert."""
    key = (fn, tuple(signature.items()), tuple(constexprs.items()), debug)
    if key not in _kernels:
        _kernels[key] = compile_module(ttir(fn, signature, constexprs, debug), fn.__name__)
    return _kernels[key]


def _type_of(argument: Any) -> str:
    if isinstance(argument, torch.Tensor):
        return "*" + _TYPES[argument.dtype]
    if isinstance(argument, bool):
        return "i1"
    if isinstance(argument, int):
        return "i32" if -(2**31) <= argument < 2**31 else "i64"
    return "fp32"


def _slot(argument: Any) -> int:
    if isinstance(argument, torch.Tensor):
        return argument.data_ptr()
    if isinstance(argument, float):
        return struct.unpack("<I", struct.pack("<f", argument))[0]
    return int(argument)


def run(
    fn: triton.JITFunction,
    grid: Sequence[int],
    *arguments: Any,
    types: dict[str, str] | None = None,
    debug: bool = False,
    **constexprs: Any,
) -> SimKernel:
    """Run every program of `grid`. Tensors are given by address, floats as fp32.

    `types` overrides the Triton type of an argument by name.
    """
    names = fn.arg_names[: len(arguments)]
    signature = {n: _type_of(a) for n, a in zip(names, arguments, strict=False)} | (types or {})
    signature |= {name: "constexpr" for name in constexprs}
    kernel = compile_kernel(fn, signature, constexprs, debug)
    slots = [_slot(a) for a in arguments]
    sim.run(lambda: sim.current_world().launch(kernel, grid, slots), ranks=1)
    return kernel
