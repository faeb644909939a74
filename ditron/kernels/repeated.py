"""Calls of an operator that are like one before: what was checked and chosen then holds, and its program runs at once.

Checking operands, choosing a schedule and making views of tensors take longer than enqueueing a kernel does. All of it
depends on the shapes, strides, dtypes and alignments of the operands and on the options, so a call that agrees with an
earlier one in these runs the program of that one, with the addresses of its own tensors.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ParamSpec, TypeVar

import torch

from ditron._jit.tracing import active
from ditron._program.arguments import flatten
from ditron._program.program import Program
from ditron.distributed.group import Group
from ditron.kernels.operands import in_group

__all__ = ["repeatable", "run_alone", "scratch"]

_MOST = 1024  # kinds of calls of a group that are remembered

P = ParamSpec("P")
R = TypeVar("R")


@dataclass
class _Recording:
    """What an operator has run, and its scratch."""

    runs: list[tuple[Program, tuple, dict[str, Any]]] = field(default_factory=list)
    scratch: list[torch.Tensor] = field(default_factory=list)


class _Recordings(threading.local):
    latest: _Recording | None = None  # of the operator that this thread is in


_recordings = _Recordings()


def run_alone(program: Program, *args: Any, **constants: Any) -> None:
    """Run a program: all that this call of an operator does, but for allocating results and what :func:`scratch` gives.

    Tensors among ``args`` begin where an operand, a result or scratch does, or the call is not remembered.
    """
    program(*args, **constants)
    if _recordings.latest is not None:
        _recordings.latest.runs.append((program, args, constants))


def scratch(shape: tuple[int, ...], like: torch.Tensor, dtype: torch.dtype | None = None) -> torch.Tensor:
    """A new tensor that an operator's program uses and nobody reads later."""
    made = like.new_empty(shape, dtype=dtype)
    if _recordings.latest is not None:
        _recordings.latest.scratch.append(made)
    return made


def repeatable(function: Callable[P, R]) -> Callable[P, R]:
    """Make an operator remember its calls that end in :func:`run_alone`, on GPUs."""
    name = function.__name__

    @functools.wraps(function)
    def call(*args: Any, group: Any = None, **options: Any) -> Any:
        found = in_group(group, name)
        if found.backend != "cuda" or active() is not None:
            return function(*args, group=found, **options)
        key = name, _kinds(args), tuple(options), _kinds(options.values())
        try:
            again = found.repeated.get(key)
        except TypeError:  # of an option that is wrong
            return function(*args, group=found, **options)
        values = (*args, *options.values())
        if again is not None and (result := again(values)) is not None:
            return result
        outer, _recordings.latest = _recordings.latest, (recording := _Recording())
        try:
            result = function(*args, group=found, **options)
        finally:
            _recordings.latest = outer
        if again is None and not _is_capturing(found):  # in which a choice may be made for this capture alone
            if (made := _again(found, recording, values, result)) is not None:
                if len(found.repeated) >= _MOST:
                    found.repeated.clear()
                found.repeated[key] = made
        return result

    return call


@dataclass(frozen=True)
class _Again:
    """A program's call with the addresses of other tensors: of operands, and of new results and scratch.

    ``leaves``: for each argument of the program its tensor, by its place among the operator's arguments and what it
    makes, and -1; or -1 and a number. ``made``: shapes and dtypes. ``results``: places; a number alone is no tuple.
    """

    call: Any
    leaves: tuple[tuple[int, int | float], ...]
    made: tuple[tuple[torch.Size, torch.dtype], ...]
    results: int | tuple[int, ...]
    device: torch.device

    def __call__(self, values: tuple) -> Any:
        """The results; None if it cannot run, as tensors overlap."""
        for shape, dtype in self.made:
            values += (torch.empty(shape, dtype=dtype, device=self.device),)
        arguments = [number if place < 0 else values[place] for place, number in self.leaves]
        bases = [value.data_ptr() if isinstance(value, torch.Tensor) else value for value in arguments]
        if not self.call.at(bases, arguments):
            return None
        results = self.results
        return values[results] if isinstance(results, int) else tuple([values[place] for place in results])


def _again(group: Group, recording: _Recording, values: tuple, result: Any) -> _Again | None:
    """What runs again the call that was recorded; None if it did more than that, or it is not clear how."""
    results = result if isinstance(result, tuple) else (result,)
    if len(recording.runs) != 1 or not all(isinstance(value, torch.Tensor) for value in results):
        return None
    made: list[torch.Tensor] = []
    for tensor in (*results, *recording.scratch):
        if not any(tensor is value for value in (*values, *made)):
            made.append(tensor)
    everything = (*values, *made)
    places = {value.data_ptr(): place for place, value in enumerate(everything) if isinstance(value, torch.Tensor)}
    if len(places) != sum(isinstance(value, torch.Tensor) for value in everything):
        return None  # two begin at one address: which of them is an argument of the program?
    if any(not tensor.is_contiguous() or tensor.untyped_storage().nbytes() != tensor.nbytes for tensor in made):
        return None  # a part of what the program may write
    program, args, constants = recording.runs[0]
    call = program.known_call(group, args, constants)
    leaves: list[tuple[int, int | float]] = []
    for leaf in flatten(args)[0]:
        if not isinstance(leaf, torch.Tensor):
            leaves.append((-1, leaf))
            continue
        place = places.get(leaf.data_ptr())
        if place is None or call.takes_tensors and leaf.dtype != everything[place].dtype:
            return None  # a copy, or a view that functions cannot do without
        leaves.append((place, -1))
    operands = {place for place, value in enumerate(values) if isinstance(value, torch.Tensor)}
    if operands - {place for place, _ in leaves}:
        return None  # the program would not see that one overlaps a result
    where = tuple([next(place for place, value in enumerate(everything) if value is tensor) for tensor in results])
    return _Again(
        call,
        tuple(leaves),
        tuple([(tensor.shape, tensor.dtype) for tensor in made]),
        where if isinstance(result, tuple) else where[0],
        group.device,
    )


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
