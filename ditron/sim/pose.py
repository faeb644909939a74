"""For code that insists on CUDA: torch says that there is a CUDA device, which is the CPU.

Only on request (``ditron.sim.triton(as_cuda=True)``), only while it is active; tensors are treated so in the thread
that asked. What cannot be passed through Python stays as it is: a ``torch.Generator`` of a CUDA device, a CUDA graph.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from ditron.sim.driver import PROPERTIES, Event
from ditron.sim.plain import simulated

__all__ = ["is_posing", "posing"]

_DEVICE = torch.device("cuda", 0)
_CPU = torch.device("cpu")


_originals: dict[str, Any] = {}
_posing = 0  # ranks that pose end at different times


@contextmanager
def posing() -> Iterator[None]:
    """:func:`ditron.sim.triton` with CPU tensors that say they are CUDA tensors."""
    global _posing
    with simulated(), _Pose():
        if not _posing:
            _originals.update((name, getattr(torch.cuda, name)) for name in _ANSWERS)
            _answer(_ANSWERS)
        _posing += 1
        try:
            yield
        finally:
            _posing -= 1
            if not _posing:
                _answer(_originals)


def is_posing() -> bool:
    """Whether some rank's tensors say that they are CUDA tensors."""
    return _posing > 0


def _answer(functions: dict[str, Any]) -> None:
    for name, function in functions.items():
        setattr(torch.cuda, name, function)


class _Pose(TorchFunctionMode):
    """Answers of tensors, and ``cuda`` as an argument of torch's functions."""

    def __torch_function__(self, func: Callable, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        if func in _ANSWERS_OF_TENSORS:
            return _ANSWERS_OF_TENSORS[func]
        if func is torch.Tensor.cuda:
            return args[0]
        if func is torch.Tensor.cpu:  # a copy, as it is where tensors are elsewhere
            return args[0].clone()
        kwargs = {name: _on_cpu(value) for name, value in (kwargs or {}).items()}
        return func(*map(_on_cpu, args), **kwargs)


def _on_cpu(value: Any) -> Any:
    if isinstance(value, torch.device):
        return _CPU if value.type == "cuda" else value
    return _CPU if isinstance(value, str) and (value == "cuda" or value.startswith("cuda:")) else value


_ANSWERS_OF_TENSORS = {
    torch.Tensor.is_cuda.__get__: True, torch.Tensor.is_cpu.__get__: False, torch.Tensor.device.__get__: _DEVICE,
    torch.Tensor.get_device: 0,
}


class _Stream:
    """Work of a simulated launch has ended when the launch returns: there is nothing to wait for."""

    cuda_stream = 0

    def __init__(self, *_: Any, **__: Any):
        pass

    def synchronize(self, *_: Any) -> None:
        pass

    wait_stream = wait_event = record_event = synchronize

    def __enter__(self) -> _Stream:
        return self

    def __exit__(self, *_: object) -> None:
        pass


def _nothing() -> Callable[..., None]:
    """A function of its own for every name: torch.compile tells torch's functions apart by what they are."""
    return lambda *_, **__: None


def _properties(_: Any = None) -> Any:
    return SimpleNamespace(
        name="DITRON simulator", major=9, minor=0, total_memory=141 << 30, L2_cache_size=60 << 20, warp_size=32,
        multi_processor_count=PROPERTIES["multiprocessor_count"], max_threads_per_multi_processor=2048,
        regs_per_multiprocessor=PROPERTIES["max_num_regs"], shared_memory_per_multiprocessor=233472,
        shared_memory_per_block=49152, shared_memory_per_block_optin=PROPERTIES["max_shared_mem"], gcnArchName="")


_ANSWERS = {
    "is_available": lambda: True, "device_count": lambda: 1, "current_device": lambda: 0, "set_device": _nothing(),
    "get_device_properties": _properties, "get_device_capability": lambda _=None: (9, 0),
    "get_device_name": lambda _=None: "DITRON simulator", "is_bf16_supported": lambda *_, **__: True,
    "device": lambda _=None: nullcontext(), "device_of": lambda _=None: nullcontext(),
    "stream": lambda _=None: nullcontext(),
    "current_stream": lambda _=None: _Stream(), "default_stream": lambda _=None: _Stream(), "Stream": _Stream,
    "Event": Event, "synchronize": _nothing(), "empty_cache": _nothing(), "manual_seed": _nothing(),
    "manual_seed_all": _nothing(), "reset_peak_memory_stats": _nothing(), "max_memory_allocated": lambda _=None: 0,
    "memory_allocated": lambda _=None: 0, "mem_get_info": lambda _=None: (141 << 30, 141 << 30),
}
