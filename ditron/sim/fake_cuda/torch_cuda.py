"""``torch.cuda`` and ``torch.accelerator`` under fake CUDA: one device, the simulated GPU."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import torch
from triton.backends.nvidia.driver import CudaDriver

from ditron.sim.fake_cuda.cuda_streams import DEVICE, STREAMS, DeviceGuard
from ditron.sim.fake_cuda.random_state import SEEDS, Generator
from ditron.sim.plain.driver import SimDriver, properties

__all__ = ["PATCHES"]

_MEMORY = 141 << 30


def _properties(device: Any = None) -> Any:
    major, minor = SimDriver().get_device_capability()
    known = properties()
    return SimpleNamespace(
        name="DITRON simulator",
        major=major,
        minor=minor,
        total_memory=_MEMORY,
        L2_cache_size=60 << 20,
        warp_size=32,
        multi_processor_count=known["multiprocessor_count"],
        max_threads_per_multi_processor=2048,
        regs_per_multiprocessor=known["max_num_regs"],
        shared_memory_per_multiprocessor=known["max_shared_mem"] + 1024,
        shared_memory_per_block=49152,
        shared_memory_per_block_optin=known["max_shared_mem"],
        gcnArchName="",
        is_integrated=False,
        is_multi_gpu_board=False,
        max_threads_per_block=1024,
        uuid="ditron",
        clock_rate=known["sm_clock_rate"],
        memory_clock_rate=known["mem_clock_rate"],
        memory_bus_width=known["mem_bus_width"],
        pci_bus_id=0,
        pci_device_id=0,
        pci_domain_id=0,
    )


def _always(value: Any) -> Callable[..., Any]:
    """A function of its own for every name: torch.compile tells torch's functions apart by what they are."""
    return lambda *_, **__: value


def _cuda() -> dict[str, Any]:
    values: dict[str, Any] = {
        **SEEDS,
        "get_device_properties": _properties,
        "get_device_capability": lambda device=None: SimDriver().get_device_capability(),
        "mem_get_info": _always((_MEMORY, _MEMORY)),
        "memory_summary": _always(""),
        "memory_snapshot": _always([]),
        "memory_stats": lambda *_, **__: Counter(),
        "host_memory_stats": lambda *_, **__: Counter(),
        "get_allocator_backend": _always("native"),
        "get_device_name": _always("DITRON simulator"),
        "get_arch_list": lambda: ["sm_{}{}".format(*SimDriver().get_device_capability())],
    }
    for name in ("is_available", "is_initialized", "is_bf16_supported", "is_tf32_supported"):
        values[name] = _always(True)
    for name in ("is_current_stream_capturing", "can_device_access_peer"):
        values[name] = _always(False)
    values |= {"device_count": _always(1), "use_mem_pool": lambda *_, **__: nullcontext()}
    for name in (*_NOTHING, "current_device", "_exchange_device", "_maybe_exchange_device", "get_sync_debug_mode"):
        values[name] = _always(0)
    for name in (
        *_DONE,
        "set_device",
        "ipc_collect",
        "init",
        "_lazy_init",
        "_sleep",
        "reset_max_memory_allocated",
        "reset_max_memory_cached",
        "set_per_process_memory_fraction",
        "set_sync_debug_mode",
    ):
        values[name] = _always(None)
    return values


# What both torch.cuda and torch.accelerator have: numbers of bytes, and what is done at once.
_NOTHING = ("max_memory_allocated", "memory_allocated", "memory_reserved", "max_memory_reserved")
_DONE = ("synchronize", "empty_cache", "reset_peak_memory_stats", "reset_accumulated_memory_stats")


def _accelerator() -> dict[str, Any]:
    values = {
        "is_available": _always(True),
        "current_accelerator": lambda *_, **__: torch.device("cuda"),
        "device_count": _always(1),
        "get_memory_info": _always((_MEMORY, _MEMORY)),
        "device_index": DeviceGuard,
        "memory_stats": lambda *_, **__: Counter(),
    }
    for name in (*_NOTHING, "current_device_index", "current_device_idx"):
        values[name] = _always(0)
    for name in (*_DONE, "set_device_index", "set_device_idx", "empty_host_cache"):
        values[name] = _always(None)
    return {name: value for name, value in values.items() if hasattr(torch.accelerator, name)}


