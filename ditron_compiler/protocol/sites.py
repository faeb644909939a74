"""An operation of a kernel, as the checker speaks of it once the IR is gone."""

from __future__ import annotations

from dataclasses import dataclass

from ditron_compiler import ir
from ditron_compiler.analysis.words import word_kind
from ditron_compiler.ir.dialects import cf, ditron, scf, tt
from ditron_compiler.ir.locations import user_line
from ditron_compiler.protocol.effects import effect_of, may_order
from ditron_compiler.protocol.inline_ptx import UNDERSTOOD, not_understood
from ditron_compiler.protocol.ir_values import bits_of, itemsize
from ditron_compiler.protocol.polls import loop_of_looks, poll_of
from ditron_compiler.protocol.slices import BackwardSlice

__all__ = ["Site", "make_site", "signature_of"]


@dataclass(frozen=True)
class Site:
    """An operation that accesses or orders memory, or decides about control flow.

    Attributes:
        number: among the kernel's sites. ordinal: position in the function. op_class: its typed class. loc:
        ``file:line:col``. itemsize: bytes of an element it accesses. attributes: its enumerations (scope, semantic, op,
        cmp, team) as keywords, and flags. loops: ordinals of the loops around it. tokens: ordinals of the waits whose
        tokens its operands depend on. consumed: of a wait, whether any operation consumes its token. spins: whether
        it may be repeated until a value changes: it is in an ``scf.while``, or in a function, which one may call.
    """

    number: int
    ordinal: int
    op_class: type
    loc: str
    itemsize: int
    attributes: dict[str, str]
    loops: tuple[int, ...]
    tokens: frozenset[int]
    consumed: bool
    spins: bool

    @property
    def name(self) -> str:
        """The operation's name, as ``ditron.notify``."""
        return self.op_class.OPERATION_NAME

    @property
    def mnemonic(self) -> str:
        """The same without the dialect: ``notify``."""
        return self.name.partition(".")[2]

    def isa(self, *classes: type) -> bool:
        """Whether the operation is of one of these classes, or has one of these interfaces."""
        return issubclass(self.op_class, classes)

    @property
    def reads(self) -> bool:
        """Whether it reads an integer on which something depends."""
        return "used" in self.attributes and "integer" in self.attributes and self.isa(*_READS)

    def get(self, name: str, default: str) -> str:
        """An attribute, or ``default`` where the operation has none of that name."""
        return self.attributes.get(name, default)


_READS = (tt.LoadOp, tt.AtomicRMWOp, tt.AtomicCASOp, ditron.LdOp, ditron.AtomicAddOp, ditron.AtomicCasOp)
_ENUMERATIONS = ("scope", "semantic", "op", "cmp", "team")
_SCOPE = {tt.MemSyncScope.GPU: "gpu", tt.MemSyncScope.CTA: "gpu", tt.MemSyncScope.SYSTEM: "node"}
_SEMANTIC = {
    tt.MemSemantic.RELAXED: "relaxed",
    tt.MemSemantic.ACQUIRE: "acquire",
    tt.MemSemantic.RELEASE: "release",
    tt.MemSemantic.ACQUIRE_RELEASE: "acq_rel",
}
_RMW = {
    tt.RMWOp.FADD: "add",
    tt.RMWOp.UMAX: "max",
    tt.RMWOp.UMIN: "min",
    tt.RMWOp.XCHG: "set",
}


def _attributes(op: ir.Operation) -> dict[str, str]:
    if op.name.startswith("ditron."):
        found = {name: str(op.attributes[name].value) for name in _ENUMERATIONS if name in op.attributes}
        return found | ({"nbi": "nbi"} if "nbi" in op.attributes else {})
    if isinstance(op, (tt.AtomicRMWOp, tt.AtomicCASOp)):
        kind = op.atomic_rmw_op if isinstance(op, tt.AtomicRMWOp) else tt.RMWOp.ADD
        return {
            "scope": _SCOPE[op.scope or tt.MemSyncScope.GPU],
            "semantic": _SEMANTIC[op.sem or tt.MemSemantic.ACQUIRE_RELEASE],
            "op": _RMW.get(kind, kind.name.lower()),
        }
    return {}


