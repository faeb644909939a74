"""Operations of a host program: ``import ditron.host as dh``.

    @ditron.program
    def shift(x, out):
        rank, ranks, epoch = dh.rank(), dh.num_ranks(), dh.epoch()
        inbox = dh.symm_empty(x.shape, dtype=x.dtype, name="inbox")
        full = dh.symm_zeros(1, dtype=torch.int64, name="full")
        with dh.stream("copy"):
            dh.rank_copy(x, inbox, (rank + 1) % ranks)
            dh.signal_write(full[0], epoch, (rank + 1) % ranks)
        dh.signal_wait(full[0], epoch)
        dh.copy(inbox, out)

These functions may be called only while a :func:`ditron.program` is traced. Integers are symbolic: they are known when
the program runs, on each rank. docs/programs.md is the guide.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ditron._program.calls import library_call
from ditron._program.trace.buffers import Buffer, allocate, as_buffer, as_signal
from ditron._program.trace.control import loop, when
from ditron._program.trace.tracer import Tracer, require
from ditron._program.trace.values import Cond, Event, Int, Stream, as_int, binary, describe, element_constant, select
from ditron_compiler import ir
from ditron_compiler.ir.dialects import arith
from ditron_compiler.ir.dialects import ditron as dialect

__all__ = [
    "Buffer",
    "Cond",
    "Event",
    "Int",
    "Stream",
    "all_gather",
    "await_event",
    "barrier",
    "call",
    "cdiv",
    "copy",
    "empty",
    "epoch",
    "fill",
    "local_rank",
    "maximum",
    "minimum",
    "node",
    "num_local_ranks",
    "num_ranks",
    "range",
    "rank",
    "rank_copy",
    "record",
    "signal_wait",
    "signal_write",
    "stream",
    "symm_empty",
    "symm_zeros",
    "when",
    "where",
    "zeros",
]


def _identity(name: str, op: Any) -> Int:
    tracer = require(f"{name}()")

    def make() -> Int:
        i64 = ir.IntegerType.get_signless(64, context=tracer.module.context)
        number = tracer.emit(op).result
        return Int(tracer, tracer.emit(arith.ExtSIOp, i64, number).result, non_negative=True)

    return tracer.once(name, make)


def rank() -> Int:
    """This rank's number in the group that the program runs in."""
    return _identity("rank", dialect.RankOp)


def num_ranks() -> Int:
    """How many ranks the group has."""
    return _identity("num_ranks", dialect.NumRanksOp)


def local_rank() -> Int:
    """This rank's number among the group's ranks of its node."""
    return _identity("local_rank", dialect.LocalRankOp)


def num_local_ranks() -> Int:
    """How many ranks of the group this rank's node has."""
    return _identity("num_local_ranks", dialect.NumLocalRanksOp)


def node() -> Int:
    """The number of this rank's node among those of the group."""
    return _identity("node", dialect.NodeOp)


def epoch() -> Int:
    """The number of this call, from 1, the same on every rank: signals are set to it and compared with it.

    It counts the calls that use the same memory: calls with other shapes have memory and a count of their own.
    """
    tracer = require("epoch()")

    def make() -> Int:
        return Int(tracer, tracer.emit(dialect.EpochOp).result, non_negative=True, wide=True)

    return tracer.once("epoch", make)


def cdiv(a: Any, b: Any) -> Any:
    """``a / b`` rounded up."""
    return _arithmetic("cdiv", a, b)


def minimum(a: Any, b: Any) -> Any:
    """The smaller of two integers."""
    return _arithmetic("min", a, b)


def maximum(a: Any, b: Any) -> Any:
    """The larger of two integers."""
    return _arithmetic("max", a, b)


def _arithmetic(kind: str, a: Any, b: Any) -> Any:
    result = binary(kind, a, b)
    if result is NotImplemented:
        require(kind).fail(f"expected integers, got {describe(a)} and {describe(b)}")
    return result


def where(condition: Any, a: Any, b: Any) -> Any:
    """``a`` where the condition holds, else ``b``: integers."""
    tracer = require("where()")
    if not isinstance(condition, (Cond, bool)):
        tracer.fail(f"dh.where: expected a condition, such as rank == 0, got {describe(condition)}")
    return select(condition, a, b)


def range(*bounds: Any) -> Iterable[Int]:  # noqa: A001 - it is Python's, for symbolic bounds
    """``for i in dh.range(stop)``, ``(start, stop)`` or ``(start, stop, step)``: one loop in the program.

    ``step`` is a positive Python integer. Values are carried from one iteration to the next in memory only.
    """
    return loop(require("range()"), bounds)


