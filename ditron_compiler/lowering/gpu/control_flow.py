"""Control flow around primitives on a GPU: what must be convergent, and loops that Triton must not reorder."""

from __future__ import annotations

from collections.abc import Iterable

from ditron_compiler import ir
from ditron_compiler.analysis.divergence import divergent_control
from ditron_compiler.analysis.memory_order_transfer import acquires
from ditron_compiler.analysis.slicing import backward_slice
from ditron_compiler.ir.dialects import arith, ditron, scf, tt

__all__ = ["keep_waits_in_order", "verify_convergence"]


def verify_convergence(
    operations: Iterable[ir.Operation], loops: Iterable[scf.ForOp], divergent: set[ir.Value]
) -> bool:
    """Whether all threads of the program reach each program-wide operation; an error for each that would hang."""
    specialized = any("tt.warp_specialize" in loop.attributes for loop in loops)
    ok = True
    for op in operations:
        if not isinstance(op, ditron.ProgramWide):
            continue
        cause = divergent_control(op, divergent)
        if cause is not None:
            op.emit_error(
                f"'{op.name}' must be reached by every thread of the program, but the control flow is divergent: a "
                f"'{cause.name}' depends on the thread; move it out, or make the condition uniform"
            )
            ok = False
        elif specialized:
            op.emit_error(
                f"'{op.name}' synchronizes all threads of the program, but the kernel has a loop with "
                "warp_specialize=True, whose other warps do not reach it; remove warp_specialize=True"
            )
            ok = False
    return ok


def keep_waits_in_order(operations: Iterable[ir.Operation]) -> None:
    """Keep Triton from executing loads of later iterations, and with them their waits, ahead of time.

    A loop that waits in its own body is not software-pipelined: the prologue would wait for iterations 1, 2, ... before
    iteration 0 is computed and published, which two ranks can turn into a deadlock. Loops nested in it are pipelined as
    usual. For the same reason a loop around a wait is flattened into one with them only if no iteration but the last
    one publishes anything, and that behind all nested loops: then no other rank can wait for an iteration that is not
    finished. Or if the wait is in the epilogue: what follows the nested loops is not moved ahead.

    Nor is a loop pipelined that copies between ranks in its own body: loads of what a get brings, or a put to this
    rank, would be in front of it, as Triton does not see what the call writes. A loop around a get is not flattened
    either.

    A pipelined loop begins iterations beyond its last one, with a predicate that is false. Triton 3.6 conjoins it with
    the condition of an ``scf.if``, so that these execute the else branch: a wait there moves to the then branch of the
    negated condition, or it would wait for what nobody signals.
    """
    seen: set[ir.Operation] = set()
    for op in operations:
        if not acquires(op):
            if isinstance(op, ditron.MemoryTransferOpInterface):
                _keep_transfer_in_order(op)
            continue
        loop, innermost = op.parent, True
        while loop is not None and not isinstance(loop, tt.FuncOp):
            if isinstance(loop, scf.ForOp):
                flatten = "tt.flatten" in loop.attributes
                in_epilogue = flatten and _is_in_epilogue(op, loop)
                publisher = _publisher(loop) if flatten and not in_epilogue else None
                if flatten and publisher is None and not in_epilogue:
                    _move_to_then_branches(op, loop)
                    flatten = "tt.flatten" in loop.attributes
                if publisher is not None:
                    loop.emit_warning(
                        f"flatten=True is ignored: the loop contains '{op.name}', which flattening would move ahead of "
                        f"the iterations before it, and '{publisher.name}', which publishes them"
                    )
                    del loop.attributes["tt.flatten"]
                if innermost and loop not in seen and (not flatten or publisher is not None):
                    _disable_pipelining(loop, op)
                seen.add(loop)
                innermost = False
            loop = loop.parent


def _keep_transfer_in_order(transfer: ditron.MemoryTransferOpInterface) -> None:
    loop, innermost = transfer.parent, True
    while loop is not None and not isinstance(loop, tt.FuncOp):
        if isinstance(loop, scf.ForOp):
            flatten = "tt.flatten" in loop.attributes
            if flatten and not transfer.is_put and not _is_in_epilogue(transfer, loop):
                loop.emit_warning(
                    f"flatten=True is ignored: the loop contains '{transfer.name}', and flattening would move loads of "
                    "what it brings ahead of it"
                )
                del loop.attributes["tt.flatten"]
                flatten = False
            if innermost and not flatten:
                _disable_pipelining(loop, transfer)
            innermost = False
        loop = loop.parent


def _move_to_then_branches(wait: ir.Operation, loop: scf.ForOp) -> None:
    """Let ``wait`` be in no else branch of the innermost loop around it; ``loop``, which is flattened, is around that.

    Where the other branch has effects, which must not happen beyond the last iteration either, the loop is not
    flattened.
    """
    inner, parent = wait, wait.parent
    branches: list[scf.IfOp] = []
    while not isinstance(parent, scf.ForOp):
        if isinstance(parent, scf.IfOp) and inner.block == parent.else_block:
            branches.append(parent)
        inner, parent = parent, parent.parent
    if any(_contains_loop(op) for op in parent.body):
        return  # before the nested loops: Triton puts what is there into the then branch of an scf.if of its own
    for branch in branches:
        if any(not op.is_memory_effect_free for op in branch.then_block):
            loop.emit_warning(
                f"flatten=True is ignored: '{wait.name}' is in the else branch of an 'if' whose other branch has "
                "effects, and a pipelined loop would wait beyond its last iteration; wait under an 'if' of its own"
            )
            del loop.attributes["tt.flatten"]
            return
    for branch in branches:
        _swap_branches(branch)


