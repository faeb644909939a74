"""The patch of torch: it reports one CUDA device, which is the CPU.

Only on request (``ditron.sim.triton(as_cuda=True)``) and only while it is active; tensors report so in the thread that
asked, and in those that it starts. What does not go through Python is not patched: a CUDA graph.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.nn.parameter import is_lazy
from torch.overrides import TorchFunctionMode, _get_current_function_mode_stack
from torch.utils._device import DeviceContext, _device_constructors

from ditron.sim.fake_cuda import library
from ditron.sim.fake_cuda.cuda_streams import DEVICE
from ditron.sim.fake_cuda.internals import INTERNALS, on_cpu
from ditron.sim.fake_cuda.library import in_mode
from ditron.sim.fake_cuda.random_state import DEFAULT
from ditron.sim.fake_cuda.torch_cuda import PATCHES

__all__ = ["may_report_cuda", "patched"]

_CPU = torch.device("cpu")
_absent = object()

_originals: dict[tuple[Any, str], Any] = {}
_libraries: list[torch.library.Library] = []
_active = 0  # ranks that use it end at different times


@contextmanager
def patched() -> Iterator[None]:
    """Within it, torch reports that CPU tensors are CUDA tensors."""
    global _active
    with _FakeCudaMode():
        if not _active:
            _originals.update(((home, name), getattr(home, name, _absent)) for home, name in _ALL)
            _libraries.extend(library.registered_for_cpu(_FakeCudaMode))
            _set(_ALL)
        _active += 1
        try:
            yield
        finally:
            _active -= 1
            if not _active:
                _set(_originals)
                while _libraries:
                    _libraries.pop()._destroy()


def may_report_cuda(value: Any) -> bool:
    """Whether ``value``, a package's own tensor-like class, may have its device from a tensor that reports CUDA."""
    return _active > 0 and not isinstance(value, torch.Tensor)


def _set(attributes: dict[tuple[Any, str], Any]) -> None:
    for (home, name), value in attributes.items():
        if value is _absent:
            delattr(home, name)
        else:
            setattr(home, name, value)


class _FakeCudaMode(TorchFunctionMode):
    """What tensors report, and ``cuda`` as an argument of torch's functions."""

    def __torch_function__(self, func: Callable, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        if func in _REPORTED:
            return func(*args) if torch.Tensor.is_meta.__get__(args[0]) else _REPORTED[func]
        if func in _OF_MEMORY:
            return _OF_MEMORY[func](args[0])
        if func is torch.device:  # the name alone; where it is given to another function, it is the CPU
            return DEVICE if len(args) == 1 and type(args[0]) is int else func(*args, **kwargs or {})
        if (kwargs or {}).get("pin_memory"):
            return _in_memory(self.__torch_function__(func, types, args, {**kwargs, "pin_memory": False}))
        goal = _goal(func, args, kwargs or {})
        kwargs = {name: _on_cpu(value) for name, value in (kwargs or {}).items() if name != "pin_memory"}
        if type(kwargs.get("device")) is int:
            kwargs["device"] = _CPU
        if func is torch.Tensor.to and len(args) > 1 and type(args[1]) is int:
            args = (args[0], _CPU, *args[2:])
        result = func(*map(_on_cpu, args), **kwargs)
        return result if goal is None else _arrived(result, goal, args)


def _on_cpu(value: Any) -> Any:
    return torch.default_generator if value is DEFAULT else on_cpu(value)


_REPORTED = {
    torch.Tensor.is_cuda.__get__: True,
    torch.Tensor.device.__get__: DEVICE,
    torch.Tensor.get_device: 0,
    torch.get_device: 0,
}


def _in_memory(tensor: torch.Tensor, memory: str = "pinned") -> torch.Tensor:
    tensor._fake_cuda_memory = memory
    return tensor


def _memory_of(tensor: torch.Tensor) -> str:
    return getattr(tensor, "_fake_cuda_memory", "device")


def _goal(func: Callable, args: tuple, kwargs: dict) -> str | None:
    """Whose memory a function of torch's is asked to put its result into: ``device``, ``host``; None: not said."""
    where = kwargs.get("device", args[1] if func is torch.Tensor.to and len(args) > 1 else None)
    if isinstance(where, torch.Tensor):
        return "device"
    if not isinstance(where, (str, int, torch.device)):
        return None
    kind = "cuda" if type(where) is int else torch.device(where).type
    return {"cuda": "device", "cpu": "host"}.get(kind)


def _arrived(result: Any, goal: str, args: tuple) -> Any:
    """What is not there yet is copied, as it would be; of a tensor that nobody has put anywhere that is not known."""
    if not isinstance(result, torch.Tensor) or is_lazy(result):
        return result
    if any(result is value for value in args):
        if getattr(result, "_fake_cuda_memory", None) in (goal, "pinned" if goal == "host" else goal):
            return result
        result = result.clone()
    return _in_memory(result, goal)


# A tensor that was asked to be in host memory reports that, besides CUDA. Copies are copies, as on a GPU.
_OF_MEMORY = {
    torch.Tensor.is_cpu.__get__: lambda tensor: _memory_of(tensor) != "device",
    torch.Tensor.is_pinned: lambda tensor: _memory_of(tensor) == "pinned",
    torch.Tensor.pin_memory: lambda tensor: tensor if _memory_of(tensor) == "pinned" else _in_memory(tensor.clone()),
    torch.Tensor.cpu: lambda tensor: _in_memory(tensor.clone(), "host"),
    torch.Tensor.cuda: lambda tensor: _arrived(tensor, "device", (tensor,)),
}


_default_device = DeviceContext.__torch_function__


def _default_device_in_mode(
    self: DeviceContext, func: Callable, types: Any, args: tuple = (), kwargs: Any = None
) -> Any:
    """A default device is added below every mode, where ``cuda`` would not become the CPU any more."""
    if self.device.type == "cuda":
        result = func(*args, **kwargs or {})
        return _in_memory(result, "device") if func in _device_constructors() else result
    return _default_device(self, func, types, args, kwargs)


_start_thread = threading.Thread.start


def _start_in_mode(self: threading.Thread) -> None:
    """The mode is inherited by threads that a thread starts."""
    if any(isinstance(mode, _FakeCudaMode) for mode in _get_current_function_mode_stack()):
        self.run = in_mode(_FakeCudaMode, self.run)
    _start_thread(self)


_saved_tensors_hooks = torch.autograd.graph.saved_tensors_hooks.__init__


def _hooks_in_mode(self: Any, pack_hook: Callable, unpack_hook: Callable) -> None:
    """Hooks on tensors that are saved for gradients, as torch.utils.checkpoint's, run in the mode."""
    _saved_tensors_hooks(self, in_mode(_FakeCudaMode, pack_hook), in_mode(_FakeCudaMode, unpack_hook))


_ALL = {
    (threading.Thread, "start"): _start_in_mode,
    **PATCHES,
    **INTERNALS,
    **library.patches(_FakeCudaMode),
    (DeviceContext, "__torch_function__"): _default_device_in_mode,
    (torch.autograd.graph.saved_tensors_hooks, "__init__"): _hooks_in_mode,
    (torch.autograd, "_engine_run_backward"): in_mode(_FakeCudaMode, torch.autograd._engine_run_backward),
}