# Memory -----------------------------------------------------------------------------------------------------------


def symm_empty(*shape: Any, dtype: Any, name: str = "") -> Buffer:
    """A symmetric buffer, which other ranks can access. It is kept between calls; its initial contents are undefined.

    Args:
        shape: extents, the same on every rank. dtype: torch's. name: used in reports.
    """
    return allocate(require("symm_empty()"), "symm_empty", shape, dtype, name, symmetric=True, zeroed=False)


def symm_zeros(*shape: Any, dtype: Any, name: str = "") -> Buffer:
    """As :func:`symm_empty`, but zero before the first call (not before each): how signals begin."""
    return allocate(require("symm_zeros()"), "symm_zeros", shape, dtype, name, symmetric=True, zeroed=True)


def empty(*shape: Any, dtype: Any, name: str = "") -> Buffer:
    """A buffer of this rank alone, kept between calls."""
    return allocate(require("empty()"), "empty", shape, dtype, name, symmetric=False, zeroed=False)


def zeros(*shape: Any, dtype: Any, name: str = "") -> Buffer:
    """As :func:`empty`, but zero before the first call (not before each)."""
    return allocate(require("zeros()"), "zeros", shape, dtype, name, symmetric=False, zeroed=True)


# Streams ----------------------------------------------------------------------------------------------------------


def stream(name: str = "", index: Any = None) -> Stream:
    """The stream of that name; without one, the stream that the program is called on. With ``index``, one of several.

    A named stream first waits for what was enqueued on the main one before the call, and the main one waits for all
    named ones when the program ends. In between only events and signals order them. ``with dh.stream("copy"):``
    enqueues what follows on it.
    """
    tracer = require("stream()")
    if not isinstance(name, str):
        tracer.fail(f"dh.stream: expected a name, got {describe(name)}")
    if index is not None and not name:
        tracer.fail("dh.stream: the main stream has no index: give the streams a name")
    where = None if index is None else as_int(tracer, index, "the index of a stream")
    value = tracer.emit(dialect.StreamOp, label=name, index=where).result
    return Stream(tracer, value, name if index is None else f"{name}[i]")


def _on(tracer: Tracer, given: Stream | None) -> Any:
    """The stream operand: the given one, that of the innermost ``with``, or none."""
    chosen = given if given is not None else tracer.streams[-1] if tracer.streams else None
    if chosen is not None and not isinstance(chosen, Stream):
        tracer.fail(f"expected a stream of dh.stream(), got {describe(chosen)}")
    return None if chosen is None else chosen.use()


def record(stream: Stream | None = None) -> Event:
    """Record an event on the stream: it completes when all that was enqueued before has."""
    tracer = require("record()")
    return Event(tracer, tracer.emit(dialect.RecordOp, stream=_on(tracer, stream)).event)


def await_event(event: Event, stream: Stream | None = None) -> None:
    """Let the stream wait for the event."""
    tracer = require("await_event()")
    if not isinstance(event, Event):
        tracer.fail(f"dh.await_event: expected an event of dh.record(), got {describe(event)}")
    tracer.emit(dialect.AwaitOp, event.use(), stream=_on(tracer, stream))


def rank_copy(src: Buffer, dst: Buffer, peer: Any, *, stream: Stream | None = None, pull: bool = False) -> None:
    """Copy ``src`` to ``dst`` of rank ``peer`` by a copy engine; with ``pull``, ``src`` of rank ``peer`` to ``dst``.

    The remote buffer is symmetric, and the peer is on this rank's node. Both have one shape; each is contiguous, or
    consists of contiguous rows. It needs no SM, unless ``peer`` is this rank. Pushing is faster than pulling.
    """
    tracer = require("rank_copy()")
    if not isinstance(pull, bool):
        tracer.fail(f"dh.rank_copy: pull must be True or False, got {describe(pull)}")
    source = as_buffer(tracer, src, "src", symmetric=pull)
    target = as_buffer(tracer, dst, "dst", symmetric=not pull)
    _require_same_type(tracer, "rank_copy", source, target)
    tracer.emit(
        dialect.RankCopyOp,
        source.use(),
        target.use(),
        as_int(tracer, peer, "peer"),
        stream=_on(tracer, stream),
        pull=pull,
    )


def copy(src: Buffer, dst: Buffer, *, stream: Stream | None = None) -> None:
    """Copy within this rank's memory: a kernel, which needs an SM."""
    tracer = require("copy()")
    source, target = as_buffer(tracer, src, "src"), as_buffer(tracer, dst, "dst")
    _require_same_type(tracer, "copy", source, target)
    tracer.emit(dialect.CopyOp, source.use(), target.use(), stream=_on(tracer, stream))


