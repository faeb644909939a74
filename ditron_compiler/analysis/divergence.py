"""What must hold of a kernel before its primitives become calls: control flow, and loops that Triton would reorder."""

from __future__ import annotations

from collections.abc import Iterable

from ditron_compiler import ir
from ditron_compiler.ir.dialects.enums import keyword

__all__ = ["acquires", "check", "keep_waits_in_place", "releases", "thread_varying"]

_THREAD_QUERIES = {"ditron.thread_id", "ditron.lane_id", "ditron.warp_id", "ditron.shfl"}
# Operations with a barrier of the program inside: every thread must come.
_PROGRAM_WIDE = {
    f"ditron.{name}"
    for name in (
        "wait",
        "notify",
        "signal_wait_until",
        "putmem",
        "getmem",
        "putmem_signal",
        "ll_put",
        "ll_get",
        "fence",
        "quiet",
        "barrier_all",
        "barrier",
        "sync_all",
        "sync_threads",
    )
}
_SPINS = {f"ditron.{name}" for name in ("wait", "signal_wait_until", "ll_get", "barrier_all", "barrier", "sync_all")}


def _semantic(op: ir.Operation) -> str:
    attribute = op.attributes.get("semantic")
    return keyword(attribute) if attribute is not None else "relaxed"


def acquires(op: ir.Operation) -> bool:
    """Whether loads after ``op`` may rely on what it saw."""
    return op.name in _SPINS or op.name != "ditron.wait" and _semantic(op) in ("acquire", "acq_rel")


def releases(op: ir.Operation) -> bool:
    """Whether the atomic ``op`` publishes what the program stored before."""
    return _semantic(op) in ("release", "acq_rel")


def thread_varying(function: ir.Operation, operations: Iterable[ir.Operation]) -> set[ir.Value]:
    """The values that can differ between the threads of a program, because a thread's number went into them.

    Values that are loaded count as equal: a program loads them alike. ``operations`` are those of ``ditron``.
    """
    varying: set[ir.Value] = set()
    if not any(op.name in _THREAD_QUERIES for op in operations):
        return varying

    def visit(op: ir.Operation) -> None:
        if op.name not in _THREAD_QUERIES and not any(operand in varying for operand in op.operands):
            return
        varying.update(op.results)
        for region in op.regions:
            for block in region:
                varying.update(block.arguments)
        if op.name in ("scf.yield", "scf.condition"):  # what the parent gives, and what a loop carries on
            varying.update(op.parent.results)
            for region in op.parent.regions:
                for block in region:
                    varying.update(block.arguments)
        # A branch decides which values the blocks after it are given, as well as giving its own.
        for block in _reachable(op.successors):
            varying.update(block.arguments)

    before = -1
    while len(varying) != before:  # again for what a loop carries around
        before = len(varying)
        function.walk(visit, ir.WalkOrder.PRE_ORDER)
    return varying


def _reachable(blocks: Iterable[ir.Block], without: ir.Block | None = None) -> set[ir.Block]:
    """The blocks on the ways that start at ``blocks``, themselves among them, and do not touch ``without``."""
    found: set[ir.Block] = set()
    worklist = list(blocks)
    while worklist:
        block = worklist.pop()
        if block not in found and block != without:
            found.add(block)
            worklist += block.successors
    return found


def _varying_branch(block: ir.Block, varying: set[ir.Value]) -> ir.Operation | None:
    """A branch that depends on the thread, and after which some threads come to ``block`` and others may not."""
    for other in block.region:
        branch = other.terminator
        if branch is None or len(branch.successors) < 2 or not any(operand in varying for operand in branch.operands):
            continue
        if block in _reachable(branch.successors) and any(
            not end.successors for end in _reachable(branch.successors, without=block)
        ):
            return branch
    return None


def under_varying_control(op: ir.Operation, varying: set[ir.Value]) -> ir.Operation | None:
    """The innermost operation that decides by the thread whether, or how often, ``op`` is run.

    That is an enclosing operation whose condition or trip count depends on the thread, or a branch before ``op``, such
    as an early return.
    """
    while varying and op.name != "tt.func":
        branch = _varying_branch(op.block, varying) if len(list(op.block.region)) > 1 else None
        if branch is not None:
            return branch
        op = op.parent
        if op is None:
            return None
        decides = {"scf.if": op.operands, "scf.for": list(op.operands)[:3]}.get(op.name, ())
        if op.name == "scf.while":
            decides = [op.regions[0].blocks[0].terminator.operands[0]]
        if any(operand in varying for operand in decides):
            return op
    return None


