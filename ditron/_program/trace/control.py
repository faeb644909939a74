"""Loops and branches of a traced program."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from ditron._program.trace.tracer import Tracer, require
from ditron._program.trace.values import (
    Cond,
    Int,
    Symbol,
    _non_negative,
    _python_int,
    as_int,
    condition,
    describe,
    divisor_of,
)
from ditron_compiler.ir.dialects import scf
from ditron_compiler.source_location import caller, caller_frame

__all__ = ["loop", "when"]


class loop:
    """What ``dh.range`` returns; iterating over it traces the body, twice."""

    def __init__(self, tracer: Tracer, bounds: tuple):
        if not 1 <= len(bounds) <= 3:
            tracer.fail(f"dh.range: expected 1 to 3 integers, got {len(bounds)}")
        start, stop = (0, bounds[0]) if len(bounds) == 1 else bounds[:2]
        step = bounds[2] if len(bounds) == 3 else 1
        for bound in (start, stop):
            if not isinstance(bound, Int) and _python_int(bound) is None:
                tracer.fail(f"dh.range: expected integers, got {describe(bound)}")
        if _python_int(step) is None or step < 1:
            tracer.fail(
                f"dh.range: step must be a positive Python integer, got {describe(step)}: count up, and "
                "compute the index that goes down from it"
            )
        self.tracer, self.start, self.stop, self.step = tracer, start, stop, step
        self._pending = tracer.expect_entered("dh.range(...)", "iterate over it: for i in dh.range(...):")

    def __iter__(self) -> Iterator[Int]:
        tracer = require("range()")
        tracer.entered(self._pending)
        location, frame, texts = caller(), caller_frame(), []
        bounds = [as_int(tracer, bound, "a bound") for bound in (self.start, self.stop, self.step)]
        before = _Variables(frame)
        for attempt in ("first", "second"):
            op = tracer.emit(scf.ForOp, *bounds)
            left = (
                f"it was made in {'an earlier iteration of the' if attempt == 'first' else 'the'} loop at {location}: "
                "no value is carried from one iteration to the next, nor out of the loop; compute it from the loop's "
                "index"
            )
            finished = False
            with tracer.scope("the loop", op.body, location, left):
                try:
                    divisor = divisor_of(self.start) if self.step % 16 == 0 else 1
                    yield Int(tracer, op.induction_variable, divisor, non_negative=_non_negative(self.start))
                    finished = True
                    tracer.raise_pending()
                    tracer.emit(scf.YieldOp, [])
                finally:
                    if not finished and sys.exc_info()[0] in (GeneratorExit, None):
                        tracer.defer(
                            location.error(
                                "the loop over dh.range was left by break or return: the program "
                                "runs all iterations; put what not all of them do under 'with dh.when(...)'"
                            )
                        )
            texts.append(op.operation.get_asm(enable_debug_info=False))
            if attempt == "first":
                op.operation.erase()
        before.check(tracer, location, "the loop")
        if texts[0] != texts[1]:
            raise location.error(
                "the iterations of a loop over dh.range must be the same operations, and tracing its body twice gave "
                "different ones: a Python variable or list changes from one iteration to the next; compute what "
                "changes from the loop's index"
            )


class when:
    """``with dh.when(condition):`` makes an ``scf.if`` of what is traced in it."""

    def __init__(self, condition: Any):
        self.tracer = tracer = require("when()")
        if not isinstance(condition, (Cond, bool)):
            tracer.fail(f"dh.when: expected a condition, such as rank == 0, got {describe(condition)}")
        self.condition = condition
        self._pending = tracer.expect_entered(
            "dh.when(...)", "write 'with dh.when(...):', and what depends on it below"
        )

    def __enter__(self) -> None:
        tracer = self.tracer
        tracer.entered(self._pending)
        self._location, self._before = caller(), _Variables(caller_frame())
        op = tracer.emit(scf.IfOp, condition(tracer, self.condition))
        self._scope = tracer.scope("the branch", op.then_block, self._location)
        self._scope.__enter__()

    def __exit__(self, *exc: Any) -> None:
        if exc[0] is None:
            self.tracer.raise_pending()
            self.tracer.emit(scf.YieldOp, [])
        self._scope.__exit__(*exc)
        if exc[0] is None:
            self._before.check(self.tracer, self._location, "the branch")


class _Variables:
    """The user's variables before a loop or branch: one that is reassigned there has no known value after it."""

    def __init__(self, frame: Any):
        self.frame, self.values = frame, dict(frame.f_locals)

    def check(self, tracer: Tracer, location: Any, what: str) -> None:
        now = self.frame.f_locals
        for name, before in self.values.items():
            after = now.get(name, before)
            if after is before or not self._usable(tracer, before) or not self._usable(tracer, after):
                continue
            if (
                isinstance(after, Symbol)
                or isinstance(before, Symbol)
                or type(after) is not type(before)
                or after != before
            ):
                advice = "dh.where(condition, a, b)" if what == "the branch" else "an expression of the loop's index"
                raise location.error(
                    f"{name!r} is reassigned in {what}, which may not run: its value after it is not known; use "
                    f"another name, or {advice}"
                )

    @staticmethod
    def _usable(tracer: Tracer, value: Any) -> bool:
        """Whether a value is one that programs compute with, and may be used after the body."""
        if isinstance(value, Symbol):
            return not value.scope.closed
        return isinstance(value, (bool, int, float, str))
