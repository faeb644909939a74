"""Functions of libraries that a program calls as a step: ``torch.mm`` on its stream."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ditron._program.trace.buffers import Buffer, as_buffer
from ditron._program.trace.tracer import Tracer
from ditron._program.trace.values import Symbol, describe
from ditron_compiler.errors import DitronError

if TYPE_CHECKING:
    import torch

__all__ = ["LibraryFunction", "library_call"]


@dataclass(frozen=True)
class LibraryFunction:
    """A function that a program calls with tensors of buffers of these dtypes: those it reads, then those it writes."""

    function: Callable[..., Any]
    name: str
    reads: tuple[torch.dtype, ...]
    writes: tuple[torch.dtype, ...]

    def __call__(self, tensors: Sequence[torch.Tensor], line: str) -> None:
        """Call it; DitronError, at the program's line, for what goes wrong in it."""
        import torch

        given = [
            tensor if tensor.dtype == dtype else tensor.view(dtype)
            for tensor, dtype in zip(tensors, (*self.reads, *self.writes), strict=True)
        ]
        # A stream of the simulator may come here when its caller has left the mode, and memory outlives the first call.
        if any([tensor.is_inference() for tensor in given]):
            mode: Any = torch.inference_mode()
        else:
            mode = torch.no_grad() if torch.is_grad_enabled() else nullcontext()
        try:
            with mode:
                result = self.function(*given)
        except Exception as error:
            raise DitronError(
                f"{line}: {self.name!r}, which the program calls here, raised {type(error).__name__}: {error}"
            ) from error
        if result is None:
            return
        written = {tensor.data_ptr() for tensor in given[len(self.reads) :]}
        for value in result if isinstance(result, (tuple, list)) else (result,):
            if isinstance(value, torch.Tensor) and value.data_ptr() not in written:
                raise DitronError(
                    f"{line}: {self.name!r} returns a tensor that is none of writes=, so its result is lost: let it "
                    "write there, as torch.mm(a, b, out=c)"
                )


def library_call(tracer: Tracer, function: Any, reads: Any, writes: Any) -> tuple[str, list[Buffer], list[Buffer]]:
    """The name of a call's function in the program, and its buffers."""
    if not callable(function):
        tracer.fail(f"dh.call: expected a function, got {describe(function)}")
    lists = []
    for what, given in (("reads", reads), ("writes", writes)):
        if not isinstance(given, (tuple, list)):
            tracer.fail(f"dh.call: {what} must be a list of buffers, got {describe(given)}")
        lists.append([as_buffer(tracer, value, f"{what}[{index}]") for index, value in enumerate(given)])
    if not lists[1]:
        tracer.fail("dh.call: writes is empty: a call that writes nothing has no effect")
    captured = next((value for value in _captured(function) if isinstance(value, Symbol)), None)
    if captured is not None:
        tracer.fail(
            f"dh.call: the function uses {describe(captured)}, which is known while the program is traced only: give "
            "it buffers by reads= and writes=, and let numbers follow from their shapes"
        )
    dtypes = [tuple(buffer.dtype for buffer in buffers) for buffers in lists]
    name = getattr(function, "__name__", type(function).__name__)
    made = LibraryFunction(function, "a lambda" if name == "<lambda>" else name, *dtypes)
    label = "lambda" if name == "<lambda>" else name
    taken = tracer.functions
    for number in range(len(taken) + 1):
        symbol = f"{label}_{number}" if number else label
        if symbol not in taken or _same(taken[symbol], made):
            taken[symbol] = made
            return symbol, *lists
    raise AssertionError("there is always a free name")


def _captured(function: Any) -> Iterator[Any]:
    """The values that a function has in it."""
    if isinstance(function, functools.partial):
        yield from (*function.args, *function.keywords.values())
        yield from _captured(function.func)
    yield from getattr(function, "__defaults__", None) or ()
    for cell in getattr(function, "__closure__", None) or ():
        try:
            yield cell.cell_contents
        except ValueError:  # not assigned yet
            pass


def _same(one: LibraryFunction, other: LibraryFunction) -> bool:
    """Whether two are the same function, as a lambda in a loop is, whose body is traced twice."""
    if (one.reads, one.writes) != (other.reads, other.writes):
        return False
    if one.function is other.function:
        return True
    code = getattr(one.function, "__code__", None)
    return (
        code is not None
        and code is getattr(other.function, "__code__", None)
        and all(a is b for a, b in zip(_captured(one.function), _captured(other.function), strict=True))
    )
