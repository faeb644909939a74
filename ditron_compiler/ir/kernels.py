"""The kernels of a module."""

from __future__ import annotations

from typing import Any

from ditron_compiler import ir
from ditron_compiler.ir.dialects import ditron

__all__ = ["keep_kernel", "kernels_of", "launch_options", "take_programs"]


def kernels_of(module: ir.Module) -> dict[str, ir.Operation]:
    """The public ``tt.func`` operations of a module, by name."""
    kernels = {}
    for op in module.body.operations:
        if op.name == "tt.func" and _string(op, "sym_visibility") != "private":
            kernels[_string(op, "sym_name")] = op
    return kernels


def keep_kernel(module: ir.Module, name: str) -> None:
    """Erase all kernels but one. Raises ValueError, listing them, when there is none of that name."""
    kernels = kernels_of(module)
    if name not in kernels:
        raise ValueError(f"the module has no kernel {name!r}; its kernels are: {', '.join(kernels)}")
    for other, op in kernels.items():
        if other != name:
            op.erase()


def launch_options(op: ditron.LaunchOp) -> dict[str, int | float | bool | str]:
    """Triton's options that a launch gives."""
    return {name: value.value for name, value in op.options.items()} if op.options is not None else {}


def take_programs(module: ir.Module) -> dict[str, dict[str, Any]] | None:
    """Erase the host programs of a module; the kernels that they launch, with the options of the first launch of each.

    None when there is no program.
    """
    programs = [op for op in module.body.operations if isinstance(op, ditron.ProgramOp)]
    if not programs:
        return None
    launched: dict[str, dict[str, Any]] = {}

    def visit(op: ir.Operation) -> None:
        if isinstance(op, ditron.LaunchOp):
            launched.setdefault(op.kernel.value, launch_options(op))

    for program in programs:
        program.walk(visit)
        program.erase()
    if "ditron.assumptions" in module.operation.attributes:
        del module.operation.attributes["ditron.assumptions"]
    return launched


def _string(op: ir.Operation, name: str) -> str:
    attribute = op.attributes.get(name)
    return ir.StringAttr(attribute).value if attribute is not None else ""
