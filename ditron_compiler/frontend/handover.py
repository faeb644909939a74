"""Moves a module between Triton's MLIR and ours, as text in MLIR's generic form.

Two copies of MLIR, of different versions, live in the process: the one inside Triton and ours. The generic form is the
one that both read whatever their versions, and it keeps every location, which diagnostics need.
"""

from __future__ import annotations

import os
import re
import tempfile
from typing import Any

from ditron_compiler import ir
from ditron_compiler.ir.dialects import tt

__all__ = ["from_triton", "print_generic", "to_triton"]

# Name of the function that makes Triton print generic form; not an identifier a kernel can have.
_MARKER = "ditron.print_generic"
# The definition of an alias of a layout, as of shared memory.
_LAYOUT = re.compile(r"^(#\w+) = (#ttn?g\..*)\n", re.MULTILINE)


def print_generic(module: Any) -> str:
    """Print a Triton module in generic form with locations, plus one function without a body named ``_MARKER``.

    Triton has no switch for the generic form. But MLIR prints a module that does not verify generically, so that the
    printers of its operations cannot trip over it; a public ``tt.func`` without a body does not verify. ``str()`` keeps
    locations, ``str_nodebug()`` does not. The module must not be used by Triton afterwards.
    """
    from triton._C.libtriton import ir as triton_ir

    builder = triton_ir.builder(module.context)
    function = builder.get_or_insert_function(module, _MARKER, builder.get_function_ty([], []), "public", False)
    module.push_back(function)
    return str(module)


def from_triton(module: Any, context: ir.Context) -> ir.Module:
    """Parse a Triton module into ``context``: ``tt`` and other Triton operations stay as they are, with locations.

    Consumes ``module`` (see :func:`print_generic`). Raises ir.MLIRError when our MLIR cannot read it.
    """
    # Triton's modules contain dialects that we do not register: tl.debug_barrier is gpu.barrier.
    context.allow_unregistered_dialects = True
    parsed = ir.Module.parse(_without_aliases(print_generic(module)), context)
    marker = next(op for op in parsed.body.operations if isinstance(op, tt.FuncOp) and op.sym_name.value == _MARKER)
    marker.erase()
    return parsed


def _without_aliases(text: str) -> str:
    """The text of a module in which layouts are written where they are used: within types that we do not know, our MLIR
    would keep the names of their aliases, and lose what those stand for.
    """
    layouts = dict(_LAYOUT.findall(text))
    if not layouts:
        return text
    names = re.compile(rf"(?:{'|'.join(layouts)})\b")

    def expand(part: str) -> str:
        return names.sub(lambda match: expand(layouts[match[0]]), part)

    return expand(_LAYOUT.sub("", text))


def to_triton(module: ir.Module, context: Any) -> Any:
    """Parse our module into Triton's ``context``, which has its dialects loaded, and return a Triton module.

    Triton reads modules from files only. Raises RuntimeError when it cannot read the module (its diagnostics go to
    standard error): an operation that only we know was left in it.
    """
    from triton._C.libtriton import ir as triton_ir

    text = module.operation.get_asm(enable_debug_info=True, print_generic_op_form=True)
    handle, path = tempfile.mkstemp(suffix=".ttir", prefix="ditron-")
    try:
        with os.fdopen(handle, "w") as file:
            file.write(text)
        parsed = triton_ir.parse_mlir_module(path, context)
    finally:
        os.unlink(path)
    parsed.context = context
    return parsed
