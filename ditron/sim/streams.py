"""Streams of a simulated rank: queues of launches, copies and signals beside the rank's script."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ditron import _sim
from ditron.sim.report import failure, script_line
from ditron_compiler.errors import SimulationError
from ditron_compiler.host.rows import pitched_rows

if TYPE_CHECKING:
    import torch

    from ditron.sim.rank import RankView, SimGroup, SimKernel

__all__ = ["SimEvent", "SimStream"]

_OPS = {"set": 0, "add": 1}
_COMPARISONS = {"eq": 0, "ne": 1, "gt": 2, "ge": 3, "lt": 4, "le": 5}


class SimEvent:
    """A moment on a stream: what had been enqueued there when :meth:`SimStream.record` was called is over."""

    def __init__(self, stream: SimStream, native: Any):
        self.stream = stream
        self._native = native


class SimStream:
    """A queue of work of one rank, from :meth:`RankView.stream`; its next item starts when the one before is over.

    Methods enqueue and return at once. Between streams nothing is ordered but by events (of one rank), signals and
    barriers; the script's torch operations are on no stream: they happen when the script makes them. Tensors that an
    item uses are kept until the script knows, by synchronizing, that the item is over.

    Every method takes ``line``, ``file:line[:col]`` of what is enqueued, for reports; default: the caller's. A wrong
    argument raises SimulationError here, what goes wrong later ends the run like a kernel's mistake.

    ``with stream:`` kernels that the script launches are enqueued on it, and the script goes on.

    Attributes:
        name, index, rank: whose stream it is, and how it is called; the main stream's name is empty.
    """

    def __init__(self, view: RankView, name: str, index: int):
        self.name, self.index, self.rank = name, index, view.rank
        self._view = view
        self._native = view._world.machine.stream(view.rank, name, index)
        view._world.has_more = True
        self._kept: deque[tuple] = deque()  # the tensors of each item that the script does not know to be over
        self._released = 0  # items whose tensors are not kept any more
        self._outer: list[SimStream | None] = []

    def __repr__(self) -> str:
        name = f"{self.name!r}, {self.index}" if self.index else repr(self.name)
        return f"<stream {name} of simulated rank {self.rank}>"

    def __enter__(self) -> SimStream:
        self._outer.append(self._view.current_stream)
        self._view.current_stream = self
        return self

    def __exit__(self, *_: Any) -> None:
        self._view.current_stream = self._outer.pop()

    def launch(
        self,
        kernel: SimKernel,
        grid: Sequence[int],
        slots: Sequence[int],
        *,
        group: SimGroup | None = None,
        tensors: Sequence[tuple[str, torch.Tensor]] = (),
        line: str = "",
    ) -> None:
        """Enqueue a launch; arguments as :meth:`RankView.launch` takes them."""
        group = group or self._view.world_group
        extents, signed, operands, bounded = self._view.launch_arguments(kernel, grid, slots, group, tensors)
        self._view._world.require_alive()
        self._add(
            (kernel, *tensors),
            self._native.launch(
                line or script_line(),
                list(group.ranks),
                kernel.address,
                kernel.name,
                list(kernel.locations),
                extents,
                signed,
                operands,
                getattr(kernel, "independent", False),
                bounded,
                getattr(kernel, "plain", False),
            ),
        )

    def rank_copy(
        self,
        src: torch.Tensor,
        dst: torch.Tensor,
        peer: int,
        *,
        push: bool = True,
        group: SimGroup | None = None,
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
        line = line or script_line()
        transfer = _transfer("rank_copy", src, dst, line)
        self._add(
            (src, dst),
            self._native.rank_copy(
                line,
                transfer,
                self._world_rank("rank_copy", peer, group, line),
                push,
                _operands(zip(names, (src, dst), strict=True)),
            ),
        )

    def copy(
        self, src: torch.Tensor, dst: torch.Tensor, *, names: tuple[str, str] = ("src", "dst"), line: str = ""
    ) -> None:
        """Enqueue a copy within the rank: a kernel of one program, which needs a free place on an SM.

        Both have the same shape and dtype; once dimensions that lie without a gap in both are taken together, at most
        two are left, rows and what is in a row.
        """
        line = line or script_line()
        self._add(
            (src, dst),
            self._native.move(line, _transfer("copy", src, dst, line), _operands(zip(names, (src, dst), strict=True))),
        )

    def fill(self, dst: torch.Tensor, value: int | float, *, name: str = "dst", line: str = "") -> None:
        """Enqueue a fill of a tensor (rows, as for :meth:`copy`) with one value: a kernel, as a copy is."""
        import torch

        line = line or script_line()
        rows, nbytes, pitch, _ = _rows("fill", dst, dst, line)
        element = bytes(torch.tensor([value]).to(dst.dtype).view(torch.uint8).tolist())
        transfer = _sim.Transfer(rows, nbytes, dst.data_ptr(), pitch, 0, 0, dst.itemsize, element)
        self._add((dst,), self._native.move(line, transfer, _operands([(name, dst)])))

    def signal_write(
        self,
        signal: torch.Tensor,
        value: int,
        *,
        op: str = "set",
        peer: int | None = None,
        group: SimGroup | None = None,
        line: str = "",
    ) -> None:
        """Enqueue a write of a signal, seen after all that is before it on the stream.

        Args:
            signal: one int64 element of this rank's symmetric memory. peer: rank of ``group`` (default: the world) in
                whose memory it is written; default: this one. op: ``"set"`` or ``"add"``.
        """
        line = line or script_line()
        _check_signal("signal_write", signal, 1, line)
        target = self.rank if peer is None else self._world_rank("signal_write", peer, group, line)
        self._add(
            (signal,),
            self._native.signal_write(
                line, signal.data_ptr(), value, _one_of("signal_write", _OPS, "op", op, line), target
            ),
        )

    def signal_wait(self, signal: torch.Tensor, value: int, *, cmp: str = "ge", line: str = "") -> None:
        """Enqueue a wait until this rank's own signals (contiguous int64, all of them) compare true with ``value``.

        ``cmp``: ``"eq"``, ``"ne"``, ``"gt"``, ``"ge"``, ``"lt"`` or ``"le"``.
        """
        line = line or script_line()
        _check_signal("signal_wait", signal, None, line)
        self._add(
            (signal,),
            self._native.signal_wait(
                line, signal.data_ptr(), signal.numel(), value, _one_of("signal_wait", _COMPARISONS, "cmp", cmp, line)
            ),
        )

    def record(self, *, line: str = "") -> SimEvent:
        """Enqueue a new event: streams of this rank may wait for what has been enqueued here so far."""
        self._view._world.require_alive()
        event = SimEvent(self, self._native.record(line or script_line()))
        self._add((), [])
        return event

    def wait_event(self, event: SimEvent, *, line: str = "") -> None:
        """Enqueue a wait for an event of this rank."""
        self._add((event,), self._native.wait_event(line or script_line(), event._native))

    def barrier(self, group: SimGroup | None = None, *, line: str = "") -> None:
        """Enqueue a barrier of a group (default: the world): every rank's stream of this name and index comes to it.

        What they have sent before has arrived when they go on.
        """
        group = group or self._view.world_group
        line = line or script_line()
        if self.rank not in group.ranks:
            raise self._view.script_error(
                f"barrier: rank {self.rank} is not in the group of ranks {list(group.ranks)}", line
            )
        self._add((), self._native.barrier(line, list(group.ranks)))

    def synchronize(self) -> None:
        """Let the script wait until all that has been enqueued so far is over."""
        self._view.synchronize(self)

    @property
    def settled(self) -> bool:
        """Whether the script knows that everything on the stream is over."""
        return not self._kept

    def release(self) -> None:
        """Let go of the tensors of items that the script knows to be over."""
        known = self._native.known
        while self._released < known:
            self._kept.popleft()
            self._released += 1

    def _add(self, tensors: tuple, wrong: list) -> None:
        for report in wrong:
            raise failure(report)
        self._view._world.require_alive()
        self._kept.append(tensors)

    def _world_rank(self, what: str, peer: int, group: SimGroup | None, line: str) -> int:
        ranks = (group or self._view.world_group).ranks
        if not 0 <= peer < len(ranks):
            raise self._view.script_error(
                f"{what}: expected a peer from 0 to {len(ranks) - 1}, got {peer}; a peer is "
                "often (rank + i) % num_ranks",
                line,
            )
        return ranks[peer]


def _error(message: str, line: str) -> SimulationError:
    error = SimulationError(f"{line}: {message}")
    error.location = line
    return error


def _one_of(what: str, choices: dict[str, int], name: str, value: str, line: str) -> int:
    if value not in choices:
        raise _error(f"{what}: expected {name} to be one of {', '.join(choices)}, got {value!r}", line)
    return choices[value]


def _check_signal(what: str, signal: torch.Tensor, count: int | None, line: str) -> None:
    import torch

    if (
        signal.dtype != torch.int64
        or not signal.is_contiguous()
        or signal.numel() < 1
        or (count is not None and signal.numel() != count)
    ):
        wanted = "one int64 element" if count == 1 else "contiguous int64 elements, at least one"
        raise _error(
            f"{what}: expected {wanted}, got {signal.numel()} of {signal.dtype}: pass a view such as "
            "signals[i:i + 1] or signals[i]",
            line,
        )


def _operands(named: Any) -> list:
    return [_sim.Operand(name, tensor.data_ptr(), _span(tensor), tensor.itemsize) for name, tensor in named]


def _span(tensor: torch.Tensor) -> int:
    """Bytes from the first element to the end of the last."""
    if tensor.numel() == 0:
        return 0
    last = sum((extent - 1) * stride for extent, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return (last + 1) * tensor.itemsize


def _transfer(what: str, src: torch.Tensor, dst: torch.Tensor, line: str) -> _sim.Transfer:
    for name, tensor in (("src", src), ("dst", dst)):
        if tensor.device.type != "cpu":
            raise _error(
                f"{what}: {name} lies on {tensor.device}: make tensors of the simulator on ditron.device()", line
            )
    if src.shape != dst.shape or src.dtype != dst.dtype:
        raise _error(
            f"{what}: expected src and dst of the same shape and dtype, got {list(src.shape)} of {src.dtype} "
            f"and {list(dst.shape)} of {dst.dtype}",
            line,
        )
    rows, nbytes, to_pitch, from_pitch = _rows(what, dst, src, line)
    return _sim.Transfer(rows, nbytes, dst.data_ptr(), to_pitch, src.data_ptr(), from_pitch, src.itemsize)


def _rows(what: str, dst: torch.Tensor, src: torch.Tensor, line: str) -> tuple[int, int, int, int]:
    """How many rows, bytes in a row, and the pitches of both sides in bytes."""
    rows = pitched_rows(dst.shape, src.stride(), dst.stride(), dst.itemsize)
    if rows is None:
        raise _error(
            f"{what}: expected rows, each without a gap, at one distance from each other; got shape "
            f"{list(dst.shape)} with strides {list(src.stride())} and {list(dst.stride())}: enqueue a copy "
            "for each part, or make one side contiguous",
            line,
        )
    return rows.height, rows.width, rows.dst_pitch, rows.src_pitch
