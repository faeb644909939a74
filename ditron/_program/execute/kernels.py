"""Kernels of a program's module, compiled for GPUs.

A kernel is the text of a module that holds its ``tt.func``: that is compiled, not the Python function it came from.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import triton
from triton.backends.compiler import Language
from triton.compiler import ASTSource, CompiledKernel

from ditron._jit.decorator import attach_group
from ditron._program.execute.descriptors import DescriptorEncoder
from ditron_compiler import host, ir
from ditron_compiler.frontend.diagnostics import raise_compile_errors
from ditron_compiler.frontend.libraries import device_libraries
from ditron_compiler.frontend.source import compiler_key, lower_to_triton
from ditron_compiler.frontend.stages import passes_on_ttgir
from ditron_compiler.frontend.targets import Target
from ditron_compiler.ir.dialects import arith, tt

__all__ = [
    "DeviceKernel",
    "captured_form",
    "compile_for_gpu",
    "kernel_function",
    "parameters_of",
    "starts_early",
    "with_count",
    "with_pointers",
    "with_wait_at_entry",
]

_hooks = triton.knobs.runtime  # profilers set them
_TYPES = {"f16": "fp16", "f32": "fp32", "f64": "fp64", "f8E4M3FN": "fp8e4nv", "f8E5M2": "fp8e5"}


def kernel_function(module: ir.Module) -> tt.FuncOp:
    """The kernel of a module that holds one."""
    return next(op for op in module.body.operations if isinstance(op, tt.FuncOp))


def parameters_of(text: str) -> list[str]:
    """The MLIR type of each parameter of the kernel in ``text``, the hidden context included."""
    with ir.Context() as context:
        context.allow_unregistered_dialects = True
        function = kernel_function(ir.Module.parse(text))
        return [str(kind) for kind in ir.FunctionType(function.function_type.value).inputs]


def _triton_type(spelled: str) -> str:
    if spelled.startswith("!tt.tensordesc"):
        return "nvTmaDesc"  # encoded; the sizes and strides behind it are parameters of their own
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
    """The kernel in ``text``, compiled by Triton or found in its cache."""
    options = dict(options)
    if starts_early(options, target):
        text, options["launch_pdl"] = with_wait_at_entry(text), True
    options["extern_libs"] = dict(options.get("extern_libs") or {}) | device_libraries(target)
    with passes_on_ttgir():
        return triton.compile(_ModuleSource(text, symbol, target), target=target.gpu_target(), options=options)


class DeviceKernel:
    """A kernel that is compiled and loaded: ``launch(grid, stream, arguments)``."""

    def __init__(self, text: str, symbol: str, options: Mapping[str, Any], target: Target, group: Any):
        self.kernel = attach_group(compile_for_gpu(text, symbol, options, target), lambda: group)
        self.parameters = parameters_of(text)
        self._descriptors = self._take_descriptors()
        self._run, self._function = self.kernel.run, self.kernel.function
        self._packed = self.kernel.packed_metadata
        self._leaves_shared_memory = False

    @property
    def registers(self) -> int:
        """Registers of an SM that a program takes, as they are allocated: for whole warps, in units of 256."""
        return -(-self.kernel.n_regs * 32 // 256) * 256 * self.kernel.metadata.num_warps

    @property
    def shared(self) -> int:
        """Bytes of shared memory of a program."""
        return self.kernel.metadata.shared

    @property
    def lets_next_begin(self) -> bool:
        """Whether programs of the next kernel of its stream may run beside this one's (``gdc_launch_dependents``)."""
        return "griddepcontrol.launch_dependents" in self.kernel.asm.get("ptx", "")

    def leave_shared_memory(self, driver: Any) -> None:
        """Let programs of other kernels that need much shared memory start on SMs where this kernel runs already.

        For kernels that such programs are to run beside. Wherever else this one is launched, it has less L1 cache too.
        """
        if not self._leaves_shared_memory:
            driver.prefer_shared_memory(self._function)
            self._leaves_shared_memory = True

    def _take_descriptors(self) -> dict[int, Any]:
        """Make Triton's launcher take encoded descriptors, so that it encodes none; before it is made.

        What encoding has to know of each, by the position of the parameter: swizzle, box ...
        """
        positions = [index for index, kind in enumerate(self.parameters) if kind.startswith("!tt.tensordesc")]
        if not positions:
            return {}
        about = self.kernel.metadata.tensordesc_meta
        self.kernel.metadata = self.kernel.metadata._replace(tensordesc_meta=None)
        return dict(zip(positions, about, strict=True))

    def encoder(self, position: int, view: host.DescriptorView) -> DescriptorEncoder:
        """What makes the argument at a position of a descriptor."""
        return DescriptorEncoder(view, self._descriptors[position])

    def launch(self, grid: tuple[int, int, int], stream: int, arguments: list) -> None:
        """Launch on a stream; ``arguments`` are addresses, descriptors and numbers, the context's address last."""
        enter, leave = _hooks.launch_enter_hook, _hooks.launch_exit_hook
        if not getattr(enter, "calls", enter) and not getattr(leave, "calls", leave):
            return self._run(*grid, stream, self._function, self._packed, None, None, None, *arguments)
        about = self.kernel.launch_metadata(grid, stream, *arguments)
        self._run(*grid, stream, self._function, self._packed, about, enter, leave, *arguments)


