"""For code that insists on CUDA: torch says that there is a CUDA device, which is the CPU.

Only on request (``ditron.sim.triton(as_cuda=True)``), only while it is active; tensors are treated so in the thread
that asked, and in those that it starts. What cannot be passed through Python stays as it is: a CUDA graph.
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

from ditron.sim.fake_cuda import library as pose_library
from ditron.sim.fake_cuda.cuda_streams import DEVICE
from ditron.sim.fake_cuda.internals import INSIDES, on_cpu
from ditron.sim.fake_cuda.library import while_posing
from ditron.sim.fake_cuda.random_state import DEFAULT
from ditron.sim.fake_cuda.torch_cuda import ANSWERS
from ditron.sim.plain.launcher import simulated

__all__ = ["is_posing", "posing"]

_CPU = torch.device("cpu")
_absent = object()

_originals: dict[tuple[Any, str], Any] = {}
_libraries: list[torch.library.Library] = []
_posing = 0  # ranks that pose end at different times


@contextmanager
def posing() -> Iterator[None]:
    """:func:`ditron.sim.triton` with CPU tensors that say they are CUDA tensors."""
    global _posing
    with simulated(), _Pose():
        if not _posing:
            _originals.update(((home, name), getattr(home, name, _absent)) for home, name in _ALL)
            _libraries.extend(pose_library.adopted(_Pose))
            _answer(_ALL)
        _posing += 1
        try:
            yield
        finally:
            _posing -= 1
            if not _posing:
                _answer(_originals)
                while _libraries:
                    _libraries.pop()._destroy()


def is_posing() -> bool:
    """Whether some rank's tensors say that they are CUDA tensors."""
    return _posing > 0


def _answer(answers: dict[tuple[Any, str], Any]) -> None:
    for (home, name), answer in answers.items():
        if answer is _absent:
            delattr(home, name)
        else:
            setattr(home, name, answer)


class _Pose(TorchFunctionMode):
    """Answers of tensors, and ``cuda`` as an argument of torch's functions."""

    def __torch_function__(self, func: Callable, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        if func in _ANSWERS_OF_TENSORS:
            return func(*args) if torch.Tensor.is_meta.__get__(args[0]) else _ANSWERS_OF_TENSORS[func]
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


_ANSWERS_OF_TENSORS = {
    torch.Tensor.is_cuda.__get__: True,
    torch.Tensor.device.__get__: DEVICE,
    torch.Tensor.get_device: 0,
    torch.get_device: 0,
}


def _in_memory(tensor: torch.Tensor, memory: str = "pinned") -> torch.Tensor:
    tensor._posing_memory = memory
    return tensor


def _memory_of(tensor: torch.Tensor) -> str:
    return getattr(tensor, "_posing_memory", "device")


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
        if getattr(result, "_posing_memory", None) in (goal, "pinned" if goal == "host" else goal):
            return result
        result = result.clone()
    return _in_memory(result, goal)


# What was asked to be in the host's memory says so, and poses all the same. Copies are copies, as they would be.
_OF_MEMORY = {
    torch.Tensor.is_cpu.__get__: lambda tensor: _memory_of(tensor) != "device",
    torch.Tensor.is_pinned: lambda tensor: _memory_of(tensor) == "pinned",
    torch.Tensor.pin_memory: lambda tensor: tensor if _memory_of(tensor) == "pinned" else _in_memory(tensor.clone()),
    torch.Tensor.cpu: lambda tensor: _in_memory(tensor.clone(), "host"),
    torch.Tensor.cuda: lambda tensor: _arrived(tensor, "device", (tensor,)),
}


_default_device = DeviceContext.__torch_function__


def _default_posing(self: DeviceContext, func: Callable, types: Any, args: tuple = (), kwargs: Any = None) -> Any:
    """A default device is put in below every mode, where ``cuda`` would not become the CPU any more."""
    if self.device.type == "cuda":
        result = func(*args, **kwargs or {})
        return _in_memory(result, "device") if func in _device_constructors() else result
    return _default_device(self, func, types, args, kwargs)


_start_thread = threading.Thread.start


def _start_posing(self: threading.Thread) -> None:
    """Tensors pose in the threads too that a thread starts in which they do."""
    if any(isinstance(mode, _Pose) for mode in _get_current_function_mode_stack()):
        self.run = while_posing(_Pose, self.run)
    _start_thread(self)


_saved_tensors_hooks = torch.autograd.graph.saved_tensors_hooks.__init__


def _hooks_posing(self: Any, pack_hook: Callable, unpack_hook: Callable) -> None:
    """What is done with tensors that are saved for gradients, as torch.utils.checkpoint does, sees them pose."""
    _saved_tensors_hooks(self, while_posing(_Pose, pack_hook), while_posing(_Pose, unpack_hook))


_ALL = {
    (threading.Thread, "start"): _start_posing,
    **ANSWERS,
    **INSIDES,
    **pose_library.answers(_Pose),
    (DeviceContext, "__torch_function__"): _default_posing,
    (torch.autograd.graph.saved_tensors_hooks, "__init__"): _hooks_posing,
    (torch.autograd, "_engine_run_backward"): while_posing(_Pose, torch.autograd._engine_run_backward),
}
