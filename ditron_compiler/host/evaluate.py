"""Evaluation of a ``ditron.program``: to the steps of one rank in one call."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ditron_compiler import ir
from ditron_compiler.analysis.argument_assumptions import ASSUMPTIONS
from ditron_compiler.host.descriptors import check_descriptor
from ditron_compiler.host.numbers import BINARY, CASTS, compare, width_of, wrap
from ditron_compiler.host.queued import QueuedOperations
from ditron_compiler.host.slots import Action, EvaluationState, location
from ditron_compiler.host.steps import (
    Await,
    BufferView,
    DescriptorView,
    EvaluationError,
    FloatArgument,
    RankPlacement,
    Record,
    Step,
    Storage,
    StreamId,
)
from ditron_compiler.ir.dialects import arith, ditron, scf

__all__ = ["Argument", "Evaluation", "Evaluator", "evaluate"]

#: A number, or shape, strides (in elements) and element type ("bf16") of a tensor.
Argument = int | float | tuple[Sequence[int], Sequence[int], str]

_MAX_ITERATIONS = 1_000_000  # of all loops of a call: more is a mistake, and would look like a hang


class Evaluation(NamedTuple):
    """The allocations of a call, which are the same on every rank, and its steps, both in order."""

    allocations: list[Storage]
    steps: list[Step]


class Evaluator(QueuedOperations):
    """A program, compiled to closures that are evaluated any number of times; later changes of it are not seen.

    Raises EvaluationError for a program with an operation that cannot be evaluated.
    """

    def __init__(self, program: ditron.ProgramOp):
        super().__init__()
        self.name: str = ir.StringAttr(program.sym_name).value
        self.loc = location(program)
        self._arguments = [(name, self._new(value), value.type) for name, value in program.arguments.items()]
        assumptions = program.parent.attributes.get(ASSUMPTIONS) if program.parent is not None else None
        mine = dict(assumptions.items()).get(self.name) if assumptions is not None else None
        self._assumptions = {name: dict(known.items()) for name, known in mine.items()} if mine is not None else {}
        self._allocations = 0
        self._body = self._block(program.block)

    def __call__(self, placement: RankPlacement, arguments: Sequence[Argument], epoch: int = 1) -> Evaluation:
        """The steps of the rank at ``placement`` in call ``epoch`` (from 1).

        Raises EvaluationError for arguments of other types than the program's, and for ranks, elements or signals that
        do not exist.
        """
        if len(arguments) != len(self._arguments):
            raise EvaluationError(
                f"{self.loc}: @{self.name} takes {len(self._arguments)} arguments, got {len(arguments)}"
            )
        state = EvaluationState([None] * len(self._slots), placement, epoch)
        for index, ((name, slot, kind), given) in enumerate(zip(self._arguments, arguments, strict=True)):
            state.values[slot] = self._argument(name, index, kind, given)
        for action in self._body:
            action(state)
        return Evaluation(state.allocations, self._forked_and_joined(state))

    def _forked_and_joined(self, state: EvaluationState) -> list[Step]:
        """The steps, with the events that fork further streams from the program's, and join them at the end."""
        main = StreamId()
        further = dict.fromkeys(step.stream for step in state.steps if step.stream != main)
        if not further:
            return state.steps
        before: list[Step] = [Record(state.events, stream=main, loc=self.loc)]
        before += [Await(state.events, stream=stream, loc=self.loc) for stream in further]
        after: list[Step] = []
        for event, stream in enumerate(further, state.events + 1):
            after += [Record(event, stream=stream, loc=self.loc), Await(event, stream=main, loc=self.loc)]
        return before + state.steps + after

    # --- values --------------------------------------------------------------------------------------------------

    def _argument(self, name: str, index: int, kind: ir.Type, given: Argument) -> Any:
        wrong = f"{self.loc}: @{self.name}: expected argument '{name}' to be {kind}"
        if not isinstance(kind, ir.ShapedType):
            accepted = int if isinstance(kind, ir.IntegerType) else (int, float)
            if not isinstance(given, accepted):
                raise EvaluationError(f"{wrong}, got {given!r}")
            if isinstance(kind, ir.IntegerType):
                if wrap(given, kind.width) != given and not 0 <= given < 1 << kind.width:
                    raise EvaluationError(f"{wrong}, got {given}, which does not fit")
                return wrap(int(given), kind.width)
            return FloatArgument(given, index)
        if isinstance(given, (int, float)):
            raise EvaluationError(f"{wrong}, got the number {given}")
        shape, strides, dtype = tuple(given[0]), tuple(given[1]), given[2]
        dynamic = ir.ShapedType.get_dynamic_size()
        fits = len(shape) == len(kind.shape) and all(d in (dynamic, s) for d, s in zip(kind.shape, shape, strict=True))
        if not fits or dtype != str(kind.element_type):
            raise EvaluationError(f"{wrong}, got shape {list(shape)} of {dtype}")
        known = self._assumptions.get(name, {})
        if (
            "dense" in known
            and 0 not in shape
            and any(size > 1 and stride != s for size, stride, s in zip(shape, strides, _row_major(shape), strict=True))
        ):
            raise EvaluationError(
                f"{wrong}, contiguous, as the program was specialised for, got strides {list(strides)}"
            )
        if any(size % divisor for size, divisor in zip(shape, known.get("dims", ()), strict=False)):
            raise EvaluationError(
                f"{wrong}, of sizes divisible by {list(known['dims'])}, as the program was specialised for, got "
                f"{list(shape)}"
            )
        return BufferView(Storage("argument", name, index, shape, dtype), 0, shape, strides)

    # --- control flow --------------------------------------------------------------------------------------------

    def _block(self, block: ir.Block) -> list[Action]:
        return [action for op in block.operations if (action := self._operation(op)) is not None]

    def _operation(self, op: ir.Operation) -> Action | None:
        if type(op) in BINARY or type(op) in CASTS:
            return self._arithmetic(op)
        compile_op = _ACTIONS.get(type(op))
        if compile_op is None:
            advice = (
                "; run decompose-all-at-once or decompose-ring first"
                if isinstance(op, ditron.AllGatherOp)
                else ": a program is made of host operations, arith, scf.for and scf.if"
            )
            raise EvaluationError(f"{location(op)}: '{op.name}' cannot be evaluated{advice}")
        return compile_op(self, op)

    def _yield(self, op: scf.YieldOp) -> None:
        """Its operands are read by the operation around it."""

    def _yielded(self, block: ir.Block) -> Callable[[list[Any]], list[Any]]:
        slots = [self._slots[value] for value in block.terminator.operands] if len(block.operations) else []
        return lambda values: [values[slot] for slot in slots]

    def _for(self, op: scf.ForOp) -> Action:
        low, high, step = (self._slots[value] for value in (op.lowerBound, op.upperBound, op.step))
        initial = [self._slots[value] for value in op.initArgs]
        index, carried = self._new(op.induction_variable), [self._new(value) for value in op.inner_iter_args]
        body, yielded = self._block(op.body), self._yielded(op.body)
        results, loc = [self._new(value) for value in op.results], location(op)

        def run(state: EvaluationState) -> None:
            values = state.values
            if values[step] <= 0:
                raise EvaluationError(f"{loc}: expected the step of a loop to be positive, got {values[step]}")
            indices = range(values[low], values[high], values[step])
            state.iterations += len(indices)
            if state.iterations > _MAX_ITERATIONS:
                raise EvaluationError(f"{loc}: the loops of the program have more than {_MAX_ITERATIONS} iterations")
            current = [values[slot] for slot in initial]
            for i in indices:
                values[index] = i
                for slot, value in zip(carried, current, strict=True):
                    values[slot] = value
                for action in body:
                    action(state)
                current = yielded(values)
            for slot, value in zip(results, current, strict=True):
                values[slot] = value

        return run

    def _if(self, op: scf.IfOp) -> Action:
        condition = self._slots[op.condition]
        sides = []
        for block in (op.then_block, op.else_block):
            sides.append((self._block(block), self._yielded(block)) if block is not None else ([], lambda _: []))
        results = [self._new(value) for value in op.results]

        def run(state: EvaluationState) -> None:
            body, yielded = sides[0] if state.values[condition] else sides[1]
            for action in body:
                action(state)
            for slot, value in zip(results, yielded(state.values), strict=True):
                state.values[slot] = value

        return run

    # --- numbers -------------------------------------------------------------------------------------------------

    def _arithmetic(self, op: ir.Operation) -> Action:
        operands, result = [self._slots[value] for value in op.operands], self._new(op.results[0])
        width, wanted, loc = width_of(op.operands[0].type), width_of(op.results[0].type), location(op)
        if type(op) in CASTS:
            cast, (source,) = CASTS[type(op)], operands

            def convert(state: EvaluationState) -> None:
                given = state.values[source]
                if wanted < width and not -(1 << wanted - 1) <= given < 1 << wanted:
                    raise EvaluationError(
                        f"{loc}: {given} does not fit in the {wanted} bits that it is passed as; a "
                        "kernel takes more where its parameter is annotated: n: tl.int64"
                    )
                state.values[result] = wrap(cast(given, width), wanted)

            return convert
        function, (a, b) = BINARY[type(op)], operands

        def run(state: EvaluationState) -> None:
            values = state.values
            try:
                values[result] = wrap(function(values[a], values[b], width), wanted)
            except ZeroDivisionError:
                raise EvaluationError(f"{loc}: {values[a]} is divided by zero") from None
            except ValueError as error:
                raise EvaluationError(f"{loc}: {values[a]} is {error}") from None

        return run

    def _constant(self, op: arith.ConstantOp) -> Action:
        value = op.literal_value
        if isinstance(op.type, ir.IntegerType):
            value = wrap(int(value), op.type.width)
        return self._compute(op, lambda state: value)

    def _cmpi(self, op: arith.CmpIOp) -> Action:
        function = compare(int(op.predicate), width_of(op.lhs.type))
        a, b = self._slots[op.lhs], self._slots[op.rhs]
        return self._compute(op, lambda state: function(state.values[a], state.values[b]))

    def _select(self, op: arith.SelectOp) -> Action:
        condition, a, b = (self._slots[value] for value in (op.condition, op.true_value, op.false_value))
        return self._compute(op, lambda state: state.values[a if state.values[condition] else b])

    def _sitofp(self, op: arith.SIToFPOp) -> Action:
        source = self._slots[op.in_]
        return self._compute(op, lambda state: float(state.values[source]))

    def _rank(self, op: ditron.RankOp) -> Action:
        return self._team(op, "rank", "local_rank", "world_rank")

    def _num_ranks(self, op: ditron.NumRanksOp) -> Action:
        return self._team(op, "num_ranks", "num_local_ranks", "world_size")

    def _team(self, op: ir.Operation, group: str, node: str, world: str) -> Action:
        team = str(op.team)
        name, loc = {"group": group, "node": node, "world": world}[team], location(op)

        def fetch(state: EvaluationState) -> int:
            value = getattr(state.placement, name)
            if value is None:
                raise EvaluationError(f"{loc}: {op.name} team {team}: the world of all ranks is not known here")
            return value

        return self._compute(op, fetch)

    def _local_rank(self, op: ditron.LocalRankOp) -> Action:
        return self._compute(op, lambda state: state.placement.local_rank)

    def _num_local_ranks(self, op: ditron.NumLocalRanksOp) -> Action:
        return self._compute(op, lambda state: state.placement.num_local_ranks)

    def _node(self, op: ditron.NodeOp) -> Action:
        return self._compute(op, lambda state: state.placement.node)

    def _epoch(self, op: ditron.EpochOp) -> Action:
        return self._compute(op, lambda state: state.epoch)

    def _dim(self, op: ditron.DimOp) -> Action:
        source, dimension = self._slots[op.source], op.dimension.value
        return self._compute(op, lambda state: state.values[source].shape[dimension])

    def _stride(self, op: ditron.StrideOp) -> Action:
        source, dimension = self._slots[op.source], op.dimension.value
        return self._compute(op, lambda state: state.values[source].strides[dimension])

    # --- memory and streams --------------------------------------------------------------------------------------

    def _alloc(self, op: ditron.AllocOp) -> Action:
        sizes, kind, loc = self._list(op.mixed_sizes), op.result.type, location(op)
        label, zeroed = ir.StringAttr(op.label).value, op.zeroed
        space, dtype, index = "symmetric" if kind.is_symmetric else "local", str(kind.element_type), self._allocations
        self._allocations += 1

        def make(state: EvaluationState) -> BufferView:
            shape = sizes(state.values)
            if any(size < 0 for size in shape):
                raise EvaluationError(f"{loc}: '{label}' cannot have the shape {list(shape)}")
            if 0 in shape and kind.is_symmetric:
                raise EvaluationError(
                    f"{loc}: symmetric memory '{label}' cannot have the shape {list(shape)}, which "
                    "has no elements: do not call the program for tensors without elements"
                )
            storage = Storage(space, label, index, shape, dtype, zeroed)
            state.allocations.append(storage)
            return BufferView(storage, 0, shape, _row_major(shape))

        return self._compute(op, make)

    def _slice(self, op: ditron.SliceOp) -> Action:
        source, offsets, sizes = self._slots[op.source], self._list(op.mixed_offsets), self._list(op.mixed_sizes)
        dropped, loc = op.source.type.rank - op.result.type.rank, location(op)

        def make(state: EvaluationState) -> BufferView:
            whole: BufferView = state.values[source]
            begin, shape = offsets(state.values), sizes(state.values)
            start = whole.offset
            for i, (first, size, bound, stride) in enumerate(
                zip(begin, shape, whole.shape, whole.strides, strict=True)
            ):
                if first < 0 or size < 0 or first + size > bound:
                    raise EvaluationError(
                        f"{loc}: a slice of '{whole.storage.name}' takes elements {first} to "
                        f"{first + size} of dimension {i}, which has {bound}"
                    )
                start += first * stride
            return BufferView(whole.storage, start, shape[dropped:], whole.strides[dropped:])

        return self._compute(op, make)

    def _tensor_descriptor(self, op: ditron.TensorDescriptorOp) -> Action:
        source, sizes, strides = self._slots[op.source], self._list(op.mixed_sizes), self._list(op.mixed_strides)
        itemsize, nan_padding, loc = max(op.source.type.element_type.width // 8, 1), op.nan_padding, location(op)

        def make(state: EvaluationState) -> DescriptorView:
            values = state.values
            descriptor = DescriptorView(values[source], sizes(values), strides(values), nan_padding)
            check_descriptor(descriptor, itemsize, loc)
            return descriptor

        return self._compute(op, make)

    def _stream(self, op: ditron.StreamOp) -> Action:
        label = ir.StringAttr(op.label).value
        if op.index is None:
            stream = StreamId(label)
            return self._compute(op, lambda state: stream)
        index = self._slots[op.index]
        return self._compute(op, lambda state: StreamId(label, state.values[index]))


#: Operation -> the method that compiles it to an action.
_ACTIONS: dict[type, Callable[[Evaluator, Any], Action | None]] = {
    scf.YieldOp: Evaluator._yield,
    scf.ForOp: Evaluator._for,
    scf.IfOp: Evaluator._if,
    arith.ConstantOp: Evaluator._constant,
    arith.CmpIOp: Evaluator._cmpi,
    arith.SelectOp: Evaluator._select,
    arith.SIToFPOp: Evaluator._sitofp,
    ditron.RankOp: Evaluator._rank,
    ditron.NumRanksOp: Evaluator._num_ranks,
    ditron.LocalRankOp: Evaluator._local_rank,
    ditron.NumLocalRanksOp: Evaluator._num_local_ranks,
    ditron.NodeOp: Evaluator._node,
    ditron.EpochOp: Evaluator._epoch,
    ditron.DimOp: Evaluator._dim,
    ditron.StrideOp: Evaluator._stride,
    ditron.AllocOp: Evaluator._alloc,
    ditron.SliceOp: Evaluator._slice,
    ditron.TensorDescriptorOp: Evaluator._tensor_descriptor,
    ditron.StreamOp: Evaluator._stream,
    ditron.RecordOp: Evaluator._record,
    ditron.AwaitOp: Evaluator._await,
    ditron.StreamBarrierOp: Evaluator._stream_barrier,
    ditron.RankCopyOp: Evaluator._rank_copy,
    ditron.CopyOp: Evaluator._copy,
    ditron.FillOp: Evaluator._fill,
    ditron.SignalWriteOp: Evaluator._signal_write,
    ditron.SignalWaitOp: Evaluator._signal_wait,
    ditron.LaunchOp: Evaluator._launch,
    ditron.CallOp: Evaluator._call,
}


def evaluate(
    program: ditron.ProgramOp, placement: RankPlacement, arguments: Sequence[Argument], epoch: int = 1
) -> Evaluation:
    """``Evaluator(program)(placement, arguments, epoch)``; keep the evaluator for several evaluations."""
    return Evaluator(program)(placement, arguments, epoch)


def _row_major(shape: Sequence[int]) -> tuple[int, ...]:
    """The strides of a contiguous tensor."""
    return tuple(math.prod(shape[i + 1 :]) for i in range(len(shape)))
