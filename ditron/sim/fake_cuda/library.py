"""Operators of ``torch.library`` for CUDA tensors, called with CPU tensors that pose as such.

Those that are registered while tensors pose are put in the CPU's place at once; those of packages that were imported
before are found when posing begins, and let go when it ends.
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

__all__ = ["adopted", "answers", "while_posing"]

_KEYS = {"CUDA": "CPU", "AutogradCUDA": "AutogradCPU"}  # what is for CUDA tensors is for those that pose as such
_OTHERS = ("CPU", "CompositeExplicitAutograd", "CompositeImplicitAutograd")
_TORCHS_OWN = ("aten", "c10d", "_c10d_functional", "_native", "prim", "prims", "symm_mem", "inductor")

_init, _impl, _register_fake = Library.__init__, Library.impl, Library._register_fake


def while_posing(pose: type[TorchFunctionMode], function: Callable) -> Callable:
    """Within a function of torch's tensors do not pose. Code of others that one calls wants that they do."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        with nullcontext() if isinstance(_get_current_function_mode(), pose) else pose():
            return function(*args, **kwargs)

    return call


def answers(pose: type[TorchFunctionMode]) -> dict[tuple[Any, str], Any]:
    """What is exchanged in ``torch.library`` while tensors pose; ``pose`` makes them do so."""

    def init(self: Any, ns: str, kind: str, dispatch_key: str = "") -> None:
        _init(self, ns, kind, _KEYS.get(dispatch_key, dispatch_key))
        self._posing_key = dispatch_key

    def impl(self: Any, op_name: Any, fn: Any, dispatch_key: str = "", **more: Any) -> None:
        name = op_name if isinstance(op_name, str) else op_name.name()
        name = name if "::" in name else f"{self.ns}::{name}"
        dispatch_key = dispatch_key or getattr(self, "_posing_key", self.dispatch_key)
        if "CPU" in dispatch_key and _has(name, ("CPU", "CompositeExplicitAutograd")):
            return  # it has one for CUDA tensors, or for all
        # Tensors of "Meta" say so; torch's own kernel for gradients calls the operator's others.
        if dispatch_key != "Meta" and getattr(fn, "__module__", None) != "torch._library.autograd":
            fn = while_posing(pose, fn)
        with warnings.catch_warnings():  # an operator that has a kernel for each of both gets another for the CPU
            warnings.filterwarnings("ignore", ".*other operators may also be overridden", UserWarning)
            _impl(self, op_name, fn, _KEYS.get(dispatch_key, dispatch_key), **more)

    def register_fake(self: Any, op_name: str, fn: Callable, _stacklevel: int = 1, **more: Any) -> None:
        _register_fake(self, op_name, while_posing(pose, fn), _stacklevel + 1, **more)

    return {(Library, "__init__"): init, (Library, "impl"): impl, (Library, "_register_fake"): register_fake}


def adopted(pose: type[TorchFunctionMode]) -> list[Library]:
    """Libraries by which operators that have a kernel for CUDA alone take CPU tensors, until they are destroyed."""
    libraries: dict[str, Library] = {}
    for name in torch._C._dispatch_get_registrations_for_dispatch_key("CUDA"):
        namespace, _, operator = name.partition("::")
        if namespace in _TORCHS_OWN or _has(name, _OTHERS):
            continue
        library = libraries.setdefault(namespace, Library(namespace, "FRAGMENT"))
        _impl(library, operator, while_posing(pose, _for_cuda(name)), "CPU")
    return list(libraries.values())


def _has(name: str, keys: tuple[str, ...]) -> bool:
    return any(torch._C._dispatch_has_kernel_for_dispatch_key(name, key) for key in keys)


def _for_cuda(name: str) -> Callable:
    """The kernel for CUDA tensors, whatever it is called with."""
    handle = torch._C._dispatch_find_schema_or_throw(*(name.rpartition(".")[::2] if "." in name else (name, "")))
    keys = torch._C.DispatchKeySet(torch._C.DispatchKey.CUDA)
    return lambda *args, **kwargs: handle.redispatch_boxed(keys, *args, **kwargs)
