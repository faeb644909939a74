"""Buffers of a traced program: shapes, slices, and single signals."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from ditron._program.trace.dtypes import dtypes, names_of, to_mlir
from ditron._program.trace.tracer import Tracer, require
from ditron._program.trace.values import Int, Symbol, _python_int, as_int, describe, divisor_of, in_triton_descriptor
from ditron_compiler import ir
from ditron_compiler.ir.dialects import ditron as dialect
from ditron_compiler.source_location import caller

if TYPE_CHECKING:
    import torch

__all__ = ["Buffer", "allocate", "as_buffer", "as_signal", "element_type", "mixed"]


def element_type(tracer: Tracer, dtype: torch.dtype) -> ir.Type:
    """MLIR's type of an element."""
    return ir.Type.parse(to_mlir(dtype), tracer.module.context)


def mixed(tracer: Tracer, numbers: Sequence[Any], what: str) -> list[Any]:
    """Integers as operations take them: Python's, or i64 values."""
    known = [_python_int(number) for number in numbers]
    return [as_int(tracer, n, what) if k is None else k for n, k in zip(numbers, known, strict=True)]


class Buffer(Symbol):
    """Memory of this rank: an argument, an allocation, or a slice ``buffer[i, a:b]`` of one.

    Attributes:
        shape: integers, symbolic where they are known at run time only. dtype: torch's. symmetric: whether it is
            symmetric memory. align: a known divisor of its address, in bytes.
    """

    what = "the buffer"

    def __init__(
        self,
        tracer: Tracer,
        value: ir.Value,
        shape: Sequence[Any],
        dtype: torch.dtype,
        symmetric: bool,
        align: int,
        strides: Sequence[Any] | None = None,
        root: Buffer | None = None,
    ):
        super().__init__(tracer, value)
        self.shape, self.dtype, self.symmetric, self.align = tuple(shape), dtype, symmetric, align
        self._strides = strides
        self.root: Buffer = self if root is None else root

    @property
    def ndim(self) -> int:
        """How many dimensions it has."""
        return len(self.shape)

    def size(self, dim: int | None = None) -> Any:
        """As torch's: the shape, or one extent."""
        return self.shape if dim is None else self.shape[dim]

    def numel(self) -> Any:
        """Number of elements."""
        count: Any = 1
        for extent in self.shape:
            count = extent * count
        return count

    def stride(self, dim: int | None = None) -> Any:
        """As torch's: elements from one index to the next along ``dim``, or along each dimension."""
        if dim is None:
            return tuple(self.stride(dim) for dim in range(self.ndim))
        dim = range(self.ndim)[dim]
        if self._strides is not None:
            return self._strides[dim]
        count: Any = 1
        for extent in self.shape[dim + 1 :]:
            count = extent * count
        return count

    def data_ptr(self) -> int:
        """What a launch of plain Triton asks for: an error. Triton's ``TensorDescriptor`` asks for the alignment."""
        if in_triton_descriptor():
            if self.root.align % 16:
                self.tracer.fail(
                    f"a tensor descriptor of {self!r}, whose address is not a multiple of 16 bytes: give the program a "
                    "tensor that begins at one, such as a new one"
                )
            return self.root.align
        self.tracer.fail(
            "a buffer of a program has no address while the program is traced: launch kernels that are "
            "decorated by @ditron.jit, which is triton.jit and more"
        )

    # What tensors have and buffers have not: errors that say what a program is.

    def _refuse(self, what: str) -> NoReturn:
        self.tracer.fail(
            f"{what}: a program does not compute with elements. It is traced, once, with symbolic buffers, and becomes "
            "the launches, copies and signals that each call enqueues: let a kernel compute (kernel[grid](x, ...)), or "
            "do it with the tensors, before or after the call"
        )

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or not _is_of_tensors(name):
            raise AttributeError(f"a buffer of a program has no {name!r}")
        self._refuse(f"a buffer has no .{name}")

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        require("torch")
        buffer = next(value for value in _values((args, kwargs or {})) if isinstance(value, Buffer))
        buffer._refuse(f"torch.{getattr(function, '__name__', function)} of a buffer")

    def __bool__(self) -> bool:
        self._refuse("the truth of a buffer")

    def __iter__(self) -> Any:
        self._refuse("a loop over a buffer (its rows are x[i], in 'for i in dh.range(x.shape[0])')")

    def __setitem__(self, key: Any, value: Any) -> None:
        self._refuse("an assignment to elements of a buffer (dh.copy and dh.fill write parts)")

    def __eq__(self, other: object) -> Any:
        return True if self is other else self._refuse("a comparison of buffers")

    __hash__ = object.__hash__

    def __len__(self) -> int:
        self.tracer.fail("len() of a buffer: use buffer.shape[0], which may be symbolic")

    def __getitem__(self, key: Any) -> Buffer:
        key = key if isinstance(key, tuple) else (key,)
        if len(key) > self.ndim:
            self.tracer.fail(f"{len(key)} indices for a buffer of {self.ndim} dimensions")
        offsets, sizes, dropped = [], [], 0
        for dim, extent in enumerate(self.shape):
            index = key[dim] if dim < len(key) else slice(None)
            if isinstance(index, slice):
                if index.step not in (None, 1):
                    self.tracer.fail("a slice of a buffer has no step: dh copies move contiguous rows")
                for bound in (index.start, index.stop):
                    if bound is not None and _python_int(bound) is None and not isinstance(bound, Int):
                        self.tracer.fail(f"a slice of a buffer is from an integer to an integer, got {describe(bound)}")
                start = self._bound(index.start, 0, extent)
                offsets.append(start)
                sizes.append(self._bound(index.stop, extent, extent) - start)
                if (_python_int(sizes[-1]) or 0) < 0:
                    self.tracer.fail(
                        f"a slice of a buffer ends before it begins: {index.start}:{index.stop} of dimension {dim}"
                    )
            else:
                if _python_int(index) is None and not isinstance(index, Int):
                    self.tracer.fail(f"a buffer is indexed by integers and slices, got {describe(index)}")
                if dropped < dim:
                    self.tracer.fail("an index after a slice: a buffer's rows are chosen first, as in buffer[i, a:b]")
                dropped += 1
                offsets.append(self._bound(index, 0, extent))
                sizes.append(1)
        return self._slice(offsets, sizes, dropped)

    def _bound(self, index: Any, default: Any, extent: Any) -> Any:
        """An index with Python's meaning of negative constants."""
        if index is None:
            return default
        known = _python_int(index)
        return extent + known if known is not None and known < 0 else index

    def _slice(self, offsets: list, sizes: list, dropped: int) -> Buffer:
        shape = sizes[dropped:]
        if not shape:
            return Element(self, offsets)
        if all(_python_int(o) == 0 for o in offsets) and all(s is e for s, e in zip(sizes, self.shape, strict=True)):
            return self
        where, count = mixed(self.tracer, offsets, "an offset"), mixed(self.tracer, sizes, "a size")
        value = self.tracer.emit(dialect.SliceOp, self.use(), where, count, drop=dropped).result
        strides = [self.stride(dim) for dim in range(dropped, self.ndim)]
        return Buffer(
            self.tracer, value, shape, self.dtype, self.symmetric, self._align_of(offsets), strides, self.root
        )

    def _align_of(self, offsets: list) -> int:
        """A known divisor of the address of a slice, in bytes."""
        align = self.align
        for dim, offset in enumerate(offsets):
            if _python_int(offset) != 0:
                align = math.gcd(align, divisor_of(offset) * divisor_of(self.stride(dim)) * self.dtype.itemsize)
        return align

    def __repr__(self) -> str:
        extents = ", ".join("?" if isinstance(extent, Int) else str(extent) for extent in self.shape)
        return f"a {'symmetric ' if self.symmetric else ''}buffer of shape [{extents}] of {self.dtype}"


