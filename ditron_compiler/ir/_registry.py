"""Typed classes and attribute builders, found by name; a dialect's module is imported when it is first needed."""

from __future__ import annotations

import importlib

from .._core import _register_operation_class

#: Dialects with a module in ``ir/dialects``.
DIALECTS = ("arith", "cf", "ditron", "func", "llvm", "math", "memref", "scf", "tt")

_attribute_builders: dict = {}


def load_dialect(name: str) -> None:
    """Import the typed classes of a dialect; does nothing for a dialect without any."""
    if name in DIALECTS:
        importlib.import_module(f"ditron_compiler.ir.dialects.{name}")


def register_dialect(cls: type) -> type:
    """Class decorator that generated code puts on its dialect."""
    return cls


def register_operation(dialect: type, *, replace: bool = False):
    """Class decorator: wrappers of operations named ``cls.OPERATION_NAME`` are made of this class."""

    def register(cls: type) -> type:
        _register_operation_class(cls.OPERATION_NAME, cls)
        return cls

    return register


def register_attribute_builder(kind: str, replace: bool = False):
    """Decorator: ``builder(value, context)`` makes an attribute of the ODS kind ``kind`` from a Python value."""

    def register(builder):
        if kind in _attribute_builders and not replace:
            raise RuntimeError(f"attribute builder for '{kind}' is already registered")
        _attribute_builders[kind] = builder
        return builder

    return register


class AttrBuilder:
    """Access to the attribute builders, as generated code wants it."""

    @staticmethod
    def contains(kind: str) -> bool:
        return kind in _attribute_builders

    @staticmethod
    def get(kind: str):
        return _attribute_builders[kind]

    @staticmethod
    def insert(kind: str, builder, replace: bool = False) -> None:
        register_attribute_builder(kind, replace)(builder)
