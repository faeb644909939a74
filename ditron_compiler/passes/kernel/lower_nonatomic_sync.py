"""Lower synchronization to loads, stores and fences, for links without remote atomics such as PCIe."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ditron_compiler import ir
from ditron_compiler.analysis.alias import underlying_objects
from ditron_compiler.analysis.call_graph import operations, pointers, reached
from ditron_compiler.analysis.rank_variance import Place, place
from ditron_compiler.ir.dialects.enums import keyword
from ditron_compiler.ir.pass_base import Pass, PassFailure

__all__ = ["LowerNonatomicSync"]

_TRITON_ATOMICS = ("tt.atomic_rmw", "tt.atomic_cas", "tt.descriptor_reduce")
_ATOMICS = ("ditron.atomic_add", "ditron.red", "ditron.atomic_cas", *_TRITON_ATOMICS)


@dataclass(frozen=True)
class LowerNonatomicSync(Pass):
    """Lower synchronization between GPUs to 64-bit loads, stores and fences.

    PCIe has no atomics between GPUs and guarantees little order. A ``notify`` becomes a fence and one store of the
    signal (``signal_op set``, a relaxed store of scope world, in PTX the same as a volatile store); a ``wait`` becomes
    a loop of relaxed loads of this rank's memory, followed by a fence; a ``putmem_signal`` becomes the put, a fence and
    the store. Each signal has one writer, so no update is lost.

    Whatever needs a read-modify-write on another GPU is an error: ``add``, atomics through ``symm_at`` or of scope node
    or world, also in functions that are called, and NVLink multicast. Synchronization within the GPU (scope gpu) is not
    changed.

    Before::

        ditron.notify %sig set %epoch on %right : !tt.ptr<i64>
        %token = ditron.wait %sig[%c1] ge %epoch : !tt.ptr<i64>

    After::

        ditron.fence
        ditron.signal_op %sig set %epoch on %right : !tt.ptr<i64>
        %token = ditron.wait %sig[%c1] ge %epoch semantic relaxed : !tt.ptr<i64>
        ditron.fence
    """

    name: ClassVar[str] = "lower-nonatomic-sync"

    def run(self, op: ir.Operation) -> None:
        found = [o for o in operations(op) if o.name.startswith("ditron.") or o.name in (*_TRITON_ATOMICS, "tt.call")]
        if not all([self._check(o) for o in found]):
            raise PassFailure
        for o in found:
            name = o.name
            if name in _REWRITES and _REWRITES[name](o):
                self.count(f"{name.removeprefix('ditron.')} lowered")

    def _check(self, op: ir.Operation) -> bool:
        """Emit an error if ``op`` needs a read-modify-write on another GPU."""
        why = _why_not(op)
        if why is not None:
            op.emit_error(why)
        return why is None


def _why_not(op: ir.Operation) -> str | None:
    name = op.name.removeprefix("ditron.")
    if name in ("notify", "signal_op", "putmem_signal") and keyword(op.attributes["op"]) == "add" and not _is_here(op):
        return (
            f"'{op.name} add' needs a read-modify-write on another GPU, which the links of this pipeline do not "
            "support: give each writer its own signal (ptr + rank, or one per writing program), let it set the "
            "epoch, and wait for all of them by the count of dl.wait"
        )
    if op.name in _ATOMICS and not _is_here(op):
        return (
            f"'{op.name}' is a read-modify-write that may be on another GPU, which the links of this pipeline do "
            "not support: write to a separate cell for each rank with dl.st or dl.notify and combine them at the "
            'receiver; for memory of this GPU write scope="gpu"'
        )
    if name == "tt.call" and (atomic := _atomic_there(op)) is not None:
        return (
            f"the callee has a '{atomic}', a read-modify-write, and is passed a pointer to another GPU's memory, "
            "where the links of this pipeline do not support it: write to a separate cell for each rank with "
            "dl.st or dl.notify and combine them at the receiver"
        )
    if name.startswith("multimem") or name == "multicast_ptr":
        return f"'{op.name}' needs NVLink, which this pipeline does not assume: use dl.putmem, or another pipeline"
    return None


def _atomic_there(call: ir.Operation) -> str | None:
    """The name of an operation of the callee that may be a read-modify-write on another GPU."""
    if all(origin.rank is None for pointer in pointers(call) for origin in underlying_objects(pointer)):
        return None
    return next((op.name for op in reached(call) if op.name in (*_TRITON_ATOMICS, "tt.call")), None)


def _is_here(op: ir.Operation) -> bool:
    """Whether an update stays within this GPU."""
    if any(origin.rank is not None for origin in underlying_objects(op.operands[0])):
        return False
    if op.name.startswith("tt.") or op.name == "ditron.signal_op" and place(op.operands[2], op) == Place.SELF:
        return True
    return "scope" in op.attributes and keyword(op.attributes["scope"]) == "gpu"


def _notify(op: ir.Operation) -> bool:
    if _is_here(op):
        return False
    _make("fence", op)
    _make("signal_op", op, list(op.operands), {"op": op.attributes["op"]})
    op.erase()
    return True


def _putmem_signal(op: ir.Operation) -> bool:
    dst, src, nbytes, signal, value, rank = op.operands
    kept = {name: op.attributes[name] for name in ("nbi", "granularity") if name in op.attributes}
    _make("putmem", op, [dst, src, nbytes, rank], kept)
    _make("fence", op)
    _make("signal_op", op, [signal, value, rank], {"op": op.attributes["op"]})
    op.erase()
    return True


def _wait(op: ir.Operation) -> bool:
    if keyword(op.attributes["semantic"]) == "relaxed" or keyword(op.attributes["scope"]) == "gpu":
        return False
    op.attributes["semantic"] = _relaxed(op)
    ir.Operation.create("ditron.fence", loc=op.location, ip=ir.InsertionPoint(op.next_op))
    return True


def _signal_wait_until(op: ir.Operation) -> bool:
    """Not lowered if its result is used: the lowering reads that by a compare-and-swap, but of this rank's memory."""
    if op.results[0].has_uses:
        return False
    signal, value = op.operands
    i32 = ir.IntegerType.get_signless(32, op.context)
    one = ir.Operation.create(
        "arith.constant",
        results=[i32],
        attributes={"value": ir.IntegerAttr.get(i32, 1)},
        loc=op.location,
        ip=ir.InsertionPoint(op),
    ).results[0]
    attributes = {
        "cmp": op.attributes["cmp"],
        "scope": ir.Attribute.parse("#ditron.scope<world>", op.context),
        "semantic": _relaxed(op),
    }
    ir.Operation.create(
        "ditron.wait",
        results=[ir.Type.parse("!ditron.token", op.context)],
        operands=[signal, one, value],
        attributes=attributes,
        loc=op.location,
        ip=ir.InsertionPoint(op),
    )
    _make("fence", op)
    op.erase()
    return True


_REWRITES = {
    "ditron.notify": _notify,
    "ditron.putmem_signal": _putmem_signal,
    "ditron.wait": _wait,
    "ditron.signal_wait_until": _signal_wait_until,
}


def _relaxed(op: ir.Operation) -> ir.Attribute:
    return ir.Attribute.parse("#ditron.semantic<relaxed>", op.context)


def _make(
    name: str,
    op: ir.Operation,
    operands: list[ir.Value] | None = None,
    attributes: dict[str, ir.Attribute] | None = None,
) -> None:
    """Create an operation without results before ``op``."""
    ir.Operation.create(
        f"ditron.{name}",
        operands=operands or [],
        attributes=attributes or {},
        loc=op.location,
        ip=ir.InsertionPoint(op),
    )
