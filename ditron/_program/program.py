"""``@ditron.program``: an ordinary Python function that becomes a host program, and runs as one."""

from __future__ import annotations

import functools
import inspect
import math
import re
import weakref
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ditron._program.execute.executable import Executable, argument_key
from ditron._program.trace.buffers import Buffer, element_type
from ditron._program.trace.dtypes import dtypes, from_mlir, names_of
from ditron._program.trace.launching import launch
from ditron._program.trace.tracer import Tracer, active
from ditron._program.trace.values import Int
from ditron.distributed.group import require_group
from ditron.distributed.state import current_group
from ditron_compiler import ir, pipeline
from ditron_compiler.analysis.argument_assumptions import ASSUMPTIONS
from ditron_compiler.errors import DitronError, NodesError
from ditron_compiler.frontend.diagnostics import raise_compile_errors
from ditron_compiler.frontend.targets import NEUTRAL, Target, parse_target
from ditron_compiler.instrumentation import Instrumentation
from ditron_compiler.ir.dialects import ditron as dialect
from ditron_compiler.pass_registry import similar
from ditron_compiler.source_location import SourceLocation

__all__ = ["Program", "program"]


def program(
    fn: Callable | None = None,
    *,
    passes: str | Iterable[str] = "host",
    example: Mapping[str, Any] | None = None,
    sample_args: Callable[[int], Mapping[str, Any]] | None = None,
    max_nodes: int | None = None,
) -> Any:
    """Make a host program of a Python function: streams, copies between ranks, signals, and the kernels it launches.

    The function is called once for each kind of arguments, with symbolic values, and writes down what it does; see
    docs/programs.md and :mod:`ditron.host`. Calling the program runs that on every rank of the current group, on GPUs
    and on the simulator.

    Args:
        passes: what is done to the program before it runs: ``"host"`` (the default), which only decomposes and cleans
            up; ``"overlap"``, which also removes needless copies and chooses streams; or a tuple of passes.
        example: what ``ditron dump`` traces it for: parameter -> ``"bf16[64, 128]"``, a number, or a constant.
        sample_args: what ``ditron check`` calls it with in a group of so many ranks: the same, small.
        max_nodes: how many nodes it is for: 1 when it copies to all ranks, which copy engines do on one node only. A
            call in a group of more raises NodesError, and ``ditron check`` looks at none.

    The function's positional parameters are tensors, which must not be None, and integers; its keyword-only ones are
    constants of the trace: any hashable value. It returns nothing: results go into tensors that it is given, which
    overlap none of its others.

    Raises CompileError, at the line, for what a program cannot do.

        @ditron.program
        def add_from_left(x, out): ...
        add_from_left(x, out)
    """

    def decorate(function: Callable) -> Program:
        return Program(function, passes, example, sample_args, max_nodes)

    return decorate if fn is None else decorate(fn)


