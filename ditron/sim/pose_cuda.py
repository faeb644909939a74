"""What ``torch.cuda`` answers while CPU tensors pose as CUDA tensors: one device, what the simulator stands in for."""
from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import torch

from ditron.sim.driver import SimDriver, properties
from ditron.sim.pose_streams import DEVICE, STREAMS, DeviceGuard

__all__ = ["ANSWERS"]

_MEMORY = 141 << 30
_Plain = torch.Generator


class _Generators(type(_Plain)):
    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, _Plain)


class _Generator(_Plain, metaclass=_Generators):
    """``torch.Generator``; one of a CUDA device has a seed and an offset as its state, and the CPU's numbers."""

    def __new__(cls, device: Any = "cpu") -> Any:
        return super().__new__(cls, "cpu") if torch.device(device).type == "cuda" else _Plain(device)

    def __init__(self, device: Any = "cpu"):
        self._states: dict[tuple[int, int], torch.Tensor] = {}  # where in the CPU's numbers a seed and an offset are
        self._go(super().initial_seed(), 0)

    def _go(self, seed: int, offset: int) -> _Generator:
        self._seed, self._offset = seed, offset
        known = self._states.get((seed, offset))
        if known is not None:
            super().set_state(known)
        else:
            super().manual_seed(hash((seed, offset)) if offset else seed)
            self._remember()
        return self

    def _remember(self) -> None:
        self._here = self._states[self._seed, self._offset] = super().get_state()
        if len(self._states) > 100:
            del self._states[next(iter(self._states))]

    @property
    def device(self) -> torch.device:
        return DEVICE

    def get_offset(self) -> int:
        if not torch.equal(super().get_state(), self._here):  # numbers have been taken since
            self._offset += 4
            self._remember()
        return self._offset

    def get_state(self) -> torch.Tensor:
        return torch.tensor([self._seed, self.get_offset()]).view(torch.uint8)

    def set_state(self, new_state: torch.Tensor) -> _Generator:
        seed, offset = new_state.clone().view(torch.int64).tolist()
        return self._go(seed, offset)

    def set_offset(self, offset: int) -> _Generator:
        return self._go(self._seed, offset)

    def initial_seed(self) -> int:
        return self._seed

    def manual_seed(self, seed: int) -> _Generator:
        return self._go(seed, 0)

    def seed(self) -> int:
        return self._go(super().seed() >> 1, 0)._seed


_default = _Generator("cuda")


def _properties(device: Any = None) -> Any:
    major, minor = SimDriver().get_device_capability()
    known = properties()
    return SimpleNamespace(
        name="DITRON simulator", major=major, minor=minor, total_memory=_MEMORY, L2_cache_size=60 << 20, warp_size=32,
        multi_processor_count=known["multiprocessor_count"], max_threads_per_multi_processor=2048,
        regs_per_multiprocessor=known["max_num_regs"], shared_memory_per_multiprocessor=known["max_shared_mem"] + 1024,
        shared_memory_per_block=49152, shared_memory_per_block_optin=known["max_shared_mem"], gcnArchName="",
        is_integrated=False, is_multi_gpu_board=False, max_threads_per_block=1024, uuid="ditron",
        clock_rate=known["sm_clock_rate"], memory_clock_rate=known["mem_clock_rate"],
        memory_bus_width=known["mem_bus_width"], pci_bus_id=0, pci_device_id=0, pci_domain_id=0)


def _always(answer: Any) -> Callable[..., Any]:
    """A function of its own for every name: torch.compile tells torch's functions apart by what they are."""
    return lambda *_, **__: answer


