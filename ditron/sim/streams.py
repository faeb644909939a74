"""Streams of a simulated rank: queues of launches, copies and signals beside the rank's host code."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ditron.sim.copies import check_signal, copy_of, fill_of, named_operands
from ditron.sim.host_accesses import byte_ranges
from ditron.sim.operands import LaunchArguments, LoadedKernel
from ditron.sim.rendezvous import RankGroup
from ditron.sim.report import failure, host_error
from ditron.sim.state import WorldState
from ditron_compiler.source_location import caller_line

if TYPE_CHECKING:
    import torch

__all__ = ["RankStreams", "SimEvent", "SimStream"]

_OPS = {"set": 0, "add": 1}
_COMPARISONS = {"eq": 0, "ne": 1, "gt": 2, "ge": 3, "lt": 4, "le": 5}


@dataclass(frozen=True)
class _HostCall:
    """A function of host code that a stream has come to: the world unblocks it as it does host code."""

    stream: SimStream
    number: int
    function: Callable[[], Any]
    name: str

    def unblock(self) -> None:
        us = 0.0
        try:
            us = self.stream._world.call_host(self.stream.rank, self.function, self.name)
        finally:
            self.stream._native.host_call_returned(self.number, 1e3 * us)


class SimEvent:
    """A moment on a stream: what had been enqueued there when :meth:`SimStream.record` was called is over."""

    def __init__(self, stream: SimStream, native: Any):
        self.stream = stream
        self._native = native


class SimStream:
    """A queue of work of one rank, by :meth:`ditron.sim.RankView.stream`; an item starts when the one before is over.

    Methods enqueue and return at once. Between streams nothing is ordered but by events (of one rank), signals and
    barriers; torch operations of host code are on no stream: they happen when they are called. Tensors of an item are
    kept until host code knows, by synchronizing, that the item is over.

    Every method takes ``line``, ``file:line[:col]`` of what is enqueued, for reports; default: the caller's. A wrong
    argument raises SimulationError here, what goes wrong later ends the run like a kernel's mistake.

    ``with stream:`` kernels that host code launches are enqueued on it, and host code continues.

    Attributes:
        name, index, rank: whose stream it is, and how it is called; the main stream's name is empty.
    """

    def __init__(self, streams: RankStreams, name: str, index: int):
        self.name, self.index, self.rank = name, index, streams.rank
        self._streams, self._world = streams, streams.world
        self._native = self._world.machine.stream(self.rank, name, index)
        self._world.keeps_state = True
        self._kept: deque[tuple] = deque()  # the tensors of each item that host code does not know to be over
        self._released = 0  # items whose tensors are not kept any more
        self._outer: list[SimStream | None] = []

    def __repr__(self) -> str:
        name = f"{self.name!r}, {self.index}" if self.index else repr(self.name)
        return f"<stream {name} of simulated rank {self.rank}>"

    def __enter__(self) -> SimStream:
        self._outer.append(self._streams.current)
        self._streams.current = self
        return self

    def __exit__(self, *_: Any) -> None:
        self._streams.current = self._outer.pop()

    def launch(
        self,
        kernel: LoadedKernel,
        grid: Sequence[int],
        slots: Sequence[int],
        *,
        group: RankGroup | None = None,
        tensors: Sequence[tuple[str, torch.Tensor]] = (),
        line: str = "",
    ) -> None:
        """Enqueue a launch; arguments as :meth:`ditron.sim.RankView.launch` takes them."""
        group = group or self._world.world_group
        LaunchArguments.require_member(kernel, self.rank, group)
        arguments = LaunchArguments.of(kernel, grid, slots, tensors)
        self._world.require_alive()
        line = line or caller_line()
        self._world.given_to_kernel(tensors, line)
        self._add((kernel, *tensors), self._native.launch(line, list(group.ranks), *arguments))

    def rank_copy(
        self,
        src: torch.Tensor,
        dst: torch.Tensor,
        peer: int,
        *,
        push: bool = True,
        group: RankGroup | None = None,
        names: tuple[str, str] = ("src", "dst"),
        line: str = "",
    ) -> None:
        """Enqueue a copy between ranks, by a copy engine: it needs no SM, and lands late and in pieces.

        Args:
            src, dst: of the same shape and dtype, in memory rows with a pitch (see :meth:`copy`). The far one is this
                rank's own symmetric tensor (any view of it) and stands for the same in ``peer``'s memory; the near one
                is any tensor of this rank.
            peer: rank of ``group`` (default: the world); this rank itself: a copy within the rank, as :meth:`copy`.
            push: ``dst`` is far, and written; else ``src``, and read.
            names: what reports call a tensor that is not symmetric.
        """
        line = line or caller_line()
        transfer = copy_of("rank_copy", src, dst, line)
        self._world.not_computed(dst)
        self._add(
            (src, dst),
            self._native.rank_copy(
                line,
                transfer,
                self._world_rank("rank_copy", peer, group, line),
                push,
                named_operands(zip(names, (src, dst), strict=True)),
            ),
        )

    def copy(
        self, src: torch.Tensor, dst: torch.Tensor, *, names: tuple[str, str] = ("src", "dst"), line: str = ""
    ) -> None:
        """Enqueue a copy within the rank: a kernel of one program, which needs a free place on an SM.

        Both have the same shape and dtype; once dimensions that lie without a gap in both are taken together, at most
        two are left, rows and what is in a row.
        """
        line = line or caller_line()
        self._world.not_computed(dst)
        self._add(
            (src, dst),
            self._native.local_copy(
                line, copy_of("copy", src, dst, line), named_operands(zip(names, (src, dst), strict=True))
            ),
        )

    def fill(self, dst: torch.Tensor, value: int | float, *, name: str = "dst", line: str = "") -> None:
        """Enqueue a fill of a tensor (rows, as for :meth:`copy`) with one value: a kernel, as a copy is."""
        line = line or caller_line()
        self._world.not_computed(dst)
        self._add((dst,), self._native.local_copy(line, fill_of(dst, value, line), named_operands([(name, dst)])))

    def call(
        self,
        function: Callable[[], Any],
        reads: Sequence[torch.Tensor] = (),
        writes: Sequence[torch.Tensor] = (),
        *,
        name: str = "",
        names: Sequence[str] = (),
        line: str = "",
    ) -> None:
        """Enqueue a call of a Python function, which reads and writes these tensors of this rank: as a kernel does.

        Args: name: what reports call the function. names: what they call the tensors.
        """
        line = line or caller_line()
        tensors = (*reads, *writes)
        self._world.not_computed(*writes)
        number = self._world.machine.new_id()
        ranges = [[run for tensor in some for run in byte_ranges(tensor)] for some in (reads, writes)]
        known = named_operands(zip(names or ["a tensor"] * len(tensors), tensors, strict=True))
        wrong = self._native.call_host(line, name or "a function", number, *ranges, known)
        self._add(tensors, wrong)
        self._world.launches[number] = _HostCall(self, number, function, f"{name or 'a function'} ({line})")

    def signal_write(
        self,
        signal: torch.Tensor,
        value: int,
        *,
        op: str = "set",
        peer: int | None = None,
        group: RankGroup | None = None,
        line: str = "",
    ) -> None:
        """Enqueue a write of a signal, seen after all that is before it on the stream.

        Args:
            signal: one int64 element of this rank's symmetric memory. peer: rank of ``group`` (default: the world) in
                whose memory it is written; default: this one. op: ``"set"`` or ``"add"``.
        """
        line = line or caller_line()
        check_signal("signal_write", signal, 1, line)
        target = self.rank if peer is None else self._world_rank("signal_write", peer, group, line)
        self._add(
            (signal,),
            self._native.signal_write(
                line, signal.data_ptr(), value, _one_of("signal_write", _OPS, "op", op, line), target
            ),
        )

    def signal_wait(
        self, signal: torch.Tensor, value: int, *, cmp: str = "ge", captured_kernel: bool = False, line: str = ""
    ) -> None:
        """Enqueue a wait until this rank's own signals (contiguous int64, all of them) compare true with ``value``.

        ``cmp``: ``"eq"``, ``"ne"``, ``"gt"``, ``"ge"``, ``"lt"`` or ``"le"``. ``captured_kernel``: in a CUDA graph it
        is a kernel, and so it is in a world of ``graphs=True``.
        """
        line = line or caller_line()
        check_signal("signal_wait", signal, None, line)
        self._add(
            (signal,),
            self._native.signal_wait(
                line,
                signal.data_ptr(),
                signal.numel(),
                value,
                _one_of("signal_wait", _COMPARISONS, "cmp", cmp, line),
                captured_kernel and self._world.graphs,
            ),
        )

    def record(self, *, line: str = "") -> SimEvent:
        """Enqueue a new event: streams of this rank may wait for what has been enqueued here so far."""
        self._world.require_alive()
        event = SimEvent(self, self._native.record_event(line or caller_line()))
        self._add((), [])
        return event

    def wait_event(self, event: SimEvent, *, line: str = "") -> None:
        """Enqueue a wait for an event of this rank."""
        self._add((event,), self._native.wait_event(line or caller_line(), event._native))

    def barrier(self, group: RankGroup | None = None, *, line: str = "") -> None:
        """Enqueue a barrier of a group (default: the world): every rank's stream of this name and index comes to it.

        What they have sent before has arrived when they go on.
        """
        group = group or self._world.world_group
        line = line or caller_line()
        if self.rank not in group.ranks:
            raise host_error(
                f"barrier: rank {self.rank} is not in the group of ranks {list(group.ranks)}", line, self.rank
            )
        self._add((), self._native.barrier(line, list(group.ranks)))

    def synchronize(self) -> None:
        """Block host code until all that has been enqueued so far is over."""
        self._streams.synchronize(self)

    @property
    def is_synchronized(self) -> bool:
        """Whether host code knows that everything on the stream is over."""
        return not self._kept

    def release(self) -> None:
        """Drop the tensors of items that host code knows to be over."""
        known = self._native.num_synchronized
        while self._released < known:
            self._kept.popleft()
            self._released += 1

    def _add(self, tensors: tuple, wrong: list) -> None:
        for report in wrong:
            raise failure(report)
        self._world.require_alive()
        self._kept.append(tensors)

    def _world_rank(self, what: str, peer: int, group: RankGroup | None, line: str) -> int:
        ranks = (group or self._world.world_group).ranks
        if not 0 <= peer < len(ranks):
            raise host_error(
                f"{what}: expected a peer from 0 to {len(ranks) - 1}, got {peer}; a peer is "
                "often (rank + i) % num_ranks",
                line,
                self.rank,
            )
        return ranks[peer]


class RankStreams:
    """The streams of a rank.

    Attributes:
        current: where launches of host code go; None: host code waits for each.
    """

    def __init__(self, world: WorldState, rank: int):
        self.world, self.rank = world, rank
        self.current: SimStream | None = None
        self._streams: dict[tuple[str, int], SimStream] = {}

    def get(self, name: str = "", index: int = 0) -> SimStream:
        """The stream of that name and index, always the same; without a name the main one."""
        if (name, index) not in self._streams:
            self._streams[name, index] = SimStream(self, name, index)
        return self._streams[name, index]

    @property
    def has_main(self) -> bool:
        """Whether the main stream has been asked for."""
        return ("", 0) in self._streams

    @property
    def are_synchronized(self) -> bool:
        """Whether host code knows that everything on all streams is over."""
        return all(stream.is_synchronized for stream in self._streams.values())

    def synchronize(self, stream: SimStream | None = None) -> None:
        """Block host code until what was enqueued on a stream (default: on each) is over.

        Raises what the machine finds wrong meanwhile, DeadlockError when nothing can make progress.
        """
        self.world.require_alive()
        for one in list(self._streams.values()) if stream is None else [stream]:
            if number := one._native.synchronize():
                host = self.world.launches[number] = self.world.host(self.rank)
                host.pause(f"synchronize() at {caller_line()}")
        for one in self._streams.values():
            one.release()


def _one_of(what: str, choices: dict[str, int], name: str, value: str, line: str) -> int:
    if value not in choices:
        raise host_error(f"{what}: expected {name} to be one of {', '.join(choices)}, got {value!r}", line)
    return choices[value]
