"""Specialization of a kernel without a launch: types as text instead of arguments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from triton.runtime.jit import JITFunction

from ditron_compiler.frontend.source import CONTEXT_ARGUMENT, CONTEXT_TYPE

__all__ = ["specialize", "unwrap"]

_INTEGERS = ("i1", "i8", "i16", "i32", "i64", "u1", "u8", "u16", "u32", "u64")
_FLOATS = ("fp16", "bf16", "fp32", "fp64", "fp8e4nv", "fp8e4b8", "fp8e4b15", "fp8e5", "fp8e5b16")


def unwrap(fn: Any) -> JITFunction:
    """The JIT function below ``autotune`` and ``heuristics``. Raises TypeError when there is none."""
    inner = fn
    while not isinstance(inner, JITFunction):
        if not hasattr(inner, "fn"):
            raise TypeError(f"expected a kernel decorated by @ditron.jit, got {fn!r}")
        inner = inner.fn
    return inner


def specialize(
    fn: Any,
    signature: Mapping[str, str] | Sequence[str] | None,
    constexprs: Mapping[str, Any] | None,
    options: Mapping[str, Any] | None,
) -> tuple[JITFunction, dict, dict, dict, dict]:
    """A kernel, its signature, constants, attributes and options as ``DitronSource`` takes them.

    ``signature`` may be a mapping, or a sequence in the order of the parameters that are no constants. What is left out
    comes from the function's ``example``, constants also from their defaults. Raises ValueError naming what is missing
    or not known.
    """
    kernel = unwrap(fn)
    example = getattr(kernel, "example", None) or {}
    parameters = [p for p in kernel.params if p.name != CONTEXT_ARGUMENT]
    names = [p.name for p in parameters]
    constants = {p.name: p.default for p in parameters if p.is_constexpr and p.has_default}
    constants |= dict(example.get("constexprs") or {}) | dict(constexprs or {})
    given = signature if signature is not None else example.get("signature") or {}
    if not isinstance(given, Mapping):
        given = _by_position(kernel, given, [n for n in names if n not in constants])
    for what, unknown in (("signature", set(given) - set(names)), ("constexprs", set(constants) - set(names))):
        if unknown:
            raise ValueError(
                f"{what} of kernel {kernel.__name__!r}: no parameter is called {min(unknown)!r}; its "
                f"parameters are {', '.join(names)}"
            )
    missing = [n for n in names if n not in given and n not in constants]
    if missing:
        raise ValueError(
            f"kernel {kernel.__name__!r}: no type (or constant) is given for {', '.join(missing)}; give "
            "signature= and constexprs=, or @ditron.jit(example=...)"
        )
    types, attrs = {}, {}
    for index, name in enumerate(names):
        if name in constants:
            types[name] = "constexpr"
            continue
        types[name], divisible = _type(kernel, name, given[name])
        if divisible:
            attrs[(index,)] = [["tt.divisibility", 16]]
    types[CONTEXT_ARGUMENT] = CONTEXT_TYPE
    constant_paths = {(names.index(name),): value for name, value in constants.items()}
    return kernel, types, constant_paths, attrs, dict(example.get("options") or {}) | dict(options or {})


def _by_position(kernel: JITFunction, types: Sequence[str], names: list[str]) -> dict[str, str]:
    if len(types) != len(names):
        raise ValueError(
            f"signature of kernel {kernel.__name__!r}: expected {len(names)} types, for "
            f"{', '.join(names)}; got {len(types)}"
        )
    return dict(zip(names, types, strict=True))


def _type(kernel: JITFunction, name: str, text: str) -> tuple[str, bool]:
    """Triton's type, and whether the value is divisible by 16: pointers are unless marked ``:1``."""
    spelled, _, hint = text.replace(" ", "").partition(":")
    bare = spelled.removeprefix("*").removeprefix("k") if spelled.startswith("*") else spelled
    if hint not in ("", "1", "16") or (bare not in _INTEGERS + _FLOATS and not spelled.startswith("tensordesc<")):
        raise ValueError(
            f"signature of kernel {kernel.__name__!r}: type {text!r} of {name!r} is not known: expected a "
            "pointer as '*bf16', a number as 'i32' or 'fp32', or 'tensordesc<bf16[128,64]>', with ':16' "
            "(divisible by 16) or ':1' (not) after it"
        )
    return spelled, hint == "16" or (hint == "" and spelled.startswith("*"))
