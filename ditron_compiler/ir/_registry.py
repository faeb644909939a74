"""Typed classes and attribute builders, found by name; a dialect's module is imported when it is first needed."""

from __future__ import annotations

import importlib

from .._core import Attribute, EnumAttr, _ditron_interfaces, _register_operation_class

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
        if cls.OPERATION_NAME.startswith("ditron."):
            cls = _with_interfaces(cls)
        _register_operation_class(cls.OPERATION_NAME, cls)
        return cls

    return register


def _with_interfaces(cls: type) -> type:
    """``cls`` with the interfaces and traits of its op as bases, and enumeration attributes as members.

    Which op has which is asked of the ODS, through C++.
    """
    missing = [base for base in _ditron_interfaces.get(cls.OPERATION_NAME, ()) if not issubclass(cls, base)]
    bases = [base for base in missing if not any(other is not base and issubclass(other, base) for other in missing)]
    members = {
        name: _enum_property(name, given)
        for name, given in vars(cls).items()
        if isinstance(given, property) and given.fget.__annotations__.get("return") in (Attribute, Attribute | None)
    }
    if not bases and not members:
        return cls
    named = {"__doc__": cls.__doc__, "__module__": cls.__module__, "__qualname__": cls.__qualname__}
    return type(cls.__name__, (cls, *bases), named | members)


def _enum_property(name: str, given: property) -> property:
    """The generated accessor of an enumeration attribute, in terms of the enumeration's members."""

    def get(op):
        attribute = given.fget(op)
        return attribute.value if isinstance(attribute, EnumAttr) else attribute

    def set(op, value):
        given.fset(op, value if isinstance(value, Attribute) else EnumAttr.get(value, op.context))

    return property(get, set, doc=f"The attribute `{name}`, as a member of its enumeration.")


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
