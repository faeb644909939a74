"""Memory that Triton's launcher asks for: kernels that make tensor descriptors write them there.

Triton takes it from the allocator that ``triton.set_allocator`` has set. Where the user has set none, launches in a
group take it from torch.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from triton.runtime import _allocation

__all__ = ["with_scratch"]


def with_scratch(run: Callable[..., Any], group: Callable[[], Any]) -> Callable[..., Any]:
    """Triton's launcher ``run``, which has an allocator on the device of ``group()`` where the user has set none."""
    allocator = _allocation._allocator

    def launch(*args: Any) -> Any:
        if not isinstance(allocator.get(), _allocation.NullAllocator):
            return run(*args)
        device = group().device
        token = allocator.set(lambda size, alignment, stream: _allocate(device, size, stream))
        try:
            return run(*args)
        finally:
            allocator.reset(token)

    return launch


def _allocate(device: Any, size: int, stream: int | None) -> Any:
    """Memory of torch's pool for the launch's stream: it is reused when that stream is past the kernel, and not before.

    In a capture it is the graph's. torch's allocations are aligned more than descriptors need.
    """
    import torch

    if device.type != "cuda" or (stream or 0) == torch._C._cuda_getCurrentRawStream(device.index):
        return torch.empty(size, dtype=torch.int8, device=device)
    with torch.cuda.stream(_torch_stream(device, stream or 0)):
        return torch.empty(size, dtype=torch.int8, device=device)


@cache
def _torch_stream(device: Any, stream: int) -> Any:
    import torch

    return torch.cuda.ExternalStream(stream, device) if stream else torch.cuda.default_stream(device)