def _is_of_tensors(name: str) -> bool:
    import torch

    return hasattr(torch.Tensor, name)


def _values(nested: Any) -> Iterator[Any]:
    """What is in tuples, lists and dicts."""
    if isinstance(nested, dict):
        nested = tuple(nested.values())
    if isinstance(nested, (tuple, list)):
        for value in nested:
            yield from _values(value)
    else:
        yield nested


def _refused(symbol: str) -> Any:
    def refuse(self: Buffer, *_: Any) -> Any:
        self._refuse(f"'{symbol}' of a buffer")

    return refuse


for _name, _symbol in {
    "add": "+", "sub": "-", "mul": "*", "truediv": "/", "floordiv": "//", "mod": "%", "pow": "**", "matmul": "@",
    "and": "&", "or": "|", "xor": "^", "lshift": "<<", "rshift": ">>",
}.items():  # fmt: skip
    for _prefix in ("", "r", "i"):
        setattr(Buffer, f"__{_prefix}{_name}__", _refused(_symbol))
for _name, _symbol in {
    "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "ne": "!=", "neg": "-", "pos": "+", "abs": "abs", "invert": "~",
    "float": "float", "int": "int", "round": "round", "contains": "in",
}.items():  # fmt: skip
    setattr(Buffer, f"__{_name}__", _refused(_symbol))


