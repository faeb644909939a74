"""Timing-only mode computes no floating-point data: errors where host code decides by what is missing.

What is missing is a property of a tensor's storage: a kernel, a copy or a collective was given it to write, or a
product of torch would have computed it. What torch makes of missing data is missing; data of the host's own, as random
inputs and the routes that follow from them, is there. Not seen are ``tensor.tolist()`` and ``tensor.numpy()``, which
bypass torch, and puts by peers into memory that no kernel of this rank was given.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterable
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from ditron.sim.report import host_error
from ditron_compiler.errors import DitronError
from ditron_compiler.source_location import caller_line, users_line

__all__ = ["call", "given_to_kernel", "not_computed", "without_torch_testing"]

_aten = torch.ops.aten
#: Operations that write all of their first argument and do not read it.
_OVERWRITE = (_aten.copy_, _aten.fill_, _aten.zero_, _aten.normal_, _aten.uniform_, _aten.random_, _aten.exponential_)
_READ_BY_HOST = (torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape)
#: Integers that decide what a kernel does; narrower ones are taken to be quantized data.
_DECIDE = (torch.int32, torch.int64, torch.bool)
_MARK = "_ditron_missing_data"
_WHY = (
    "timing-only mode computes no floating-point data, so that it is unknown: decide by something else, or predict "
    "without --timing-only"
)


def not_computed(tensors: Iterable[Any]) -> None:
    """Floating-point data of these tensors was not computed or moved."""
    for tensor in tensors:
        if _is_plain(tensor) and tensor.is_floating_point():
            setattr(tensor.untyped_storage(), _MARK, "data")


def given_to_kernel(tensors: Iterable[tuple[str, Any]], line: str) -> None:
    """Tensors by the names of the arguments of a launch at ``line``, which may write them.

    Raises SimulationError for integers that follow from missing data, as routes of a router.
    """
    named = list(tensors)
    for name, tensor in named:
        if _is_plain(tensor) and getattr(tensor.untyped_storage(), _MARK, "") == "decisions":
            what = f"'{name}' was made of the floating-point result of a kernel or a product"
            raise host_error(f"{what}; {_WHY}", users_line(line))
    not_computed(tensor for _, tensor in named)


def call(function: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
    """Call an operation of torch. SimulationError, at the line of host code, where that reads missing data."""
    if function.namespace != "aten":  # one of ours: its launches say what is missing
        return function(*args, **kwargs)
    overwrites = function.overloadpacket in _OVERWRITE
    inputs = (args[1:] if overwrites else args, {name: value for name, value in kwargs.items() if name != "out"})
    missing = _reads_data(function) and any(map(_is_missing, tree_leaves(inputs)))
    if missing and any(tag in function.tags for tag in _READ_BY_HOST):
        deciding = args[1] if function.overloadpacket is _aten.index else inputs  # other indices have known shapes
        if any(map(_is_missing, tree_leaves(deciding))):
            raise host_error(f"this reads the floating-point result of a kernel or a product; {_WHY}", caller_line())
    result = function(*args, **kwargs)
    written = [args[0]] if overwrites else _written(function, args, kwargs)
    if missing:
        for tensor in (*tree_leaves(result), *written):
            _mark(tensor)
    elif overwrites and _is_missing(args[0]) and args[0].nbytes == args[0].untyped_storage().nbytes():
        delattr(args[0].untyped_storage(), _MARK)
    return result


def without_torch_testing(error: BaseException) -> BaseException:
    """The error that ended a comparison of torch.testing, which raises one of its own around it; any other as it is."""
    frames = list(traceback.walk_tb(error.__traceback__))
    is_its_own = bool(frames) and frames[-1][0].f_globals.get("__name__", "").startswith("torch.testing")
    return error.__cause__ if is_its_own and isinstance(error.__cause__, DitronError) else error


def _mark(tensor: Any) -> None:
    if _is_plain(tensor) and not _is_missing(tensor):
        setattr(tensor.untyped_storage(), _MARK, "decisions" if tensor.dtype in _DECIDE else "data")


def _is_missing(value: Any) -> bool:
    return _is_plain(value) and hasattr(value.untyped_storage(), _MARK)


def _is_plain(value: Any) -> bool:
    return type(value) in (torch.Tensor, torch.nn.Parameter) and value.device.type == "cpu"


def _reads_data(function: Any) -> bool:
    """Whether what an operation gives depends on more than the shapes of its arguments."""
    name = function.overloadpacket.__name__
    return not name.endswith("_like") and not name.startswith("new_")


def _written(function: Any, args: tuple, kwargs: dict[str, Any]) -> list[Any]:
    found = []
    for number, argument in enumerate(function._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            found += tree_leaves(args[number] if number < len(args) else kwargs.get(argument.name))
    return found
