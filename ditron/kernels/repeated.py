"""Calls of an operator that are like one before: what was checked and chosen then holds, and its programs run at once.

Checking operands, choosing a schedule and making views of tensors take longer than enqueueing a kernel does. All of it
depends on the shapes, strides, dtypes and alignments of the operands and on the options, so a call that agrees with an
earlier one in these runs the programs of that one, with the addresses of its own tensors.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, ParamSpec, TypeVar

import torch

from ditron._jit.tracing import active
from ditron._program.arguments import flatten
from ditron._program.program import Program
from ditron.distributed.group import Group
from ditron.kernels.dispatch import may_repeat
from ditron.kernels.operands import in_group

__all__ = ["repeatable", "repeatable_where_plain", "run_step", "scratch"]

_MOST = 1024  # kinds of calls of a group that are remembered
_TRIES = 3  # to record a call of a kind: the first one may tune, or allocate
_MOST_BYTES = 1 << 30  # between the steps of several operators: it is there for all of them at once
_ALIGNMENT = 512  # bytes, of a tensor within a buffer: as torch's allocator aligns tensors of their own

P = ParamSpec("P")
R = TypeVar("R")


@dataclass
class _Recording:
    """What an operator has run, what it has made for that, and whether it is all that it did."""

    runs: list[tuple[Program, tuple, dict[str, Any]]] = field(default_factory=list)
    made: list[torch.Tensor] = field(default_factory=list)  # and not given away; kept, so that addresses differ
    is_whole: bool = True

    def take(self, other: _Recording, results: Iterable[Any]) -> None:
        """Add what an operator has done that this one has called, and what that has returned."""
        if self.is_whole:
            self.runs += other.runs
            self.made += [*other.made, *results]
            if sum(tensor.nbytes for tensor in self.made) > _MOST_BYTES:
                self.end()

    def end(self) -> None:
        """Record no more, and keep nothing longer than without a recording."""
        self.is_whole = False
        self.runs.clear()
        self.made.clear()


class _Recordings(threading.local):
    latest: _Recording | None = None  # of the operator that this thread is in


_recordings = _Recordings()


def run_step(program: Program, *args: Any, **constants: Any) -> None:
    """Run a program: a step of an operator that does nothing but such steps, calls of other operators that are
    :func:`repeatable`, and making results and what :func:`scratch` gives.

    Tensors among ``args`` begin where an operand, a result of one of these, or scratch does; or the call is not
    remembered.
    """
    program(*args, **constants)
    if _recordings.latest is not None and _recordings.latest.is_whole:
        _recordings.latest.runs.append((program, args, constants))


def scratch(shape: tuple[int, ...], like: torch.Tensor, dtype: torch.dtype | None = None) -> torch.Tensor:
    """A new tensor that an operator's program uses and nobody reads later."""
    made = like.new_empty(shape, dtype=dtype)
    if _recordings.latest is not None and _recordings.latest.is_whole:
        _recordings.latest.made.append(made)
    return made


def repeatable(function: Callable[P, R]) -> Callable[P, R]:
    """Make an operator remember its calls that are made of :func:`run_step`, on GPUs."""
    name = function.__name__
    called = name.removesuffix("_1x128").removesuffix("_rows").removesuffix("_tables")

    @functools.wraps(function)
    def call(*args: Any, group: Any = None, **options: Any) -> Any:
        found = in_group(group, called)
        if found.backend != "cuda" or active() is not None:
            return function(*args, group=found, **options)
        key = name, _kinds(args), tuple(options), _kinds(options.values())
        try:
            again = found.repeated.get(key)
        except TypeError:  # of an option that is wrong
            return function(*args, group=found, **options)
        values = (*args, *options.values())
        outer = _recordings.latest
        # Within another operator, which has not run before, the steps are recorded as those of that one, too.
        if again is not None and outer is None and (result := again(_tensors_of(values))) is not None:
            return result
        # Operators within one that cannot be remembered are remembered one by one.
        recording = _Recording() if found.recorded.get(key, 0) < _TRIES else None
        _recordings.latest = recording
        try:
            with found:
                result = function(*args, group=found, **options)
        finally:
            _recordings.latest = outer
        made = None
        if recording is not None and not _is_capturing(found):  # in a capture a choice may be made for it alone
            made = _again(found, recording, values, result)
            if made is None:
                _keep(found.recorded, key, found.recorded.get(key, 0) + 1)
            elif again is None:
                _keep(found.repeated, key, made)
        if outer is not None and made is None:
            outer.end()
        if outer is not None and recording is not None:
            outer.take(recording, result if isinstance(result, (tuple, list)) else (result,))
        return result

    return call


