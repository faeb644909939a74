"""How an operator's function is called: as it is, or as the operator of its name in ``torch.ops.ditron``."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Iterator
from typing import Any, ParamSpec, TypeVar

import torch
from torch.autograd import forward_ad
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

from ditron.distributed.group import Group
from ditron.distributed.torch_groups import group_name
from ditron.kernels.operands import in_group, require_tensor
from ditron.kernels.scales import check_scaling
from ditron_compiler.errors import DitronError

__all__ = ["SCALING", "is_plain_call", "may_repeat", "recorded", "torch_operator"]

#: Arguments of products of quantized operands: torch's operator of those is another one, without gradients.
SCALING = ("scale_a", "scale_b", "out_dtype", "use_fast_accum")

#: By an operator's name: what calls it in a group, with arguments and options, and records its gradient.
recorded: dict[str, Callable[[Group, tuple, dict[str, Any]], Any]] = {}

P = ParamSpec("P")
R = TypeVar("R")


def torch_operator(*traced: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Call the function as the operator of its name where gradients are recorded or torch traces what is called, there
    through ``torch.ops.ditron``.

    It takes then its positional arguments, those named in ``traced``, and ``group``: what it writes is new. Products
    take their operands in the dtype of ``torch.autocast`` where it is on.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        name = function.__name__
        parameters = list(enumerate(inspect.signature(function).parameters.values()))
        lists = [(index, parameter.name) for index, parameter in parameters if parameter.default == ()]
        tensors = [(index, parameter.name) for index, parameter in parameters if parameter.annotation == "torch.Tensor"]
        is_product, takes_gradient, quantizes = "gemm" in name, "gradient" in traced, name.endswith("_1x128")
        scales = [option for option in traced if option.startswith("scale_")]
        of_scaled = {*scales, *SCALING}

        @functools.wraps(function)
        def call(*args: Any, group: Any = None, **options: Any) -> Any:
            if forward_ad._current_level >= 0:
                _check_no_tangents(name, (*args, *options.values()))
            if takes_gradient and options.get("gradient") is not None:
                check_gradient(name, options["gradient"])
            scaled = bool(scales) and any(options.get(scale) is not None for scale in scales)
            if is_product and not scaled:
                operands = {option: value for option, value in options.items() if option in traced}
                cast = _in_autocast((*args, *operands.values()))
                args, options = cast[: len(args)], options | dict(zip(operands, cast[len(args) :], strict=True))
            if "scale_a" in scales:
                check_scaling(name, args[0] if args else options.get("a"), options)
            if scaled or quantizes:
                _check_no_gradients(name.removesuffix("_rows"), (*args, *options.values()))
            values = (*args, *options.values())
            if is_plain_call(values):
                return function(*args, group=group, **options)
            for option in list(options):
                if option not in traced and options.pop(option) is not None:
                    raise DitronError(
                        f"{name}: {option}= cannot be given where gradients are recorded or the call is compiled: "
                        "leave it out, or call the operator under torch.no_grad()"
                    )
            _check_no_gradient_transform(name, (*args, *options.values()))
            if is_product and not torch.compiler.is_compiling():
                _check_one_node(name, group, (*args, *options.values()))
            for index, option in tensors:
                if index < len(args) or option in options:
                    require_tensor(name, option, args[index] if index < len(args) else options[option])
            if not scaled:
                options = {option: value for option, value in options.items() if option not in of_scaled}
            for index, option in lists:  # a schema has no default for a list of tensors
                if len(args) <= index:
                    options.setdefault(option, [])
            is_watched = torch.compiler.is_compiling() or torch._C._len_torch_function_stack()
            if not scaled and name in recorded and not is_watched and _is_plain(values, False):
                return recorded[name](in_group(group, name), args, options)
            operator = getattr(torch.ops.ditron, f"{name}_scaled" if scaled else name)
            return operator(*args, **options, group=group_name(group))

        return call

    return decorate


def _check_no_gradients(what: str, values: tuple) -> None:
    tensors = [value for value in _flat(values) if isinstance(value, torch.Tensor)]
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
        raise DitronError(
            f"{what}: products of quantized operands have no gradients, and one of their tensors requires one: "
            "call it under torch.no_grad()"
        )


def _check_one_node(what: str, group: Any, values: tuple) -> None:
    """Raise DitronError where a gradient of a product over several nodes would be recorded."""
    tensors = [value for value in _flat(values) if isinstance(value, torch.Tensor)]
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
        if len(in_group(group, what).nodes) > 1:
            raise DitronError(
                f"{what}: there are no gradients in a group on several nodes, and a tensor requires one: call it under "
                "torch.no_grad()"
            )


def _check_no_tangents(what: str, values: tuple) -> None:
    """Raise DitronError for dual tensors, whose tangents torch would drop."""
    for value in _flat(values):
        if isinstance(value, torch.Tensor) and forward_ad.unpack_dual(value).tangent is not None:
            raise DitronError(f"{what}: no forward-mode derivative: only backward (torch.autograd, .backward())")


def _check_no_gradient_transform(what: str, values: tuple) -> None:
    if torch.compiler.is_compiling() or torch._C._functorch.peek_interpreter_stack() is None:
        return
    for value in _flat(values):
        if isinstance(value, torch.Tensor) and value.requires_grad and torch._C._functorch.is_gradtrackingtensor(value):
            raise DitronError(
                f"{what}: no gradient by torch.func.grad, vjp or jacrev: use torch.autograd.grad or .backward()"
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


def is_plain_call(values: tuple) -> bool:
    """Whether an operator with these arguments is called as it is, not through ``torch.ops.ditron``."""
    return not torch.compiler.is_compiling() and _is_plain(values, torch.is_grad_enabled())


def may_repeat(values: tuple) -> bool:
    """Whether an operator that calls others with these arguments may be called as it is, and be remembered."""
    return forward_ad._current_level < 0 and is_plain_call(values)


def _is_plain(values: Iterable[Any], records: bool) -> bool:
    """Whether only tensors of torch's own are given, and no mode sees what is called; with ``records`` none of them
    requires a gradient.
    """
    for value in values:
        kind = type(value)
        if kind is torch.Tensor or kind is torch.nn.Parameter:
            if records and value.requires_grad:
                return False
        elif isinstance(value, torch.Tensor) or (kind in (list, tuple) and not _is_plain(value, records)):
            return False
    if torch._C._functorch.peek_interpreter_stack() is not None:
        return False
    return all(getattr(mode, "sees_into_operators", False) for mode in _get_current_dispatch_mode_stack())
