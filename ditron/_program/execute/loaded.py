"""A ``ditron.program`` in a module, evaluated on a rank: its steps, its kernels, the memory it allocates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ditron._program.calls import LibraryFunction
from ditron._program.execute.epochs import period_of
from ditron._program.execute.overlaps import OverlapCheck, written
from ditron._program.trace.dtypes import to_mlir
from ditron.distributed.group import Group
from ditron_compiler import host, ir
from ditron_compiler.analysis.own_counts import own_counts
from ditron_compiler.errors import DitronError
from ditron_compiler.ir.dialects import ditron as dialect
from ditron_compiler.ir.dialects import tt

__all__ = ["LoadedProgram"]

#: Operations of the dialect that concern one rank alone.
_LOCAL = (
    dialect.ProgramOp,
    dialect.LaunchOp,
    dialect.DimOp,
    dialect.StrideOp,
    dialect.SliceOp,
    dialect.TensorDescriptorOp,
)


class LoadedProgram:
    """A program, evaluated for arguments on a rank.

    Args:
        module: holds the program and the kernels it launches, or is its text; it is not changed. name: of the program,
            when there are several.

        functions: those that the program calls, by the names that it has for them.

    Raises ValueError when there is no such program, DitronError for operations that cannot be executed, ir.MLIRError
    for text that is no module.
    """

    def __init__(
        self, module: ir.Module | str, name: str | None = None, functions: Mapping[str, LibraryFunction] | None = None
    ):
        self.functions = dict(functions or {})
        text = (
            module
            if isinstance(module, str)
            else module.operation.get_asm(enable_debug_info=True, print_generic_op_form=True)
        )
        with ir.Context() as context:
            context.allow_unregistered_dialects = True
            self.module = ir.Module.parse(text)
        programs = {op.sym_name.value: op for op in self.module.body.operations if isinstance(op, dialect.ProgramOp)}
        if name is None and len(programs) != 1 or name is not None and name not in programs:
            raise ValueError(
                f"expected a module with one ditron.program{f' named {name!r}' if name else ''}, got "
                f"{', '.join(programs) or 'none'}"
            )
        self.name, self.program = next(iter(programs.items())) if name is None else (name, programs[name])
        self.parameters = [name.value for name in self.program.arg_names]
        try:
            self._evaluator = host.Evaluator(self.program)
        except host.EvaluationError as error:
            raise DitronError(str(error)) from error
        self._kernels: dict[str, str] = {}
        self._waiting: dict[str, bool] = {}
        self._written: frozenset[int] | None = None
        self._counts: dict[str, int] | None = None
        self._period: Any = ...
        found: list[ir.Operation] = []
        self.module.operation.walk(found.append, ir.WalkOrder.PRE_ORDER)
        #: Whether it concerns this rank alone: it and its kernels neither communicate nor ask for what differs between
        #: ranks, and it allocates nothing. A rank may call it alone, and with shapes of its own.
        self.is_local = all(isinstance(op, _LOCAL) or not op.name.startswith("ditron.") for op in found)

    def overlap_check(self, args: tuple) -> OverlapCheck:
        """The check that tensors of such arguments do not overlap where one is written."""
        if self._written is None:
            self._written = written(self.program)
        return OverlapCheck(self.name, self.parameters, self._written, args)

    @property
    def counts(self) -> dict[str, int]:
        """The allocations that hold counts of this rank alone, and how much these grow in a call."""
        if self._counts is None:
            self._counts = own_counts(self.program)
        return self._counts

    @property
    def period(self) -> int | None:
        """After how many calls the steps repeat (:func:`period_of`); a program of period 1 can be captured."""
        if self._period is ...:
            self._period = period_of(self.program)
        return self._period

    def waits_by_kernel_in_graphs(self, step: host.SignalWait) -> bool:
        """Whether a wait is a kernel when the program is captured; not if it cannot be, or waits for a count."""
        return self.period == 1 and step.signal.storage.name not in self.counts

    def has_waits(self, symbol: str) -> bool:
        """Whether programs of a kernel wait for signals."""
        if symbol not in self._waiting:
            found: list[ir.Operation] = []
            for op in self.module.body.operations:
                if isinstance(op, tt.FuncOp) and op.sym_name.value == symbol:
                    op.walk(found.append, ir.WalkOrder.PRE_ORDER)
            self._waiting[symbol] = any(isinstance(op, dialect.SignalWaitOpInterface) for op in found)
        return self._waiting[symbol]

    def allocations(self, args: tuple, group: Group) -> tuple:
        """The buffers that the program allocates for such arguments, in order."""
        return tuple(self._evaluate(args, place_in(group), 1).allocations)

    def evaluate(self, args: tuple, group: Group, epoch: int) -> list:
        """The steps of this rank in call ``epoch``."""
        return self._evaluate(args, place_in(group), epoch).steps

    def steps(self, args: Sequence[Any], rank: int, num_ranks: int, epoch: int) -> list:
        """The steps of a rank of one node of ``num_ranks``."""
        return self._evaluate(args, host.RankPlacement(rank, num_ranks, rank, num_ranks, 0), epoch).steps

    def _evaluate(self, args: Sequence[Any], place: host.RankPlacement, epoch: int) -> host.Evaluation:
        try:
            return self._evaluator(place, [_describe(value) for value in args], epoch)
        except host.EvaluationError as error:
            raise DitronError(str(error)) from error

    def function(self, step: host.Call) -> LibraryFunction:
        """The function that a step calls."""
        if step.callee not in self.functions:
            raise DitronError(
                f"{step.loc}: the function {step.callee!r}, which program {self.name!r} calls here, is not given: a "
                "module's text has none; Executable(module, functions={...})"
            )
        return self.functions[step.callee]

    def kernel(self, symbol: str) -> str:
        """The text of a module that holds one kernel of the program."""
        if symbol not in self._kernels:
            function = next(
                op for op in self.module.body.operations if isinstance(op, tt.FuncOp) and op.sym_name.value == symbol
            )
            body = function.get_asm(enable_debug_info=True, print_generic_op_form=True)
            self._kernels[symbol] = body
        return self._kernels[symbol]


def place_in(group: Group) -> host.RankPlacement:
    """The position of this rank in a group, as programs ask for it."""
    size = group.ranks_per_node
    mine = group.ranks[group.rank]
    local = [rank for rank in group.ranks if rank // size == mine // size]
    nodes = group.nodes
    near = None if len(nodes) == 1 or group.is_captured else frozenset(map(group.ranks.index, local))
    return host.RankPlacement(
        group.rank, group.num_ranks, local.index(mine), len(local), nodes.index(mine // size), mine, node_ranks=near
    )


def _describe(value: Any) -> Any:
    """An argument as the evaluator takes it: a number, or shape, strides and element type."""
    if isinstance(value, (int, float)):
        return value
    return tuple(value.shape), tuple(value.stride()), to_mlir(value.dtype)
