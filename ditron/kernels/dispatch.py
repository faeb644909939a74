"""How an operator's function is called: as it is, or as the operator of its name in ``torch.ops.ditron``."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Iterator
from typing import Any, ParamSpec, TypeVar

import torch
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

from ditron.distributed.torch_groups import group_name
from ditron_compiler.errors import DitronError

__all__ = ["SCALING", "torch_operator"]

#: Arguments of products of quantized operands: torch's operator of those is another one, without gradients.
SCALING = ("scale_a", "scale_b", "out_dtype", "use_fast_accum")

P = ParamSpec("P")
R = TypeVar("R")


def torch_operator(*traced: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Call the function through ``torch.ops.ditron`` where gradients are recorded or torch traces what is called.

    There it takes its positional arguments, those named in ``traced``, and ``group``: what it writes is new. Products
    take their operands in the dtype of ``torch.autocast`` where it is on.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        name = function.__name__
        parameters = enumerate(inspect.signature(function).parameters.values())
        lists = [(index, parameter.name) for index, parameter in parameters if parameter.default == ()]
        is_product = "gemm" in name

        @functools.wraps(function)
        def call(*args: Any, group: Any = None, **options: Any) -> Any:
            scaling = any(options.get(option) not in (None, False) for option in ("out_dtype", "use_fast_accum"))
            scaling = scaling or any(options.get(option) is not None for option in ("scale_a", "scale_b"))
            if scaling:
                _check_no_gradients(name, (*args, *options.values()))
            elif is_product:
                operands = {option: value for option, value in options.items() if option in traced}
                cast = _in_autocast((*args, *operands.values()))
                args, options = cast[: len(args)], options | dict(zip(operands, cast[len(args) :], strict=True))
            if not torch.compiler.is_compiling() and _is_plain((*args, *options.values())):
                return function(*args, group=group, **options)
            for option in list(options):
                if option not in traced and options.pop(option) is not None:
                    raise DitronError(
                        f"{name}: {option}= cannot be given where gradients are recorded or the call is compiled: "
                        "leave it out, or call the operator under torch.no_grad()"
                    )
            if gradient := options.get("gradient"):
                check_gradient(name, gradient)
            if not scaling:
                options = {option: value for option, value in options.items() if option not in SCALING}
            for index, option in lists:  # a schema has no default for a list of tensors
                if len(args) <= index:
                    options.setdefault(option, [])
            operator = getattr(torch.ops.ditron, f"{name}_scaled" if scaling else name)
            return operator(*args, **options, group=group_name(group))

        return call

    return decorate


def _check_no_gradients(what: str, values: tuple) -> None:
    if torch.is_grad_enabled() and any(isinstance(value, torch.Tensor) and value.requires_grad for value in values):
        raise DitronError(
            f"{what}: products of quantized operands have no gradients, and one of their tensors requires one: "
            "call it under torch.no_grad()"
        )


def check_gradient(what: str, gradient: str) -> None:
    """Raise DitronError for what is no convention of gradients."""
    if gradient not in ("replicate", "partial"):
        raise DitronError(f"{what}: unknown gradient {gradient!r}: expected 'replicate' or 'partial'")


def _in_autocast(values: tuple) -> tuple:
    """The values, those that autocast converts in its dtype: floating-point tensors on its device, but not float64."""
    device = next((value.device.type for value in _flat(values) if isinstance(value, torch.Tensor)), None)
    if device in (None, "meta") or not torch.is_autocast_enabled(device):
        return values
    dtype = torch.get_autocast_dtype(device)

    def cast(value: Any) -> Any:
        if isinstance(value, list | tuple):
            return [cast(each) for each in value]
        return value.to(dtype) if _is_converted(value, device) else value

    return tuple(map(cast, values))


def _flat(values: Iterable[Any]) -> Iterator[Any]:
    """The values, and those in lists of them."""
    for value in values:
        if isinstance(value, list | tuple):
            yield from value
        else:
            yield value


def _is_converted(value: Any, device: str) -> bool:
    return (
        isinstance(value, torch.Tensor)
        and value.is_floating_point()
        and value.dtype != torch.float64
        and value.device.type == device
    )


def _is_plain(values: tuple) -> bool:
    """Whether only tensors of torch's own are given, nobody records gradients, and no mode sees what is called."""
    records = torch.is_grad_enabled()
    for value in _flat(values):
        if isinstance(value, torch.Tensor) and (
            type(value) not in (torch.Tensor, torch.nn.Parameter) or (records and value.requires_grad)
        ):
            return False
    if torch._C._functorch.peek_interpreter_stack() is not None:
        return False
    return all(getattr(mode, "sees_into_operators", False) for mode in _get_current_dispatch_mode_stack())