def _in_modules(values: dict[str, Any]) -> dict[tuple[Any, str], Any]:
    """Values of ``torch.cuda``, and of the modules within it that the same functions are imported from."""
    homes = (torch.cuda, torch.cuda.memory, torch.cuda.random)
    return {
        (home, name): value
        for name, value in values.items()
        for home in homes
        if home is torch.cuda or hasattr(home, name)
    }


_parse_to = torch._C._nn._parse_to
_CUDA_TYPES = ("Byte", "Char", "Short", "Int", "Long", "Half", "BFloat16", "Float", "Double", "Bool")


def _parse_to_in_mode(*args: Any, **more: Any) -> Any:
    """``module.to(0)``: a number is a CUDA device."""
    return _parse_to(*(DEVICE if type(value) is int else value for value in args), **more)


_autocast = torch.autocast.__init__


def _autocast_in_mode(self: Any, device_type: str, dtype: torch.dtype | None = None, *args: Any, **more: Any) -> None:
    if device_type == "cuda":
        device_type, dtype = "cpu", dtype or torch.float16
    _autocast(self, device_type, dtype, *args, **more)


def _of_autocast(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function about automatic casts on ``device_type``, by default of CUDA's."""
    return lambda device_type="cuda": function("cpu" if device_type == "cuda" else device_type)


class _NoGraph:
    """``torch.cuda.CUDAGraph``."""

    def __init__(self, *_: Any, **__: Any):
        raise RuntimeError("the simulator does not capture CUDA graphs: launch the kernels without one")


def _storage_here(storage: torch.UntypedStorage, location: str) -> torch.UntypedStorage | None:
    """``torch.load``'s hook for a location: what was saved on a GPU is loaded to the CPU."""
    patched = torch.Generator is Generator
    return storage if patched and location.startswith("cuda") else None


# Before torch's own CUDA, which is 20. It declines where fake CUDA is not active.
torch.serialization.register_package(5, lambda _: None, _storage_here)

# (what has the attribute, its name) -> what it is under fake CUDA.
PATCHES: dict[tuple[Any, str], Any] = {
    **_in_modules(_cuda()),
    **STREAMS,
    **{(torch.accelerator, name): value for name, value in _accelerator().items()},
    **{
        (torch.cuda.nvtx, name): _always(None)
        for name in ("range_push", "range_pop", "mark", "range_start", "range_end")
    },
    (torch.autocast, "__init__"): _autocast_in_mode,
    **{(torch, name): _of_autocast(getattr(torch, name)) for name in ("is_autocast_enabled", "get_autocast_dtype")},
    (torch, "get_autocast_gpu_dtype"): lambda _of=torch.get_autocast_dtype: _of("cpu"),
    **{(torch.cuda.profiler, name): _always(None) for name in ("start", "stop")},
    **{(torch.cuda, f"{name}Tensor"): getattr(torch, f"{name}Tensor") for name in _CUDA_TYPES},
    (torch._C, "_get_accelerator"): lambda *_: torch.device("cuda"),
    (torch._C._nn, "_parse_to"): _parse_to_in_mode,
    (torch.Tensor, "record_stream"): _always(None),
    (SimDriver, "get_active_torch_device"): lambda _: DEVICE,
    (torch, "Generator"): Generator,
    (torch.version, "cuda"): "12.8",
    (torch.UntypedStorage, "cuda"): lambda self, *_, **__: self.clone(),
    **{(home, "CUDAGraph"): _NoGraph for home in (torch.cuda, torch.cuda.graphs)},
    # Who makes Triton's own driver, as inductor's files do, gets the simulator's.
    (CudaDriver, "__new__"): lambda *_: SimDriver(),
}
