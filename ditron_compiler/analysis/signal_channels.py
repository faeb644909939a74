"""A signal with all who use it: the puts that set it, the waits, and whether packets can take its place."""

from __future__ import annotations

from dataclasses import dataclass

from ditron_compiler import ir
from ditron_compiler.analysis.alias import underlying_objects
from ditron_compiler.analysis.call_graph import operations
from ditron_compiler.analysis.consumers import axes_by_rank
from ditron_compiler.analysis.equivalence import same, upper_bound, varies
from ditron_compiler.analysis.linear import address, index_sum
from ditron_compiler.analysis.message_matching import NoMatch, Put, Wait, at_sender, sender
from ditron_compiler.analysis.slicing import backward_slice
from ditron_compiler.ir.dialects.enums import keyword
from ditron_compiler.ir.matchers import constant_int

__all__ = ["Channel", "Refusal", "signal_arguments"]

_WAITS = {"ditron.wait": 0, "ditron.signal_wait_until": 0}
_SETS = {"ditron.putmem_signal": 3, "ditron.notify": 0, "ditron.signal_op": 0}
_USES = _WAITS | _SETS  # operation -> operand that is the signal
# What else looks at other ranks' memory: a signal may be what orders it, and a packet orders nothing but itself.
_OTHER_TRAFFIC = {
    f"ditron.{name}"
    for name in (
        "symm_at",
        "multicast_ptr",
        "multimem_ld_reduce",
        "multimem_st",
        "multimem_red",
        "getmem",
        "extern_call",
    )
}


class Refusal(Exception):
    """Why a signal cannot become packets, and the operation that stands against it."""

    def __init__(self, op: ir.Operation, why: str):
        super().__init__(why)
        self.op = op


def signal_arguments(function: ir.Operation) -> list[ir.Value]:
    """The arguments of a kernel through which a put's signal goes."""
    roots: dict[ir.Value, None] = {}
    for op in operations(function):
        if op.name in _SETS and (op.name == "ditron.putmem_signal" or Put.of(op) is not None):
            roots.update(dict.fromkeys(origin.root for origin in underlying_objects(op.operands[_SETS[op.name]])))
    return list(roots)


@dataclass(frozen=True)
class Channel:
    """A signal argument of which every use is a put or a wait for one, and each wait's put and sender are known."""

    root: ir.Value
    puts: list[Put]
    waits: list[tuple[Wait, Put, ir.Value | None]]
    bound: int  # no message has more bytes
    by_rank: tuple[int, ...]  # axes of the grid along which there are no more programs than ranks

    @staticmethod
    def of(root: ir.Value, function: ir.Operation) -> Channel:
        """What is sent and awaited by the signals at ``root``; raises Refusal when that cannot go by packets."""
        puts, waits = _users(root, function)
        _check_traffic(function)
        matched = [(wait, *_put_of(wait, puts)) for wait in waits]
        for put in puts:
            takers = [wait for wait, its, _ in matched if its is put]
            if len(takers) != 1:
                raise Refusal(put.op, "several waits match it" if takers else "no wait of this kernel matches it")
        for wait, put, _ in matched:
            _check_all_taken(wait, put)
            _check_reads(wait, put, {other.op for other in puts}, function)
        by_rank = frozenset[int]().union(*(_by_rank(wait, function) for wait in waits))
        bounds = {put: upper_bound(put.nbytes) for put in puts}
        for put, bound in bounds.items():
            if bound is None:
                raise Refusal(
                    put.op,
                    "the number of bytes has no upper bound at compile time; send tl.minimum(n, BOUND) bytes",
                )
        return Channel(root, puts, matched, max(bounds.values()), tuple(sorted(by_rank)))


def _users(root: ir.Value, function: ir.Operation) -> tuple[list[Put], list[Wait]]:
    puts, waits, worklist = [], [], [root]
    if isinstance(root, ir.OpResult) or root.owner.owner != function:
        raise Refusal(function, "the signal is not an argument of the kernel")
    visibility = function.attributes.get("sym_visibility")
    if visibility is not None and ir.StringAttr(visibility).value == "private":
        raise Refusal(
            function,
            "it is sent in a function that is not inlined; only arguments of the kernel itself can be packets",
        )
    while worklist:
        for use in worklist.pop().uses:
            op = use.owner
            if op.name == "tt.addptr" and use.operand_number == 0 and str(op.results[0].type) == str(root.type):
                worklist.append(op.results[0])
            elif _USES.get(op.name) != use.operand_number:
                raise Refusal(op, f"'{op.name}' uses the signal's memory in another way")
            elif op.name in _WAITS:
                if keyword(op.attributes["cmp"]) not in ("ge", "eq"):
                    raise Refusal(
                        op,
                        "a wait compares it by other than ge and eq, but the flag of a packet is either equal to "
                        "the epoch or not",
                    )
                waits.append(Wait(op))
            else:
                put = Put.of(op)
                if put is None:
                    raise Refusal(op, "no put precedes it whose data it signals")
                _check_epoch(put)
                puts.append(put)
    return puts, waits


