"""Which arguments a kernel's addresses derive from: its accesses must stay in these tensors' allocations."""

from __future__ import annotations

from ditron_compiler import ir
from ditron_compiler.analysis.alias import underlying_objects
from ditron_compiler.ir.matchers import is_function_argument

from .independence import is_private

# Operations that derive pointers and descriptors from pointers and descriptors only. `ditron` operations give symmetric
# addresses, whose bounds the heap knows.
_DERIVING = frozenset((
    "tt.func", "tt.call", "tt.return", "tt.addptr", "tt.splat", "tt.unsplat", "tt.broadcast", "tt.expand_dims",
    "tt.reshape", "tt.trans", "tt.cat", "tt.join", "tt.split", "tt.bitcast", "tt.make_tensor_ptr", "tt.advance",
    "tt.make_tensor_descriptor", "scf.if", "scf.for", "scf.while", "ub.poison", "arith.select",
))  # fmt: skip


def keeps_to_arguments(module: ir.Module) -> bool:
    """Whether every address in a module of tt and ditron operations derives from a kernel's argument.

    An address that is loaded, or computed from an integer, may be anywhere.
    """
    found = True

    def look(op: ir.Operation) -> ir.WalkResult:
        nonlocal found
        name = op.name
        if name in _DERIVING or name.startswith(("arith.", "ditron.")):
            return ir.WalkResult.ADVANCE
        kinds = (str(result.type) for result in op.results)
        found = not any("!tt.ptr" in kind or "!tt.tensordesc" in kind for kind in kinds)
        return ir.WalkResult.ADVANCE if found else ir.WalkResult.INTERRUPT

    module.operation.walk(look)
    return found


def argument_of(pointer: ir.Value, function: ir.Operation) -> int | None:
    """The number of the kernel's argument that a pointer, a tensor of pointers or a descriptor derives from.

    None where it may be one of several, or where it is another function's argument, loaded, or a computed integer.
    """
    roots = {origin.root for origin in underlying_objects(pointer)}
    root = roots.pop()
    return root.arg_number if not roots and is_function_argument(root) and not is_private(function) else None
