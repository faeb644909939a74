"""A program with numbers in it: from ``ditron.program`` to the steps of one rank in one call."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ditron_compiler import ir
from ditron_compiler.analysis.argument_assumptions import ASSUMPTIONS
from ditron_compiler.host.numbers import BINARY, CASTS, compare, width_of, wrap
from ditron_compiler.host.queued import Queued
from ditron_compiler.host.slots import Action, State, location
from ditron_compiler.host.steps import Await, Buffer, EvaluationError, Place, Record, Root, Step, Stream
from ditron_compiler.ir.dialects.enums import keyword

__all__ = ["Argument", "Evaluation", "Evaluator", "evaluate"]

#: A number, or shape, strides (in elements) and element type ("bf16") of a tensor.
Argument = int | float | tuple[Sequence[int], Sequence[int], str]

_MAX_TURNS = 1_000_000  # of all loops of a call: more is a mistake, and would look like a hang


class Evaluation(NamedTuple):
    """What a call allocates, in order and the same on every rank, and what it then does, in order."""

    roots: list[Root]
    steps: list[Step]


class Evaluator(Queued):
    """A program, ready to be evaluated any number of times; changes of it after this are not seen.

    Raises EvaluationError for a program with an operation that is no host operation with a meaning here.
    """

    def __init__(self, program: ir.Operation):
        super().__init__()
        self.name: str = ir.StringAttr(program.attributes["sym_name"]).value
        self.loc = location(program)
        block = program.regions[0].blocks[0]
        self._arguments = [
            (ir.StringAttr(name).value, self._new(value), value.type)
            for name, value in zip(program.attributes["arg_names"], block.arguments, strict=True)
        ]
        assumptions = program.parent.attributes.get(ASSUMPTIONS) if program.parent is not None else None
        mine = dict(assumptions.items()).get(self.name) if assumptions is not None else None
        self._assumptions = {name: dict(known.items()) for name, known in mine.items()} if mine is not None else {}
        self._allocations = 0
        self._body = self._block(block)

    def __call__(self, place: Place, arguments: Sequence[Argument], epoch: int = 1) -> Evaluation:
        """The steps of the rank at ``place`` in call ``epoch`` (from 1).

        Raises EvaluationError for arguments of other types than the program's, and for what does not exist: ranks,
        elements, signals.
        """
        if len(arguments) != len(self._arguments):
            raise EvaluationError(
                f"{self.loc}: @{self.name} takes {len(self._arguments)} arguments, got {len(arguments)}"
            )
        state = State([None] * len(self._slots), place, epoch)
        for index, ((name, slot, kind), given) in enumerate(zip(self._arguments, arguments, strict=True)):
            state.values[slot] = self._argument(name, index, kind, given)
        for action in self._body:
            action(state)
        return Evaluation(state.roots, self._forked_and_joined(state))

    def _forked_and_joined(self, state: State) -> list[Step]:
        """The steps, with what every program does around its further streams said by events, as steps too.

        They begin with what the program's stream had before the call, and that one goes on after all of them.
        """
        main = Stream()
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
            return float(given)
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
                f"{wrong}, row by row without gaps, for which the program was made, got strides {list(strides)}"
            )
        if any(size % divisor for size, divisor in zip(shape, known.get("dims", ()), strict=False)):
            raise EvaluationError(
                f"{wrong}, of sizes divisible by {list(known['dims'])}, for which the program was "
                f"made, got {list(shape)}"
            )
        return Buffer(Root("argument", name, index, shape, dtype), 0, shape, strides)

    # --- control flow --------------------------------------------------------------------------------------------

    def _block(self, block: ir.Block) -> list[Action]:
        return [action for op in block.operations if (action := self._operation(op)) is not None]

    def _operation(self, op: ir.Operation) -> Action | None:
        name = op.name
        if name in BINARY or name in CASTS:
            return self._arithmetic(op)
        method = getattr(self, "_" + name.replace(".", "_"), None)
        if method is None:
            advice = (
                "; run decompose-all-at-once or decompose-ring first"
                if name == "ditron.all_gather"
                else ": a program is made of host operations, arith, scf.for and scf.if"
            )
            raise EvaluationError(f"{location(op)}: '{name}' cannot be evaluated{advice}")
        return method(op)

    def _scf_yield(self, op: ir.Operation) -> None:
        """Its operands are fetched by the operation around it."""

    def _yielded(self, block: ir.Block) -> Callable[[list[Any]], list[Any]]:
        operations = list(block.operations)
        slots = [self._slots[value] for value in operations[-1].operands] if operations else []
        return lambda values: [values[slot] for slot in slots]

    def _scf_for(self, op: ir.Operation) -> Action:
        low, high, step, *initial = [self._slots[value] for value in op.operands]
        block = op.regions[0].blocks[0]
        index, *carried = [self._new(value) for value in block.arguments]
        body, yielded = self._block(block), self._yielded(block)
        results, loc = [self._new(value) for value in op.results], location(op)

        def run(state: State) -> None:
            values = state.values
            if values[step] <= 0:
                raise EvaluationError(f"{loc}: expected the step of a loop to be positive, got {values[step]}")
            turns = range(values[low], values[high], values[step])
            state.turns += len(turns)
            if state.turns > _MAX_TURNS:
                raise EvaluationError(f"{loc}: the loops of the program make more than {_MAX_TURNS} turns")
            current = [values[slot] for slot in initial]
            for turn in turns:
                values[index] = turn
                for slot, value in zip(carried, current, strict=True):
                    values[slot] = value
                for action in body:
                    action(state)
                current = yielded(values)
            for slot, value in zip(results, current, strict=True):
                values[slot] = value

        return run

    def _scf_if(self, op: ir.Operation) -> Action:
        condition = self._slots[op.operands[0]]
        sides = []
        for region in op.regions:
            block = region.blocks[0] if len(region.blocks) else None
            sides.append((self._block(block), self._yielded(block)) if block is not None else ([], lambda _: []))
        results = [self._new(value) for value in op.results]

        def run(state: State) -> None:
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
        if op.name in CASTS:
            cast, (source,) = CASTS[op.name], operands

            def convert(state: State) -> None:
                given = state.values[source]
                if wanted < width and not -(1 << wanted - 1) <= given < 1 << wanted:
                    raise EvaluationError(
                        f"{loc}: {given} does not fit in the {wanted} bits that it is passed as; a "
                        "kernel takes more where its parameter is annotated: n: tl.int64"
                    )
                state.values[result] = wrap(cast(given, width), wanted)

            return convert
        function, (a, b) = BINARY[op.name], operands

        def run(state: State) -> None:
            values = state.values
            try:
                values[result] = wrap(function(values[a], values[b], width), wanted)
            except ZeroDivisionError:
                raise EvaluationError(f"{loc}: {values[a]} is divided by zero") from None
            except ValueError as error:
                raise EvaluationError(f"{loc}: {values[a]} is {error}") from None

        return run

    def _arith_constant(self, op: ir.Operation) -> Action:
        value = op.attributes["value"].value
        if isinstance(op.results[0].type, ir.IntegerType):
            value = wrap(int(value), op.results[0].type.width)
        return self._gives(op, lambda state: value)

    def _arith_cmpi(self, op: ir.Operation) -> Action:
        function = compare(op.attributes["predicate"].value, width_of(op.operands[0].type))
        a, b = [self._slots[value] for value in op.operands]
        return self._gives(op, lambda state: function(state.values[a], state.values[b]))

    def _arith_select(self, op: ir.Operation) -> Action:
        condition, a, b = [self._slots[value] for value in op.operands]
        return self._gives(op, lambda state: state.values[a if state.values[condition] else b])

    def _arith_sitofp(self, op: ir.Operation) -> Action:
        source = self._slots[op.operands[0]]
        return self._gives(op, lambda state: float(state.values[source]))

    def _ditron_rank(self, op: ir.Operation) -> Action:
        return self._team(op, "rank", "local_rank", "world_rank")

    def _ditron_num_ranks(self, op: ir.Operation) -> Action:
        return self._team(op, "num_ranks", "num_local_ranks", "world_size")

    def _team(self, op: ir.Operation, group: str, node: str, world: str) -> Action:
        team = keyword(op.attributes["team"])
        name, loc = {"group": group, "node": node, "world": world}[team], location(op)

        def fetch(state: State) -> int:
            value = getattr(state.place, name)
            if value is None:
                raise EvaluationError(f"{loc}: {op.name} team {team}: the world of this place is not known")
            return value

        return self._gives(op, fetch)

    def _ditron_local_rank(self, op: ir.Operation) -> Action:
        return self._gives(op, lambda state: state.place.local_rank)

    def _ditron_num_local_ranks(self, op: ir.Operation) -> Action:
        return self._gives(op, lambda state: state.place.num_local_ranks)

    def _ditron_node(self, op: ir.Operation) -> Action:
        return self._gives(op, lambda state: state.place.node)

    def _ditron_epoch(self, op: ir.Operation) -> Action:
        return self._gives(op, lambda state: state.epoch)

    def _ditron_dim(self, op: ir.Operation) -> Action:
        source, dimension = self._slots[op.operands[0]], op.attributes["dimension"].value
        return self._gives(op, lambda state: state.values[source].shape[dimension])

    def _ditron_stride(self, op: ir.Operation) -> Action:
        source, dimension = self._slots[op.operands[0]], op.attributes["dimension"].value
        return self._gives(op, lambda state: state.values[source].strides[dimension])

    # --- memory and streams --------------------------------------------------------------------------------------

    def _ditron_alloc(self, op: ir.Operation) -> Action:
        sizes, kind, loc = self._list(op.operands, op.attributes["static_sizes"]), op.results[0].type, location(op)
        label, zeroed = ir.StringAttr(op.attributes["label"]).value, "zeroed" in op.attributes
        space, dtype, index = "symmetric" if kind.is_symmetric else "local", str(kind.element_type), self._allocations
        self._allocations += 1

        def make(state: State) -> Buffer:
            shape = sizes(state.values)
            if any(size < 0 for size in shape):
                raise EvaluationError(f"{loc}: '{label}' cannot have the shape {list(shape)}")
            if 0 in shape and kind.is_symmetric:
                raise EvaluationError(
                    f"{loc}: symmetric memory '{label}' cannot have the shape {list(shape)}, which "
                    "has no elements: do not call the program for tensors without elements"
                )
            root = Root(space, label, index, shape, dtype, zeroed)
            state.roots.append(root)
            return Buffer(root, 0, shape, _row_major(shape))

        return self._gives(op, make)

    def _ditron_slice(self, op: ir.Operation) -> Action:
        _, n, _ = op.attributes["operandSegmentSizes"]
        source, *numbers = list(op.operands)
        offsets = self._list(numbers[:n], op.attributes["static_offsets"])
        sizes = self._list(numbers[n:], op.attributes["static_sizes"])
        root, dropped, loc = self._slots[source], source.type.rank - op.results[0].type.rank, location(op)

        def make(state: State) -> Buffer:
            whole: Buffer = state.values[root]
            begin, shape = offsets(state.values), sizes(state.values)
            start = whole.offset
            for i, (first, size, bound, stride) in enumerate(
                zip(begin, shape, whole.shape, whole.strides, strict=True)
            ):
                if first < 0 or size < 0 or first + size > bound:
                    raise EvaluationError(
                        f"{loc}: a slice of '{whole.root.name}' takes elements {first} to "
                        f"{first + size} of dimension {i}, which has {bound}"
                    )
                start += first * stride
            return Buffer(whole.root, start, shape[dropped:], whole.strides[dropped:])

        return self._gives(op, make)

    def _ditron_stream(self, op: ir.Operation) -> Action:
        label = ir.StringAttr(op.attributes["label"]).value
        if not len(op.operands):
            stream = Stream(label)
            return self._gives(op, lambda state: stream)
        index = self._slots[op.operands[0]]
        return self._gives(op, lambda state: Stream(label, state.values[index]))


def evaluate(program: ir.Operation, place: Place, arguments: Sequence[Argument], epoch: int = 1) -> Evaluation:
    """``Evaluator(program)(place, arguments, epoch)``; whoever needs several evaluations keeps the evaluator."""
    return Evaluator(program)(place, arguments, epoch)


def _row_major(shape: Sequence[int]) -> tuple[int, ...]:
    """Strides of elements that lie row by row without gaps."""
    return tuple(math.prod(shape[i + 1 :]) for i in range(len(shape)))
