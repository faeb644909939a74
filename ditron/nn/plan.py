"""What a plan of ``parallelize`` names, and whether it can be carried out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from torch import nn

from ditron.distributed.group import Group
from ditron.nn.linear import ColumnParallelLinear, RowParallelLinear
from ditron_compiler.errors import DitronError

__all__ = ["LAYERS", "check_plan", "find"]

LAYERS: dict[str, Any] = {"colwise": ColumnParallelLinear, "rowwise": RowParallelLinear}
STYLES = (*LAYERS, "gather", "sequence")


def find(module: nn.Module, plan: Mapping[str, str]) -> list[tuple[str, str]]:
    """Names of submodules with their styles; what has several names takes "gather" and "sequence" once."""
    found: dict[Any, tuple[str, str]] = {}
    for pattern, style in plan.items():
        for name in _matches(module, pattern, style):
            found.setdefault((name if style in LAYERS else id(module.get_submodule(name)), style), (name, style))
    return list(found.values())


def _matches(module: nn.Module, pattern: str, style: str) -> list[str]:
    if style not in STYLES:
        raise DitronError(f"parallelize: unknown style {style!r} of {pattern!r}: expected one of {', '.join(STYLES)}")
    parts = pattern.split(".")
    names = [
        name
        for name, _ in module.named_modules(remove_duplicate=False)
        if len(atoms := name.split(".")) == len(parts) and all(map(fnmatchcase, atoms, parts))
    ]
    if not names:
        raise DitronError(f"parallelize: no submodule is named {pattern!r}")
    return names


def check_plan(module: nn.Module, found: Sequence[tuple[str, str]], group: Group) -> None:
    """Raise DitronError unless every submodule can become what its style says; nothing is changed."""
    layers: dict[str, str] = {}
    for name, style in found:
        if style in LAYERS and layers.setdefault(name, style) != style:
            raise DitronError(f"parallelize: {name!r} is both {layers[name]} and {style}: let one pattern name it")
    shared = _names_of_parameters(module)
    for name, style in layers.items():
        linear = module.get_submodule(name)
        if not isinstance(linear, nn.Linear):
            raise DitronError(f"parallelize: {name!r} is {style} and must be an nn.Linear, got {type(linear)}")
        if not name:
            raise DitronError(
                f"parallelize: the module itself is {style}, and only its submodules can be replaced: call "
                f"ditron.nn.{LAYERS[style].__name__}.from_linear(module) instead"
            )
        try:
            LAYERS[style](linear.in_features, linear.out_features, group=group, device="meta")
        except DitronError as error:
            raise DitronError(f"parallelize: {name!r}: {error}") from None
        for parameter in linear.parameters(recurse=False):
            names = shared[id(parameter)]
            if len(names) > 1:
                raise DitronError(
                    f"parallelize: {name!r} is {style}, and shares a parameter with others ({', '.join(names)}), which "
                    "would no longer be tied: leave it out of the plan, or give it a parameter of its own before"
                )
    for name, style in found:
        if style == "gather":
            _check_gather(name, module.get_submodule(name), layers)


def _names_of_parameters(module: nn.Module) -> dict[int, list[str]]:
    names: dict[int, list[str]] = {}
    for name, parameter in module.named_parameters(remove_duplicate=False):
        names.setdefault(id(parameter), []).append(name)
    return names


def _check_gather(name: str, module: nn.Module, layers: Mapping[str, str]) -> None:
    prefix = f"{name}." if name else ""
    sizes = {
        child_name: child.in_features
        for child_name, child in module.named_children()
        if isinstance(child, ColumnParallelLinear) or layers.get(prefix + child_name) == "colwise"
    }
    if not sizes:
        raise DitronError(f"parallelize: {name!r} is to gather its input, and none of its children is colwise")
    if len(set(sizes.values())) > 1:
        raise DitronError(
            f"parallelize: {name!r} is to gather its input, and its colwise children have inputs of several sizes, "
            f'{sizes}: leave its "gather" out of the plan, and each gathers its own'
        )
