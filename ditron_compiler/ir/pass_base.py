"""The base of passes: a frozen dataclass whose fields are the options."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from ditron_compiler import _core, ir

#: Option types, by the annotation as written or evaluated.
_TYPES = {"bool": bool, "int": int, "str": str, bool: bool, int: int, str: str}
_NAMES = {bool: "a bool", int: "an integer", str: "a string"}


class PassFailure(Exception):
    """Raised by a pass to fail. The message, if any, is reported at the operation that the pass runs on."""


class InvalidOption(PassFailure, ValueError):
    """Raised by the constructor of a pass for an invalid value of an option."""


@dataclass(frozen=True)
class Pass:
    """The base of passes.

    A subclass is a frozen dataclass with ``name`` (as in pipelines and on the command line), ``anchor`` (the operation
    that it runs on; "" is any) and ``run``. Its fields are its options: bool, int or str, each with a default; on the
    command line underscores become hyphens; ``option(default, help)`` makes one with its documentation, and with the
    values that it may have. The docstring's first line is the summary; the rest shows the IR before and after.

    ``run`` may expect verified IR and leaves IR that verifies. It fails by reporting an error (``op.emit_error``) or
    by raising PassFailure; any other exception is a bug and is raised again by ``PassManager.run``.
    """

    name: ClassVar[str] = ""
    anchor: ClassVar[str] = "builtin.module"

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            why = _why_not(getattr(self, field.name), field)
            if why:
                raise InvalidOption(f"option '{_hyphenated(field.name)}' of '{self.name}': {why}")

    def run(self, op: ir.Operation) -> None:
        """Rewrite ``op`` in place."""
        raise NotImplementedError

    def count(self, what: str, n: int = 1) -> None:
        """Add ``n`` to a statistic of this run, such as ``"waits merged"``.

        ``PassManager.statistics`` has them all, ``ditron-opt --mlir-pass-statistics`` prints them.
        """
        _core._count(self.name, what, n)

    @classmethod
    def summary(cls) -> str:
        """The first line of the docstring."""
        return (inspect.cleandoc(cls.__doc__ or "").splitlines() or [""])[0]

    @classmethod
    def register(cls) -> None:
        """Register the pass with MLIR; TypeError if the class is not a frozen dataclass with a name."""
        if cls.__dict__.get("_registered"):
            return
        if not cls.name or "__dataclass_params__" not in cls.__dict__ or not cls.__dataclass_params__.frozen:
            raise TypeError(f"{cls.__qualname__} must be a frozen dataclass with a name")
        options = [_option(cls, field) for field in dataclasses.fields(cls)]
        _core._register_pass(cls, cls.name, cls.summary(), cls.anchor, options)
        cls._registered = True

    def __str__(self) -> str:
        """The pass as pipeline text, with the options that differ from their defaults."""
        options = []
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if value != field.default:
                text = str(value).lower() if isinstance(value, bool) else str(value)
                options.append(f"{_hyphenated(field.name)}={text}")
        return self.name + (f"{{{' '.join(options)}}}" if options else "")


def option(default: bool | int | str, help: str, *, least: int | None = None, one_of: Sequence[str] = ()) -> Any:
    """An option of a pass: its default, its description, and the valid values: ``least`` or more, or ``one_of``.

    Another value raises InvalidOption when the pass is constructed, which is reported as an error of the pipeline.
    """
    return dataclasses.field(default=default, metadata={"help": help, "least": least, "one_of": tuple(one_of)})


def _why_not(value: Any, field: dataclasses.Field) -> str:
    """Why the value of an option is invalid; empty when it is valid."""
    least, one_of = field.metadata.get("least"), field.metadata.get("one_of")
    if type(value) is not type(field.default):
        return f"expected {_NAMES[type(field.default)]}, got {value!r}"
    if one_of and value not in one_of:
        return f"expected {', '.join(one_of[:-1])} or {one_of[-1]}, got '{value}'"
    if least is not None and value < least:
        return f"expected {least} or more, got {value}: {field.metadata['help']}"
    return ""


def _hyphenated(name: str) -> str:
    return name.replace("_", "-")


def _option(cls: type, field: dataclasses.Field) -> tuple:
    kind = _TYPES.get(field.type)
    if kind is None or type(field.default) is not kind:
        raise TypeError(
            f"option '{field.name}' of {cls.__qualname__} must be a bool, an int or a str with a default of that type, "
            f"got {field.type!r}"
        )
    return (_hyphenated(field.name), field.name, field.metadata.get("help", ""), field.default)
