"""How a primitive becomes IR: argument checks, the token, and the placeholder op.

Stock Triton knows nothing of our dialect, so ``dl.wait(...)`` emits ``tt.extern_elementwise`` with symbol
``ditron.wait``, library name ``ditron`` and, as its library path, the op's attribute dictionary in MLIR syntax. Triton
carries it as an opaque call; the pass ``raise-primitives`` turns it into ``ditron.wait``.

A check that fails raises; Triton turns that into a CompilationError that shows the user's line.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from triton.language import core as tl

from ditron_compiler.frontend.codegen import CODEGEN_MARK
from ditron_compiler.ir.dialects import ditron as dialect

__all__ = [
    "attributes",
    "emit",
    "emit_void",
    "enum",
    "integer",
    "integers",
    "element",
    "pointer",
    "primitive",
    "signal_pointer",
    "token",
    "token_type",
]


def primitive(fn):
    """Make ``fn`` callable from kernels; called elsewhere it raises an error that says how to call it."""

    def checked(*args, _semantic=None, **kwargs):
        if _semantic is None:
            raise RuntimeError(f"dl.{fn.__name__} was called outside of a kernel: call it in a @ditron.jit function")
        if CODEGEN_MARK not in _semantic.builder.codegen_fns:
            raise RuntimeError(
                f"dl.{fn.__name__} needs DITRON's compiler, and the kernel is compiled by plain Triton: "
                "decorate the kernel with @ditron.jit instead of @triton.jit (helpers may keep theirs)"
            )
        return fn(*args, _semantic=_semantic, **kwargs)

    # Not functools.wraps: __wrapped__ would show inspect the real signature without what Triton's builtin needs.
    import inspect

    checked.__name__ = fn.__name__
    checked.__qualname__ = fn.__qualname__
    checked.__module__ = fn.__module__
    checked.__doc__ = fn.__doc__
    checked.__signature__ = checked.signature = inspect.signature(fn)
    setattr(checked, tl.TRITON_BUILTIN, True)
    return checked


# Tokens -----------------------------------------------------------------------------------------------------------


class token_type(tl.base_type):
    """Type of what ``dl.wait`` returns; an i32 in Triton's IR, ``!ditron.token`` once raised."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, token_type)

    def __hash__(self) -> int:
        return hash(token_type)

    def __repr__(self) -> str:
        return "token"

    def mangle(self) -> str:
        return "ditron_token"

    def _flatten_ir_types(self, builder, out: list) -> None:
        out.append(builder.get_int32_ty())

    def _unflatten_ir(self, handles: Sequence, cursor: int):
        return token(handles[cursor]), cursor + 1


class token(tl.base_value):
    """Proof that a wait is over. It can only be handed to ``dl.consume_token`` (and through ``if``, loops, helpers)."""

    type = token_type()

    def __init__(self, handle):
        self.handle = handle

    def _flatten_ir(self, handles: list) -> None:
        handles.append(self.handle)

    def _set_name(self, builder, name: str) -> None:  # Triton 3.7 and later name values
        self.handle.set_loc(builder.create_name_loc(name, self.handle.get_loc()))

    def __str__(self) -> str:
        return "token"


# Checks; each names the argument, what was expected and what was given -------------------------------------------


def spell(value: tl.tensor) -> str:
    """A value's type as users write it: ``fp32[8, 16]``."""
    extents = ", ".join(str(tl._unwrap_if_constexpr(extent)) for extent in value.shape)
    return f"{value.dtype}[{extents}]" if extents else str(value.dtype)


def describe(value: Any) -> str:
    """A value as an error message shows it."""
    if isinstance(value, tl.constexpr):
        value = value.value
    if isinstance(value, tl.tensor):
        return f"a tensor of type {spell(value)}" if value.type.is_block() else f"a scalar of type {value.type}"
    if isinstance(value, tl.base_value):
        return f"a {value.type}"
    return repr(value)


@lru_cache
def cases(kind: str) -> tuple[str, ...]:
    """The keywords of one of the dialect's enumerations, by the name of its attribute: ``signal_op``."""
    return tuple(map(str, getattr(dialect, "".join(word.capitalize() for word in kind.split("_")))))


