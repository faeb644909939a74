"""Launches on the simulator: Triton specialises and parses a kernel, our passes lower it, a simulated rank runs it."""
from __future__ import annotations

import struct
import threading
from collections.abc import Iterator
from typing import Any

from triton import knobs
from triton._C.libtriton import ir as triton_ir
from triton.compiler.compiler import make_backend
from triton.runtime.jit import compute_cache_key, create_function_from_signature

from ditron.errors import DitronError
from ditron_compiler.frontend.diagnostics import raise_compile_errors
from ditron_compiler.frontend.source import DitronSource
from ditron_compiler.frontend.targets import NEUTRAL

__all__ = ["launch"]

_FLOAT_FORMATS = {"fp16": "e", "fp32": "f", "fp64": "d"}

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
    key = compute_cache_key(state.keys, specialization, options)
    kernel = state.kernels.get(key)
    if kernel is None:
        options, signature, constexprs, attrs = fn._pack_args(state.backend, kwargs, bound, specialization, options)
        kernel = state.kernels[key] = _compile(fn, state, signature, constexprs, attrs, options)
    for (name, _), (value, scope) in fn.used_global_vals.items():
        if scope.get(name, kernel) != value:
            raise RuntimeError(f"global variable {name} has changed since kernel {fn.__name__} was compiled, from "
                               f"{value} to {scope.get(name)}")
    if not warmup:
        extents = grid(bound) if callable(grid) else grid
        types = [entry[0] for entry in specialization]
        slots = [slot for (name, value), kind in zip(bound.items(), types, strict=True)
                 for slot in _slots(name, kind, value)]
        group.world.launch(kernel, tuple(extents), slots, group=group.handle)
    return kernel


def _compile(fn: Any, state: _State, signature: dict, constexprs: dict, attrs: dict, options: Any) -> Any:
    from ditron_compiler.lowering.sim import compile_module

    source = DitronSource(fn, signature, constexprs, attrs, target=NEUTRAL)
    key = f"{source.hash()}-{options.hash()}"
    with _compiling:
        if key not in _kernels:
            context = triton_ir.context()
            triton_ir.load_dialects(context)
            state.backend.load_dialects(context)
            mixed = source.make_mixed(state.target, options, state.backend.get_codegen_implementation(options),
                                      state.backend.get_module_map(), context)
            with raise_compile_errors():
                _kernels[key] = compile_module(mixed)
        return _kernels[key]


def _slots(name: str, kind: Any, value: Any) -> Iterator[int]:
    """The 64-bit slots of an argument: one per argument of the ``tt.func``, none for a constant."""
    if isinstance(kind, tuple):
        for index, (inner, element) in enumerate(zip(kind, value, strict=True)):
            yield from _slots(f"{name}[{index}]", inner, element)
    elif kind == "constexpr":
        return
    elif kind.startswith("*"):
        yield _address(name, value)
    elif kind.startswith("tensordesc"):
        yield _address(name, value.base)
        yield from (int(extent) for extent in value.shape)
        yield from (int(stride) for stride in value.strides)
    elif kind == "bf16":
        yield struct.unpack("<I", struct.pack("<f", _round_to_bf16(float(value))))[0] >> 16
    elif kind in _FLOAT_FORMATS:
        yield int.from_bytes(struct.pack("<" + _FLOAT_FORMATS[kind], value), "little")
    elif kind[0] in "iu":
        yield int(value)
    else:
        raise DitronError(f"argument {name!r}: the simulator does not take a {kind}")


def _address(name: str, value: Any) -> int:
    if value is None:
        return 0
    if isinstance(value, int):
        return value
    device = getattr(value, "device", None)
    if device is not None and getattr(device, "type", "cpu") != "cpu":
        raise DitronError(f"argument {name!r} lies on {device}, and the kernel runs on the simulator: make tensors on "
                          "ditron.device()")
    return value.data_ptr()


def _round_to_bf16(value: float) -> float:
    """Round to the nearest bfloat16, ties to even."""
    bits = struct.unpack("<I", struct.pack("<f", value))[0]
    if bits & 0x7FFFFFFF <= 0x7F800000:  # not NaN
        bits = (bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFFFFFF
    return struct.unpack("<f", struct.pack("<I", bits & 0xFFFF0000))[0]