def starts_early(options: Mapping[str, Any], target: Target) -> bool:
    """Whether a kernel is launched before the one ahead of it has ended, and waits for that by itself (decision 21).

    Not one whose launch says ``launch_pdl``: of True it waits where its author has it wait.
    """
    if target.backend != "cuda" or not isinstance(target.arch, int) or target.arch < 90:
        return False
    return "launch_pdl" not in options and not options.get("launch_cooperative_grid")


def with_wait_at_entry(text: str) -> str:
    """The kernel in ``text``, which first waits until the kernels before it on its stream have ended and what they have
    stored is visible.
    """
    with ir.Context() as context:
        context.allow_unregistered_dialects = True
        module = ir.Module.parse(text)
        function = kernel_function(module)
        with function.location, ir.InsertionPoint(next(iter(function.entry_block.operations))):
            i32 = ir.IntegerType.get_signless(32)
            tt.ElementwiseInlineAsmOp(
                [i32],
                [],
                asm_string=ir.StringAttr.get("griddepcontrol.wait; mov.u32 $0, 0;"),
                constraints=ir.StringAttr.get("=r,~{memory}"),
                pure=ir.BoolAttr.get(False),
                packed_element=ir.IntegerAttr.get(i32, 1),
            )
        return module.operation.get_asm(enable_debug_info=True, print_generic_op_form=True)


def captured_form(text: str, parameters: tuple[int, ...], counts: bool) -> str:
    """The kernel in ``text`` as captured calls launch it, with addresses for numbers that depend on the epoch.

    ``counts``: there is one, the epoch, and the kernel counts calls.
    """
    return with_count(text, *parameters) if counts else with_pointers(text, parameters)


def with_pointers(text: str, indices: tuple[int, ...]) -> str:
    """The kernel in ``text`` with some integer parameters replaced by pointers to int64, loaded at its beginning.

    So a captured launch gets numbers that depend on the epoch, which is not known when it is captured.
    """
    return _by_address(text, indices, lambda argument: _load(argument))


def with_count(text: str, index: int) -> str:
    """The kernel in ``text`` with the epoch, an integer parameter, replaced by a pointer to the count of calls before.

    The kernel's programs all read that count, and one writes the next one beside it: into the other word of 16 bytes,
    which the next call is given. So calls are counted without a kernel for it.
    """

    def count(argument: ir.Value) -> ir.Value:
        i32, i64 = (ir.IntegerType.get_signless(width) for width in (32, 64))
        epoch = arith.AddIOp(_load(argument), _constant(i64, 1)).result
        address = tt.PtrToIntOp(i64, argument).result  # of 8 bytes are 1 or, in the second word, -1 word to the other
        word = arith.AndIOp(arith.ShRUIOp(address, _constant(i64, 3)).result, _constant(i64, 1)).result
        step = arith.SubIOp(_constant(i64, 1), arith.MulIOp(word, _constant(i64, 2)).result).result
        other = tt.AddPtrOp(argument.type, argument, step).result
        axes = [tt.GetProgramIdOp(i32, axis=ir.IntegerAttr.get(i32, axis)).result for axis in range(3)]
        program = arith.OrIOp(arith.OrIOp(axes[0], axes[1]).result, axes[2]).result
        is_first = arith.CmpIOp(arith.CmpIPredicate.eq, program, _constant(i32, 0)).result
        tt.StoreOp(other, epoch, is_first, cache=_default(), evict=_default())
        return epoch

    return _by_address(text, (index,), count)


def _by_address(text: str, indices: tuple[int, ...], value_of: Callable[[ir.Value], ir.Value]) -> str:
    """The kernel with pointers to int64 for integer parameters, whose values ``value_of`` computes of them."""
    with ir.Context() as context:
        context.allow_unregistered_dialects = True
        module = ir.Module.parse(text)
        function = kernel_function(module)
        inputs = list(ir.FunctionType(function.function_type.value).inputs)
        first = next(iter(function.entry_block.operations))
        i64, pointer = ir.IntegerType.get_signless(64), ir.Type.parse("!tt.ptr<i64>")
        with function.location, ir.InsertionPoint(first):
            for index in indices:
                argument, kind = function.arguments[index], inputs[index]
                uses = list(argument.uses)
                argument.set_type(pointer)
                value = value_of(argument)
                value = value if kind == i64 else arith.TruncIOp(kind, value).result
                for use in uses:
                    use.owner.operands[use.operand_number] = value
                inputs[index] = pointer
        function.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(inputs, []))
        return module.operation.get_asm(enable_debug_info=True, print_generic_op_form=True)


def _load(pointer: ir.Value) -> ir.Value:
    is_volatile = ir.BoolAttr.get(False)
    i64 = ir.IntegerType.get_signless(64)
    return tt.LoadOp(i64, pointer, cache=_default(), evict=_default(), isVolatile=is_volatile).result


def _default() -> ir.IntegerAttr:
    """The default cache modifier, and eviction policy."""
    return ir.IntegerAttr.get(ir.IntegerType.get_signless(32), 1)


def _constant(kind: ir.Type, value: int) -> ir.Value:
    return arith.ConstantOp(kind, value).result
