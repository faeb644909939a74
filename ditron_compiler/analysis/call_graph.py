"""Functions of a module, what a call reaches, and operations whose memory accesses are not visible at all."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ditron_compiler import ir
from ditron_compiler.ir.dialects import ditron, tt

#: Operations that may access memory through their pointer operands in a way that only their callee, if any, shows.
OPAQUE = (tt.CallOp, tt.ElementwiseInlineAsmOp, tt.ExternElementwiseOp, ditron.ExternCallOp)


def functions(module: ir.Operation) -> list[tt.FuncOp]:
    """The ``tt.func`` of a module."""
    return [op for op in module.regions[0].blocks[0] if isinstance(op, tt.FuncOp)]


def function_of(op: ir.Operation) -> tt.FuncOp | None:
    """The ``tt.func`` that ``op`` is, or is nested in."""
    while op is not None and not isinstance(op, tt.FuncOp):
        op = op.parent
    return op


def operations(op: ir.Operation) -> list[ir.Operation]:
    """Every operation nested in ``op``, and ``op`` itself, in post-order."""
    found: list[ir.Operation] = []
    op.walk(found.append)
    return found


def is_pointer_like(type_: ir.Type) -> bool:
    """Whether values of a type lead to memory: pointers, tensors of pointers, tensor descriptors."""
    return "!tt.ptr" in (text := str(type_)) or "!tt.tensordesc" in text


_PREFETCHES = re.compile(
    r"(\s*(prefetch(u)?\.[\w.:]+\s*\[\$\d+\]|cp\.async\.bulk\.prefetch\.L2\.global\s*\[\$\d+\]\s*,\s*\$\d+"
    r"|mov\.[bus]32\s+\$0\s*,\s*0)\s*;)+\s*"
)


def only_prefetches(op: ir.Operation) -> bool:
    """Whether inline PTX asks caches for memory and does nothing else: it returns 0."""
    return isinstance(op, tt.ElementwiseInlineAsmOp) and bool(_PREFETCHES.fullmatch(op.asm_string.value))


def pointer_operands(op: ir.Operation) -> list[ir.Value]:
    """The operands of ``op`` that lead to memory."""
    return [value for value in op.operands if is_pointer_like(value.type)]


def reachable_operations(call: tt.CallOp) -> Iterator[ir.Operation]:
    """Every operation of the callee, and of functions called there, each once.

    A call of a function without a body is itself part of the result, in place of what it would reach.
    """
    function = function_of(call)
    named = {ir.StringAttr(f.attributes["sym_name"]).value: f for f in function.block if "sym_name" in f.attributes}
    worklist, seen = [call], set()
    while worklist:
        call = worklist.pop()
        name = call.callee.value
        if name in seen:
            continue
        callee = named.get(name)
        if callee is None or not len(callee.regions[0]):
            yield call
            continue
        seen.add(name)
        for op in operations(callee):
            if isinstance(op, tt.CallOp):
                worklist.append(op)
            else:
                yield op
