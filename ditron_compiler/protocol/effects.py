"""The operations that touch memory or order it: which method of :class:`.program.Program` carries each out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ditron_compiler import ir
from ditron_compiler.ir.dialects.enums import keyword
from ditron_compiler.lowering.sim.locations import user_line
from ditron_compiler.protocol.expressions import bits_of, integer, itemsize, shape_of

if TYPE_CHECKING:
    from ditron_compiler.protocol.slices import Slices

__all__ = ["EFFECTS", "Effect", "Site", "make_site"]


@dataclass(frozen=True)
class Site:
    """An operation of a kernel, as the checker speaks of it.

    Attributes:
        number: among the kernel's sites. op: its place in the function. name: the operation's. loc: ``file:line:col``.
        itemsize: bytes of an element it touches. facts: its enumerations (scope, semantic, op, cmp) and flags.
        loops: the loops around it. ties: the waits (``op``) whose tokens its operands depend on.
        consumed: of a wait, whether anybody consumes its token.
    """

    number: int
    op: int
    name: str
    loc: str
    itemsize: int
    facts: dict[str, str]
    loops: tuple[int, ...]
    ties: frozenset[int]
    consumed: bool

    def fact(self, name: str, default: str) -> str:
        return self.facts.get(name, default)


@dataclass(frozen=True)
class Effect:
    """How an operation is carried out.

    Attributes:
        method: of ``Program``. operands: which of the operation's are passed. waits: the method is a generator.
        value_method: the one, a generator, that is called in place of it when the result is needed.
    """

    method: str
    operands: Callable[[ir.Operation], list[int]]
    waits: bool = False
    value_method: str = ""


def _first(count: int) -> Callable[[ir.Operation], list[int]]:
    return lambda op: list(range(count))


def _all(op: ir.Operation) -> list[int]:
    return list(range(len(op.operands)))


def _load(op: ir.Operation) -> list[int]:
    return [0, 1]


def _store(op: ir.Operation) -> list[int]:
    """Address and mask; of a single integer, which may be a flag, the value too."""
    return [0, 2, 1] if _is_cell(op.operands[1].type) else [0, 2]


def _is_cell(kind: ir.Type) -> bool:
    return str(kind) in ("i32", "i64")


def _atomic(op: ir.Operation) -> list[int]:
    return [0, 1] if str(op.operands[1].type).endswith(("i32", "i64", "i32>", "i64>")) else [0]


EFFECTS: dict[str, Effect] = {
    "tt.load": Effect("read", _load, value_method="load"),
    "tt.store": Effect("write", _store),
    "tt.descriptor_load": Effect("read_box", _all),
    "tt.descriptor_gather": Effect("not_followed", _first(0)),
    "tt.descriptor_store": Effect("write_box", lambda op: [0, *range(2, len(op.operands))]),
    "tt.descriptor_reduce": Effect("write_box", lambda op: [0, *range(2, len(op.operands))]),
    "tt.descriptor_scatter": Effect("not_followed", _first(0)),
    "tt.atomic_rmw": Effect("atomic", _first(3), waits=True),
    "tt.atomic_cas": Effect("cas", _first(3), waits=True),
    "ditron.symm_at": Effect("symm_at", _first(2)),
    "ditron.multicast_ptr": Effect("multicast", _first(1)),
    "ditron.wait": Effect("wait", _first(3), waits=True),
    "ditron.signal_wait_until": Effect("wait_until", _first(2), waits=True),
    "ditron.notify": Effect("notify", _first(3)),
    "ditron.signal_op": Effect("notify", _first(3)),
    "ditron.putmem": Effect("put", _first(4)),
    "ditron.putmem_signal": Effect("put_signal", _first(6)),
    "ditron.getmem": Effect("get", _first(4)),
    "ditron.ll_put": Effect("ll_put", _first(5)),
    "ditron.ll_get": Effect("ll_get", _first(4), waits=True),
    "ditron.fence": Effect("fence", _first(0)),
    "ditron.quiet": Effect("quiet", _first(0)),
    "ditron.barrier_all": Effect("barrier", _first(0), waits=True),
    "ditron.barrier": Effect("barrier", _first(0), waits=True),
    "ditron.sync_all": Effect("barrier", _first(0), waits=True),
    "ditron.ld": Effect("ld", _first(1), waits=True),
    "ditron.st": Effect("st", _atomic, waits=True),
    "ditron.red": Effect("atomic", _atomic, waits=True),
    "ditron.atomic_add": Effect("atomic", _atomic, waits=True),
    "ditron.atomic_cas": Effect("cas", _first(3), waits=True),
    "ditron.multimem_ld_reduce": Effect("multimem_read", _first(1)),
    "ditron.multimem_st": Effect("multimem_write", _first(1)),
    "ditron.multimem_red": Effect("multimem_write", _first(1)),
    "ditron.extern_call": Effect("not_followed", _first(0)),
}

# Triton's enumerations of tt.atomic_rmw and tt.atomic_cas.
_TRITON_SCOPE = {1: "gpu", 2: "gpu", 3: "node"}  # gpu, cta, system
_TRITON_SEMANTIC = {1: "relaxed", 2: "acquire", 3: "release", 4: "acq_rel"}
_TRITON_RMW = {1: "and", 2: "or", 3: "xor", 4: "add", 5: "add", 6: "max", 7: "min", 8: "max", 9: "min", 10: "set"}
_KEYWORDS = ("scope", "semantic", "op", "cmp", "team")


def make_site(number: int, op: ir.Operation, loops: tuple[int, ...], slices: Slices) -> Site:
    """What is said of an operation."""
    facts: dict[str, str] = {}
    if op.name.startswith("ditron."):
        facts = {name: keyword(op.attributes[name]) for name in _KEYWORDS if name in op.attributes}
        if "nbi" in op.attributes:
            facts["nbi"] = "nbi"
    elif op.name.startswith("tt.atomic"):
        facts = {
            "scope": _TRITON_SCOPE[integer(op, "scope", 1)],
            "semantic": _TRITON_SEMANTIC[integer(op, "sem", 4)],
            "op": _TRITON_RMW.get(integer(op, "atomic_rmw_op", 4), "add"),
        }
    if op.name == "tt.load" and op.results:
        facts["cell"] = "cell" if _is_cell(op.results[0].type) and not shape_of(op.results[0].type) else ""
    operands = list(op.operands)
    size = itemsize(operands[0].type) if operands and op.name in EFFECTS else 0
    if "descriptor" in op.name:
        size = max(bits_of((list(op.results) or operands[1:])[0].type) // 8, 1)
    ordinal = slices.number(op)
    return Site(
        number,
        ordinal,
        op.name,
        user_line(op.location),
        size,
        facts,
        loops,
        slices.ties(op),
        ordinal in slices.consumed(),
    )
