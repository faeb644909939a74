"""All single mutations of the operations that order things in a module: what could have been written instead.

A mutation is named by its operation's name and Python line, so it can be applied to each specialisation of a kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ditron_compiler import ir
from ditron_compiler.ir.dialects.enums import keyword
from ditron_compiler.ir.locations import user_line
from ditron_compiler.ir.matchers import constant_int

__all__ = ["Mutation", "apply", "mutations"]

#: Operations that are mutated, and where their operands are: what may be re-indexed, by name.
TARGETS: dict[str, dict[str, int]] = {
    "ditron.wait": {"pointer": 0, "count": 1, "value": 2},
    "ditron.signal_wait_until": {"pointer": 0, "value": 1},
    "ditron.notify": {"pointer": 0, "value": 1, "rank": 2},
    "ditron.signal_op": {"pointer": 0, "value": 1, "rank": 2},
    "ditron.putmem_signal": {"pointer": 3, "value": 4, "rank": 5},
    "ditron.ll_put": {"pointer": 0, "value": 3, "rank": 4}, "ditron.ll_get": {"pointer": 1, "value": 3},
    "ditron.fence": {}, "ditron.quiet": {}, "ditron.barrier_all": {}, "ditron.barrier": {}, "ditron.sync_all": {},
    "ditron.consume_token": {},
    "ditron.ld": {"pointer": 0}, "ditron.st": {"pointer": 0, "value": 1}, "ditron.red": {"pointer": 0, "value": 1},
    "ditron.atomic_add": {"pointer": 0, "value": 1}, "ditron.atomic_cas": {"pointer": 0, "value": 2},
    "ditron.putmem": {}, "ditron.getmem": {},
    "tt.atomic_rmw": {"pointer": 0, "value": 1},
    "ditron.signal_write": {}, "ditron.signal_wait": {}, "ditron.record": {}, "ditron.await": {},
    "ditron.stream_barrier": {},
}  # fmt: skip
#: Operations that access signals or memory of other ranks, or order accesses, and are not mutated: reads that do not wait.
NOT_MUTATED = {"ditron.signal_fetch"}
#: Operations that a neighbour is exchanged with: they touch memory or hold what does.
_NEIGHBOURS = {
    "tt.load",
    "tt.store",
    "tt.descriptor_load",
    "tt.descriptor_store",
    "scf.for",
    "scf.if",
    "scf.while",
    "ditron.putmem",
    "ditron.getmem",
    "ditron.launch",
    "ditron.call",
    "ditron.rank_copy",
    "ditron.copy",
    "ditron.fill",
}
_WEAKER = {
    "scope": {"world": "node", "node": "gpu"},
    "semantic": {"acquire": "relaxed", "release": "relaxed", "acq_rel": "relaxed"},
    "cmp": {"ge": "gt", "gt": "ge", "eq": "ge"},
    "op": {"set": "add", "add": "set"},
}
_TRITON_RELAXED = 1


@dataclass(frozen=True)
class Mutation:
    """``kind``: remove, duplicate, reorder, weaken or re-index. ``detail``: of what, how. ``op``: which of its line."""

    kind: str
    detail: str
    op: int
    name: str
    loc: str

    def __str__(self) -> str:
        return f"{self.loc}: {self.kind} {self.name.removeprefix('ditron.')}{': ' + self.detail if self.detail else ''}"


def mutations(module: ir.Module) -> list[Mutation]:
    """Every mutation that the module allows."""
    return [
        Mutation(kind, detail, number, op.name, loc)
        for (name, loc, number), op in _targets(module).items()
        for kind, detail, _ in _ways(op)
    ]


def apply(mutation: Mutation, module: ir.Module) -> bool:
    """Make the mutation; whether the module has a place for it."""
    op = _targets(module).get((mutation.name, mutation.loc, mutation.op))
    if op is None:
        return False
    with module.context, op.location:
        for kind, detail, change in _ways(op):
            if (kind, detail) == (mutation.kind, mutation.detail):
                change()
                return True
    return False


def _targets(module: ir.Module) -> dict[tuple[str, str, int], ir.Operation]:
    """The operations to mutate, by name, Python line, and number among those of the same."""
    operations: list[ir.Operation] = []
    module.operation.walk(operations.append, ir.WalkOrder.PRE_ORDER)
    found: dict[tuple[str, str, int], ir.Operation] = {}
    for op in operations:
        if op.name in TARGETS:
            name, loc = op.name, user_line(op.location)
            found[name, loc, sum(key[:2] == (name, loc) for key in found)] = op
    return found


def _ways(op: ir.Operation) -> Iterator[tuple[str, str, Callable[[], None]]]:
    """Kind, detail, and what makes the change."""
    if op.name not in ("ditron.putmem", "ditron.getmem", "tt.atomic_rmw", "ditron.atomic_cas", "ditron.ld"):
        if _may_go(op):
            yield "remove", "", lambda: _remove(op)
        if op.name != "ditron.consume_token":
            yield "duplicate", "", lambda: _duplicate(op)
    if op.name == "ditron.putmem_signal":
        yield "remove", "the signal", lambda: _without_signal(op)
    if op.name != "ditron.consume_token":
        before, after = _neighbour(op, -1), _neighbour(op, 1)
        if before is not None:
            yield "reorder", f"before {before.name}", lambda: before.move_after(op)
        if after is not None and after.name not in TARGETS:  # else it is the other one's
            yield "reorder", f"after {after.name}", lambda: op.move_after(after)
    for name, weaker in _WEAKER.items():
        if name in op.attributes and op.name.startswith("ditron."):
            old = keyword(op.attributes[name])
            if old in weaker and not (op.name == "ditron.red" and name == "op"):  # it has no `set`
                yield "weaken", f"{name} {old} to {weaker[old]}", lambda name=name, new=weaker[old]: _set(op, name, new)
    if op.name == "tt.atomic_rmw" and int(ir.IntegerAttr(op.attributes["sem"]).value) != _TRITON_RELAXED:
        yield "weaken", "semantic to relaxed", lambda: _relax(op)
    if op.name in ("ditron.putmem", "ditron.getmem", "ditron.putmem_signal") and "nbi" not in op.attributes:
        yield "weaken", "to nbi", lambda: _nbi(op)
    for name, index in TARGETS[op.name].items():
        if str(op.operands[index].type).startswith("tensor"):
            continue
        nothing = name == "count" and constant_int(op.operands[index]) == 0
        for step in (1, -1) if name in ("value", "count") and not nothing else (1,):
            sign = "+" if step > 0 else "-"
            yield "re-index", f"{name} {sign} 1", lambda i=index, n=name, s=step: _shift(op, n, i, s)
    yield from _host_ways(op)


def _host_ways(op: ir.Operation) -> Iterator[tuple[str, str, Callable[[], None]]]:
    """The values of host operations: indices, then the signal's value, then the peer."""
    if op.name not in ("ditron.signal_write", "ditron.signal_wait"):
        return
    numbers = [number for number, value in enumerate(op.operands) if str(value.type) == "i64"]
    value = numbers[-2] if op.name == "ditron.signal_write" else numbers[-1]
    for number in numbers:
        if number == value:
            yield "re-index", "value + 1", lambda: _replace(op, value, _plus(op.operands[value], 1, op))
            yield "re-index", "value - 1", lambda: _replace(op, value, _plus(op.operands[value], -1, op))
        else:
            what = "index" if number < value else "rank"
            yield "re-index", f"{what} + 1", lambda n=number: _replace(op, n, _next_rank(op.operands[n], op))


