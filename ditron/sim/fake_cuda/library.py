"""Operators of ``torch.library`` for CUDA tensors, called with CPU tensors that report to be CUDA tensors.

Kernels that are registered under fake CUDA are registered for the CPU at once; those of packages that were imported
before are registered when fake CUDA begins, and removed when it ends.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch
from torch.library import Library
from torch.overrides import TorchFunctionMode, _get_current_function_mode

__all__ = ["in_mode", "patches", "registered_for_cpu"]

_KEYS = {"CUDA": "CPU", "AutogradCUDA": "AutogradCPU"}  # CUDA's dispatch key -> the CPU's
_OTHERS = ("CPU", "CompositeExplicitAutograd", "CompositeImplicitAutograd")
_TORCH_NAMESPACES = ("aten", "c10d", "_c10d_functional", "_native", "prim", "prims", "symm_mem", "inductor")

_init, _impl, _register_fake = Library.__init__, Library.impl, Library._register_fake


def in_mode(mode: type[TorchFunctionMode], function: Callable) -> Callable:
    """``function`` with the mode on: torch turns modes off within its own functions, which may call user code."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        with nullcontext() if isinstance(_get_current_function_mode(), mode) else mode():
            return function(*args, **kwargs)

    return call


def patches(mode: type[TorchFunctionMode]) -> dict[tuple[Any, str], Any]:
    """Patches of ``torch.library`` under fake CUDA, whose mode is ``mode``."""

    def init(self: Any, ns: str, kind: str, dispatch_key: str = "") -> None:
        _init(self, ns, kind, _KEYS.get(dispatch_key, dispatch_key))
        self._fake_cuda_key = dispatch_key

    def impl(self: Any, op_name: Any, fn: Any, dispatch_key: str = "", **more: Any) -> None:
        name = op_name if isinstance(op_name, str) else op_name.name()
        name = name if "::" in name else f"{self.ns}::{name}"
        dispatch_key = dispatch_key or getattr(self, "_fake_cuda_key", self.dispatch_key)
        if "CPU" in dispatch_key and _has(name, ("CPU", "CompositeExplicitAutograd")):
            return  # it has one for CUDA tensors, or for all
        # Meta tensors report so; torch's own autograd kernel calls the operator's other kernels.
        if dispatch_key != "Meta" and getattr(fn, "__module__", None) != "torch._library.autograd":
            fn = in_mode(mode, fn)
        with warnings.catch_warnings():  # an operator that has a kernel for each of both gets another for the CPU
            warnings.filterwarnings("ignore", ".*other operators may also be overridden", UserWarning)
            _impl(self, op_name, fn, _KEYS.get(dispatch_key, dispatch_key), **more)

    def register_fake(self: Any, op_name: str, fn: Callable, _stacklevel: int = 1, **more: Any) -> None:
        _register_fake(self, op_name, in_mode(mode, fn), _stacklevel + 1, **more)

    return {(Library, "__init__"): init, (Library, "impl"): impl, (Library, "_register_fake"): register_fake}


def registered_for_cpu(mode: type[TorchFunctionMode]) -> list[Library]:
    """Libraries by which operators that have a kernel for CUDA alone take CPU tensors, until they are destroyed."""
    libraries: dict[str, Library] = {}
    for name in torch._C._dispatch_get_registrations_for_dispatch_key("CUDA"):
        namespace, _, operator = name.partition("::")
        if namespace in _TORCH_NAMESPACES or _has(name, _OTHERS):
            continue
        library = libraries.setdefault(namespace, Library(namespace, "FRAGMENT"))
        _impl(library, operator, in_mode(mode, _for_cuda(name)), "CPU")
    return list(libraries.values())


def _has(name: str, keys: tuple[str, ...]) -> bool:
    return any(torch._C._dispatch_has_kernel_for_dispatch_key(name, key) for key in keys)


def _for_cuda(name: str) -> Callable:
    """The kernel for CUDA tensors, whatever it is called with."""
    handle = torch._C._dispatch_find_schema_or_throw(*(name.rpartition(".")[::2] if "." in name else (name, "")))
    keys = torch._C.DispatchKeySet(torch._C.DispatchKey.CUDA)
    return lambda *args, **kwargs: handle.redispatch_boxed(keys, *args, **kwargs)
