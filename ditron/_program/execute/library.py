"""Steps that call a function of a library, on GPUs: its tensors, its stream, and its first call."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from ditron._program.trace.dtypes import as_allocated, from_mlir
from ditron_compiler import host

if TYPE_CHECKING:
    import torch

    from ditron._program.execute.loaded import LoadedProgram
    from ditron._program.execute.memory import Memory

__all__ = ["Arguments", "on_stream", "tensor_of", "warm_up"]


class Arguments(list):
    """The addresses of a call's arguments (of numbers, their values), and the arguments themselves."""

    def __init__(self, bases: Iterable[int], tensors: Sequence[Any]):
        super().__init__(bases)
        self.tensors = tensors


def tensor_of(buffer: host.BufferView, arguments: Sequence[Any], memory: Memory) -> torch.Tensor:
    """The tensor that a buffer of a program is in this call."""
    storage = buffer.storage
    whole = as_allocated(arguments[storage.index]) if storage.kind == "argument" else memory.tensors[storage]
    return whole.as_strided(buffer.shape, buffer.strides, whole.storage_offset() + buffer.offset)


def on_stream(stream: int, device: torch.device) -> AbstractContextManager:
    """Within it, ``stream`` is torch's current one."""
    import torch

    if stream == torch._C._cuda_getCurrentRawStream(device.index):
        return nullcontext()
    return torch.cuda.stream(torch.cuda.ExternalStream(stream, device=device))


def warm_up(program: LoadedProgram, steps: Iterable[Any], stream_of: Any, device: torch.device) -> None:
    """Call each function that the steps call, for other tensors of the same shapes.

    Loading a library's kernels, and allocating its workspace, may wait for all that runs on the GPU; what runs later
    may wait for this rank.
    """
    import torch

    seen = set()
    for step in steps:
        if not isinstance(step, host.Call):
            continue
        buffers = (*step.reads, *step.writes)
        key = step.stream, step.callee, tuple((buffer.shape, buffer.strides, buffer.dtype) for buffer in buffers)
        if key in seen:
            continue
        seen.add(key)
        with on_stream(stream_of(step.stream), device):
            scratch: list[torch.Tensor] = []
            for buffer in buffers:
                elements = 1 + sum((n - 1) * s for n, s in zip(buffer.shape, buffer.strides, strict=True))
                flat = torch.zeros(max(elements, 1), dtype=from_mlir(buffer.dtype), device=device)
                scratch.append(flat.as_strided(buffer.shape, buffer.strides))
            program.function(step)(scratch, step.loc)
