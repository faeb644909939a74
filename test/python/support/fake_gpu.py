"""A GPU that is not there: Triton's driver interface, which records launches, and a group to launch in.

Compilation is real (ptxas included), so that everything of a launch but the driver's calls is tested without a GPU.
"""

from __future__ import annotations

from contextlib import contextmanager
from types import SimpleNamespace

import torch
from triton.backends.compiler import GPUTarget
from triton.runtime import _allocation
from triton.runtime.driver import driver

from ditron.distributed.gpu_group import GpuGroup
from ditron.distributed.group import Group

_loaded: list = []


class FakeDriver:
    """An H200 on which kernels do nothing."""

    def __init__(self):
        self.launches: list[tuple] = []  # (kernel source, grid, arguments)
        self.loaded: list[str] = []
        self.scratch: list = []  # what the launcher's allocator gave
        self.encoded: list[tuple] = []  # arguments of each tensor map
        self.utils = SimpleNamespace(
            fill_tma_descriptor=self._encode,
            fill_tma_descriptor_tiled=self._encode,
            get_device_properties=lambda device: {"max_shared_mem": 232448},
            load_binary=self._load,
            unload_module=lambda module: None,
        )

    def _load(self, name, binary, shared, device):
        assert isinstance(binary, bytes) and binary
        self.loaded.append(name)
        return 77, 1234, 32, 0, 1024

    def _encode(self, address, swizzle, elem_size, elem_type, block, shape, strides, padding):
        self.encoded.append((address, list(block), list(shape), list(strides), padding))
        return "tensor map", address

    def launcher_cls(self, src, metadata):
        def run(grid_x, grid_y, grid_z, stream, function, packed, launch_metadata, enter_hook, exit_hook, *args):
            if metadata.global_scratch_size:
                size = grid_x * grid_y * grid_z * metadata.num_ctas * metadata.global_scratch_size
                self.scratch.append(_allocation._allocator.get()(size, metadata.global_scratch_align, stream))
            self.launches.append((src, (grid_x, grid_y, grid_z), args))

        return run

    def get_current_target(self):
        return GPUTarget("cuda", 90, 32)

    def get_current_device(self):
        return 0

    def get_current_stream(self, device):
        return 0


class FakeGroup(GpuGroup):
    """A GPU group of one rank."""

    def __init__(self, transport: str = "p2p"):
        Group.__init__(self, [0], 0, transport, torch.device("cpu"), 1)
        self.heap = SimpleNamespace(on_module_loaded=lambda module: None)
        self.context = torch.zeros(18, dtype=torch.int64)
        self.loaded: list = []

    def on_module_loaded(self, kernel) -> None:
        super().on_module_loaded(kernel)
        self.loaded.append(kernel)
        _loaded.append(kernel)


@contextmanager
def fake_gpu():
    """Within it, Triton's active driver is a :class:`FakeDriver`."""
    before, fake = driver._active, FakeDriver()
    driver.set_active(fake)
    try:
        yield fake
    finally:
        driver._active = before
        while _loaded:  # Triton 3.9 asks the driver to unload a kernel that dies with its module
            _loaded.pop().module = None
