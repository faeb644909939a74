"""The kernels of a module."""

from __future__ import annotations

from ditron_compiler import ir

__all__ = ["keep_kernel", "kernels_of"]


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


def _string(op: ir.Operation, name: str) -> str:
    attribute = op.attributes.get(name)
    return ir.StringAttr(attribute).value if attribute is not None else ""