# --- changes -----------------------------------------------------------------------------------------------------


def _may_go(op: ir.Operation) -> bool:
    replaced = ("ditron.wait", "ditron.ll_get", "ditron.consume_token", "ditron.record", "ditron.signal_wait_until")
    return op.name in replaced or not any(result.has_uses for result in op.results)


def _remove(op: ir.Operation) -> None:
    if op.name == "ditron.wait" and any(user.name != "ditron.consume_token" for user in op.results[0].users):
        count = TARGETS[op.name]["count"]  # a loop or a branch carries the token: wait for nothing
        op.operands[count] = _constant(op.operands[count].type, 0, op)
        return
    if op.name in ("ditron.wait", "ditron.ll_get", "ditron.record"):
        for user in list(op.results[0].users):
            _remove(user)
    elif op.name == "ditron.consume_token":
        op.results[0].replace_all_uses_with(op.operands[0])
    elif op.name == "ditron.signal_wait_until":
        op.results[0].replace_all_uses_with(op.operands[1])
    op.erase()


def _duplicate(op: ir.Operation) -> None:
    copy = op.clone(ir.InsertionPoint(op))
    copy.move_after(op)


def _neighbour(op: ir.Operation, step: int) -> ir.Operation | None:
    """The next operation in the block that touches memory, if the two can change places."""
    other = op
    while True:
        other = other.prev_op if step < 0 else other.next_op
        if other is None or other.is_terminator:
            return None
        if other.name in TARGETS or other.name in _NEIGHBOURS:
            break
    first, second = (other, op) if step < 0 else (op, other)
    between = first.next_op
    used: set[ir.Operation] = set()
    for result in first.results:
        used.update(_in_block(user, first) for user in result.users)
    while True:
        if between in used:
            return None
        if between is second:
            break
        between = between.next_op
    return None if other.name == "ditron.consume_token" else other


