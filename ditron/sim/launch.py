"""Launches of ``ditron.jit`` kernels on simulated ranks: Triton specialises and parses, our passes lower it."""

from __future__ import annotations

import threading
from typing import Any

from triton import knobs
from triton._C.libtriton import ir as triton_ir
from triton.runtime.jit import compute_cache_key, create_function_from_signature

from ditron.sim.arguments import slots_of, tensors_of
from ditron_compiler import knobs as ditron_knobs
from ditron_compiler.frontend.diagnostics import raise_compile_errors
from ditron_compiler.frontend.source import DitronSource
from ditron_compiler.frontend.targets import SIM_TARGET, backend_of

__all__ = ["launch"]

# Ranks that run the same script define the same kernels: one compilation serves them all.
_kernels: dict[str, Any] = {}
_compiling = threading.RLock()


class _DeviceCache:
    """What a kernel keeps between simulated launches: as a device's cache in Triton."""

    def __init__(self, fn: Any):
        self.target = SIM_TARGET.gpu_target()
        self.backend = backend_of(SIM_TARGET)
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
    cache = fn.simulated = fn.simulated or _DeviceCache(fn)
    try:
        bound, specialization, options = cache.binder(*args, **kwargs)
    except TypeError as error:  # the binder is a function that Triton makes, by a name of its own
        raise TypeError(str(error).replace("dynamic_func()", f"kernel {fn.__name__}")) from None
    key = (
        compute_cache_key(cache.keys, specialization, options),
        group.world.compile_mode,
        fn.pipeline or ditron_knobs.pipeline.get(),
        ditron_knobs.sim_cpu.get(),
    )
    kernel = cache.kernels.get(key)
    if kernel is None:
        options, signature, constexprs, attrs = fn._pack_args(cache.backend, kwargs, bound, specialization, options)
        kernel = cache.kernels[key] = _compile(fn, cache, signature, constexprs, attrs, options, group.world)
    for (name, _), (value, scope) in fn.used_global_vals.items():
        if scope.get(name, kernel) != value:
            raise RuntimeError(
                f"global variable {name} has changed since kernel {fn.__name__} was compiled, from "
                f"{value} to {scope.get(name)}"
            )
    if not warmup:
        extents = grid(bound) if callable(grid) else grid
        types = [entry[0] for entry in specialization]
        slots = slots_of((name, kind, value) for (name, value), kind in zip(bound.items(), types, strict=True))
        tensors = list(tensors_of(bound.items()))
        if kernel.packets:
            addresses = [slots[argument.index] for argument in kernel.packets]
            group.require_packets(kernel.packets, addresses, extents, fn.__name__, fn.pipeline)
        group.world.launch(kernel, tuple(extents), slots, group=group.handle, tensors=tensors)
    return kernel


def _compile(
    fn: Any, cache: _DeviceCache, signature: dict, constexprs: dict, attrs: dict, options: Any, rank: Any
) -> Any:
    source = DitronSource(fn, signature, constexprs, attrs, target=SIM_TARGET)
    key = f"{source.hash()}-{options.hash()}-{rank.compile_mode}-{ditron_knobs.sim_cpu.get()}"
    with _compiling:
        if key not in _kernels:
            context = triton_ir.context()
            triton_ir.load_dialects(context)
            cache.backend.load_dialects(context)
            mixed = source.make_mixed(
                cache.target,
                options,
                cache.backend.get_codegen_implementation(options),
                cache.backend.get_module_map(),
                context,
            )
            with raise_compile_errors():
                _kernels[key] = rank.compile(mixed, vars(options))
        return _kernels[key]
