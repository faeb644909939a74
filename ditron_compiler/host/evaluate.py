"""A program with numbers in it: from ``ditron.program`` to the steps of one rank in one call."""
from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ditron_compiler import ir
from ditron_compiler.host.numbers import BINARY, CASTS, compare, width_of, wrap
from ditron_compiler.host.steps import (
    Await,
    Buffer,
    Copy,
    EvaluationError,
    Fill,
    Launch,
    Place,
    RankCopy,
    Record,
    Root,
    SignalWait,
    SignalWrite,
    Step,
    Stream,
    StreamBarrier,
)

__all__ = ["Argument", "Evaluation", "Evaluator", "evaluate"]

#: A number, or shape, strides (in elements) and element type ("bf16") of a tensor.
Argument = int | float | tuple[Sequence[int], Sequence[int], str]

_MAX_TURNS = 1_000_000  # of all loops of a call: more is a mistake, and would look like a hang
_MAX_GRID = 2**31 - 1


class Evaluation(NamedTuple):
    """What a call allocates, in order and the same on every rank, and what it then does, in order."""

    roots: list[Root]
    steps: list[Step]


@dataclass
class _State:
    """One evaluation: the values by slot, and what has come of it so far."""

    values: list[Any]
    place: Place
    epoch: int
    roots: list[Root] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    events: int = 0
    turns: int = 0


_Action = Callable[[_State], None]
_Get = Callable[[list[Any]], Any]  # of the values by slot


