"""Launches of kernels whose signals became packets: the check that they are given packet memory.

Packets are larger than signals: a kernel would write beyond memory that was allocated for signals.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ditron_compiler import knobs
from ditron_compiler.analysis.packet_layout import PacketArgument, place_bytes
from ditron_compiler.errors import DitronError
from ditron_compiler.source_location import caller_line

__all__ = ["PacketMemory", "guarded", "require"]


@dataclass
class PacketMemory:
    """What ``ditron.symm_packets`` allocated: its size and that of each place in bytes.

    ``used``: the size of places in the layout of the first kernel that was launched with it; 0: none was.
    """

    nbytes: int
    place: int
    used: int = 0


def require(
    arguments: Sequence[PacketArgument],
    addresses: Sequence[int],
    grid: Sequence[int],
    group: Any,
    kernel: str,
    pipeline: str | None,
) -> None:
    """Raise DitronError unless each address is in memory of ``ditron.symm_packets`` with room for the messages.

    Nor may two kernels lay out the same memory differently: what one waits for, the other would overwrite. Where
    programs take messages by ``program_id % num_ranks``, no two of them may take the same one.

    Args:
        addresses: what is passed for each of ``arguments``. grid: one to three extents.
        pipeline: what ``kernel`` was decorated with, if known.
    """
    for argument, address in zip(arguments, addresses, strict=True):
        for axis in argument.by_rank:
            if len(grid) > axis and grid[axis] > group.num_ranks:
                raise _refused(_too_many(argument, axis, grid[axis], group.num_ranks, kernel, pipeline))
        memory, needed = _memory(group.packets, address), place_bytes(argument.nbytes)
        if memory is None or memory.place < needed:
            raise _refused(_message(argument, memory.place if memory else 0, kernel, pipeline))
        if memory.used not in (0, needed):
            raise _refused(_laid_out(argument, memory.used, kernel))
        memory.used = needed


def _refused(why: str) -> DitronError:
    """The error at the user's launch; its traceback ends where Triton launches."""
    return DitronError(f"{caller_line()}: {why}")


def _memory(packets: dict[int, PacketMemory], address: int) -> PacketMemory | None:
    """The packet memory that ``address`` is in; None for other memory."""
    if address in packets:
        return packets[address]
    return next((memory for start, memory in packets.items() if start <= address < start + memory.nbytes), None)


def _laid_out(argument: PacketArgument, used: int, kernel: str) -> str:
    return (
        f"kernel {kernel!r}: argument {argument.name!r} is memory that an earlier launch used with {used} bytes "
        f"for each signal, and this kernel was compiled for {place_bytes(argument.nbytes)}\n"
        f"  {argument.put}: the put whose size decides\n"
        "  give each kernel memory of its own. If it is the same kernel, Triton compiled it anew for a scalar that "
        "the size is computed from and that is 1: name that in @ditron.jit(do_not_specialize=[...])"
    )


def _too_many(argument: PacketArgument, axis: int, programs: int, ranks: int, kernel: str, pipeline: str | None) -> str:
    return (
        f"kernel {kernel!r}: a launch of {programs} programs along axis {axis} in a group of {ranks} ranks, and a "
        f"program takes the message that program_id({axis}) % num_ranks names, so two would take the same one from "
        f"argument {argument.name!r}; a message that became packets is there for one\n"
        f"  {argument.put}: the put whose signal became packets, {_chosen(pipeline)}\n"
        f"  launch at most num_ranks programs along that axis, let no others wait (if program_id({axis}) < "
        "num_ranks), give each program signals of its own (sig + program_id * num_ranks + rank), or compile the "
        'kernel by another pipeline, as @ditron.jit(pipeline="default")'
    )


def _chosen(pipeline: str | None) -> str:
    if pipeline is None:
        return f"by its pipeline (the environment variable DITRON_PIPELINE is {knobs.pipeline.get()!r})"
    return f"by the pipeline {pipeline!r} that the kernel names"


def _message(argument: PacketArgument, place: int, kernel: str, pipeline: str | None) -> str:
    given = f"has {place} bytes for each" if place else "was not allocated by ditron.symm_packets"
    return (
        f"kernel {kernel!r}: argument {argument.name!r} {given}, and the kernel sends packets there, of "
        f"{place_bytes(argument.nbytes)} bytes for each signal, which would overwrite the memory behind it\n"
        f"  {argument.put}: the put whose signal became packets, {_chosen(pipeline)}\n"
        f"  allocate the signals by ditron.symm_packets(number of signals, nbytes={argument.nbytes}) in the group "
        'of the launch, or compile the kernel by another pipeline, as @ditron.jit(pipeline="default")'
    )


def guarded(
    run: Callable[..., Any], arguments: Sequence[PacketArgument], group: Callable[[], Any], kernel: str, source: Any
) -> Callable[..., Any]:
    """A GPU launcher ``run`` of Triton's that asks :func:`require` first; ``source`` is what the kernel was made of."""
    kinds, pipeline = list(source.signature.values()), getattr(source.fn, "pipeline", None)
    paths: list[tuple[int, ...]] = []

    def launch(*args: Any) -> Any:
        values = args[9:]  # behind the grid, the stream and what else Triton passes
        if not paths:
            every = list(_paths(kinds, values))
            paths.extend(every[argument.index] for argument in arguments)
        require(arguments, [_address(values, path) for path in paths], args[:3], group(), kernel, pipeline)
        return run(*args)

    return launch


def _paths(kinds: Sequence[Any], values: Sequence[Any], above: tuple[int, ...] = ()) -> Iterator[tuple[int, ...]]:
    """Where, among a launch's arguments, each parameter of the ``tt.func`` comes from."""
    for index, (kind, value) in enumerate(zip(kinds, values, strict=True)):
        path = (*above, index)
        if isinstance(kind, tuple):
            yield from _paths(kind, value, path)
        elif kind.startswith("tensordesc"):
            yield from [path] * (1 + 2 * len(value.shape))  # with its shape and strides
        elif kind != "constexpr":
            yield path


def _address(values: Sequence[Any], path: tuple[int, ...]) -> int:
    value: Any = values
    for index in path:
        value = value[index]
    return value if isinstance(value, int) else value.data_ptr()
