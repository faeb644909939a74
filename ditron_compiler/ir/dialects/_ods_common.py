"""What the generated op classes import: the IR module under the names that mlir-tblgen writes."""

from __future__ import annotations

from types import SimpleNamespace

from ... import ir
from .._registry import register_dialect, register_operation

_cext = SimpleNamespace(
    ir=ir,
    register_dialect=register_dialect,
    register_operation=register_operation,
    # Upstream can take locations from Python tracebacks and leaves generated files out; here locations are explicit.
    globals=SimpleNamespace(register_traceback_file_exclusion=lambda filename: None),
)


def segmented_accessor(elements, raw_segments, index: int):
    """The ``index``-th group of ``elements``, whose sizes are in the attribute ``raw_segments``."""
    start = sum(raw_segments[i] for i in range(index))
    return elements[start : start + raw_segments[index]]


def equally_sized_accessor(
    elements, n_simple: int, n_variadic: int, n_preceding_simple: int, n_preceding_variadic: int
):
    """(start, length) of a variadic group when all variadic groups of an op have the same size."""
    length = (len(elements) - n_simple) // n_variadic
    return n_preceding_simple + n_preceding_variadic * length, length


def get_default_loc_context(location=None):
    """The context of a location, or None where there is none and the current one is meant."""
    return location.context if location is not None else None


def get_op_results_or_values(arg):
    """The values in ``arg``: an operation stands for its results."""
    if isinstance(arg, ir.Operation):
        return arg.results
    return arg


def get_op_result_or_value(arg):
    """The value that ``arg`` is, or the only result of the operation that it is."""
    if isinstance(arg, ir.Operation):
        return arg.result
    return arg


def get_op_result_or_op_results(op):
    """What a builder function returns: the result, the results, or the operation without any."""
    results = op.results
    return results[0] if len(results) == 1 else results if len(results) else op
