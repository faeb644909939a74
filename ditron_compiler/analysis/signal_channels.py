"""Signal channels: the puts and waits of one signal argument, matched, and whether packets can replace the signal.

A channel is found only if every use of the signal is understood ("must"); MatchFailure gives the use that is not.
"""

from __future__ import annotations

from dataclasses import dataclass

from ditron_compiler import ir
from ditron_compiler.analysis.alias import underlying_objects
from ditron_compiler.analysis.call_graph import operations, pointer_operands
from ditron_compiler.analysis.consumers import axes_bounded_by_ranks
from ditron_compiler.analysis.divergence import control_operands
from ditron_compiler.analysis.equivalence import is_equivalent
from ditron_compiler.analysis.integer_range import upper_bound
from ditron_compiler.analysis.linear import address, index_sum
from ditron_compiler.analysis.match_failure import MatchFailure
from ditron_compiler.analysis.message_matching import (
    SignaledPut,
    match_sender,
    rematerialize,
    signal_count,
)
from ditron_compiler.analysis.rank_variance import is_rank_variant
from ditron_compiler.analysis.slicing import backward_slice
from ditron_compiler.ir.dialects import ditron, scf, tt
from ditron_compiler.ir.matchers import constant_int

_LOOPS = (scf.ForOp, scf.WhileOp)
# Other accesses to other ranks' memory: a signal may order them, but a packet orders nothing else.
_OTHER_REMOTE_ACCESSES = (ditron.SymmAtOp, ditron.RequiresMulticast, ditron.GetmemOp, ditron.ExternCallOp)


def signal_arguments(function: tt.FuncOp) -> list[ir.Value]:
    """The arguments of a kernel that the signals of its puts come from."""
    roots: dict[ir.Value, None] = {}
    for op in operations(function):
        if isinstance(op, ditron.SignalUpdateOpInterface) and SignaledPut.of(op) is not None:
            roots.update(dict.fromkeys(origin.root for origin in underlying_objects(op.signal)))
    return list(roots)


@dataclass(frozen=True)
class MatchedWait:
    """A wait, the put of the messages that it is for, and their sender (None: no one rank)."""

    wait: ditron.SignalWaitOpInterface
    put: SignaledPut
    sender: ir.Value | None


@dataclass(frozen=True)
class SignalChannel:
    """A signal argument whose every use is a put or a wait that matches one.

    ``max_nbytes`` is an upper bound of the size of a message; ``bounded_axes`` are the axes of the grid along which
    there must be at most num_ranks programs.
    """

    root: ir.Value
    puts: list[SignaledPut]
    waits: list[MatchedWait]
    max_nbytes: int
    bounded_axes: tuple[int, ...]

    @staticmethod
    def of(root: ir.Value, function: tt.FuncOp) -> SignalChannel:
        """The channel of the signals at ``root``; MatchFailure if packets cannot replace them."""
        puts, waits = _puts_and_waits(root, function)
        _check_other_accesses(function)
        matched = [_match(wait, puts) for wait in waits]
        for put in puts:
            consumers = [match for match in matched if match.put is put]
            if len(consumers) != 1:
                raise MatchFailure(
                    "several waits match it" if consumers else "no wait of this kernel matches it", put.put
                )
        for match in matched:
            _check_all_consumed(match)
            _check_reads(match, {other.put for other in puts}, function)
        bounded_axes = frozenset[int]().union(*(_bounded_axes(wait, function) for wait in waits))
        sizes = {put: upper_bound(put.put.nbytes) for put in puts}
        for put, size in sizes.items():
            if size is None:
                raise MatchFailure(
                    "the number of bytes has no upper bound at compile time; send tl.minimum(n, BOUND) bytes", put.put
                )
        return SignalChannel(root, puts, matched, max(sizes.values()), tuple(sorted(bounded_axes)))


def _puts_and_waits(
    root: ir.Value, function: tt.FuncOp
) -> tuple[list[SignaledPut], list[ditron.SignalWaitOpInterface]]:
    puts, waits, worklist = [], [], [root]
    if isinstance(root, ir.OpResult) or root.owner.owner != function:
        raise MatchFailure("the signal is not an argument of the kernel", function)
    if function.is_private:
        raise MatchFailure(
            "it is sent in a function that is not inlined; only arguments of the kernel itself can be packets", function
        )
    while worklist:
        pointer = worklist.pop()
        for use in pointer.uses:
            op = use.owner
            if isinstance(op, tt.AddPtrOp) and use.operand_number == 0 and str(op.result.type) == str(root.type):
                worklist.append(op.result)
            elif not _uses_as_signal(op, pointer):
                raise MatchFailure(f"'{op.name}' uses the signal's memory in another way", op)
            elif isinstance(op, ditron.SignalWaitOpInterface):
                if op.cmp not in (ditron.Cmp.GE, ditron.Cmp.EQ):
                    raise MatchFailure(
                        "a wait compares it by other than ge and eq, but the flag of a packet is either equal to "
                        "the epoch or not",
                        op,
                    )
                waits.append(op)
            else:
                put = SignaledPut.of(op)
                if put is None:
                    raise MatchFailure("no put precedes it whose data it signals", op)
                _check_epoch(put)
                puts.append(put)
    return puts, waits


def _uses_as_signal(op: ir.Operation, pointer: ir.Value) -> bool:
    """Whether ``op`` uses ``pointer`` as its signal, and as nothing else."""
    return (
        isinstance(op, (ditron.SignalUpdateOpInterface, ditron.SignalWaitOpInterface))
        and op.signal == pointer
        and sum(operand == pointer for operand in op.operands) == 1
    )


