"""``@ditron.program``: a Python function that is traced into a host program, which runs in its location."""

from __future__ import annotations

import functools
import inspect
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ditron._program.arguments import (
    argument_type,
    assumptions,
    flatten,
    leaf_names,
    made_of,
    parse_argument,
    specialization_key,
    symbolic_argument,
    unflatten,
)
from ditron._program.calls import LibraryFunction
from ditron._program.execute.executable import Executable, argument_key
from ditron._program.execute.lru import LruCache
from ditron._program.trace.launching import launch
from ditron._program.trace.tracer import Tracer, active
from ditron.distributed.group import Group, require_group
from ditron.distributed.state import current_group
from ditron_compiler import ir, pipeline
from ditron_compiler.analysis.argument_assumptions import ASSUMPTIONS
from ditron_compiler.errors import DitronError, NodesError
from ditron_compiler.frontend.diagnostics import raise_compile_errors
from ditron_compiler.frontend.targets import SIM_TARGET, Target, parse_target
from ditron_compiler.instrumentation import Instrumentation
from ditron_compiler.ir.dialects import ditron as dialect
from ditron_compiler.pass_registry import similar
from ditron_compiler.source_location import SourceLocation, tracing

__all__ = ["Program", "program"]

_MAX_CALLS = 1024  # kinds of calls whose runner is found by one look-up


def program(
    fn: Callable | None = None,
    *,
    passes: str | Iterable[str] = "host",
    example: Mapping[str, Any] | None = None,
    sample_args: Callable[..., Mapping[str, Any]] | None = None,
    max_nodes: int | None = None,
    do_not_specialize: Iterable[str] = (),
) -> Any:
    """Make a host program of a Python function: streams, copies between ranks, signals, and the kernels it launches.

    The function is traced with symbolic values, once for each specialization of its arguments; see docs/programs.md and
    :mod:`ditron.host`. Calling the program runs the traced operations on every rank of the current group, on GPUs and
    on the simulator.

    Args:
        passes: the pipeline that runs over the program: ``"host"`` (the default), which only decomposes collectives and
            cleans up; ``"overlap"``, which also removes needless copies and assigns streams; or a tuple of passes.
        example: what ``ditron dump`` traces it for: parameter -> ``"bf16[64, 128]"``, a number, or a constant.
        sample_args: small arguments of the same form, for a given number of ranks: what ``ditron check`` calls it with.
            Integers that decide what a kernel does have values: ``"i32[4] = permutation"``, a tensor, or a function of
            a ``torch.Generator`` that makes one. A second parameter takes a generator for all, the
            same on every rank; one that is called ``rank``, the rank.
        max_nodes: how many nodes it supports: 1 when it copies to all ranks, as copy engines reach one node only. A
            call in a group on more raises NodesError, and ``ditron check`` skips such groups.
        do_not_specialize: positional parameters of which one trace takes all: numbers, and extents of tensors, whether
            they are divisible by 16 or not. Kernels that get them assume nothing of them either. For sizes that differ
            from call to call, as of tables for each token.

    The function's positional parameters are tensors, integers and floats, None, and tuples and lists of those; its
    keyword-only ones are compile-time constants: any hashable value. It returns nothing: results are written to tensors
    that it is given, which overlap none of its other arguments. A method can be a program: each object has its own.

    Raises CompileError, at the line, for what a program cannot do.

        @ditron.program
        def add_from_left(x, out): ...
        add_from_left(x, out)
    """

    def decorate(function: Callable) -> Program:
        return Program(function, passes, example, sample_args, max_nodes, do_not_specialize)

    return decorate if fn is None else decorate(fn)


