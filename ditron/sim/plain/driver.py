"""The simulator as one of Triton's drivers: what packages ask it about the GPU that it simulates."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import cache
from types import SimpleNamespace
from typing import Any

from triton.backends.driver import DriverBase
from triton.compiler import ASTSource

from ditron.sim.plain.compile import compile_plain
from ditron.sim.plain.run import compile_mode
from ditron_compiler import knobs
from ditron_compiler.errors import DitronError
from ditron_compiler.frontend.targets import SIM_TARGET

__all__ = ["Event", "SimDriver", "properties", "run_once"]

# Of an H200, as Triton's and torch's drivers report them.
_PROPERTIES = {
    "max_shared_mem": 232448,
    "max_num_regs": 65536,
    "multiprocessor_count": 132,
    "warpSize": 32,
    "sm_clock_rate": 1980000,
    "mem_clock_rate": 3201000,
    "mem_bus_width": 6144,
}

# Bytes of shared memory that a program may have, by compute capability, where it is not the H200's.
_SHARED = {75: 65536, 80: 166912, 86: 101376, 87: 166912, 89: 101376, 110: 232448, 120: 101376, 121: 101376}


def properties() -> dict[str, int]:
    """Properties of the simulated GPU: an H200's, of the compute capability that ``DITRON_SIM_CAPABILITY`` asks for."""
    shared = _SHARED.get(SIM_TARGET.gpu_target().arch, _PROPERTIES["max_shared_mem"])
    return {**_PROPERTIES, "max_shared_mem": shared}


class _Device(int):
    """Device 0, as a key of Triton's caches unequal to a GPU of that number."""

    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        return self is other

    def __ne__(self, other: object) -> bool:
        return self is not other


@cache
def _device(mode: str, cpu: str) -> _Device:
    """One per way of compiling, as with and without race detection, and per CPU: Triton keeps kernels by device."""
    return _Device(0)


class Event:
    """A point in the host's time: what was launched before it is over, for a simulated launch is synchronous."""

    def __init__(self, *_: Any, **__: Any):
        self.time = 0.0

    def record(self, *_: Any) -> None:
        self.time = time.perf_counter()

    def elapsed_time(self, end: Event) -> float:
        # Never 0: triton.testing divides by it. Nor small: it would run a kernel a thousand times.
        return max((end.time - self.time) * 1e3, 50.0)

    def synchronize(self, *_: Any) -> None:
        pass

    wait = synchronize

    def query(self) -> bool:
        return True


class SimDriver(DriverBase):
    """Programs of plain Triton run on the CPU; kernels are parsed for the simulated GPU."""

    def __init__(self) -> None:
        super().__init__()
        self.utils = SimpleNamespace(
            get_device_properties=lambda device: properties(), load_binary=lambda name, *_: (name, 0, 0, 0, 1024)
        )

    @classmethod
    def is_active(cls) -> bool:
        return False  # never Triton's own choice

    def get_current_target(self) -> Any:
        return SIM_TARGET.gpu_target()

    def get_current_device(self) -> int:
        return _device(compile_mode(), knobs.sim_cpu.get())

    def set_current_device(self, device: int) -> None:
        pass

    def get_current_stream(self, device: int | None = None) -> int:
        return 0

    def get_device_capability(self, device: int | None = None) -> tuple[int, int]:
        arch = SIM_TARGET.gpu_target().arch
        return arch // 10, arch % 10

    def get_active_torch_device(self) -> Any:
        import torch

        return torch.device("cpu")

    def get_device_interface(self) -> Any:
        return SimpleNamespace(
            Event=Event,
            synchronize=lambda *_: None,
            current_device=self.get_current_device,
            set_device=self.set_current_device,
            device_count=lambda: 1,
            is_available=lambda: True,
        )

    def get_empty_cache_for_benchmark(self) -> Any:
        import torch

        return torch.empty(1, dtype=torch.int32)

    def clear_cache(self, cache: Any) -> None:
        pass

    def launcher_cls(self, src: Any, metadata: Any) -> Callable[..., None]:
        """How kernels of ``triton.compile`` are launched: compiled once more, for the simulator."""
        if not isinstance(src, ASTSource):
            raise DitronError(
                f"a kernel that triton.compile has from a file of {src.ext} was launched on the "
                "simulator, which runs Python's kernels: launch the @triton.jit function"
            )
        return compile_plain(src, options=metadata._asdict()).run

    def map_python_to_cpp_type(self, ty: str) -> str:
        raise DitronError(
            f"the simulator makes no C++ launcher, so it has no C++ type for {ty!r}: leave the "
            "ditron.sim.triton() context to compile for a GPU"
        )

    def get_benchmarker(self) -> Callable[..., Sequence[float]]:
        return run_once


def run_once(kernel_call: Callable[[], Any], *, quantiles: Sequence[float] = (0.5,), **_: Any) -> list[float]:
    """Run one configuration of an autotuner, once; all take equally long.

    Time on the simulator says nothing about a GPU, and choosing by it would make runs differ: so the first
    configuration that works is taken.
    """
    kernel_call()
    return [1.0] * len(quantiles)
