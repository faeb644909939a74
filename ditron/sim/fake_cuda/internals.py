"""Patches of torch's internals under fake CUDA: wrapper subclasses, packed sequences, process groups.

These read the device that a tensor reports, and would use it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch
import torch.cuda.nccl
import torch.distributed as dist
from torch._C import DisableTorchFunction
from torch._subclasses.fake_tensor import FakeTensor
from torch.nn.utils import rnn

__all__ = ["INTERNALS", "on_cpu"]

_CPU = torch.device("cpu")

_wrapper_subclass, _fake_tensor = torch.Tensor._make_wrapper_subclass, FakeTensor.__new__
_shared = torch.UntypedStorage._new_shared


def on_cpu(value: Any) -> Any:
    """A device that an argument names, with the CPU in place of CUDA."""
    if isinstance(value, torch.device):
        return _CPU if value.type == "cuda" else value
    if isinstance(value, str) and value.startswith("torch.cuda."):  # a type's name
        return value.replace(".cuda", "", 1)
    return _CPU if isinstance(value, str) and (value == "cuda" or value.startswith("cuda:")) else value


def _make_wrapper_subclass(*args: Any, **more: Any) -> torch.Tensor:
    return _wrapper_subclass(*map(on_cpu, args), **{name: on_cpu(value) for name, value in more.items()})


def _make_fake(cls: type, fake_mode: Any, elem: torch.Tensor, device: Any, *args: Any, **more: Any) -> FakeTensor:
    return _fake_tensor(cls, fake_mode, elem, on_cpu(device), *args, **more)


def _new_shared(cls: type, size: int, *, device: Any = "cpu") -> torch.UntypedStorage:
    return _shared(size, device=on_cpu(device))


def _on_real_device(function: Callable) -> Callable:
    """``function`` with tensors that report their real device."""

    def call(*args: Any, **more: Any) -> Any:
        with DisableTorchFunction():
            return function(*args, **more)

    return call


def _with_gloo(function: Callable) -> Callable:
    """A function that makes a process group, of which NCCL would be the backend."""
    signature = inspect.signature(function)

    def make(*args: Any, **more: Any) -> Any:
        call = signature.bind_partial(*args, **more)
        if "nccl" in str(call.arguments.get("backend") or "nccl"):
            call.arguments["backend"] = "gloo"
        return function(*call.args, **call.kwargs)

    return make


# (what has the attribute, its name) -> what it is under fake CUDA.
INTERNALS: dict[tuple[Any, str], Any] = {
    (torch.Tensor, "_make_wrapper_subclass"): staticmethod(_make_wrapper_subclass),
    (FakeTensor, "__new__"): staticmethod(_make_fake),
    (torch.UntypedStorage, "_new_shared"): classmethod(_new_shared),  # of a DataLoader's workers
    # It asks for sizes on the CPU.
    (rnn, "_packed_sequence_init_args"): _on_real_device(rnn._packed_sequence_init_args),
}
if dist.is_available():
    INTERNALS[torch.cuda.nccl, "version"] = lambda: (2, 27, 5)
    INTERNALS |= {
        (home, name): value
        for home in (dist, dist.distributed_c10d)
        for name, value in (
            ("init_process_group", _with_gloo(dist.init_process_group)),
            ("new_group", _with_gloo(dist.new_group)),
            ("is_nccl_available", lambda: True),
        )
    }