class Program:
    """What :func:`program` returns. ``module`` gives the IR; calling it runs it in the current group."""

    def __init__(
        self,
        fn: Callable,
        passes: str | Iterable[str],
        example: Mapping[str, Any] | None,
        sample_args: Callable[[int], Mapping[str, Any]] | None = None,
        max_nodes: int | None = None,
    ):
        functools.update_wrapper(self, fn)
        self.fn, self.example, self.sample_args, self.max_nodes = fn, example, sample_args, max_nodes
        self._place = SourceLocation.of_function(fn.__code__)
        try:
            self.passes = _passes(passes)
        except ValueError as error:
            raise self._place.error(f"program {fn.__name__!r}: {error}") from None
        if max_nodes is not None and (type(max_nodes) is not int or max_nodes < 1):
            raise self._place.error(f"program {fn.__name__!r}: max_nodes must be a number from 1, got {max_nodes!r}")
        parameters = inspect.signature(fn).parameters.values()
        kinds = {inspect.Parameter.VAR_POSITIONAL: "*args", inspect.Parameter.VAR_KEYWORD: "**kwargs"}
        for parameter in parameters:
            if parameter.kind in kinds:
                raise self._place.error(
                    f"program {fn.__name__!r} has {kinds[parameter.kind]}: name its parameters; "
                    "constants are keyword-only ones, after a *"
                )
        if any(
            test(fn) for test in (inspect.isgeneratorfunction, inspect.iscoroutinefunction, inspect.isasyncgenfunction)
        ):
            raise self._place.error(
                f"program {fn.__name__!r} is a generator or async, whose body does not run when it "
                "is called: make it a plain function, without yield, async and await"
            )
        self.names = [p.name for p in parameters if p.kind is not p.KEYWORD_ONLY]
        self.constants = {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY}
        self._signature = inspect.signature(fn)
        self._executables: dict[Any, Executable] = {}
        self._runners: weakref.WeakKeyDictionary[Any, dict] = weakref.WeakKeyDictionary()  # by group, arguments

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        """Run it on this rank; every rank of the current group calls it, with arguments of the same shapes."""
        group = require_group(None, f"program {self.fn.__name__!r} was called")
        if (tracer := active()) is not None:
            tracer.fail(
                f"program {self.fn.__name__!r} is called in the trace of program {tracer.name!r}: a program "
                "cannot call another one; share a plain Python function that both call"
            )
        if len(args) != len(self.names):
            args, kwargs = self._bind(args, kwargs)
        try:
            key = argument_key(args)
            runner = self._runners[group].get((key, tuple(kwargs.items())))
        except (AttributeError, KeyError, TypeError):  # a first call, or wrong arguments, which is looked at below
            runner = None
        if runner is None:
            self._check_nodes(len(group.nodes))
            runner = self._executable(args, kwargs, group.target()).runner(group)
            key = argument_key(args)
            self._runners.setdefault(group, {})[key, tuple(kwargs.items())] = runner
        runner(args, key)

    def free(self) -> None:
        """Give back the memory that the program keeps between its calls in the current group: collective.

        The next call allocates anew, and counts its calls from 1. Graphs that captured the program are dead.
        """
        group = current_group()
        if group is None:
            raise DitronError(f"program {self.fn.__name__!r}: free() before ditron.init()")
        self._runners.pop(group, None)
        for executable in dict.fromkeys(self._executables.values()):
            executable.free(group)

    def module(self, *args: Any, target: str = "sim", **kwargs: Any) -> ir.Module:
        """The program and its kernels for such arguments, after its passes; runs nothing and needs no group.

        Instead of a tensor, ``"bf16[64, 128]"`` will do; without arguments, the ``example`` is taken.
        """
        args, kwargs = self._example(args, kwargs)
        return self._trace(args, kwargs, NEUTRAL if target == "sim" else parse_target(target))

    def arguments(self, given: Mapping[str, Any]) -> tuple[tuple, dict]:
        """Positional and keyword-only arguments, of arguments by name as :meth:`module` takes them; tensors are new."""
        import torch

        args, kwargs = self._example((), dict(given))
        return tuple(
            torch.empty(value.shape, dtype=value.dtype) if isinstance(value, _Spec) else value for value in args
        ), kwargs

    def executable_and_arguments(
        self, given: Mapping[str, Any], target: str = "sim", instrumentation: Instrumentation | None = None
    ) -> tuple[Executable, list]:
        """The program for arguments by name, as :meth:`module` takes them, and its positional ones.

        ``instrumentation`` observes the passes, those over kernels and those over the program.
        """
        args, kwargs = self._example((), dict(given))
        module = self._trace(args, kwargs, NEUTRAL if target == "sim" else parse_target(target), instrumentation)
        return Executable(module), list(args)

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
        return tuple(_read(value) for value in args), kwargs

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
            kinds = tuple([_kind(value) for value in args])
            found = self._executables.get(key := (kinds, tuple(given.items()), target))
        except TypeError as error:
            raise DitronError(
                f"program {self.fn.__name__!r}: the values of keyword-only parameters are constants of "
                f"the trace and must be hashable (tuples, not lists): {error}"
            ) from None
        except AttributeError:
            raise self._wrong_argument(args) from None
        if found is None:  # as it is given, and with the defaults of what is not
            _, constants = self._bind(args, given)
            whole = (kinds, tuple(constants.items()), target)
            if whole not in self._executables:
                module = self._trace(args, constants, target)
                if self.sample_args is not None:
                    from ditron.protocol.api import at_compile_time

                    at_compile_time(self, module)
                self._executables[whole] = Executable(module)
            found = self._executables[key] = self._executables[whole]
        return found

    def _check_nodes(self, nodes: int) -> None:
        if self.max_nodes is not None and nodes > self.max_nodes:
            raise NodesError(
                f"program {self.fn.__name__!r} (max_nodes={self.max_nodes}) is called in a group on "
                f"{nodes} nodes: make a group for each node, by ditron.new_group"
            )

    def _wrong_argument(self, args: tuple) -> DitronError:
        for name, value in zip(self.names, args, strict=False):
            try:
                _kind(value)
            except AttributeError:
                return DitronError(
                    f"program {self.fn.__name__!r}: argument {name!r} must be a tensor or an integer, "
                    f"got {value!r}: what is neither is a keyword-only parameter, after a * in the "
                    "signature"
                )
        raise AssertionError("an argument was refused and is not found")

    def _trace(
        self, args: tuple, constants: dict, target: Target, instrumentation: Instrumentation | None = None
    ) -> ir.Module:
        """Trace the function into a module and run the passes over it."""
        place, name = self._place, self.fn.__name__
        with ir.Context() as context, raise_compile_errors():
            context.allow_unregistered_dialects = True  # Triton's modules hold operations that we have no use for
            with ir.Location.file(place.file, place.line, place.column):
                module = ir.Module.create()
                tracer = Tracer(name, target, module, launch, instrumentation)
                types = [_type(tracer, key, value) for key, value in zip(self.names, args, strict=True)]
                with ir.InsertionPoint(module.body):
                    op = dialect.ProgramOp(name, dict(zip(self.names, types, strict=True)))
                module.operation.attributes[ASSUMPTIONS] = ir.DictAttr.get(
                    {name: _assumptions(dict(zip(self.names, args, strict=True)))}
                )
            with tracer.tracing(op.block, place):
                values = [
                    _symbol(tracer, value, argument) for value, argument in zip(args, op.block.arguments, strict=True)
                ]
                result = self.fn(*values, **constants)
            if result is not None:
                raise place.error(
                    f"program {name!r} returns a value, and a program has none: write results into a "
                    "tensor that it is given"
                )
            module.operation.verify()
            try:
                pipeline.run(module, self.passes, instrumentation)
            except ValueError as error:
                if not str(error).startswith("cannot parse the pipeline"):
                    raise
                raise place.error(f"passes= of program {name!r}: {error}") from None
        return module


