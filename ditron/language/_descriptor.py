"""A tensor descriptor whose accesses come after a wait."""

from __future__ import annotations

from triton.language import core as tl

__all__ = ["ordered_descriptor"]


class _ordered_descriptor_type(tl.base_type):
    """The plain descriptor's type and one i32: the zero that carries the dependence."""

    def __init__(self, plain: tl.base_type):
        self.plain = plain

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _ordered_descriptor_type) and self.plain == other.plain

    def __hash__(self) -> int:
        return hash(str(self))

    def __str__(self) -> str:
        return f"{self.plain} after a wait"

    def mangle(self) -> str:
        return f"O{self.plain.mangle()}"

    def _flatten_ir_types(self, builder, out: list) -> None:
        self.plain._flatten_ir_types(builder, out)
        out.append(builder.get_int32_ty())

    def _unflatten_ir(self, handles, cursor: int):
        value, cursor = self.plain._unflatten_ir(handles, cursor)
        return ordered_descriptor(value, tl.tensor(handles[cursor], tl.int32)), cursor + 1


class ordered_descriptor(tl.tensor_descriptor_base):
    """``plain`` with ``zero`` added to the first coordinate of every access.

    ``zero`` is 0 and depends on a wait, so that the access does too. It is one scalar, the same for all accesses, so
    the addition costs nothing and the loop pipeliner sees an ordinary descriptor.
    """

    def __init__(self, plain: tl.tensor_descriptor_base, zero: tl.tensor):
        self.plain, self.zero = plain, zero
        self.handle = plain.handle
        self.type = _ordered_descriptor_type(plain.type)
        for name in ("shape", "strides"):
            if hasattr(plain, name):
                setattr(self, name, getattr(plain, name))

    def _flatten_ir(self, handles: list) -> None:
        self.plain._flatten_ir(handles)
        handles.append(self.zero.handle)

    def _set_name(self, builder, name: str) -> None:  # Triton 3.7 and later name values
        self.plain._set_name(builder, name)

    @property
    def block_type(self):
        return self.plain.block_type

    @property
    def block_shape(self):
        return self.plain.block_shape

    @property
    def dtype(self):
        return self.plain.dtype

    def __str__(self) -> str:
        return str(self.type)

    def _after(self, coordinate, semantic):
        return semantic.add(semantic.to_tensor(coordinate), self.zero, True)

    def _shift(self, offsets, semantic):
        first, *rest = list(offsets)
        return [self._after(first, semantic), *rest]


def _define_accesses() -> None:
    """Every access of the plain descriptor, shifted by ``zero``."""

    def with_offsets(name):
        def access(self, offsets, *args, _semantic=None, **kwargs):
            method = getattr(self.plain, name)
            return method(self._shift(offsets, _semantic), *args, _semantic=_semantic, **kwargs)

        return access

    def gather(self, x_offsets, y_offset, _semantic=None):
        return self.plain.gather(x_offsets, self._after(y_offset, _semantic), _semantic=_semantic)

    def scatter(self, value, x_offsets, y_offset, _semantic=None):
        return self.plain.scatter(value, x_offsets, self._after(y_offset, _semantic), _semantic=_semantic)

    methods = {"gather": gather, "scatter": scatter}
    methods |= {
        name: with_offsets(name)
        for name in vars(tl.tensor_descriptor_base)
        if name in ("load", "store") or name.startswith("atomic_")
    }
    for name, method in methods.items():
        method.__name__ = name
        method.__doc__ = getattr(tl.tensor_descriptor_base, name).__doc__
        setattr(method, tl.TRITON_BUILTIN, True)
        setattr(ordered_descriptor, name, method)


_define_accesses()
