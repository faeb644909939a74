"""Arguments that Triton has bound, as the 64-bit slots of a launch on the simulator."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from triton.runtime.jit import TensorWrapper
from triton.tools.tensor_descriptor import TensorDescriptor

from ditron.sim import cuda_hook
from ditron_compiler.errors import DitronError
from ditron_compiler.lowering.sim.arguments import FLOATS, float_bits

__all__ = ["slots_of", "tensors_of"]


def slots_of(arguments: Iterable[tuple[str, Any, Any]]) -> list[int]:
    """The 64-bit slots of arguments, ``(name, kind, value)``; the last ones say which descriptors pad with NaNs."""
    pads: list[int] = []
    slots = [slot for name, kind, value in arguments for slot in _slots(name, kind, value, pads)]
    return slots + pads


def _slots(name: str, kind: Any, value: Any, pads: list[int]) -> Iterator[int]:
    """The slots of an argument: one per argument of the ``tt.func``, none for a constant."""
    if isinstance(kind, tuple):
        for index, (inner, element) in enumerate(zip(kind, value, strict=True)):
            yield from _slots(f"{name}[{index}]", inner, element, pads)
    elif kind == "constexpr":
        return
    elif kind.startswith("*"):
        yield _address(name, value)
    elif kind.startswith("tensordesc"):
        pads.append(int(value.padding == "nan"))
        yield _address(name, value.base)
        yield from (int(extent) for extent in value.shape)
        yield from (int(stride) for stride in value.strides)
    elif kind in FLOATS:
        yield float_bits(value, kind)
    elif kind[0] in "iu":
        yield int(value)
    else:
        raise DitronError(f"argument {name!r}: the simulator does not take a {kind}")


def tensors_of(arguments: Iterable[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
    """The tensors of arguments ``(name, value)``, those of tuples and descriptors too."""
    for name, value in arguments:
        value = underlying(value)
        if isinstance(value, tuple):
            yield from tensors_of((f"{name}[{index}]", element) for index, element in enumerate(value))
        elif isinstance(value, TensorDescriptor):
            yield name, underlying(value.base)
        elif hasattr(value, "nbytes"):
            yield name, value


def underlying(value: Any) -> Any:
    """The tensor itself, of what ``triton.reinterpret`` returns: it knows its device and size."""
    return value.base if isinstance(value, TensorWrapper) else value


def _address(name: str, value: Any) -> int:
    if value is None:
        return 0
    if isinstance(value, int):
        return value
    value = underlying(value)
    device = getattr(value, "device", None)
    if device is not None and getattr(device, "type", "cpu") != "cpu" and not cuda_hook.may_report_cuda(value):
        raise DitronError(
            f"argument {name!r} is on {device}, and the kernel runs on the simulator: make tensors on ditron.device()"
        )
    return value.data_ptr()