class Element(Buffer):
    """One element of a buffer, ``signals[rank]``: a signal, or the first element of what a kernel is given."""

    def __init__(self, base: Buffer, indices: list):
        super().__init__(
            base.tracer, base.value, (), base.dtype, base.symmetric, base._align_of(indices), root=base.root
        )
        self.base, self.indices = base, indices

    def use(self) -> ir.Value:
        last = self.indices[-1]
        element = self.base._slice([*self.indices[:-1], last], [1] * len(self.indices), len(self.indices) - 1)
        return element.use()


def as_buffer(tracer: Tracer, value: Any, what: str, *, symmetric: bool = False) -> Buffer:
    """Check that a value is a buffer, and with ``symmetric`` that peers have it too."""
    if not isinstance(value, Buffer):
        if hasattr(value, "data_ptr"):
            tracer.fail(
                f"{what} must be a buffer, got {describe(value)} that exists already: pass it to the program "
                "as an argument"
            )
        tracer.fail(f"{what} must be a buffer, got {describe(value)}")
    if symmetric and not value.symmetric:
        tracer.fail(
            f"{what} must be symmetric memory, which other ranks can reach, got {value!r}: make it by "
            "dh.symm_empty or dh.symm_zeros"
        )
    return value


def as_signal(tracer: Tracer, value: Any, what: str) -> tuple[ir.Value, list[Any]]:
    """Buffer and indices of a signal ``signals[i]``."""
    buffer = as_buffer(tracer, value, what, symmetric=True)
    if to_mlir(buffer.dtype) != "i64":
        tracer.fail(f"{what} must be 64-bit, got {buffer!r}: make signals by dh.symm_zeros(n, dtype=torch.int64)")
    if not isinstance(buffer, Element):
        if buffer.ndim != 1 or _python_int(buffer.shape[0]) != 1:
            tracer.fail(f"{what} must be one signal, as signals[rank], got {buffer!r}")
        return buffer.use(), [0]
    return buffer.base.use(), mixed(tracer, buffer.indices, "an index")


def allocate(
    tracer: Tracer, kind: str, shape: tuple, dtype: Any, name: str, *, symmetric: bool, zeroed: bool
) -> Buffer:
    """``dh.symm_empty``, ``symm_zeros``, ``empty`` and ``zeros``, by ``kind``."""
    import torch

    if not isinstance(dtype, torch.dtype):
        tracer.fail(f"dh.{kind}: expected a torch dtype such as torch.float32, got {describe(dtype)}")
    if dtype not in dtypes():
        tracer.fail(f"dh.{kind}: a program has no memory of {dtype}; it has {names_of(dtypes())}")
    extents = tuple(shape[0]) if len(shape) == 1 and isinstance(shape[0], Sequence) else shape
    if not extents:
        tracer.fail(f"dh.{kind}: expected at least one extent")
    for extent in extents:
        known = _python_int(extent)
        if known is not None and known < 1:
            tracer.fail(f"dh.{kind}: expected extents of at least 1, got {known}")
    if tracer.nested:
        tracer.fail(
            f"dh.{kind} in a loop or a branch: memory lives from call to call; allocate it before "
            f"{tracer.current}, with one more dimension if each iteration needs its own"
        )
    if not isinstance(name, str):
        tracer.fail(f"dh.{kind}: expected a string as name, got {describe(name)}")
    label = name or f"{'symmetric' if symmetric else 'local'}{len(tracer.labels)}"
    if label in tracer.labels:
        tracer.fail(f"dh.{kind}: the name {label!r} is used twice", (tracer.labels[label], "first used here"))
    tracer.labels[label] = caller()
    value = tracer.emit(
        dialect.AllocOp,
        label,
        mixed(tracer, extents, "an extent"),
        element_type(tracer, dtype),
        "symmetric" if symmetric else "local",
        zeroed=zeroed,
    ).result
    return Buffer(tracer, value, extents, dtype, symmetric, 256)