def _check_epoch(put: SignaledPut) -> None:
    known = constant_int(put.update.value)
    if put.update.signal_op is not ditron.SignalOp.Set:
        raise MatchFailure("it is updated by add; set it to the epoch, with one signal for each sender", put.put)
    if known is not None or is_rank_variant(put.update.value):
        raise MatchFailure(
            "its value must be an epoch that increases with each call and is the same on all ranks: a kernel argument",
            put.put,
        )


def _check_other_accesses(function: tt.FuncOp) -> None:
    every = operations(function)
    paired = {put.put for op in every if isinstance(op, ditron.NotifyOp) and (put := SignaledPut.of(op)) is not None}
    for op in every:
        if isinstance(op, _OTHER_REMOTE_ACCESSES) or isinstance(op, ditron.PutmemOp) and op not in paired:
            raise MatchFailure(
                f"'{op.name}' accesses other ranks' memory, which the signal may order and a packet does not", op
            )


def _match(wait: ditron.SignalWaitOpInterface, puts: list[SignaledPut]) -> MatchedWait:
    """The one put that a wait is for, and its sender."""
    found: list[MatchedWait] = []
    reason = "no put of this kernel matches it"
    for put in puts:
        try:
            if not is_equivalent(put.update.value, wait.value):
                raise MatchFailure("it waits for a different value than the put sets")
            several = signal_count(wait) is not None
            sender = match_sender(address(put.update.signal, index_sum), address(wait.signal, index_sum), several)
            # As the rewrite does it; for several senders, any value stands for the induction variable of its loop.
            rank = put.put.rank if several else sender
            for value in (put.put.dst, put.put.nbytes):
                rematerialize(value, rank, wait, lambda name, operands, result, attributes, value=value: value)
        except MatchFailure as failure:
            reason = failure.reason
            continue
        found.append(MatchedWait(wait, put, sender))
    if len(found) != 1:
        raise MatchFailure(reason if not found else "more than one put may match it", wait)
    return found[0]


def _check_all_consumed(match: MatchedWait) -> None:
    """Every message must be consumed, once: the others' data would never leave the packets."""
    wait = match.wait
    around_put, around_wait = _ancestors(match.put.put), _ancestors(wait)
    for outer in around_wait:
        if outer not in around_put and (
            isinstance(outer, scf.WhileOp) or any(map(is_rank_variant, control_operands(outer)))
        ):
            raise MatchFailure(
                "not every rank reaches this wait, and messages to the others would not be consumed; wait on all ranks",
                wait,
            )
    put_loops = [outer for outer in around_put if isinstance(outer, _LOOPS) and outer not in around_wait]
    wait_loops = [outer for outer in around_wait if isinstance(outer, _LOOPS) and outer not in around_put]
    if put_loops and not wait_loops and signal_count(wait) is None:
        raise MatchFailure(
            "the put is in a loop, and this wait consumes one message; wait for each message in a loop, too", wait
        )
    signal_slice = set(backward_slice(wait.signal))
    for loop in wait_loops:
        if not any(argument in signal_slice for region in loop.regions for argument in region.blocks[0].arguments):
            raise MatchFailure(
                "it is waited for in every iteration of a loop, but consumed once: the next message may have arrived "
                "by the second iteration; wait before the loop",
                wait,
            )


def _bounded_axes(wait: ditron.SignalWaitOpInterface, function: tt.FuncOp) -> frozenset[int]:
    try:
        return axes_bounded_by_ranks(wait, function)
    except MatchFailure as failure:
        raise MatchFailure(failure.reason, wait) from None


def _ancestors(op: ir.Operation) -> list[ir.Operation]:
    """The operations around ``op``, within the function."""
    found = []
    while (op := op.parent) is not None and not isinstance(op, tt.FuncOp):
        found.append(op)
    return found


def _check_reads(match: MatchedWait, puts: set[ir.Operation], function: tt.FuncOp) -> None:
    """Nothing may read the destination of the put before the wait, which unpacks the data to there.

    ``puts`` may: what they send from there is not what they bring.
    """
    objects = underlying_objects(match.put.put.dst)
    if len(objects) != 1 or isinstance((object_ := next(iter(objects))).root, ir.OpResult) or object_.rank is not None:
        raise MatchFailure("its destination is not one tensor argument of the kernel", match.put.put)
    for op in _operations_before(match.wait, function):
        for pointer in () if op in puts else _read_pointers(op):
            if any(origin.root == object_.root for origin in underlying_objects(pointer)):
                raise MatchFailure("it may read the destination of the put before the wait", op)


def _operations_before(last: ir.Operation, function: tt.FuncOp) -> list[ir.Operation]:
    found: list[ir.Operation] = []

    def visit(op: ir.Operation) -> ir.WalkResult:
        found.append(op)
        return ir.WalkResult.INTERRUPT if op == last else ir.WalkResult.ADVANCE

    function.walk(visit, ir.WalkOrder.PRE_ORDER)
    return found[:-1]


def _read_pointers(op: ir.Operation) -> list[ir.Value]:
    """The pointers that ``op`` may read through, other than a signal."""
    if isinstance(op, (ditron.PutmemOp, ditron.PutmemSignalOp)):
        return [op.src]
    if isinstance(op, (tt.StoreOp, tt.DescriptorStoreOp, ditron.SignalOpInterface)):
        return []
    return [] if op.is_memory_effect_free or len(op.regions) else pointer_operands(op)