def repeatable_where_plain(function: Callable[P, R]) -> Callable[P, R]:
    """:func:`repeatable`, of an operator that is none of ``torch.ops`` but calls such: not where gradients are recorded
    or torch traces what is called.
    """
    repeated = repeatable(function)

    @functools.wraps(function)
    def call(*args: Any, **options: Any) -> Any:
        chosen: Any = repeated if may_repeat((*args, *options.values())) else function
        return chosen(*args, **options)

    return call


def _keep(kinds: dict[Any, Any], key: Any, value: Any) -> None:
    if len(kinds) >= _MOST:
        kinds.clear()
    kinds[key] = value


@dataclass(frozen=True)
class _Step:
    """A program's call with the addresses of other tensors.

    ``leaves``: for each argument the place of a tensor and how many bytes behind its beginning; or -1 and a number.
    """

    call: Any
    leaves: tuple[tuple[int, int | float], ...]


@dataclass(frozen=True)
class _Again:
    """An operator's steps with other operands, results and scratch. Tensors have places: operands, then what is made.

    ``made``: shapes and dtypes. ``results``: places, and how many rows of what is there, or None for all of it; in a
    ``form`` of tuple or list, or one without a form.
    """

    steps: tuple[_Step, ...]
    made: tuple[tuple[tuple[int, ...], torch.dtype], ...]
    results: tuple[tuple[int, int | None], ...]
    form: type | None
    device: torch.device

    def __call__(self, values: list) -> Any:
        """The results; None if it cannot run, as tensors overlap."""
        for shape, dtype in self.made:
            values.append(torch.empty(shape, dtype=dtype, device=self.device))
        begins = [value.data_ptr() if isinstance(value, torch.Tensor) else 0 for value in values]
        bases = [
            [more if place < 0 else begins[place] + more for place, more in step.leaves]  # type: ignore[operator]
            for step in self.steps
        ]
        for step, addresses in zip(self.steps, bases, strict=True):  # all of them before the first one runs
            if not step.call.are_apart(addresses):
                return None
        for step, addresses in zip(self.steps, bases, strict=True):
            arguments = None
            if step.call.takes_tensors:
                arguments = [more if place < 0 else values[place] for place, more in step.leaves]
            step.call.at(addresses, arguments)
        found = [values[place] if rows is None else values[place][:rows] for place, rows in self.results]
        return found[0] if self.form is None else self.form(found)


def _tensors_of(values: Iterable[Any]) -> list:
    """The values, and for lists what is in them."""
    found: list = []
    for value in values:
        found += value if isinstance(value, (list, tuple)) else (value,)
    return found


