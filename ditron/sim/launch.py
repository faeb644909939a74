"""Launches on the simulator: Triton specialises and parses a kernel, our passes lower it, a simulated rank runs it."""

from __future__ import annotations

import hashlib
import threading
from collections import namedtuple
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

from triton import knobs
from triton._C.libtriton import ir as triton_ir
from triton.compiler import CompiledKernel
from triton.compiler import compile as compile_for_gpu
from triton.compiler.compiler import make_backend
from triton.runtime.errors import OutOfResources
from triton.runtime.jit import TensorWrapper, compute_cache_key, create_function_from_signature
from triton.tools.tensor_descriptor import TensorDescriptor

from ditron_compiler import knobs as ditron_knobs
from ditron_compiler.errors import DitronError
from ditron_compiler.frontend.diagnostics import raise_compile_errors
from ditron_compiler.frontend.source import DitronSource, make_mixed
from ditron_compiler.frontend.targets import NEUTRAL
from ditron_compiler.lowering.sim.arguments import FLOATS, float_bits

__all__ = ["SimulatedKernel", "compile_plain", "launch", "plain"]

# Ranks that run the same script define the same kernels: one compilation serves them all.
_kernels: dict[str, Any] = {}
_compiling = threading.RLock()


class _State:
    """What a kernel keeps between simulated launches: as a device's cache in Triton."""

    def __init__(self, fn: Any):
        self.target = NEUTRAL.gpu_target()
        self.backend = make_backend(self.target)
        self.binder = create_function_from_signature(fn.launch_signature, fn.params, self.backend)
        self.kernels: dict[str, Any] = {}
        self.keys: dict[Any, str] = {}


def launch(fn: Any, group: Any, grid: Any, args: tuple, kwargs: dict, warmup: bool) -> Any:
    """Run a ``ditron.jit`` kernel on the simulated rank of ``group``; returns the compiled kernel.

    Raises what compiling raises, DitronError for arguments that the simulator cannot take, SimulationError for what the
    kernel does wrong.
    """
    kwargs["debug"] = kwargs.get("debug", fn.debug) or knobs.runtime.debug
    for hook in fn.pre_run_hooks:
        hook(*args, **kwargs)
    state = fn.simulated = fn.simulated or _State(fn)
    bound, specialization, options = state.binder(*args, **kwargs)
    races = group.world.recording
    key = (
        compute_cache_key(state.keys, specialization, options),
        races,
        fn.pipeline or ditron_knobs.pipeline.get(),
        ditron_knobs.sim_cpu.get(),
    )
    kernel = state.kernels.get(key)
    if kernel is None:
        options, signature, constexprs, attrs = fn._pack_args(state.backend, kwargs, bound, specialization, options)
        kernel = state.kernels[key] = _compile(fn, state, signature, constexprs, attrs, options, group.world)
    for (name, _), (value, scope) in fn.used_global_vals.items():
        if scope.get(name, kernel) != value:
            raise RuntimeError(
                f"global variable {name} has changed since kernel {fn.__name__} was compiled, from "
                f"{value} to {scope.get(name)}"
            )
    if not warmup:
        extents = grid(bound) if callable(grid) else grid
        types = [entry[0] for entry in specialization]
        slots = _all_slots((name, kind, value) for (name, value), kind in zip(bound.items(), types, strict=True))
        tensors = list(_tensors(bound.items()))
        if kernel.packets:
            addresses = [slots[argument.index] for argument in kernel.packets]
            group.require_packets(kernel.packets, addresses, extents, fn.__name__, fn.pipeline)
        group.world.launch(kernel, tuple(extents), slots, group=group.handle, tensors=tensors)
    return kernel