def _cuda() -> dict[str, Any]:
    answers: dict[str, Any] = {
        "get_device_properties": _properties, "default_generators": (_default,),
        "get_device_capability": lambda device=None: SimDriver().get_device_capability(),
        "mem_get_info": _always((_MEMORY, _MEMORY)), "memory_summary": _always(""), "memory_snapshot": _always([]),
        "memory_stats": lambda *_, **__: Counter(), "host_memory_stats": lambda *_, **__: Counter(),
        "get_allocator_backend": _always("native"), "get_device_name": _always("DITRON simulator"),
        "get_arch_list": lambda: ["sm_{}{}".format(*SimDriver().get_device_capability())],
        "manual_seed": lambda seed: _default.manual_seed(seed) and None,
        "manual_seed_all": lambda seed: _default.manual_seed(seed) and None,
        "initial_seed": lambda: _default.initial_seed(), "seed": lambda: _default.seed() and None,
        "get_rng_state": lambda device="cuda": _default.get_state(),
        "get_rng_state_all": lambda: [_default.get_state()],
        "set_rng_state": lambda new_state, device="cuda": _default.set_state(new_state) and None,
        "set_rng_state_all": lambda new_states: _default.set_state(new_states[0]) and None,
    }
    for name in ("is_available", "is_initialized", "is_bf16_supported", "is_tf32_supported"):
        answers[name] = _always(True)
    for name in ("is_current_stream_capturing", "can_device_access_peer"):
        answers[name] = _always(False)
    answers |= {"device_count": _always(1), "use_mem_pool": lambda *_, **__: nullcontext()}
    for name in (*_NOTHING, "current_device", "_exchange_device", "_maybe_exchange_device", "get_sync_debug_mode"):
        answers[name] = _always(0)
    for name in (*_DONE, "set_device", "ipc_collect", "init", "_lazy_init", "_sleep", "reset_max_memory_allocated",
                 "reset_max_memory_cached", "set_per_process_memory_fraction", "set_sync_debug_mode"):
        answers[name] = _always(None)
    return answers


# What both torch.cuda and torch.accelerator have: numbers of bytes, and what is done at once.
_NOTHING = ("max_memory_allocated", "memory_allocated", "memory_reserved", "max_memory_reserved")
_DONE = ("synchronize", "empty_cache", "reset_peak_memory_stats", "reset_accumulated_memory_stats")


def _accelerator() -> dict[str, Any]:
    answers = {"is_available": _always(True), "current_accelerator": lambda *_, **__: torch.device("cuda"),
               "device_count": _always(1), "get_memory_info": _always((_MEMORY, _MEMORY)), "device_index": DeviceGuard,
               "memory_stats": lambda *_, **__: Counter()}
    for name in (*_NOTHING, "current_device_index", "current_device_idx"):
        answers[name] = _always(0)
    for name in (*_DONE, "set_device_index", "set_device_idx", "empty_host_cache"):
        answers[name] = _always(None)
    return {name: answer for name, answer in answers.items() if hasattr(torch.accelerator, name)}


def _in_modules(answers: dict[str, Any]) -> dict[tuple[Any, str], Any]:
    """Answers of ``torch.cuda``, and of the modules within it that the same functions are imported from."""
    homes = (torch.cuda, torch.cuda.memory, torch.cuda.random)
    return {(home, name): answer for name, answer in answers.items() for home in homes
            if home is torch.cuda or hasattr(home, name)}


_parse_to = torch._C._nn._parse_to
_CUDA_TYPES = ("Byte", "Char", "Short", "Int", "Long", "Half", "BFloat16", "Float", "Double", "Bool")


def _parse_to_posing(*args: Any, **more: Any) -> Any:
    """``module.to(0)``: a number is a CUDA device."""
    return _parse_to(*(DEVICE if type(value) is int else value for value in args), **more)


_autocast = torch.autocast.__init__


def _autocast_posing(self: Any, device_type: str, dtype: torch.dtype | None = None, *args: Any, **more: Any) -> None:
    if device_type == "cuda":
        device_type, dtype = "cpu", dtype or torch.float16
    _autocast(self, device_type, dtype, *args, **more)


def _of_autocast(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function about automatic casts on ``device_type``, by default of CUDA's."""
    return lambda device_type="cuda": function("cpu" if device_type == "cuda" else device_type)


# (what has the attribute, its name) -> what it is while tensors pose.
ANSWERS: dict[tuple[Any, str], Any] = {
    **_in_modules(_cuda()), **STREAMS,
    **{(torch.accelerator, name): answer for name, answer in _accelerator().items()},
    **{(torch.cuda.nvtx, name): _always(None) for name in ("range_push", "range_pop", "mark")},
    (torch.autocast, "__init__"): _autocast_posing,
    **{(torch, name): _of_autocast(getattr(torch, name)) for name in ("is_autocast_enabled", "get_autocast_dtype")},
    (torch, "get_autocast_gpu_dtype"): lambda _of=torch.get_autocast_dtype: _of("cpu"),
    **{(torch.cuda.profiler, name): _always(None) for name in ("start", "stop")},
    **{(torch.cuda, f"{name}Tensor"): getattr(torch, f"{name}Tensor") for name in _CUDA_TYPES},
    (torch._C, "_get_accelerator"): lambda *_: torch.device("cuda"), (torch._C._nn, "_parse_to"): _parse_to_posing,
    (torch.Tensor, "record_stream"): _always(None), (SimDriver, "get_active_torch_device"): lambda _: DEVICE,
    (torch, "Generator"): _Generator, (torch.version, "cuda"): "12.8",
}
