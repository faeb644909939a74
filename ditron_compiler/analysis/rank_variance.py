"""Rank variance: whether a value may differ between ranks ("may"; a value that is not rank-variant never differs).

Scalar arguments of a kernel are assumed to be the same on all ranks.
"""

from __future__ import annotations

from ditron_compiler import ir
from ditron_compiler.analysis.slicing import backward_slice
from ditron_compiler.ir.dialects import ditron, scf, tt
from ditron_compiler.ir.matchers import defining_op, is_function_argument

#: Operations whose result depends on the rank, but not as a function of ``ditron.rank`` that other ranks could compute.
RANK_LOCAL = (ditron.LocalRankOp, ditron.NodeOp, tt.PtrToIntOp)


def is_rank_variant(value: ir.Value) -> bool:
    """Whether ``value`` may differ between ranks."""
    return any(map(_is_variant_source, backward_slice(value)))


def _is_variant_source(value: ir.Value) -> bool:
    op = defining_op(value)
    if op is None:  # iteration arguments count as variant, induction variables do not
        parent = value.owner.owner
        return not (is_function_argument(value) or isinstance(parent, scf.ForOp) and value.arg_number == 0)
    return isinstance(op, (ditron.RankOp, *RANK_LOCAL)) or not op.is_memory_effect_free