def _compile(fn: Any, state: _State, signature: dict, constexprs: dict, attrs: dict, options: Any, view: Any) -> Any:
    source = DitronSource(fn, signature, constexprs, attrs, target=NEUTRAL)
    key = f"{source.hash()}-{options.hash()}-{view.recording}-{ditron_knobs.sim_cpu.get()}"
    with _compiling:
        if key not in _kernels:
            context = triton_ir.context()
            triton_ir.load_dialects(context)
            state.backend.load_dialects(context)
            mixed = source.make_mixed(
                state.target,
                options,
                state.backend.get_codegen_implementation(options),
                state.backend.get_module_map(),
                context,
            )
            with raise_compile_errors():
                _kernels[key] = view.compile(mixed)
        return _kernels[key]


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
        self.asm = _Code(src, target, options, code.llvm_ir)
        self.metadata_group: dict = {}
        self.module = self.kernel = code
        self.function = code.address
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

        from ditron.sim.plain.launcher import run_programs

        with DisableTorchFunction():  # where tensors are, not where they pose to be (ditron.sim.fake_cuda.mode)
            slots = _all_slots((*kind, value) for kind, value in zip(self._kinds, arguments, strict=True))
            tensors = list(_tensors((name, value) for (name, _), value in zip(self._kinds, arguments, strict=True)))
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
    target = target or NEUTRAL.gpu_target()
    backend = make_backend(target)
    options = backend.parse_options(dict(options or {}, **src.parse_options()))
    context = triton_ir.context()
    triton_ir.load_dialects(context)
    backend.load_dialects(context)
    from ditron.sim.plain.driver import compiles_for_races

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
        races = compiles_for_races()
        key = hashlib.sha256(f"{races} {ditron_knobs.sim_cpu.get()} {text}".encode()).hexdigest()
        if key not in _kernels:
            from ditron_compiler.lowering.sim import compile_module

            with mixed.context, raise_compile_errors():
                _kernels[key] = replace(compile_module(mixed, races=races), plain=True)
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


def _all_slots(arguments: Iterable[tuple[str, Any, Any]]) -> list[int]:
    """The 64-bit slots of arguments, ``(name, kind, value)``; the last ones tell which descriptors pad with NaNs."""
    pads: list[int] = []
    slots = [slot for name, kind, value in arguments for slot in _slots(name, kind, value, pads)]
    return slots + pads


def _slots(name: str, kind: Any, value: Any, pads: list[int]) -> Iterator[int]:
    """The slots of an argument: one per argument of the ``tt.func``, none for a constant."""
    if isinstance(kind, tuple):
        for index, (inner, element) in enumerate(zip(kind, value, strict=True)):
            yield from _slots(f"{name}[{index}]", inner, element, pads)
    elif kind == "constexpr":
        return
    elif kind.startswith("*"):
        yield _address(name, value)
    elif kind.startswith("tensordesc"):
        pads.append(int(value.padding == "nan"))
        yield _address(name, value.base)
        yield from (int(extent) for extent in value.shape)
        yield from (int(stride) for stride in value.strides)
    elif kind in FLOATS:
        yield float_bits(value, kind)
    elif kind[0] in "iu":
        yield int(value)
    else:
        raise DitronError(f"argument {name!r}: the simulator does not take a {kind}")


def _tensors(arguments: Iterable[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
    """The tensors of arguments ``(name, value)``, those of tuples and descriptors too."""
    for name, value in arguments:
        value = plain(value)
        if isinstance(value, tuple):
            yield from _tensors((f"{name}[{index}]", element) for index, element in enumerate(value))
        elif isinstance(value, TensorDescriptor):
            yield name, plain(value.base)
        elif hasattr(value, "nbytes"):
            yield name, value


def plain(value: Any) -> Any:
    """The tensor itself, of one that ``triton.reinterpret`` shows as another type: it knows its device and size."""
    return value.base if isinstance(value, TensorWrapper) else value


def _address(name: str, value: Any) -> int:
    if value is None:
        return 0
    if isinstance(value, int):
        return value
    value = plain(value)
    device = getattr(value, "device", None)
    if device is not None and getattr(device, "type", "cpu") != "cpu" and not _posed(value):
        raise DitronError(
            f"argument {name!r} lies on {device}, and the kernel runs on the simulator: make tensors on ditron.device()"
        )
    return value.data_ptr()


def _posed(value: Any) -> bool:
    """Whether ``value``, a package's own stand-in for a tensor, may have its device from a tensor that poses."""
    import torch

    from ditron.sim.fake_cuda.mode import is_posing

    return is_posing() and not isinstance(value, torch.Tensor)
