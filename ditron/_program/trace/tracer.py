"""The trace of one program: where operations go, their source locations, and the scopes of values.

A program is an ordinary Python function that is called once with symbolic values; what it does with them becomes a
``ditron.program``. A loop's body is traced twice: the second time shows whether it depends on values of the iteration
before, which the loop in the IR does not carry.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NoReturn

from ditron._jit.tracing import active, tracing
from ditron_compiler import ir
from ditron_compiler.errors import CompileError
from ditron_compiler.source_location import SourceLocation, caller

__all__ = ["Scope", "Tracer", "active", "require"]


@dataclass(eq=False)
class Scope:
    """The body of the program, of a loop or of a branch: values made in it may be used in it only."""

    what: str
    location: SourceLocation
    block: ir.Block
    closed: str = ""  # why its values cannot be used any more

    def __repr__(self) -> str:
        return f"{self.what} at {self.location}"


@dataclass
class _Pending:
    """A ``dh.when`` or ``dh.range`` that was made and not yet entered."""

    what: str
    location: SourceLocation
    advice: str


def require(what: str) -> Tracer:
    """The trace that this thread is in; the error for ``dh.<what>`` outside of one."""
    tracer = active()
    if tracer is None:
        raise caller().error(
            f"dh.{what} was called outside of a program: call it in a function decorated by @ditron.program"
        )
    return tracer


@dataclass(eq=False)
class Tracer:
    """Builds one ``ditron.program`` in ``module``.

    Attributes:
        name: of the program. target: the machine its kernels are parsed for. module: program and kernels.
        instrumentation: observes the passes over kernels, or None.
        streams: those of ``with dh.stream():``, innermost last.
        launcher: records a launch, ``launcher(tracer, kernel, grid, args, kwargs)``.
        kernels: symbol of each kernel in the module, by its text. labels: names of allocations.
        functions: those that the program calls, by name.
        entry: values that are computed once, at the beginning: rank, epoch, dimensions.
    """

    name: str
    target: Any
    module: ir.Module
    launcher: Callable[..., None]
    instrumentation: Any = None
    streams: list[Any] = field(default_factory=list)
    kernels: dict[str, str] = field(default_factory=dict)
    functions: dict[str, Any] = field(default_factory=dict)
    entry: dict[Any, Any] = field(default_factory=dict)
    labels: dict[str, SourceLocation] = field(default_factory=dict)
    _scopes: list[Scope] = field(default_factory=list)
    _pending: list[_Pending] = field(default_factory=list)
    _failure: CompileError | None = None
    _point: ir.InsertionPoint | None = None  # in place of the end of the current scope

    @contextmanager
    def tracing(self, body: ir.Block, location: SourceLocation) -> Iterator[None]:
        """Within it, this is the active trace."""
        if (outer := active()) is not None:
            self.fail(
                f"program {self.name!r} was called in the trace of program {outer.name!r}: a program "
                "cannot call another one; share a plain Python function that both call"
            )
        with tracing(self), self.scope("the program", body, location):
            yield
            self.raise_pending()

    @contextmanager
    def scope(self, what: str, block: ir.Block, location: SourceLocation, left: str = "") -> Iterator[Scope]:
        """Within it, operations go to the end of ``block``."""
        scope = Scope(what, location, block)
        self._scopes.append(scope)
        try:
            yield scope
        finally:
            if scope in self._scopes:  # an error may have ended an outer one before
                del self._scopes[self._scopes.index(scope) :]
            scope.closed = left or f"it was made in {scope}, and is used outside of it"

    @property
    def current(self) -> Scope:
        return self._scopes[-1]

    @property
    def nested(self) -> bool:
        """Whether the current scope is a loop or a branch."""
        return len(self._scopes) > 1

    def record_launch(self, kernel: Any, grid: Any, args: tuple, kwargs: dict) -> None:
        """Add the launch of a kernel to the program."""
        self.launcher(self, kernel, grid, args, kwargs)

    def fail(self, message: str, *notes: tuple[SourceLocation, str]) -> NoReturn:
        """Raise for the user's current line."""
        raise caller().error(message, *notes)

    def check(self, value: Any, what: str) -> None:
        """Raise unless a value may be used here."""
        if value.scope not in self._scopes:
            owner = active()
            if owner is not None and value.tracer is not owner:
                self.fail(f"{what} belongs to the trace of another program: pass it as an argument")
            self.fail(f"{what} cannot be used here: {value.scope.closed}", (value.scope.location, "made here"))

    def expect_entered(self, what: str, advice: str) -> _Pending:
        """Note that what the user's line made has to be entered."""
        self.raise_pending()
        pending = _Pending(what, caller(), advice)
        self._pending.append(pending)
        return pending

    def entered(self, pending: _Pending) -> None:
        self._pending.remove(pending)

    def defer(self, error: CompileError) -> None:
        """An error that cannot be raised where it is found (a loop was left by ``break``)."""
        self._failure = self._failure or error

    def raise_pending(self) -> None:
        """Raise a deferred error, or that a ``dh.when`` or ``dh.range`` was not entered."""
        if self._failure is not None:
            raise self._failure
        if self._pending:
            pending = self._pending[0]
            raise pending.location.error(f"{pending.what} has no effect here: {pending.advice}")

    def emit(self, build: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Create an operation, located at the user's line; ``build`` is its class."""
        self.raise_pending()
        location = caller()
        point = self._point or ir.InsertionPoint(self.current.block)
        with point, ir.Location.file(location.file, location.line, location.column, context=self.module.context):
            return build(*args, **kwargs)

    def once(self, key: Any, make: Callable[[], Any]) -> Any:
        """The value of ``make()``, computed once at the beginning of the program and then reused."""
        if key not in self.entry:
            outer, body = self._scopes, self._scopes[0]
            first = next(iter(body.block.operations), None)
            try:
                self._scopes = [body]
                self._point = ir.InsertionPoint.before(first.operation) if first else None
                self.entry[key] = make()
            finally:
                self._scopes, self._point = outer, None
        return self.entry[key]
