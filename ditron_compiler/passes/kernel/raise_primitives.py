"""Raise the placeholders that the frontend emits for ``dl.*`` calls to ``ditron`` operations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ditron_compiler import ir
from ditron_compiler.analysis.call_graph import function_of, operations
from ditron_compiler.ir.dialects import ditron, tt
from ditron_compiler.ir.pass_base import Pass, PassFailure
from ditron_compiler.ir.type_propagation import propagate_type

__all__ = ["RaisePrimitives"]

_LIBRARY = "ditron"
_PREFIX = "ditron."
_VOID = "void"
_BARRIERS = ("gpu.barrier", "ttg.barrier", "ttg.local_barrier")  # tl.debug_barrier, as the version of Triton has it
_RETURN_TOKENS = frozenset(
    cls.OPERATION_NAME
    for cls in vars(ditron).values()
    if isinstance(cls, type) and issubclass(cls, ditron.ReturnsToken) and cls is not ditron.ReturnsToken
)


@dataclass(frozen=True)
class RaisePrimitives(Pass):
    """Raise the placeholders of ``dl`` calls to ``ditron`` operations.

    Stock Triton carries a primitive as an extern call: the symbol names the operation, the library path holds its
    attribute dictionary, and the attribute ``void`` in that marks an operation without a result. A token is an i32 in
    Triton's IR; its type becomes ``!ditron.token`` wherever it flows. Each public ``tt.func`` is marked as a kernel.
    ``tl.debug_barrier``, an operation of a dialect that is not ours, becomes ``ditron.sync_threads``.

    Before::

        %t = tt.extern_elementwise %sig, %n, %v {libname = "ditron",
               libpath = "{cmp = #ditron.cmp<ge>, scope = #ditron.scope<node>}", pure = false,
               symbol = "ditron.wait"} : (!tt.ptr<i64>, i32, i64) -> i32
        %q = tt.extern_elementwise %p, %t {libname = "ditron", libpath = "", pure = true,
               symbol = "ditron.consume_token"} : (!tt.ptr<f32>, i32) -> !tt.ptr<f32>

    After::

        %t = ditron.wait %sig[%n] ge %v : !tt.ptr<i64>
        %q = ditron.consume_token %p, %t : !tt.ptr<f32>
    """

    name: ClassVar[str] = "raise-primitives"

    def run(self, op: ir.Operation) -> None:
        every = operations(op)
        placeholders = [o for o in every if isinstance(o, tt.ExternElementwiseOp) and _string(o.libname) == _LIBRARY]
        for function in every:
            if isinstance(function, tt.FuncOp) and _string(function.sym_visibility) in ("", "public"):
                function.attributes["ditron.kernel"] = ir.UnitAttr.get(op.context)
        for barrier in [o for o in every if o.name in _BARRIERS and _in_kernel(o)]:
            ditron.SyncThreadsOp(loc=barrier.location, ip=ir.InsertionPoint(barrier))
            barrier.erase()
        ok, tokens, dictionaries = True, [], {}
        for placeholder in placeholders:
            raised = _raise(placeholder, dictionaries)
            ok &= raised is not None
            if raised is not None and raised.name in _RETURN_TOKENS:
                tokens.append(raised.results[0])
        self.count("primitives raised", len(placeholders))
        ok = ok and _check_tokens(op, tokens)
        if not ok:
            raise PassFailure


def _string(attribute: ir.Attribute | None) -> str:
    return ir.StringAttr(attribute).value if attribute is not None else ""


def _raise(placeholder: tt.ExternElementwiseOp, dictionaries: dict[str, ir.DictAttr]) -> ir.Operation | None:
    """Replace one placeholder; None, after a diagnostic, if it is malformed."""
    symbol, text = _string(placeholder.symbol), _string(placeholder.libpath)
    if not symbol.startswith(_PREFIX):
        placeholder.emit_error(f"expected the symbol of a primitive to be '{_PREFIX}<operation>', got '{symbol}'")
        return None
    if not _in_kernel(placeholder):
        placeholder.emit_error(
            f"'{symbol}' in a function that is not inlined, which has no group; remove noinline=True from the helper"
        )
        return None
    if text not in dictionaries:
        try:
            dictionaries[text] = ir.DictAttr(ir.Attribute.parse(text or "{}", placeholder.context))
        except (ir.MLIRError, ValueError, TypeError):
            placeholder.emit_error(f"expected the attribute dictionary of '{symbol}', got '{text}'")
            return None
    dictionary = dictionaries[text]
    attributes = {name: dictionary[name] for name in dictionary}
    if attributes.pop(_VOID, None) is not None:
        results = []
        if placeholder.results[0].has_uses:
            placeholder.emit_error(f"'{symbol}' has no result, but a result is used")
            return None
    elif symbol in _RETURN_TOKENS:
        results = [ditron.token_type(placeholder.context)]
    else:
        results = [placeholder.results[0].type]
    try:
        raised = ir.Operation.create(
            symbol,
            results=results,
            operands=list(placeholder.operands),
            attributes=attributes,
            loc=placeholder.location,
            ip=ir.InsertionPoint(placeholder),
        )
    except ir.MLIRError as error:
        placeholder.emit_error(f"'{symbol}' cannot be created from this placeholder: {error.message}")
        return None
    if not raised.is_registered:
        raised.erase()
        placeholder.emit_error(
            f"'{symbol}' is not an operation of the dialect; the frontend and the compiler differ in version"
        )
        return None
    if results:
        placeholder.results[0].replace_all_uses_with(raised.results[0])
    placeholder.erase()
    return raised


def _in_kernel(op: ir.Operation) -> bool:
    function = function_of(op)
    return function is None or "ditron.kernel" in function.attributes


def _check_tokens(root: ir.Operation, tokens: list[ir.Value]) -> bool:
    """Change the type of all that the tokens flow to; check that tokens are only consumed, and only tokens are."""
    ok = True
    token_type = ditron.token_type(root.context)
    for use in propagate_type(tokens, token_type):
        if not isinstance(use.owner, ditron.ConsumeTokenOp) or use.operand_number != 1:
            use.owner.emit_error(
                f"expected a token to be consumed by 'ditron.consume_token', got a use by '{use.owner.name}'"
            )
            ok = False
    for op in operations(root):
        if isinstance(op, ditron.ConsumeTokenOp) and op.token.type != token_type:
            op.emit_error(
                "'ditron.consume_token' expected a token made by 'ditron.wait' on every path to here, got a "
                f"value of type {op.token.type}"
            )
            ok = False
    return ok
