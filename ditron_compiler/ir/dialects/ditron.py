"""Typed classes and enumerations of the ditron dialect; those of host programs also take Python numbers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ... import ir
from ..._core import (  # noqa: F401 - interfaces and traits: the typed classes of the ops that have them derive from them
    AtomicOpInterface,
    BufferType,
    CompletesTransfers,
    EnumAttr,
    InProgram,
    MemoryOrderOpInterface,
    MemoryTransferOpInterface,
    OrdersMemory,
    PacketOpInterface,
    ProgramWide,
    RemoteAccessOpInterface,
    RequiresMulticast,
    ReturnsToken,
    SignalOpInterface,
    SignalReadOpInterface,
    SignalUpdateOpInterface,
    SignalWaitOpInterface,
    Spins,
    ThreadDependent,
)
from .._registry import register_operation
from ._ditron_enum_gen import *  # noqa: F403
from ._ditron_ops_gen import *  # noqa: F403
from ._ditron_ops_gen import AllocOp as _AllocOp
from ._ditron_ops_gen import LaunchOp as _LaunchOp
from ._ditron_ops_gen import ProgramOp as _ProgramOp
from ._ditron_ops_gen import SignalWaitOp as _SignalWaitOp
from ._ditron_ops_gen import SignalWriteOp as _SignalWriteOp
from ._ditron_ops_gen import SliceOp as _SliceOp
from ._ditron_ops_gen import TensorDescriptorOp as _TensorDescriptorOp
from ._ditron_ops_gen import _Dialect

#: Attribute of a quiet at the end of a kernel that has nothing but signals to complete. Dropping the attribute is safe;
#: an operation with it must not replace another fence or quiet, since it may be erased (dialect/IR/DataOps.cpp).
SIGNALS_AT_END = "ditron.signals_at_end"

#: A number that is known, or an i64 value.
Int = int | ir.Value


def token_type(context=None) -> ir.Type:
    """``!ditron.token``."""
    return ir.Type.parse("!ditron.token", context)


def stream_type(context=None) -> ir.Type:
    """``!ditron.stream``."""
    return ir.Type.parse("!ditron.stream", context)


def event_type(context=None) -> ir.Type:
    """``!ditron.event``."""
    return ir.Type.parse("!ditron.event", context)


def _split(numbers: Iterable[Int]) -> tuple[list[ir.Value], list[int]]:
    """``[2, %m]`` as the operands ``[%m]`` and the attribute ``[2, dynamic]``."""
    values, known = [], []
    for number in numbers:
        if isinstance(number, int):
            known.append(number)
        else:
            values.append(number)
            known.append(ir.ShapedType.get_dynamic_size())
    return values, known


def _join(values: Sequence[ir.Value], known: Iterable[int]) -> list[Int]:
    """What ``_split`` took apart."""
    dynamic, rest = ir.ShapedType.get_dynamic_size(), iter(values)
    return [next(rest) if number == dynamic else number for number in known]


@register_operation(_Dialect, replace=True)
class ProgramOp(_ProgramOp):
    """``ProgramOp(name, {argument name: type})`` with an empty body."""

    def __init__(self, name: str, arguments: dict[str, ir.Type], *, loc=None, ip=None):
        names = ir.ArrayAttr.get([ir.StringAttr.get(n) for n in arguments])
        super().__init__(name, names, loc=loc, ip=ip)
        ir.Block.create_at_start(self.regions[0], list(arguments.values()))

    @property
    def block(self) -> ir.Block:
        """The body's only block."""
        return self.regions[0].blocks[0]

    @property
    def arguments(self) -> dict[str, ir.Value]:
        """Arguments by name, in order."""
        names = (ir.StringAttr(name).value for name in self.arg_names)
        return dict(zip(names, self.block.arguments, strict=True))


@register_operation(_Dialect, replace=True)
class AllocOp(_AllocOp):
    """``AllocOp(label, sizes, element_type, space="local", zeroed=False)``; sizes are numbers or i64 values."""

    def __init__(
        self,
        label: str,
        sizes: Sequence[Int],
        element_type: ir.Type,
        space: str = "local",
        *,
        zeroed: bool = False,
        loc=None,
        ip=None,
    ):
        values, known = _split(sizes)
        shape = [size if isinstance(size, int) else None for size in sizes]
        kind = BufferType.get(shape, element_type, space)
        super().__init__(kind, label, values, known, zeroed=zeroed, loc=loc, ip=ip)

    @property
    def mixed_sizes(self) -> list[Int]:
        return _join(self.sizes, self.static_sizes)