def _again(group: Group, recording: _Recording, values: tuple, result: Any) -> _Again | None:
    """What runs again the call that was recorded; None if it did more than that, or it is not clear how."""
    form = type(result) if isinstance(result, (tuple, list)) else None
    results = (result,) if form is None else result
    if not recording.runs or not recording.is_whole or not all(isinstance(value, torch.Tensor) for value in results):
        return None
    operands = _tensors_of(values)
    whole = [next((made for made in recording.made if _is_beginning(tensor, made)), tensor) for tensor in results]
    rows = [len(tensor) if tensor.shape != base.shape else None for tensor, base in zip(results, whole, strict=True)]
    made: list[torch.Tensor] = []
    for tensor in (*whole, *recording.made):
        if not any(tensor is value for value in operands) and not any(_is_same(tensor, other) for other in made):
            made.append(tensor)
    everything = [*operands, *made]
    places = {value.data_ptr(): place for place, value in enumerate(everything) if isinstance(value, torch.Tensor)}
    if len(places) != sum(isinstance(value, torch.Tensor) for value in everything):
        return None  # two begin at one address: which of them is an argument of a program?
    if any(not tensor.is_contiguous() or tensor.untyped_storage().nbytes() != tensor.nbytes for tensor in made):
        return None  # a part of what a program may write
    calls = [program.known_call(group, args, constants) for program, args, constants in recording.runs]
    if None in calls:
        return None  # it has run in another group
    steps = []
    for call, (_, args, _) in zip(calls, recording.runs, strict=True):
        leaves: list[tuple[int, int | float]] = []
        for leaf in flatten(args)[0]:
            if not isinstance(leaf, torch.Tensor):
                leaves.append((-1, leaf))
                continue
            place = places.get(leaf.data_ptr())
            if place is None or call.takes_tensors and leaf.dtype != everything[place].dtype:
                return None  # a copy, or a view that functions cannot do without
            leaves.append((place, 0))
        steps.append(_Step(call, tuple(leaves)))
    used = {place for step in steps for place, _ in step.leaves}
    given = {id(value) for value in values}
    if any(place not in used and id(value) in given for place, value in enumerate(operands) if _is_tensor(value)):
        return None  # no program would see that it overlaps a result; of lists, not all are
    written = {step.leaves[index][0] for step in steps for index in step.call.writes}
    if len(steps) > 1 and any(0 <= place < len(operands) for place in written):
        return None  # another step may be given what overlaps it
    where = [next(place for place, value in enumerate(everything) if _is_same(value, tensor)) for tensor in whole]
    if not used.issuperset(where):
        return None  # something else has written it
    steps, shapes, where = _with_one_buffer(steps, made, len(operands), where)
    return _Again(tuple(steps), shapes, tuple(zip(where, rows, strict=True)), form, group.device)


def _is_tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor)


def _is_same(value: Any, tensor: torch.Tensor) -> bool:
    """Whether it is that tensor, or a view of all of it."""
    return value is tensor or (
        _is_tensor(value)
        and (value.data_ptr(), value.shape, value.dtype) == (tensor.data_ptr(), tensor.shape, tensor.dtype)
    )


def _is_beginning(tensor: torch.Tensor, whole: torch.Tensor) -> bool:
    """Whether it is the first rows of ``whole``, and not all of them."""
    return (
        tensor.ndim > 0
        and tensor.is_contiguous()
        and (tensor.data_ptr(), tensor.dtype, tensor.shape[1:]) == (whole.data_ptr(), whole.dtype, whole.shape[1:])
        and len(tensor) < len(whole)
    )


def _with_one_buffer(
    steps: list[_Step], made: list[torch.Tensor], operands: int, results: list[int]
) -> tuple[list[_Step], tuple, list[int]]:
    """Steps, what is made, and places of results, where one buffer stands for all that is made but for results."""
    kept = [place for place in range(operands, operands + len(made)) if place in results]
    if any(step.call.takes_tensors for step in steps) or len(made) - len(kept) < 2:
        return steps, tuple([(tuple(tensor.shape), tensor.dtype) for tensor in made]), results
    moved: dict[int, tuple[int, int]] = {place: (operands + index, 0) for index, place in enumerate(kept)}
    size, buffer = 0, operands + len(kept)
    for place, tensor in enumerate(made, operands):
        if place not in moved:
            moved[place] = buffer, size
            size += -(-tensor.nbytes // _ALIGNMENT) * _ALIGNMENT
    shapes = [(tuple(made[place - operands].shape), made[place - operands].dtype) for place in kept]
    relocated = [
        _Step(step.call, tuple([moved.get(place, (place, more)) for place, more in step.leaves])) for step in steps
    ]
    where = [moved[place][0] if place in moved else place for place in results]
    return relocated, (*shapes, ((size,), torch.uint8)), where


def _is_capturing(group: Group) -> bool:
    return group.device.type == "cuda" and torch.cuda.is_current_stream_capturing()


def _kinds(values: Any) -> tuple:
    """What of arguments a call depends on, but for the addresses of tensors."""
    return tuple(
        [
            (value.shape, value.stride(), value.dtype, value.get_device(), value.data_ptr() % 16 == 0)
            if isinstance(value, torch.Tensor)
            else value
            if value is None or value.__class__ is str
            else (value.__class__, _kinds(value) if isinstance(value, list | tuple) else value)
            for value in values
        ]
    )