def _require_same_type(tracer: Tracer, what: str, src: Buffer, dst: Buffer) -> None:
    if src.ndim != dst.ndim or src.dtype != dst.dtype:
        tracer.fail(f"dh.{what}: src and dst must have one shape and dtype, got {src!r} and {dst!r}")


def fill(dst: Buffer, value: Any, *, stream: Stream | None = None) -> None:
    """Give every element of ``dst`` one value: a kernel, which needs an SM."""
    tracer = require("fill()")
    target = as_buffer(tracer, dst, "dst")
    constant = element_constant(tracer, value, target.dtype)
    tracer.emit(dialect.FillOp, target.use(), constant, stream=_on(tracer, stream))


def call(
    fn: Callable[..., Any], reads: Sequence[Buffer] = (), writes: Sequence[Buffer] = (), *, stream: Stream | None = None
) -> None:
    """Call a function of a library: ``fn(*reads, *writes)`` with torch tensors, on the step's stream.

    On GPUs the host calls it when it comes to the step, with that stream as torch's current one; what it enqueues there
    is the step, and a CUDA graph captures it. On the simulator it computes on the CPU when the stream comes to it. It
    must read and write nothing but these tensors, which the checker takes it to do; a tensor that it updates is in both
    lists. It may be called once more, for tensors of the same shapes, before the first call with them: a library loads
    its kernels then. Shapes and numbers it takes from the tensors, or from constants of the program.

        dh.call(lambda a, b, c: torch.mm(a, b, out=c), reads=[a, b], writes=[c])
    """
    tracer = require("call()")
    name, read, written = library_call(tracer, fn, reads, writes)
    tracer.emit(dialect.CallOp, name, [b.use() for b in read], [b.use() for b in written], stream=_on(tracer, stream))


def signal_write(signal: Buffer, value: Any, peer: Any, *, op: str = "set", stream: Stream | None = None) -> None:
    """Set (or with ``op="add"`` add to) ``signal`` of rank ``peer``, after all that was enqueued on the stream before.

    ``signal`` is one element of symmetric int64 memory, ``signals[rank]``; the peer is on this rank's node.
    """
    tracer = require("signal_write()")
    base, indices = as_signal(tracer, signal, "signal")
    number, to = as_int(tracer, value, "value"), as_int(tracer, peer, "peer")
    keyword = _keyword(tracer, "op", op, dialect.SignalOp)
    tracer.emit(dialect.SignalWriteOp, base, indices, number, to, stream=_on(tracer, stream), op=keyword)


def signal_wait(signal: Buffer, value: Any, *, cmp: str = "ge", stream: Stream | None = None) -> None:
    """Let the stream wait until this rank's ``signal`` is ``cmp`` (ge, eq, ...) ``value``."""
    tracer = require("signal_wait()")
    base, indices = as_signal(tracer, signal, "signal")
    number, keyword = as_int(tracer, value, "value"), _keyword(tracer, "cmp", cmp, dialect.Cmp)
    tracer.emit(dialect.SignalWaitOp, base, indices, number, stream=_on(tracer, stream), cmp=keyword)


def _keyword(tracer: Tracer, name: str, value: Any, cases: Any) -> str:
    if value not in map(str, cases):
        tracer.fail(f"{name} must be one of {', '.join(repr(str(case)) for case in cases)}, got {describe(value)}")
    return value


def barrier(stream: Stream | None = None) -> None:
    """Let the stream wait until the streams of all ranks have reached this barrier."""
    tracer = require("barrier()")
    tracer.emit(dialect.StreamBarrierOp, stream=_on(tracer, stream))


def all_gather(src: Buffer, dst: Buffer, signals: Buffer, value: Any) -> None:
    """Gather ``src`` of all ranks, concatenated by rank, in ``dst`` of each; ``signals[r]`` is ``value`` when rank r's
    has arrived.

    The passes (``decompose-ring``, ``decompose-all-at-once``) decide which copies that becomes, on which streams.
    """
    tracer = require("all_gather()")
    source, target = as_buffer(tracer, src, "src"), as_buffer(tracer, dst, "dst", symmetric=True)
    _require_same_type(tracer, "all_gather", source, target)
    flags = as_buffer(tracer, signals, "signals", symmetric=True)
    tracer.emit(
        dialect.AllGatherOp,
        source.use(),
        target.use(),
        flags.use(),
        as_int(tracer, value, "value"),
        stream=_on(tracer, None),
    )