def enum(name: str, value: Any, kind: str, argument: str | None = None) -> str:
    """Check a compile-time string against an enumeration and return it as an MLIR attribute."""
    value = tl._unwrap_if_constexpr(value)
    choices = cases(kind)
    if not isinstance(value, str) or value not in choices:
        expected = ", ".join(map(repr, choices))
        raise ValueError(f"dl.{name}: {argument or kind} must be one of {expected}, got {describe(value)}")
    return f"#ditron.{kind}<{value}>"


def flag(name: str, value: Any, argument: str) -> bool:
    """Check a compile-time bool."""
    value = tl._unwrap_if_constexpr(value)
    if not isinstance(value, bool):
        raise TypeError(f"dl.{name}: {argument} must be True or False at compile time, got {describe(value)}")
    return value


def text(name: str, value: Any, argument: str) -> str:
    """Check a compile-time string."""
    value = tl._unwrap_if_constexpr(value)
    if not isinstance(value, str):
        raise TypeError(f"dl.{name}: {argument} must be a string at compile time, got {describe(value)}")
    return value


def integer(
    name: str, value: Any, argument: str, dtype: tl.dtype, semantic, *, minimum: int | None = None
) -> tl.tensor:
    """Check a scalar integer and convert it to ``dtype``: a Python int that fits, or an integer scalar of at most its
    width, since a run-time value would be truncated silently.
    """
    constant = tl._unwrap_if_constexpr(value)
    if isinstance(constant, int) and not isinstance(constant, bool):
        if minimum is not None and constant < minimum:
            raise ValueError(f"dl.{name}: {argument} must be at least {minimum}, got {constant}")
        bits = dtype.primitive_bitwidth
        if not -(2 ** (bits - 1)) <= constant < 2 ** (bits - 1):
            raise ValueError(f"dl.{name}: {argument} must fit in {bits} bits, got {constant}")
        return semantic.scalar_constant(constant, dtype)
    if not isinstance(value, tl.tensor) or value.type.is_block() or not value.dtype.is_int():
        raise TypeError(f"dl.{name}: {argument} must be an integer scalar, got {describe(value)}")
    if value.dtype.primitive_bitwidth > dtype.primitive_bitwidth:
        raise TypeError(
            f"dl.{name}: {argument} must be an integer of at most {dtype.primitive_bitwidth} bits, got "
            f"{describe(value)}, whose upper bits would be lost; if they are never used, convert it: "
            f"{argument}.to(tl.{dtype})"
        )
    return semantic.cast(value, dtype)


def integers(name: str, value: Any, argument: str, dtype: tl.dtype, semantic) -> tl.tensor:
    """As :func:`integer`, or a tensor of integers of at most the width of ``dtype``."""
    if not isinstance(value, tl.tensor) or not value.type.is_block():
        return integer(name, value, argument, dtype, semantic, minimum=0)
    if not value.dtype.is_int() or value.dtype.primitive_bitwidth > dtype.primitive_bitwidth:
        raise TypeError(
            f"dl.{name}: {argument} must be integers of at most {dtype.primitive_bitwidth} bits, got {describe(value)}"
        )
    return semantic.cast(value, dtype)


def pointer(name: str, value: Any, argument: str, *, tensors: bool = False) -> tl.tensor:
    """Check a pointer: a scalar one, or with ``tensors`` also a tensor of pointers."""
    if not isinstance(value, tl.tensor) or not value.dtype.is_ptr() or value.dtype.element_ty.is_block():
        hint = ""
        if isinstance(value, tl.tensor) and value.dtype.is_int64():
            hint = "; cast the address: x.to(tl.pointer_type(tl.float32))"
        raise TypeError(f"dl.{name}: {argument} must be a pointer, got {describe(value)}{hint}")
    if value.type.is_block() and not tensors:
        raise TypeError(f"dl.{name}: {argument} must be one pointer, got a tensor of pointers of type {spell(value)}")
    return value