def _assumptions(args: dict[str, Any]) -> ir.DictAttr:
    """What passes may assume about the tensors of a trace (ditron_compiler/analysis/argument_assumptions.py)."""
    found = {}
    for name, value in args.items():
        if type(value) is int:
            continue
        known = {
            "dims": ir.DenseI64ArrayAttr.get([16 if extent % 16 == 0 else 1 for extent in value.shape]),
            "align": ir.IntegerAttr.get(ir.IntegerType.get_signless(64), 16 if value.data_ptr() % 16 == 0 else 1),
        }
        found[name] = ir.DictAttr.get(known | ({"dense": ir.UnitAttr.get()} if value.is_contiguous() else {}))
    return ir.DictAttr.get(found)


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


class _Spec:
    """A tensor in words: what ``module`` takes in place of one."""

    def __init__(self, dtype: Any, shape: tuple[int, ...]):
        self.dtype, self.shape = dtype, shape

    def stride(self) -> tuple[int, ...]:
        return tuple(math.prod(self.shape[dim + 1 :]) for dim in range(len(self.shape)))

    def data_ptr(self) -> int:
        return 256

    def is_contiguous(self) -> bool:
        return True


_SPEC = re.compile(r"(\w+)\[([\d, x]*)\]")
_TRITON = {"fp16": "f16", "fp32": "f32", "fp64": "f64"}


def _read(value: Any) -> Any:
    """``"bf16[64, 128]"`` as a tensor's description; other values as they are."""
    if not isinstance(value, str):
        return value
    match = _SPEC.fullmatch(value.strip())
    try:
        if match is None:
            raise KeyError(value)
        dtype = from_mlir(_TRITON.get(match[1], match[1]))
    except KeyError:
        raise DitronError(f"expected a tensor as 'bf16[64, 128]', got {value!r}") from None
    return _Spec(dtype, tuple(int(extent) for extent in re.findall(r"\d+", match[2])))


def _kind(value: Any) -> Any:
    """What of an argument the trace depends on. AttributeError for what is neither a tensor nor an integer."""
    if type(value) is int:
        return value % 16 == 0
    shape = value.shape
    dense = value.is_contiguous()
    return (
        value.dtype,
        dense,
        tuple([extent % 16 == 0 for extent in shape]),
        value.data_ptr() % 16 == 0,
        None if dense else tuple([stride % 16 == 0 for stride in value.stride()]),
    )


def _type(tracer: Tracer, name: str, value: Any) -> ir.Type:
    if type(value) is int:
        return ir.IntegerType.get_signless(64, context=tracer.module.context)
    try:
        return dialect.BufferType.get([None] * len(value.shape), element_type(tracer, value.dtype), "local")
    except KeyError:
        raise DitronError(
            f"program {tracer.name!r}: argument {name!r} is of {value.dtype}, and its tensors may be of "
            f"{names_of(dtypes())}"
        ) from None


def _symbol(tracer: Tracer, value: Any, argument: ir.Value) -> Any:
    """The symbolic value of an argument."""
    if type(value) is int:
        return Int(tracer, argument, 16 if value % 16 == 0 else 1)
    buffer = Buffer(tracer, argument, (), value.dtype, False, 16 if value.data_ptr() % 16 == 0 else 1)
    shape, strides = [], []
    for dim, extent in enumerate(value.shape):
        shape.append(
            Int(tracer, tracer.emit(dialect.DimOp, argument, dim).result, 16 if extent % 16 == 0 else 1, natural=True)
        )
    if not value.is_contiguous():
        for dim, stride in enumerate(value.stride()):
            strides.append(
                Int(
                    tracer,
                    tracer.emit(dialect.StrideOp, argument, dim).result,
                    16 if stride % 16 == 0 else 1,
                    natural=True,
                )
            )
    buffer.shape, buffer._strides = tuple(shape), tuple(strides) or None
    return buffer