def _values(op: ir.Operation, slices: BackwardSlice) -> dict[str, str]:
    """``integer``: the bits of the integers that it loads or combines. ``used``: something depends on its result.
    ``polls``: a loop repeats it until a comparison holds. ``gives_up``: the position of a loop that only repeats it,
    and perhaps not until then. ``decides``: control or an address depends on it; ``repeats``: whether a loop goes on
    does; ``data``: what is stored does. ``stores_words``, ``reads_words``: the kind of words (words.py) that it stores,
    and of which it reads only what is known. ``waited``: a loop waits for all of it. ``why``: of inline assembly, what
    is not followed. ``orders``: of control flow, whether it may order programs.
    """
    found = {}
    if op.results and slices.is_needed(op.results[0]):
        found["used"] = "used"
    data = list(op.results)[:1] or list(op.operands)[1:2]
    kind = str(data[0].type).removeprefix("tensor<").rstrip(">").split("x")[-1] if data else ""
    if kind[:1] == "i" and kind[1:].isdigit():
        found["integer"] = kind[1:]
    if isinstance(op.parent, scf.WhileOp) and (poll := poll_of(op.parent)) is not None and poll.read == op:
        found["polls"] = "polls"
    if isinstance(op, ditron.LdOp) and slices.is_stored(op.result):
        found["data"] = "data"
    if found.get("integer") == "64" and op.results and (kind := slices.readable_words(op.results[0])):
        found["reads_words"] = kind
    if found.get("integer") == "64" and isinstance(op, ditron.LdOp) and slices.is_waited_for(op.result):
        found["waited"] = "waited"
    if isinstance(op, (tt.StoreOp, ditron.StOp)) and (kind := word_kind(op.value)):
        found["stores_words"] = kind
    if op.results and slices.decides(op.results[0]):
        found["decides"] = "decides"
        if slices.repeats(op.results[0]):
            found["repeats"] = "repeats"
        if (loop := loop_of_looks(op)) is not None:
            found["gives_up"] = str(slices.ordinal(loop))
    if isinstance(op, tt.ElementwiseInlineAsmOp):
        found["why"] = f", for `{not_understood(op)}`; understood are {UNDERSTOOD}"
    if effect_of(op) is None and (isinstance(op, cf.CondBranchOp) or may_order(op)):
        found["orders"] = "orders"
    return found


_SIGNATURES = {
    ditron.NotifyOp: ("the value", "dl.notify(ptr, rank, value)"),
    ditron.SignalOpOp: ("the value", "dl.signal_op(ptr, value, rank)"),
    ditron.PutmemOp: ("the number of bytes", "dl.putmem(dst, src, nbytes, rank)"),
    ditron.GetmemOp: ("the number of bytes", "dl.getmem(dst, src, nbytes, rank)"),
    ditron.PutmemSignalOp: ("the value", "dl.putmem_signal(dst, src, nbytes, sig, value, rank)"),
}


def signature_of(site: Site) -> tuple[str, str]:
    """What is easily given in place of an operation's rank, and its parameters in order."""
    return _SIGNATURES.get(site.op_class, ("", ""))


def _spins(op: ir.Operation) -> bool:
    parent = op.parent
    while not isinstance(parent, tt.FuncOp):
        if isinstance(parent, scf.WhileOp):
            return True
        parent = parent.parent
    return parent.sym_visibility is not None and parent.sym_visibility.value == "private"


def make_site(number: int, op: ir.Operation, loops: tuple[int, ...], slices: BackwardSlice) -> Site:
    """The site of ``op``, the kernel's ``number``-th."""
    operands, size = list(op.operands), 0
    if isinstance(op, (tt.DescriptorLoadOp, tt.DescriptorGatherOp)):
        size = max(bits_of(op.result.type) // 8, 1)
    elif isinstance(op, (tt.DescriptorStoreOp, tt.DescriptorReduceOp, tt.DescriptorScatterOp)):
        size = max(bits_of(op.src.type) // 8, 1)
    elif operands and effect_of(op) is not None:
        size = itemsize(operands[0].type)
    ordinal = slices.ordinal(op)
    return Site(
        number,
        ordinal,
        type(op),
        user_line(op.location),
        size,
        _attributes(op) | _values(op, slices),
        loops,
        slices.tokens(op),
        ordinal in slices.consumed(),
        _spins(op),
    )