def check(operations: Iterable[ir.Operation], loops: Iterable[ir.Operation], varying: set[ir.Value]) -> bool:
    """Report operations that would hang: in divergent control flow, or with warps that do not take part."""
    specialized = any("tt.warp_specialize" in loop.attributes for loop in loops)
    ok = True
    for op in operations:
        if op.name not in _PROGRAM_WIDE:
            continue
        culprit = under_varying_control(op, varying)
        if culprit is not None:
            op.emit_error(
                f"'{op.name}' must be reached by every thread of the program, got a '{culprit.name}' that "
                "depends on the thread; take it out, or use a value that is the same in all threads"
            )
            ok = False
        elif specialized:
            op.emit_error(
                f"'{op.name}' synchronises all threads of the program, but the kernel has a loop with "
                "warp_specialize=True, whose other warps would never come; take warp_specialize away"
            )
            ok = False
    return ok


def keep_waits_in_place(operations: Iterable[ir.Operation]) -> None:
    """Keep Triton from running loads of later iterations, and with them their waits, ahead of time.

    A loop whose own body waits is not software-pipelined: the prologue would wait for iterations 1, 2, ... before
    iteration 0 is computed and published, which two ranks can turn into a deadlock. Loops nested in it are pipelined
    as ever. For the same reason a loop around a wait is flattened into one with them only if it publishes nothing:
    then nobody can wait for an iteration that it has not finished.
    """
    seen: set[ir.Operation] = set()
    for op in operations:
        if not acquires(op):
            continue
        loop, own = op.parent, True
        while loop is not None and loop.name != "tt.func":
            if loop.name == "scf.for":
                flatten = "tt.flatten" in loop.attributes
                culprit = _publisher(loop) if flatten else None
                if culprit is not None:
                    loop.emit_warning(
                        f"flatten=True is ignored: the loop contains '{op.name}', which flattening would move ahead of "
                        f"the iterations before it, and '{culprit}', which publishes them"
                    )
                    del loop.attributes["tt.flatten"]
                if own and loop not in seen and (not flatten or culprit is not None):
                    _do_not_pipeline(loop, op)
                seen.add(loop)
                own = False
            loop = loop.parent


# What may stand beside a wait in a loop that publishes nothing. Atomics of Triton's, calls and what is written in
# another language count as publishing.
_PUBLISHES_NOTHING = _SPINS - {"ditron.barrier_all", "ditron.barrier", "ditron.sync_all"} | {
    f"ditron.{name}"
    for name in (
        "consume_token",
        "rank",
        "num_ranks",
        "local_rank",
        "num_local_ranks",
        "node",
        "symm_at",
        "swizzle",
        "ld",
    )
}


def _publisher(loop: ir.Operation) -> str | None:
    """The name of an operation in ``loop`` by which others may learn what it has done so far."""
    found = []

    def visit(op: ir.Operation) -> None:
        opaque = op.name in ("tt.elementwise_inline_asm", "tt.extern_elementwise") and not op.attributes["pure"].value
        ours = op.name.startswith("ditron.") and op.name not in _PUBLISHES_NOTHING
        if ours or opaque or op.name.startswith("tt.atomic") or op.name == "tt.call":
            found.append(op.name)

    loop.walk(visit, ir.WalkOrder.PRE_ORDER)
    return found[0] if found else None


def _do_not_pipeline(loop: ir.Operation, wait: ir.Operation) -> None:
    if any(op.name in ("tt.dot", "tt.dot_scaled") for op in loop.regions[0].blocks[0]):
        loop.emit_remark(
            f"the loop is not software-pipelined, because it contains '{wait.name}'; wait in a loop "
            "around it, once for several steps"
        )
    loop.attributes["tt.num_stages"] = ir.IntegerAttr.get(ir.IntegerType.get_signless(32, loop.context), 1)