class Program:
    """What :func:`program` returns. ``module`` gives the IR; calling it runs it in the current group."""

    def __init__(
        self,
        fn: Callable,
        passes: str | Iterable[str],
        example: Mapping[str, Any] | None,
        sample_args: Callable[..., Mapping[str, Any]] | None = None,
        max_nodes: int | None = None,
        do_not_specialize: Iterable[str] = (),
    ):
        functools.update_wrapper(self, fn)
        self.fn, self.example, self.sample_args, self.max_nodes = fn, example, sample_args, max_nodes
        self._location = SourceLocation.of_function(inspect.unwrap(fn).__code__)
        try:
            self.passes = _passes(passes)
        except ValueError as error:
            raise self._location.error(f"program {fn.__name__!r}: {error}") from None
        if max_nodes is not None and (type(max_nodes) is not int or max_nodes < 1):
            raise self._location.error(f"program {fn.__name__!r}: max_nodes must be a number from 1, got {max_nodes!r}")
        parameters = inspect.signature(fn).parameters.values()
        variadic = {inspect.Parameter.VAR_POSITIONAL: "*args", inspect.Parameter.VAR_KEYWORD: "**kwargs"}
        for parameter in parameters:
            if parameter.kind in variadic:
                raise self._location.error(
                    f"program {fn.__name__!r} has {variadic[parameter.kind]}: name its parameters; "
                    "constants are keyword-only ones, after a *"
                )
        if any(
            test(fn) for test in (inspect.isgeneratorfunction, inspect.iscoroutinefunction, inspect.isasyncgenfunction)
        ):
            raise self._location.error(
                f"program {fn.__name__!r} is a generator or async, whose body does not run when it "
                "is called: make it a plain function, without yield, async and await"
            )
        self.names = [p.name for p in parameters if p.kind is not p.KEYWORD_ONLY]
        self.constants = {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY}
        self.do_not_specialize = _names(do_not_specialize)
        if unknown := self.do_not_specialize.difference(self.names):
            raise self._location.error(
                f"program {fn.__name__!r}: do_not_specialize names {min(unknown)!r}, and its positional parameters are "
                f"{', '.join(self.names)}"
            )
        self._signature = inspect.signature(fn)
        self._executables: dict[Any, Executable] = {}
        # What runs a call, by group and what of the arguments the call depends on.
        self._calls: weakref.WeakKeyDictionary[Any, LruCache] = weakref.WeakKeyDictionary()
        self._methods: dict[int, Program] = {}  # where it is a method: by id of the object

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        """Run it on this rank; every rank of the current group calls it, with arguments of the same shapes."""
        group = current_group() or require_group(None, f"program {self.fn.__name__!r} was called")
        if (tracer := active()) is not None:
            tracer.fail(
                f"program {self.fn.__name__!r} is called in the trace of program {tracer.name!r}: a program "
                "cannot call another one; share a plain Python function that both call"
            )
        if len(args) != len(self.names):
            args, kwargs = self._bind(args, kwargs)
        try:
            leaves, form = flatten(args)
            call = self._calls[group].get((form, argument_key(leaves), _constants_key(kwargs)))
        except (AttributeError, KeyError, TypeError):  # a first call, or wrong arguments, which raise below
            call = None
        if call is None:
            self._check_nodes(len(group.nodes))
            runner = self._executable(args, kwargs, group.target()).runner(group)
            leaves, form = flatten(args)
            key = argument_key(leaves)
            call = runner.prepared(leaves, key)
            self._calls.setdefault(group, LruCache(_MAX_CALLS))[form, key, _constants_key(kwargs)] = call
        call(leaves)

    def known_call(self, group: Group, args: tuple, constants: Mapping[str, Any]) -> Any:
        """What runs calls with such arguments in a group; None where none has run."""
        if (calls := self._calls.get(group)) is None:
            return None
        leaves, form = flatten(args)
        return calls.get((form, argument_key(leaves), _constants_key(constants)))

    def __get__(self, instance: Any, owner: type | None = None) -> Program:
        """As a method of ``instance``: a program of its own; what it reads of the object is constant in its trace."""
        if instance is None:
            return self
        if id(instance) not in self._methods:
            self._methods[id(instance)] = self._method_of(weakref.ref(instance))
            weakref.finalize(instance, self._methods.pop, id(instance), None)
        return self._methods[id(instance)]

    def _method_of(self, instance: weakref.ref) -> Program:
        @functools.wraps(self.fn)
        def method(*args: Any, **kwargs: Any) -> Any:
            return self.fn(instance(), *args, **kwargs)

        parameters = list(self._signature.parameters.values())
        method.__signature__ = self._signature.replace(parameters=parameters[1:])  # type: ignore[attr-defined]
        kept = self.passes, self.example, self.sample_args, self.max_nodes
        return Program(method, *kept, self.do_not_specialize.difference(list(self._signature.parameters)[:1]))

    def free(self) -> None:
        """Give back the memory that the program keeps between its calls in the current group: collective.

        The next call allocates anew, and counts its calls from 1. Graphs that captured the program are dead.
        """
        group = current_group()
        if group is None:
            raise DitronError(f"program {self.fn.__name__!r}: free() before ditron.init()")
        self._calls.pop(group, None)
        group.repeated.clear()
        for executable in dict.fromkeys(self._executables.values()):
            executable.free(group)

    def module(self, *args: Any, target: str = "sim", **kwargs: Any) -> ir.Module:
        """The program and its kernels for such arguments, after its passes; runs nothing and needs no group.

        A tensor may be described, as ``"bf16[64, 128]"``; without arguments, the ``example`` is taken.
        """
        args, kwargs = self._example(args, kwargs)
        return self._trace(args, kwargs, SIM_TARGET if target == "sim" else parse_target(target))[0]

    def arguments(self, given: Mapping[str, Any], sample: int = 0) -> tuple[tuple, dict]:
        """Positional and keyword-only arguments, with new tensors; ``given`` are those of :meth:`module` by name.

        ``sample``: the number of the sample, where values are drawn.
        """
        args, kwargs = self._example((), dict(given))
        leaves, form = flatten(args)
        made = [made_of(value, sample * len(leaves) + n) for n, value in enumerate(leaves)]
        return tuple(unflatten(made, form)), kwargs

    def executable_and_arguments(
        self, given: Mapping[str, Any], target: str = "sim", instrumentation: Instrumentation | None = None
    ) -> tuple[Executable, list]:
        """The program for arguments by name, as :meth:`module` takes them, and its positional ones.

        ``instrumentation`` observes the passes, those over kernels and those over the program.
        """
        args, kwargs = self._example((), dict(given))
        traced = self._trace(args, kwargs, SIM_TARGET if target == "sim" else parse_target(target), instrumentation)
        return Executable(traced[0], functions=traced[1]), list(flatten(args)[0])

    def __repr__(self) -> str:
        return f"<ditron.program {self.fn.__module__}.{self.fn.__qualname__}>"

    def _example(self, args: tuple, kwargs: dict) -> tuple[tuple, dict]:
        if not args and not kwargs:
            if self.example is None:
                raise DitronError(
                    f"program {self.fn.__name__!r} has no example: give arguments, such as "
                    f"{', '.join(repr('bf16[64, 128]') for _ in self.names)}, or example= to its "
                    "decorator"
                )
            kwargs = dict(self.example)
        args, kwargs = self._bind(args, kwargs)
        return tuple(parse_argument(value) for value in args), kwargs

    def _bind(self, args: tuple, kwargs: dict) -> tuple[tuple, dict]:
        try:
            bound = self._signature.bind(*args, **kwargs)
        except TypeError as error:
            raise DitronError(
                f"program {self.fn.__name__!r}{self._signature}: {error}; got {len(args)} arguments"
                f"{''.join(f', {name}=' for name in kwargs)}"
            ) from None
        bound.apply_defaults()
        return (
            tuple(bound.arguments[name] for name in self.names),
            {name: bound.arguments[name] for name in self.constants},
        )

    def _executable(self, args: tuple, given: dict, target: Target) -> Executable:
        try:
            leaves, form = flatten(args)
            any_size = self._of_any_size(leaf_names(self.names, form)) if self.do_not_specialize else ()
            keys = [specialization_key(value, place in any_size) for place, value in enumerate(leaves)]
            kinds = form, tuple(keys)
            found = self._executables.get(key := (kinds, _constants_key(given), target))
        except TypeError as error:
            raise DitronError(
                f"program {self.fn.__name__!r}: the values of keyword-only parameters are constants of "
                f"the trace and must be hashable (tuples, not lists): {error}"
            ) from None
        except AttributeError:
            raise self._wrong_argument(args) from None
        if found is None:  # cached as it is called, and with all defaults
            _, constants = self._bind(args, given)
            whole = (kinds, _constants_key(constants), target)
            if whole not in self._executables:
                module, functions = self._trace(args, constants, target)
                if self.sample_args is not None:
                    from ditron.protocol.api import at_compile_time

                    at_compile_time(self, module)
                self._executables[whole] = Executable(module, functions=functions)
            found = self._executables[key] = self._executables[whole]
        return found

    def _of_any_size(self, names: Sequence[str]) -> set[int]:
        """Which of the leaves of arguments, by their names, are of any size to a trace."""
        return {place for place, name in enumerate(names) if name.partition(".")[0] in self.do_not_specialize}

    def _check_nodes(self, nodes: int) -> None:
        if self.max_nodes is not None and nodes > self.max_nodes:
            raise NodesError(
                f"program {self.fn.__name__!r} (max_nodes={self.max_nodes}) is called in a group on "
                f"{nodes} nodes: make a group for each node, by ditron.new_group"
            )

    def _wrong_argument(self, args: tuple) -> DitronError:
        leaves, form = flatten(args)
        for name, value in zip(leaf_names(self.names, form), leaves, strict=False):
            try:
                specialization_key(value)
            except AttributeError:
                return DitronError(
                    f"program {self.fn.__name__!r}: argument {name!r} must be a tensor, an integer, a float, None, or "
                    f"a tuple or list of those, got {value!r}: what is none of them is a keyword-only parameter, after "
                    "a * in the signature"
                )
        raise AssertionError("an argument was refused and is not found")

    def _trace(
        self, args: tuple, constants: dict, target: Target, instrumentation: Instrumentation | None = None
    ) -> tuple[ir.Module, dict[str, LibraryFunction]]:
        """Trace the function into a module and run the passes over it; with the functions that it calls."""
        location, name = self._location, self.fn.__name__
        leaves, form = flatten(args)
        names = leaf_names(self.names, form)
        with ir.Context() as context, raise_compile_errors():
            context.allow_unregistered_dialects = True  # Triton's modules hold operations that we have no use for
            with ir.Location.file(location.file, location.line, location.column):
                module = ir.Module.create()
                tracer = Tracer(name, target, module, launch, instrumentation)
                types = [argument_type(tracer, key, value) for key, value in zip(names, leaves, strict=True)]
                with ir.InsertionPoint(module.body):
                    op = dialect.ProgramOp(name, dict(zip(names, types, strict=True)))
                any_size = self._of_any_size(names)
                of_leaves = assumptions(dict(zip(names, leaves, strict=True)), [names[place] for place in any_size])
                module.operation.attributes[ASSUMPTIONS] = ir.DictAttr.get({name: of_leaves})
            with tracer.tracing(op.block, location):
                values = [
                    symbolic_argument(tracer, value, argument, place in any_size)
                    for place, (value, argument) in enumerate(zip(leaves, op.block.arguments, strict=True))
                ]
                with tracing(location.file):
                    result = self.fn(*unflatten(values, form), **constants)
            if result is not None:
                raise location.error(
                    f"program {name!r} returns a value, and a program has none: write results into a "
                    "tensor that it is given"
                )
            module.operation.verify()
            try:
                pipeline.run(module, self.passes, instrumentation)
            except ValueError as error:
                if not str(error).startswith("cannot parse the pipeline"):
                    raise
                raise location.error(f"passes= of program {name!r}: {error}") from None
        return module, tracer.functions


def _passes(given: str | Iterable[str]) -> pipeline.Pipeline:
    """The passes of a pipeline for programs, by its name or as they are."""
    named = {"host": pipeline.HOST, "overlap": pipeline.OVERLAP}
    if isinstance(given, str) and given in named:
        return named[given]
    if isinstance(given, str) or not isinstance(given, Iterable) or not all(isinstance(name, str) for name in given):
        near = similar(given, named) if isinstance(given, str) else ""
        raise ValueError(
            f"unknown pipeline {given!r} for programs: expected 'host', 'overlap' or a tuple of passes{near}"
        )
    return tuple(given)


def _names(given: str | Iterable[str]) -> frozenset[str]:
    return frozenset([given] if isinstance(given, str) else given)


def _constants_key(constants: Mapping[str, Any]) -> tuple:
    """Names and values, those that are equal but of other types apart: 1, 1.0 and True are different constants."""
    return tuple([(name, _constant_key(value)) for name, value in constants.items()])


def _constant_key(value: Any) -> tuple:
    kind = value.__class__
    return kind, tuple([_constant_key(element) for element in value]) if kind is tuple else value