class Evaluator:
    """A program, ready to be evaluated any number of times; changes of it after this are not seen.

    Raises EvaluationError for a program with an operation that is no host operation with a meaning here.
    """

    def __init__(self, program: ir.Operation):
        self.name: str = ir.StringAttr(program.attributes["sym_name"]).value
        self.loc = _loc(program)
        block = program.regions[0].blocks[0]
        self._slots: dict[ir.Value, int] = {}
        self._arguments = [(ir.StringAttr(name).value, self._new(value), value.type)
                           for name, value in zip(program.attributes["arg_names"], block.arguments, strict=True)]
        facts = program.parent.attributes.get("ditron.facts") if program.parent is not None else None
        mine = dict(facts.items()).get(self.name) if facts is not None else None
        self._facts = {name: dict(known.items()) for name, known in mine.items()} if mine is not None else {}
        self._allocations = 0
        self._body = self._block(block)

    def __call__(self, place: Place, arguments: Sequence[Argument], epoch: int = 1) -> Evaluation:
        """The steps of the rank at ``place`` in call ``epoch`` (from 1).

        Raises EvaluationError for arguments of other types than the program's, and for what does not exist: ranks,
        elements, signals.
        """
        if len(arguments) != len(self._arguments):
            raise EvaluationError(f"{self.loc}: @{self.name} takes {len(self._arguments)} arguments, got "
                                  f"{len(arguments)}")
        state = _State([None] * len(self._slots), place, epoch)
        for index, ((name, slot, kind), given) in enumerate(zip(self._arguments, arguments, strict=True)):
            state.values[slot] = self._argument(name, index, kind, given)
        for action in self._body:
            action(state)
        return Evaluation(state.roots, self._forked_and_joined(state))

    def _forked_and_joined(self, state: _State) -> list[Step]:
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
        known = self._facts.get(name, {})
        if "dense" in known and any(size > 1 and stride != s for size, stride, s in zip(
                shape, strides, _row_major(shape), strict=True)):
            raise EvaluationError(f"{wrong}, row by row without gaps, for which the program was made, got strides "
                                  f"{list(strides)}")
        if any(size % divisor for size, divisor in zip(shape, known.get("dims", ()), strict=False)):
            raise EvaluationError(f"{wrong}, of sizes divisible by {list(known['dims'])}, for which the program was "
                                  f"made, got {list(shape)}")
        return Buffer(Root("argument", name, index, shape, dtype), 0, shape, strides)

    def _new(self, value: ir.Value) -> int:
        """The slot of a value that an operation or a block defines."""
        return self._slots.setdefault(value, len(self._slots))

    def _get(self, value: ir.Value) -> _Get:
        return operator.itemgetter(self._slots[value])

    def _list(self, values: Sequence[ir.Value], known: ir.Attribute) -> _Get:
        """A list of numbers, each known or a value."""
        dynamic, rest = ir.ShapedType.get_dynamic_size(), iter(values)
        entries = [(None, self._slots[next(rest)]) if number == dynamic else (number, 0) for number in known]
        return lambda values: tuple(values[slot] if number is None else number for number, slot in entries)

    # --- control flow --------------------------------------------------------------------------------------------

    def _block(self, block: ir.Block) -> list[_Action]:
        return [action for op in block.operations if (action := self._operation(op)) is not None]

    def _operation(self, op: ir.Operation) -> _Action | None:
        name = op.name
        if name in BINARY or name in CASTS:
            return self._arithmetic(op)
        method = getattr(self, "_" + name.replace(".", "_"), None)
        if method is None:
            advice = ("; run decompose-all-at-once or decompose-ring first" if name == "ditron.all_gather" else
                      ": a program is made of host operations, arith, scf.for and scf.if")
            raise EvaluationError(f"{_loc(op)}: '{name}' cannot be evaluated{advice}")
        return method(op)

    def _scf_yield(self, op: ir.Operation) -> None:
        """Its operands are fetched by the operation around it."""

    def _yielded(self, block: ir.Block) -> Callable[[list[Any]], list[Any]]:
        operations = list(block.operations)
        slots = [self._slots[value] for value in operations[-1].operands] if operations else []
        return lambda values: [values[slot] for slot in slots]

    def _scf_for(self, op: ir.Operation) -> _Action:
        low, high, step, *initial = [self._slots[value] for value in op.operands]
        block = op.regions[0].blocks[0]
        index, *carried = [self._new(value) for value in block.arguments]
        body, yielded = self._block(block), self._yielded(block)
        results, loc = [self._new(value) for value in op.results], _loc(op)

        def run(state: _State) -> None:
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

    def _scf_if(self, op: ir.Operation) -> _Action:
        condition = self._slots[op.operands[0]]
        sides = []
        for region in op.regions:
            block = region.blocks[0] if len(region.blocks) else None
            sides.append((self._block(block), self._yielded(block)) if block is not None else ([], lambda _: []))
        results = [self._new(value) for value in op.results]

        def run(state: _State) -> None:
            body, yielded = sides[0] if state.values[condition] else sides[1]
            for action in body:
                action(state)
            for slot, value in zip(results, yielded(state.values), strict=True):
                state.values[slot] = value

        return run

    # --- numbers -------------------------------------------------------------------------------------------------

    def _arithmetic(self, op: ir.Operation) -> _Action:
        operands, result = [self._slots[value] for value in op.operands], self._new(op.results[0])
        width, wanted, loc = width_of(op.operands[0].type), width_of(op.results[0].type), _loc(op)
        if op.name in CASTS:
            cast, (source,) = CASTS[op.name], operands

            def convert(state: _State) -> None:
                given = state.values[source]
                if wanted < width and not -(1 << wanted - 1) <= given < 1 << wanted:
                    raise EvaluationError(f"{loc}: {given} does not fit in the {wanted} bits that it is passed as; a "
                                          "kernel takes more where its parameter is annotated: n: tl.int64")
                state.values[result] = wrap(cast(given, width), wanted)

            return convert
        function, (a, b) = BINARY[op.name], operands

        def run(state: _State) -> None:
            values = state.values
            try:
                values[result] = wrap(function(values[a], values[b], width), wanted)
            except ZeroDivisionError:
                raise EvaluationError(f"{loc}: {values[a]} is divided by zero") from None

        return run

    def _arith_constant(self, op: ir.Operation) -> _Action:
        value = op.attributes["value"].value
        if isinstance(op.results[0].type, ir.IntegerType):
            value = wrap(int(value), op.results[0].type.width)
        return self._gives(op, lambda state: value)

    def _arith_cmpi(self, op: ir.Operation) -> _Action:
        function = compare(op.attributes["predicate"].value, width_of(op.operands[0].type))
        a, b = [self._slots[value] for value in op.operands]
        return self._gives(op, lambda state: function(state.values[a], state.values[b]))

    def _arith_select(self, op: ir.Operation) -> _Action:
        condition, a, b = [self._slots[value] for value in op.operands]
        return self._gives(op, lambda state: state.values[a if state.values[condition] else b])

    def _arith_sitofp(self, op: ir.Operation) -> _Action:
        source = self._slots[op.operands[0]]
        return self._gives(op, lambda state: float(state.values[source]))

    def _gives(self, op: ir.Operation, function: Callable[[_State], Any]) -> _Action:
        """The action that makes the operation's result."""
        result = self._new(op.results[0])

        def run(state: _State) -> None:
            state.values[result] = function(state)

        return run

    def _ditron_rank(self, op: ir.Operation) -> _Action:
        return self._team(op, "rank", "local_rank", "world_rank")

    def _ditron_num_ranks(self, op: ir.Operation) -> _Action:
        return self._team(op, "num_ranks", "num_local_ranks", "world_size")

    def _team(self, op: ir.Operation, group: str, node: str, world: str) -> _Action:
        team = _keyword(op, "team")
        name, loc = {"group": group, "node": node, "world": world}[team], _loc(op)

        def fetch(state: _State) -> int:
            value = getattr(state.place, name)
            if value is None:
                raise EvaluationError(f"{loc}: {op.name} team {team}: the world of this place is not known")
            return value

        return self._gives(op, fetch)

    def _ditron_local_rank(self, op: ir.Operation) -> _Action:
        return self._gives(op, lambda state: state.place.local_rank)

    def _ditron_num_local_ranks(self, op: ir.Operation) -> _Action:
        return self._gives(op, lambda state: state.place.num_local_ranks)

    def _ditron_node(self, op: ir.Operation) -> _Action:
        return self._gives(op, lambda state: state.place.node)

    def _ditron_epoch(self, op: ir.Operation) -> _Action:
        return self._gives(op, lambda state: state.epoch)

    def _ditron_dim(self, op: ir.Operation) -> _Action:
        source, dimension = self._slots[op.operands[0]], op.attributes["dimension"].value
        return self._gives(op, lambda state: state.values[source].shape[dimension])

    def _ditron_stride(self, op: ir.Operation) -> _Action:
        source, dimension = self._slots[op.operands[0]], op.attributes["dimension"].value
        return self._gives(op, lambda state: state.values[source].strides[dimension])

    # --- memory and streams --------------------------------------------------------------------------------------

    def _ditron_alloc(self, op: ir.Operation) -> _Action:
        sizes, kind, loc = self._list(op.operands, op.attributes["static_sizes"]), op.results[0].type, _loc(op)
        label, zeroed = ir.StringAttr(op.attributes["label"]).value, "zeroed" in op.attributes
        space, dtype, index = "symmetric" if kind.is_symmetric else "local", str(kind.element_type), self._allocations
        self._allocations += 1

        def make(state: _State) -> Buffer:
            shape = sizes(state.values)
            if any(size < 0 for size in shape):
                raise EvaluationError(f"{loc}: '{label}' cannot have the shape {list(shape)}")
            root = Root(space, label, index, shape, dtype, zeroed)
            state.roots.append(root)
            return Buffer(root, 0, shape, _row_major(shape))

        return self._gives(op, make)

    def _ditron_slice(self, op: ir.Operation) -> _Action:
        _, n, _ = op.attributes["operandSegmentSizes"]
        source, *numbers = list(op.operands)
        offsets = self._list(numbers[:n], op.attributes["static_offsets"])
        sizes = self._list(numbers[n:], op.attributes["static_sizes"])
        root, dropped, loc = self._slots[source], source.type.rank - op.results[0].type.rank, _loc(op)

        def make(state: _State) -> Buffer:
            whole: Buffer = state.values[root]
            begin, shape = offsets(state.values), sizes(state.values)
            start = whole.offset
            for i, (first, size, bound, stride) in enumerate(zip(begin, shape, whole.shape, whole.strides,
                                                                 strict=True)):
                if first < 0 or size < 0 or first + size > bound:
                    raise EvaluationError(f"{loc}: a slice of '{whole.root.name}' takes elements {first} to "
                                          f"{first + size} of dimension {i}, which has {bound}")
                start += first * stride
            return Buffer(whole.root, start, shape[dropped:], whole.strides[dropped:])

        return self._gives(op, make)

    def _ditron_stream(self, op: ir.Operation) -> _Action:
        label = ir.StringAttr(op.attributes["label"]).value
        if not len(op.operands):
            stream = Stream(label)
            return self._gives(op, lambda state: stream)
        index = self._slots[op.operands[0]]
        return self._gives(op, lambda state: Stream(label, state.values[index]))

    # --- steps ---------------------------------------------------------------------------------------------------

    def _step(self, op: ir.Operation, stream: ir.Value | None, make: Callable[..., Step | None]) -> _Action:
        """The action that puts ``make(state, stream=, loc=)`` on the stream."""
        get, loc, main = self._get(stream) if stream is not None else None, _loc(op), Stream()

        def run(state: _State) -> None:
            step = make(state, stream=get(state.values) if get else main, loc=loc)
            if step is not None:
                state.steps.append(step)

        return run

    def _ditron_record(self, op: ir.Operation) -> _Action:
        event = self._new(op.results[0])

        def make(state: _State, **where: Any) -> Step:
            state.values[event] = state.events
            state.events += 1
            return Record(state.values[event], **where)

        return self._step(op, op.stream, make)

    def _ditron_await(self, op: ir.Operation) -> _Action:
        event = self._get(op.event)
        return self._step(op, op.stream, lambda state, **where: Await(event(state.values), **where))

    def _ditron_stream_barrier(self, op: ir.Operation) -> _Action:
        return self._step(op, op.stream, lambda state, **where: StreamBarrier(**where))

    def _ditron_rank_copy(self, op: ir.Operation) -> _Action:
        src, dst, peer, push = self._get(op.src), self._get(op.dst), self._get(op.peer), not op.pull

        def make(state: _State, loc: str, **where: Any) -> Step:
            values = state.values
            _check_shapes(src(values), dst(values), loc)
            _check_peer(peer(values), state, loc)
            return RankCopy(src(values), dst(values), peer(values), push, loc=loc, **where)

        return self._step(op, op.stream, make)

    def _ditron_copy(self, op: ir.Operation) -> _Action:
        src, dst = self._get(op.src), self._get(op.dst)

        def make(state: _State, loc: str, **where: Any) -> Step:
            _check_shapes(src(state.values), dst(state.values), loc)
            return Copy(src(state.values), dst(state.values), loc=loc, **where)

        return self._step(op, op.stream, make)

    def _ditron_fill(self, op: ir.Operation) -> _Action:
        dst, value = self._get(op.dst), self._get(op.value)
        return self._step(op, op.stream, lambda state, **where: Fill(dst(state.values), value(state.values), **where))

    def _signal(self, op: ir.Operation) -> Callable[[_State], Buffer]:
        """The one signal that an operation is about, as a buffer of shape ``()``."""
        signal, indices, loc = self._get(op.signal), self._list(op.indices, op.attributes["static_indices"]), _loc(op)

        def make(state: _State) -> Buffer:
            whole: Buffer = signal(state.values)
            at, offset = indices(state.values), whole.offset
            for i, (index, size, stride) in enumerate(zip(at, whole.shape, whole.strides, strict=True)):
                if not 0 <= index < size:
                    raise EvaluationError(f"{loc}: there is no signal {index} in dimension {i} of '{whole.root.name}', "
                                          f"which has {size}")
                offset += index * stride
            return Buffer(whole.root, offset, (), ())

        return make

    def _ditron_signal_write(self, op: ir.Operation) -> _Action:
        signal, value, peer, how = self._signal(op), self._get(op.value), self._get(op.peer), _keyword(op, "op")

        def make(state: _State, loc: str, **where: Any) -> Step:
            _check_peer(peer(state.values), state, loc)
            return SignalWrite(signal(state), how, value(state.values), peer(state.values), loc=loc, **where)

        return self._step(op, op.stream, make)

    def _ditron_signal_wait(self, op: ir.Operation) -> _Action:
        signal, value, cmp = self._signal(op), self._get(op.value), _keyword(op, "cmp")
        return self._step(op, op.stream,
                          lambda state, **where: SignalWait(signal(state), cmp, value(state.values), **where))

    def _ditron_launch(self, op: ir.Operation) -> _Action:
        kernel, args = op.kernel.value, [self._slots[value] for value in op.args]
        numbers = self._list(op.grid, op.attributes["static_grid"])
        options = {name: value.value for name, value in op.options.items()} if op.options is not None else {}

        def make(state: _State, loc: str, **where: Any) -> Step | None:
            x, y, z = (*numbers(state.values), 1, 1)[:3]
            if min(x, y, z) < 0 or max(x, y, z) > _MAX_GRID:
                raise EvaluationError(f"{loc}: @{kernel} cannot be launched on a grid of {x} x {y} x {z}")
            if not x * y * z:
                return None  # no programs
            return Launch(kernel, (x, y, z), tuple(state.values[slot] for slot in args), options, loc=loc, **where)

        return self._step(op, op.stream, make)