def _in_block(op: ir.Operation, sibling: ir.Operation) -> ir.Operation:
    """The operation of the sibling's block that ``op`` is, or is in."""
    while op.block != sibling.block:
        op = op.parent
    return op


def _set(op: ir.Operation, name: str, value: str) -> None:
    mnemonic = {"op": "reduce_op" if op.name == "ditron.red" else "signal_op"}.get(name, name)
    op.attributes[name] = ir.Attribute.parse(f"#ditron.{mnemonic}<{value}>", op.context)


def _relax(op: ir.Operation) -> None:
    op.attributes["sem"] = ir.IntegerAttr.get(op.attributes["sem"].type, _TRITON_RELAXED)


def _nbi(op: ir.Operation) -> None:
    op.attributes["nbi"] = ir.UnitAttr.get(op.context)


def _without_signal(op: ir.Operation) -> None:
    dst, src, nbytes, _, _, rank = op.operands
    attributes = {name: op.attributes[name] for name in ("nbi", "granularity") if name in op.attributes}
    ir.Operation.create(
        "ditron.putmem",
        operands=[dst, src, nbytes, rank],
        attributes=attributes,
        loc=op.location,
        ip=ir.InsertionPoint(op),
    )
    op.erase()


def _constant(kind: ir.Type, value: int, before: ir.Operation) -> ir.Value:
    return ir.Operation.create(
        "arith.constant",
        results=[kind],
        attributes={"value": ir.IntegerAttr.get(kind, value)},
        loc=before.location,
        ip=ir.InsertionPoint(before),
    ).result


def _shift(op: ir.Operation, what: str, index: int, step: int) -> None:
    """Another pointer, value, count or rank."""
    value, kind = op.operands[index], op.operands[index].type
    if what == "pointer":
        offset = _constant(ir.IntegerType.get_signless(32, op.context), step, op)
        shifted = ir.Operation.create(
            "tt.addptr", results=[kind], operands=[value, offset], loc=op.location, ip=ir.InsertionPoint(op)
        ).result
    elif not str(kind).startswith("i"):
        raise LookupError("not an integer")
    else:
        shifted = _plus(value, step, op)
    if what == "rank":
        place = ir.InsertionPoint(op)
        ranks = ir.Operation.create("ditron.num_ranks", results=[kind], loc=op.location, ip=place).result
        shifted = ir.Operation.create(
            "arith.remsi", results=[kind], operands=[shifted, ranks], loc=op.location, ip=place
        ).result
    _replace(op, index, shifted)


def _next_rank(value: ir.Value, before: ir.Operation) -> ir.Value:
    """One more, modulo the number of ranks, which is the number of signals, too."""
    place = ir.InsertionPoint(before)
    i32 = ir.IntegerType.get_signless(32, before.context)
    ranks = ir.Operation.create("ditron.num_ranks", results=[i32], loc=before.location, ip=place).result
    wide = ir.Operation.create(
        "arith.extsi", results=[value.type], operands=[ranks], loc=before.location, ip=place
    ).result
    return ir.Operation.create(
        "arith.remsi", results=[value.type], operands=[_plus(value, 1, before), wide], loc=before.location, ip=place
    ).result


def _plus(value: ir.Value, step: int, before: ir.Operation) -> ir.Value:
    one = _constant(value.type, step, before)
    return ir.Operation.create(
        "arith.addi", results=[value.type], operands=[value, one], loc=before.location, ip=ir.InsertionPoint(before)
    ).result


def _replace(op: ir.Operation, index: int, value: ir.Value) -> None:
    operands = list(op.operands)
    operands[index] = value
    op.operands = operands
