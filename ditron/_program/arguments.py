"""Arguments of a host program: how they are described, what a trace depends on, and their symbolic values."""

from __future__ import annotations

import ast
import inspect
import math
import re
from collections.abc import Iterator, Sequence
from typing import Any

from ditron._program.trace.buffers import Buffer, element_type
from ditron._program.trace.dtypes import dtypes, from_mlir, names_of
from ditron._program.trace.tracer import Tracer
from ditron._program.trace.values import Float, Int
from ditron_compiler import ir
from ditron_compiler.errors import DitronError
from ditron_compiler.ir.dialects import ditron as dialect

__all__ = [
    "TensorSpec",
    "argument_type",
    "assumptions",
    "flatten",
    "leaf_names",
    "made_of",
    "parse_argument",
    "specialization_key",
    "symbolic_argument",
    "unflatten",
]

#: The form of arguments that are tensors and numbers. Others have a place for each argument: ``_LEAF``, None, or
#: ("tuple" or "list", places).
_FLAT: Any = None
_LEAF = "leaf"


def flatten(args: tuple) -> tuple[tuple, Any]:
    """The tensors and numbers among arguments, in tuples and lists too, and the form: how they were nested."""
    for value in args:
        if value is None or isinstance(value, (tuple, list)):
            break
    else:
        return args, _FLAT
    leaves: list[Any] = []
    nested = tuple([_take(value, leaves) for value in args])
    return tuple(leaves), nested


# Not nested functions, which would refer to themselves, and so keep tensors until garbage is collected.


def _take(value: Any, leaves: list[Any]) -> Any:
    """The form of a value, whose leaves it adds."""
    if value is None:
        return None
    if isinstance(value, (tuple, list)):
        return "tuple" if isinstance(value, tuple) else "list", tuple([_take(element, leaves) for element in value])
    leaves.append(value)
    return _LEAF


def _build(place: Any, rest: Iterator[Any]) -> Any:
    """A value of this form, of the next leaves."""
    if place is None:
        return None
    if place == _LEAF:
        return next(rest)
    kind, places = place
    elements = [_build(inner, rest) for inner in places]
    return tuple(elements) if kind == "tuple" else elements


def unflatten(leaves: Sequence[Any], form: Any) -> list[Any]:
    """Arguments from their leaves."""
    if form is _FLAT:
        return list(leaves)
    rest = iter(leaves)
    return [_build(place, rest) for place in form]


def leaf_names(names: Sequence[str], form: Any) -> list[str]:
    """The names of leaves: ``weights.0`` and ``weights.1`` of a tuple."""
    if form is _FLAT:
        return list(names)

    def below(name: str, place: Any) -> list[str]:
        if place is None:
            return []
        if place == _LEAF:
            return [name]
        return [leaf for index, inner in enumerate(place[1]) for leaf in below(f"{name}.{index}", inner)]

    return [leaf for name, place in zip(names, form, strict=True) for leaf in below(name, place)]


class TensorSpec:
    """Dtype and shape of a contiguous tensor that does not exist. ``values``: what it holds, as it was written."""

    def __init__(self, dtype: Any, shape: tuple[int, ...], values: str = ""):
        self.dtype, self.shape, self.values = dtype, shape, values

    def __repr__(self) -> str:
        return f"TensorSpec({self.dtype}, {self.shape}, {self.values!r})"

    @property
    def is_drawn(self) -> bool:
        """Whether its values differ from sample to sample."""
        return self.values == "permutation" or ".." in self.values

    def make(self, seed: int) -> Any:
        """A tensor; its values are those of one sample."""
        import torch

        made = torch.empty(self.shape, dtype=self.dtype)
        generator = torch.Generator().manual_seed(seed)
        if self.values == "permutation":
            made.copy_(torch.randperm(made.numel(), generator=generator).view(self.shape))
        elif self.values == "arange":
            made.copy_(torch.arange(made.numel()).view(self.shape))
        elif ".." in self.values:
            low, _, high = self.values.partition("..")
            made.copy_(torch.randint(int(low), int(high), self.shape, generator=generator))
        elif self.values.startswith("["):
            made.copy_(torch.tensor(ast.literal_eval(self.values)).view(self.shape))
        elif self.values:
            made.fill_(int(self.values))
        return made

    def stride(self) -> tuple[int, ...]:
        return tuple(math.prod(self.shape[dim + 1 :]) for dim in range(len(self.shape)))

    def data_ptr(self) -> int:
        return 256

    def is_contiguous(self) -> bool:
        return True


_SPEC = re.compile(r"(\w+)\[([\d, x]*)\](?:\s*=\s*(permutation|arange|-?\d+(?:\s*\.\.\s*-?\d+)?|\[[-\d\s,\[\]]*\]))?")
_TRITON = {"fp16": "f16", "fp32": "f32", "fp64": "f64"}