def evaluate(program: ir.Operation, place: Place, arguments: Sequence[Argument], epoch: int = 1) -> Evaluation:
    """``Evaluator(program)(place, arguments, epoch)``; whoever needs several evaluations keeps the evaluator."""
    return Evaluator(program)(place, arguments, epoch)


def _row_major(shape: Sequence[int]) -> tuple[int, ...]:
    """Strides of elements that lie row by row without gaps."""
    return tuple(math.prod(shape[i + 1:]) for i in range(len(shape)))


def _loc(op: ir.Operation) -> str:
    place = op.location.file_line_col
    return "unknown" if place is None else ":".join(map(str, place))


def _keyword(op: ir.Operation, name: str) -> str:
    """The keyword of an enumeration attribute: ``ge`` of ``#ditron.cmp<ge>``."""
    return str(op.attributes[name]).partition("<")[2].rstrip(">")


def _check_shapes(src: Buffer, dst: Buffer, loc: str) -> None:
    if src.shape != dst.shape:
        raise EvaluationError(f"{loc}: a part of '{src.root.name}' of shape {list(src.shape)} cannot be copied to one "
                              f"of '{dst.root.name}' of shape {list(dst.shape)}")


def _check_peer(peer: int, state: _State, loc: str) -> None:
    if not 0 <= peer < state.place.num_ranks:
        raise EvaluationError(f"{loc}: there is no rank {peer}; the group has {state.place.num_ranks}")