def _check_epoch(put: Put) -> None:
    known = constant_int(put.epoch)
    if not put.sets:
        raise Refusal(put.op, "it is updated by add; set it to the epoch, with one signal for each sender")
    if known is not None or varies(put.epoch):
        raise Refusal(
            put.op,
            "its value must be an epoch that increases with each call and is the same on all ranks: a kernel argument",
        )


def _check_traffic(function: ir.Operation) -> None:
    every = operations(function)
    paired = {put.op for op in every if op.name == "ditron.notify" and (put := Put.of(op)) is not None}
    for op in every:
        if op.name in _OTHER_TRAFFIC or op.name == "ditron.putmem" and op not in paired:
            raise Refusal(
                op, f"'{op.name}' accesses other ranks' memory, which the signal may order and a packet does not"
            )


def _put_of(wait: Wait, puts: list[Put]) -> tuple[Put, ir.Value | None]:
    """The one put that a wait is for, and who sends."""
    found: list[tuple[Put, ir.Value | None]] = []
    why = "no put of this kernel matches it"
    for put in puts:
        try:
            if not same(put.epoch, wait.epoch):
                raise NoMatch("it waits for a different value than the put sets")
            several = wait.count is not None
            rank = sender(address(put.signal, index_sum), address(wait.signal, index_sum), several)
            # As it will be done: a stand-in for the sender that a loop will count.
            known = put.rank if several else rank
            for value in (put.dst, put.nbytes):
                at_sender(value, known, wait.op, lambda name, operands, result, attributes, value=value: value)
        except NoMatch as error:
            why = str(error)
            continue
        found.append((put, rank))
    if len(found) != 1:
        raise Refusal(wait.op, why if not found else "more than one put may match it")
    return found[0]


def _check_all_taken(wait: Wait, put: Put) -> None:
    """What no wait takes stays a packet, and its data never comes to where the put goes."""
    around_put, around_wait = _around(put.op), _around(wait.op)
    for outer in around_wait:
        if outer not in around_put and (outer.name == "scf.while" or any(varies(v) for v in list(outer.operands)[:3])):
            raise Refusal(
                wait.op,
                "not every rank reaches this wait, and messages to the others would not be consumed; wait on all ranks",
            )
    loops, turns = (
        [o for o in one if o.name in ("scf.for", "scf.while") and o not in other]
        for one, other in ((around_put, around_wait), (around_wait, around_put))
    )
    if loops and not turns and wait.count is None:
        raise Refusal(
            wait.op, "the put is in a loop, and this wait consumes one message; wait for each message in a loop, too"
        )
    awaited = set(backward_slice(wait.signal))
    for loop in turns:
        if not any(argument in awaited for region in loop.regions for argument in region.blocks[0].arguments):
            raise Refusal(
                wait.op,
                "it is waited for in every iteration of a loop, but consumed once: the next message may have "
                "arrived by the second iteration; wait before the loop",
            )


def _by_rank(wait: Wait, function: ir.Operation) -> frozenset[int]:
    """Two programs of a rank must not take the same message."""
    try:
        return axes_by_rank(wait, function)
    except NoMatch as why:
        raise Refusal(wait.op, str(why)) from None


def _around(op: ir.Operation) -> list[ir.Operation]:
    """The loops and conditions that ``op`` stands in."""
    found = []
    while (op := op.parent) is not None and op.name != "tt.func":
        found.append(op)
    return found


def _check_reads(wait: Wait, put: Put, senders: set[ir.Operation], function: ir.Operation) -> None:
    """The data is where the put goes only when the wait is over: nothing may read it there before.

    What the puts send from there, ``senders``, is not what they bring.
    """
    homes = underlying_objects(put.dst)
    if len(homes) != 1 or isinstance((home := next(iter(homes))).root, ir.OpResult) or home.rank is not None:
        raise Refusal(put.op, "its destination is not one tensor argument of the kernel")
    for op in _before(wait.op, function):
        for pointer in () if op in senders else _reads(op):
            if any(origin.root == home.root for origin in underlying_objects(pointer)):
                raise Refusal(op, "it may read the destination of the put before the wait")


def _before(wait: ir.Operation, function: ir.Operation) -> list[ir.Operation]:
    found: list[ir.Operation] = []

    def visit(op: ir.Operation) -> ir.WalkResult:
        found.append(op)
        return ir.WalkResult.INTERRUPT if op == wait else ir.WalkResult.ADVANCE

    function.walk(visit, ir.WalkOrder.PRE_ORDER)
    return found[:-1]


def _reads(op: ir.Operation) -> list[ir.Value]:
    """The pointers that ``op`` may read through."""
    if op.name in ("ditron.putmem", "ditron.putmem_signal"):
        return [op.operands[1]]
    if op.is_memory_effect_free or len(op.regions) or op.name in ("tt.store", "tt.descriptor_store", *_USES):
        return []
    return [value for value in op.operands if "!tt.ptr" in str(value.type) or "!tt.tensordesc" in str(value.type)]