@register_operation(_Dialect, replace=True)
class SliceOp(_SliceOp):
    """``SliceOp(source, offsets, sizes, drop=0)``: the result has not the first ``drop`` dimensions, of size 1."""

    def __init__(
        self, source: ir.Value, offsets: Sequence[Int], sizes: Sequence[Int], *, drop: int = 0, loc=None, ip=None
    ):
        kind = source.type
        shape = [size if isinstance(size, int) else None for size in sizes][drop:]
        (offset_values, static_offsets), (size_values, static_sizes) = _split(offsets), _split(sizes)
        super().__init__(
            BufferType.get(shape, kind.element_type, kind.space),
            source,
            offset_values,
            size_values,
            static_offsets,
            static_sizes,
            loc=loc,
            ip=ip,
        )

    @property
    def mixed_offsets(self) -> list[Int]:
        return _join(self.offsets, self.static_offsets)

    @property
    def mixed_sizes(self) -> list[Int]:
        return _join(self.sizes, self.static_sizes)


@register_operation(_Dialect, replace=True)
class TensorDescriptorOp(_TensorDescriptorOp):
    """``TensorDescriptorOp(type, source, sizes, strides, nan_padding=False)``; numbers or i64 values."""

    def __init__(
        self,
        kind: ir.Type,
        source: ir.Value,
        sizes: Sequence[Int],
        strides: Sequence[Int],
        *,
        nan_padding: bool = False,
        loc=None,
        ip=None,
    ):
        (size_values, static_sizes), (stride_values, static_strides) = _split(sizes), _split(strides)
        super().__init__(
            kind,
            source,
            size_values,
            stride_values,
            static_sizes,
            static_strides,
            nan_padding=nan_padding,
            loc=loc,
            ip=ip,
        )

    @property
    def mixed_sizes(self) -> list[Int]:
        return _join(self.sizes, self.static_sizes)

    @property
    def mixed_strides(self) -> list[Int]:
        return _join(self.strides, self.static_strides)


@register_operation(_Dialect, replace=True)
class SignalWriteOp(_SignalWriteOp):
    """``SignalWriteOp(signal, indices, value, peer, stream=None, op="set")``; indices are numbers or i64 values."""

    def __init__(
        self,
        signal: ir.Value,
        indices: Sequence[Int],
        value: ir.Value,
        peer: ir.Value,
        *,
        stream=None,
        op=None,
        loc=None,
        ip=None,
    ):
        values, known = _split(indices)
        super().__init__(signal, values, value, peer, known, stream=stream, op=op, loc=loc, ip=ip)

    @property
    def mixed_indices(self) -> list[Int]:
        return _join(self.indices, self.static_indices)


@register_operation(_Dialect, replace=True)
class SignalWaitOp(_SignalWaitOp):
    """``SignalWaitOp(signal, indices, value, stream=None, cmp="ge")``; indices are numbers or i64 values."""

    def __init__(
        self, signal: ir.Value, indices: Sequence[Int], value: ir.Value, *, stream=None, cmp=None, loc=None, ip=None
    ):
        values, known = _split(indices)
        super().__init__(signal, values, value, known, stream=stream, cmp=cmp, loc=loc, ip=ip)

    @property
    def mixed_indices(self) -> list[Int]:
        return _join(self.indices, self.static_indices)


@register_operation(_Dialect, replace=True)
class LaunchOp(_LaunchOp):
    """``LaunchOp(kernel, grid, args, stream=None, options=None)``; the grid is 1 to 3 numbers or i64 values."""

    def __init__(
        self,
        kernel: str,
        grid: Sequence[Int],
        args: Sequence[ir.Value],
        *,
        stream=None,
        options=None,
        loc=None,
        ip=None,
    ):
        values, known = _split(grid)
        super().__init__(kernel, values, list(args), known, stream=stream, options=options, loc=loc, ip=ip)

    @property
    def mixed_grid(self) -> list[Int]:
        return _join(self.grid, self.static_grid)