def signal_pointer(name: str, value: Any, argument: str = "ptr") -> tl.tensor:
    """Check a pointer to signals, which are 64-bit."""
    pointer(name, value, argument)
    pointee = value.dtype.element_ty
    if not (pointee.is_int64() or pointee.is_uint64()):
        raise TypeError(
            f"dl.{name}: {argument} must point to 64-bit signals, got {value.type}: allocate signals with "
            "dtype=torch.int64 (they are counters that only grow, and 32 bits would run out)"
        )
    return value


def writable(name: str, value: tl.tensor, argument: str) -> tl.tensor:
    """Check that a pointer is not declared ``tl.const``."""
    if value.dtype.is_const():
        raise TypeError(f"dl.{name}: {argument} is written to, and is a pointer to constant data ({value.type})")
    return value


def byte_count(name: str, nbytes: Any, pointers: Sequence[tl.tensor], semantic) -> tl.tensor:
    """Check a byte count against the elements pointed to, as far as it is known at compile time."""
    constant = tl._unwrap_if_constexpr(nbytes)
    if isinstance(constant, int):
        for p in pointers:
            size = max(p.dtype.element_ty.primitive_bitwidth // 8, 1)
            if constant % size:
                raise ValueError(
                    f"dl.{name}: nbytes must be a multiple of the {size} bytes of a "
                    f"{p.dtype.element_ty}, got {constant} (it counts bytes, not elements)"
                )
    return integer(name, nbytes, "nbytes", tl.int64, semantic, minimum=0)


def element(name: str, value: Any, ptr: tl.tensor, semantic, argument: str = "value") -> tl.tensor:
    """Convert a value to what ``ptr`` points to: same element type, same shape."""
    try:
        value = semantic.to_tensor(value)
    except TypeError:
        raise TypeError(f"dl.{name}: {argument} must be a scalar or a tensor, got {describe(value)}") from None
    pointee = ptr.dtype.element_ty
    if value.dtype.is_ptr() != pointee.is_ptr():
        raise TypeError(f"dl.{name}: {argument} must be of type {pointee}, which ptr points to, got {describe(value)}")
    if ptr.type.is_block():
        value = semantic.broadcast_impl_shape(value, ptr.type.get_block_shapes())
    elif value.type.is_block():
        raise TypeError(
            f"dl.{name}: {argument} is a tensor of type {spell(value)}, and ptr is one pointer: "
            "give a tensor of pointers"
        )
    return semantic.cast(value, pointee)


# Emission ---------------------------------------------------------------------------------------------------------


def attributes(**attrs: str | bool | None) -> str:
    """The op's attribute dictionary in MLIR syntax; True is a unit attribute, False and None are left out."""
    items = [
        key if value is True else f"{key} = {value}"
        for key, value in attrs.items()
        if value is not None and value is not False
    ]
    return f"{{{', '.join(items)}}}" if items else ""


def emit_handle(op: str, operands: Sequence, ir_type, semantic, attrs: str = "", *, pure: bool = False):
    """Emit the placeholder of ``ditron.<op>`` and return its IR value."""
    handles = [getattr(operand, "handle", operand) for operand in operands]
    return semantic.builder.create_extern_elementwise("ditron", attrs, f"ditron.{op}", handles, ir_type, pure)


def emit(op: str, operands: Sequence, result: tl.dtype, semantic, attrs: str = "", *, pure: bool = False) -> tl.tensor:
    """Emit the placeholder of ``ditron.<op>`` with a result of type ``result``."""
    return tl.tensor(emit_handle(op, operands, result.to_ir(semantic.builder), semantic, attrs, pure=pure), result)


def emit_void(op: str, operands: Sequence, semantic, attrs: str = "") -> None:
    """Emit the placeholder of an op without a result, marked ``void``: an i32 (of the operands' shape) nobody uses."""
    attrs = f"{attrs[:-1]}, void}}" if attrs else "{void}"
    shaped = next((o.type for o in operands if isinstance(o, tl.tensor) and o.type.is_block()), None)
    emit(op, operands, shaped.with_element_ty(tl.int32) if shaped else tl.int32, semantic, attrs)