def parse_argument(value: Any) -> Any:
    """``"bf16[64, 128]"`` as a :class:`TensorSpec`, in tuples and lists too; other values are returned.

    Integers behind a ``=`` are what a check finds in the tensor: ``"i32[4] = permutation"``, ``arange``, ``0``, random
    ones from ``0..8`` (less than 8), or a list, ``[1, 0, 3, 2]``.
    """
    if isinstance(value, (tuple, list)):
        return type(value)([parse_argument(element) for element in value])
    if not isinstance(value, str):
        return value
    match = _SPEC.fullmatch(value.strip())
    try:
        if match is None:
            raise KeyError(value)
        dtype = from_mlir(_TRITON.get(match[1], match[1]))
    except KeyError:
        raise DitronError(f"expected a tensor as 'bf16[64, 128]', got {value!r}") from None
    return TensorSpec(dtype, tuple(int(extent) for extent in re.findall(r"\d+", match[2])), match[3] or "")


def made_of(value: Any, seed: int) -> Any:
    """A tensor of a :class:`TensorSpec`, or what a function makes with a generator; other values are returned."""
    if isinstance(value, TensorSpec):
        return value.make(seed)
    if inspect.isfunction(value):
        import torch

        return value(torch.Generator().manual_seed(seed))
    return value


def specialization_key(value: Any, any_size: bool = False) -> Any:
    """What the trace depends on: dtype, contiguity, divisibility by 16. AttributeError for another kind of value.

    ``any_size``: whether it does not depend on whether the value, or the extents of a tensor, are divisible.
    """
    if type(value) is int:
        return not any_size and value % 16 == 0
    if type(value) is float:
        return float
    shape = value.shape
    dense = value.is_contiguous()
    return (
        value.dtype,
        dense,
        len(shape) if any_size else tuple([extent % 16 == 0 for extent in shape]),
        value.data_ptr() % 16 == 0,
        None if dense else tuple([stride % 16 == 0 for stride in value.stride()]),
    )


def argument_type(tracer: Tracer, name: str, value: Any) -> ir.Type:
    """The MLIR type of a program's argument."""
    if type(value) is int:
        return ir.IntegerType.get_signless(64, context=tracer.module.context)
    if type(value) is float:
        return ir.Type.parse("f32", tracer.module.context)
    try:
        return dialect.BufferType.get([None] * len(value.shape), element_type(tracer, value.dtype), "local")
    except KeyError:
        raise DitronError(
            f"program {tracer.name!r}: argument {name!r} is of {value.dtype}, and its tensors may be of "
            f"{names_of(dtypes())}"
        ) from None


def symbolic_argument(tracer: Tracer, value: Any, argument: ir.Value, any_size: bool = False) -> Any:
    """The symbolic value of an argument, as :func:`specialization_key` says."""
    if type(value) is int:
        return Int(tracer, argument, 16 if value % 16 == 0 and not any_size else 1)
    if type(value) is float:
        return Float(tracer, argument)
    buffer = Buffer(tracer, argument, (), value.dtype, False, 16 if value.data_ptr() % 16 == 0 else 1)

    def known(op: Any, numbers: Any, divisible: bool = True) -> tuple[Int, ...]:
        divisors = [16 if divisible and number % 16 == 0 else 1 for number in numbers]
        return tuple(
            Int(tracer, tracer.emit(op, argument, dim).result, divisor, non_negative=True)
            for dim, divisor in enumerate(divisors)
        )

    buffer.shape = known(dialect.DimOp, value.shape, not any_size)
    if not value.is_contiguous():
        buffer._strides = known(dialect.StrideOp, value.stride()) or None
    return buffer


def assumptions(args: dict[str, Any], of_any_size: Sequence[str] = ()) -> ir.DictAttr:
    """What passes may assume about the tensors of a trace (ditron_compiler/analysis/argument_assumptions.py).

    ``of_any_size``: names of those of whose extents nothing is assumed.
    """
    found = {}
    for name, value in args.items():
        if isinstance(value, (int, float)):
            continue
        dims = [16 if extent % 16 == 0 and name not in of_any_size else 1 for extent in value.shape]
        known = {
            "dims": ir.DenseI64ArrayAttr.get(dims),
            "align": ir.IntegerAttr.get(ir.IntegerType.get_signless(64), 16 if value.data_ptr() % 16 == 0 else 1),
        }
        found[name] = ir.DictAttr.get(known | ({"dense": ir.UnitAttr.get()} if value.is_contiguous() else {}))
    return ir.DictAttr.get(found)
