"""``triton.compile`` for the simulator: a plain Triton kernel becomes one that the native machine runs."""

from __future__ import annotations

import hashlib
import threading
from collections import namedtuple
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from triton._C.libtriton import ir as triton_ir
from triton.compiler import CompiledKernel
from triton.compiler import compile as compile_for_gpu
from triton.compiler.compiler import make_backend
from triton.runtime.errors import OutOfResources

from ditron.sim.arguments import slots_of, tensors_of
from ditron.sim.plain.run import compile_mode, records_accesses, run_programs
from ditron.sim.rank import current_world
from ditron_compiler import knobs
from ditron_compiler.frontend.diagnostics import raise_compile_errors
from ditron_compiler.frontend.source import make_mixed
from ditron_compiler.frontend.targets import SIM_TARGET
from ditron_compiler.sim_compiler import compile_module

__all__ = ["SimulatedKernel", "compile_plain"]

_kernels: dict[str, Any] = {}
_compiling = threading.RLock()


class _Code(dict):
    """The text of each stage: the simulator's LLVM IR as ``sim``, and by Triton's names what a GPU would run.

    The latter is compiled when somebody asks for it; that needs no GPU. Raises KeyError for another name.
    """

    _STAGES = ("source", "ttir", "ttgir", "llir", "ptx", "cubin")

    def __init__(self, src: Any, target: Any, options: Any, llvm_ir: str):
        super().__init__(sim=llvm_ir)
        self._gpu = src, target, options.__dict__

    def __contains__(self, stage: object) -> bool:
        return stage in self._STAGES or super().__contains__(stage)

    def __missing__(self, stage: str) -> str | bytes:
        if stage not in self._STAGES:
            raise KeyError(stage)
        self.update(compile_for_gpu(*self._gpu).asm)
        return self[stage]

    def get(self, stage: str, default: Any = None) -> Any:
        return self[stage] if stage in self else default


class SimulatedKernel(CompiledKernel):
    """What Triton gets when a plain kernel is compiled for the simulator: in place of its own CompiledKernel.

    Attributes that say what a GPU would need (registers, shared memory) are a small kernel's: scripts divide by them.
    """

    n_regs, n_spills = 32, 0
    n_max_threads = 1024
    _module_pid = None  # no process has anything to unload (Triton 3.9)

    def __init__(self, src: Any, target: Any, options: Any, backend: Any, code: Any, key: str):
        facts = {"hash": key, "target": target, **options.__dict__, "shared": 1024, "tmem_size": 0, "name": code.name}
        facts.setdefault("cluster_dims", (1, 1, 1))
        self.metadata = namedtuple("KernelMetadata", sorted(facts))(**facts)
        self.packed_metadata = backend.pack_metadata(self.metadata)
        self.src, self.hash, self.name, self.code = src, key, code.name, code
        self.asm = _Code(src, target, options, getattr(code, "llvm_ir", ""))
        self.metadata_group: dict = {}
        self.module = self.kernel = code
        self.function = getattr(code, "address", 0)
        self._kinds = list(src.signature.items())

    def _init_handles(self) -> None:
        pass

    @property
    def run(self) -> Any:
        threads = self.metadata.num_warps * self.metadata.target.warp_size
        if threads > self.n_max_threads:  # no GPU has so many; an autotuner goes on to another configuration
            raise OutOfResources(threads, self.n_max_threads, "threads")
        return self._launch

    def _launch(
        self,
        x: int,
        y: int,
        z: int,
        stream: Any,
        function: Any,
        packed_metadata: Any,
        metadata: Any,
        enter: Any,
        leave: Any,
        *arguments: Any,
    ) -> None:
        from torch._C import DisableTorchFunction

        with DisableTorchFunction():  # the device of a tensor, whatever a torch function mode reports
            slots = slots_of((*kind, value) for kind, value in zip(self._kinds, arguments, strict=True))
            tensors = list(tensors_of((name, value) for (name, _), value in zip(self._kinds, arguments, strict=True)))
        if enter is not None:
            enter(metadata)
        run_programs(self.code, (int(x), int(y), int(z)), slots, tensors)
        if leave is not None:
            leave(metadata)


def compile_plain(src: Any, target: Any = None, options: dict | None = None, _env_vars: Any = None) -> SimulatedKernel:
    """``triton.compile`` for the simulator: the kernel of a Triton ``ASTSource``.

    Kernels whose IR is the same are compiled once, whatever their number of warps and stages. Raises what Triton's
    frontend raises, and CompileError for an operation that the simulator does not have.
    """
    target = target or SIM_TARGET.gpu_target()
    backend = make_backend(target)
    options = backend.parse_options(dict(options or {}, **src.parse_options()))
    context = triton_ir.context()
    triton_ir.load_dialects(context)
    backend.load_dialects(context)

    with _compiling:
        mixed = make_mixed(
            _with_calls_inlined(src.make_ir),
            src.language,
            target,
            options,
            backend.get_codegen_implementation(options),
            backend.get_module_map(),
            context,
        )
        text = mixed.operation.get_asm(enable_debug_info=True, print_generic_op_form=True)
        fits = f"{options.num_warps} {options.num_stages}"
        key = hashlib.sha256(f"{compile_mode()} {fits} {knobs.sim_cpu.get()} {text}".encode()).hexdigest()
        if key not in _kernels:
            with mixed.context, raise_compile_errors():
                rank = current_world()
                if rank is None:
                    code = compile_module(mixed, races=records_accesses())
                else:
                    code = rank.compile(mixed, vars(options))
                _kernels[key] = replace(code, plain=True)
    return SimulatedKernel(src, target, options, backend, _kernels[key], key)


def _with_calls_inlined(make_ir: Callable[..., Any]) -> Callable[..., Any]:
    """``make_ir`` with calls of ``noinline`` functions inlined where they take or give tiles: results are the same."""

    def make(target: Any, options: Any, codegen_fns: dict, module_map: dict, context: Any) -> Any:
        module = make_ir(target, options, codegen_fns, module_map, context)
        called: set[str] = set()

        def look(op: Any) -> None:
            if op.get_name() != "tt.call":
                return
            values = [op.get_operand(i) for i in range(op.get_num_operands())]
            values += [op.get_result(i) for i in range(op.get_num_results())]
            if any("tensor" in str(value.get_type()) for value in values):
                called.add(op.get_flat_symbol_ref_attr("callee"))

        module.walk(look)
        for function in map(module.get_function, called):
            function.set_attr("noinline", triton_ir.builder(context).get_bool_attr(False))
        return module

    return make
