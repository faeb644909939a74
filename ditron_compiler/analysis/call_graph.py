"""Functions: those of a module, those that are called and not inlined, and other code that passes do not look into."""

from __future__ import annotations

from collections.abc import Iterator

from ditron_compiler import ir

__all__ = ["OPAQUE", "functions", "operations", "pointers", "reached"]

#: What becomes of the pointers that these take is not to be seen where they stand.
OPAQUE = ("tt.call", "tt.elementwise_inline_asm", "tt.extern_elementwise", "ditron.extern_call")


def functions(module: ir.Operation) -> list[ir.Operation]:
    """The ``tt.func`` of a module."""
    return [op for op in module.regions[0].blocks[0] if op.name == "tt.func"]


def operations(op: ir.Operation) -> list[ir.Operation]:
    """Every operation in ``op``, a function or a module, those inside of others first; last ``op`` itself."""
    found: list[ir.Operation] = []
    op.walk(found.append)
    return found


def pointers(op: ir.Operation) -> list[ir.Value]:
    """The operands of ``op`` that lead to memory: pointers, tensors of them, descriptors."""
    return [value for value in op.operands if "!tt.ptr" in str(value.type) or "!tt.tensordesc" in str(value.type)]


def reached(call: ir.Operation) -> Iterator[ir.Operation]:
    """Every operation of the function that a ``tt.call`` calls, and of those called there, each once.

    A call of a function that has no body here is given itself.
    """
    function = call
    while function.name != "tt.func":
        function = function.parent
    named = {ir.StringAttr(f.attributes["sym_name"]).value: f for f in function.block if "sym_name" in f.attributes}
    worklist, seen = [call], set()
    while worklist:
        call = worklist.pop()
        name = ir.FlatSymbolRefAttr(call.attributes["callee"]).value
        if name in seen:
            continue
        callee = named.get(name)
        if callee is None or not len(callee.regions[0]):
            yield call
            continue
        seen.add(name)
        for op in operations(callee):
            if op.name == "tt.call":
                worklist.append(op)
            else:
                yield op