def _swap_branches(branch: scf.IfOp) -> None:
    """Negate the condition, and exchange the branches."""
    condition = branch.operands[0]
    with branch.location, ir.InsertionPoint(branch):
        true = arith.ConstantOp(condition.type, 1).result
        branch.operands[0] = arith.XOrIOp(condition, true).result
    first, second = branch.then_block, branch.else_block
    first.append_to(branch.regions[1])
    second.append_to(branch.regions[0])


def _is_in_epilogue(op: ir.Operation, loop: scf.ForOp) -> bool:
    """Whether ``op`` comes after all loops in the body of ``loop``, and the next iteration does not depend on it."""
    top = op
    while top.parent != loop:
        top = top.parent
    body = list(loop.body)
    nested = [other for other in body if _contains_loop(other)]
    if not nested or _contains_loop(top) or body.index(top) < body.index(nested[-1]):
        return False
    results = set(op.results)
    return not any(results & set(backward_slice(value)) for value in loop.body.terminator.operands)


def _contains_loop(op: ir.Operation) -> bool:
    found = False

    def visit(inner: ir.Operation) -> None:
        nonlocal found
        found = found or isinstance(inner, (scf.ForOp, scf.WhileOp))

    op.walk(visit, ir.WalkOrder.PRE_ORDER)
    return found


# The operations of ditron that publish nothing. Atomics of Triton's, calls and inline assembly count as publishing.
_PUBLISH_NOTHING = (
    ditron.SignalReadOpInterface,
    ditron.LLGetOp,
    ditron.ConsumeTokenOp,
    ditron.ExpectOp,
    ditron.RankOp,
    ditron.NumRanksOp,
    ditron.LocalRankOp,
    ditron.NumLocalRanksOp,
    ditron.NodeOp,
    ditron.SymmAtOp,
    ditron.SwizzleOp,
    ditron.LdOp,
)


def _publisher(loop: scf.ForOp) -> ir.Operation | None:
    """The first operation in ``loop`` by which other programs or ranks may observe what it has done before it ends."""
    found: list[ir.Operation] = []

    def visit(op: ir.Operation) -> None:
        ours = op.name.startswith("ditron.") and not isinstance(op, _PUBLISH_NOTHING)
        opaque = isinstance(op, (tt.ElementwiseInlineAsmOp, tt.ExternElementwiseOp)) and not op.pure.value
        publishes = ours or opaque or isinstance(op, tt.CallOp) or op.name.startswith("tt.atomic")
        if publishes and not _is_of_last_iteration(op, loop):
            found.append(op)

    loop.walk(visit, ir.WalkOrder.PRE_ORDER)
    return found[0] if found else None


def _is_of_last_iteration(op: ir.Operation, loop: scf.ForOp) -> bool:
    """Whether ``op`` follows all loops in the body of ``loop``, under a condition of the last iteration only.

    Flattening moves it ahead of nothing then, and no iteration ahead of it.
    """
    if not _is_in_epilogue(op, loop):
        return False
    found, inner = False, op
    while (outer := inner.parent) != loop:
        if not isinstance(outer, scf.IfOp) or inner.block != outer.then_block:
            return False
        found = found or any(_says_last(term, loop) for term in _terms(outer.operands[0]))
        inner = outer
    return found


def _terms(condition: ir.Value) -> list[ir.Value]:
    """Values all of which are true where the condition is."""
    if isinstance(condition.owner, arith.AndIOp):
        return [term for operand in condition.owner.operands for term in _terms(operand)]
    return [condition]


def _says_last(condition: ir.Value, loop: scf.ForOp) -> bool:
    """Whether the condition is ``induction variable + step >= upper bound`` of the loop, of signed numbers."""
    compare = condition.owner
    if not isinstance(compare, arith.CmpIOp) or compare.predicate is not arith.CmpIPredicate.sge:
        return False
    if "unsignedCmp" in loop.attributes:
        return False
    following, end = compare.operands
    if end != loop.upperBound or not isinstance(following.owner, arith.AddIOp):
        return False
    return set(following.owner.operands) == {loop.induction_variable, loop.step}


def _disable_pipelining(loop: scf.ForOp, wait: ir.Operation) -> None:
    if any(isinstance(op, (tt.DotOp, tt.DotScaledOp)) for op in loop.body):
        loop.emit_remark(
            f"the loop is not software-pipelined, because it contains '{wait.name}'; have that in a loop around it, "
            "once for several steps"
        )
    loop.attributes["tt.num_stages"] = ir.IntegerAttr.get(ir.IntegerType.get_signless(32, loop.context), 1)
