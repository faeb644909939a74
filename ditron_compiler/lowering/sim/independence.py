"""Whether the programs of a launch are independent, so that they may run at the same time."""

from __future__ import annotations

from ditron_compiler import ir

from . import abi
from .elementwise import int_attribute

# Of our operations only those that ask for ranks and thread numbers, and conditions, which are drawn with a clock only
# (and then nothing is parallel); any other may wait, signal or reach a peer.
_IDENTITIES = frozenset(f"ditron.{name}" for name in (
    "rank", "num_ranks", "local_rank", "num_local_ranks", "node", "thread_id", "lane_id", "warp_id", "num_threads",
    "sync_threads", "expect",
))  # fmt: skip
# Accesses by which programs synchronize, and prints, whose lines would come in any order.
_SYNCHRONIZING = frozenset((
    "tt.atomic_cas", "tt.atomic_load", "tt.atomic_store", "tt.atomic_poll", "tt.descriptor_reduce", "tt.print",
))  # fmt: skip
_COMMUTE = frozenset((abi.RMW_AND, abi.RMW_OR, abi.RMW_XOR, abi.RMW_ADD, abi.RMW_MAX, abi.RMW_MIN, abi.RMW_UMAX,
                      abi.RMW_UMIN))  # fmt: skip


def is_independent(module: ir.Module) -> bool:
    """Whether a module of tt and ditron operations does nothing whose result depends on the order of its programs.

    It may read and write memory and do atomics that commute and whose old values nobody uses; sums of floats depend on
    their order. A loop that may wait for another program (``while`` around a load) rules it out, as does everything
    that is not known here.
    """
    # What a function does may be done in a loop of whoever calls it.
    return not any(
        _synchronizes(op, is_private(function.operation))
        for function in module.body.operations
        for op in _body(function.operation)
    )


def is_private(function: ir.Operation) -> bool:
    """Whether it is a function to be called, not a kernel."""
    attributes = function.attributes
    return "sym_visibility" in attributes and ir.StringAttr(attributes["sym_visibility"]).value == "private"


def _body(op: ir.Operation) -> list[ir.Operation]:
    return [view.operation for region in op.regions for block in region.blocks for view in block.operations]


def _synchronizes(op: ir.Operation, in_while: bool) -> bool:
    name = op.name
    if name.startswith("ditron."):
        return name not in _IDENTITIES
    if name in _SYNCHRONIZING or name.startswith("cf."):  # unstructured loops are not analysed
        return True
    if name == "tt.load":
        volatile = "isVolatile" in op.attributes and ir.BoolAttr(op.attributes["isVolatile"]).value
        return in_while or volatile
    if name == "tt.atomic_rmw":
        used = any(True for result in op.results for _ in result.uses)
        return in_while or used or int_attribute(op, "atomic_rmw_op") not in _COMMUTE
    inner = in_while or name == "scf.while"
    return any(_synchronizes(nested, inner) for nested in _body(op))
