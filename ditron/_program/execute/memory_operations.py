"""Signals that a stream writes and waits for by memory operations of the driver: those in a row are one call of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from ditron._program.execute.driver import Driver
from ditron._program.execute.epochs import EPOCH
from ditron_compiler.analysis.linear import Polynomial

__all__ = ["MemoryOperation", "in_batches", "slope_and_offset"]

_MOST = 255  # of cuStreamBatchMemOp


@dataclass(frozen=True)
class MemoryOperation:
    """Store 64 bits at ``address``, or wait for them, with ``flags`` of :data:`.driver.WAIT_FLAGS`.

    ``is_captured``: in a graph, whose nodes of this kind are batches, of one too.
    """

    stream: int
    address: int
    value: int | Polynomial
    flags: int | None = None  # None: a store
    is_captured: bool = False


def slope_and_offset(value: Polynomial) -> tuple[int, int]:
    """Of a linear form in the epoch."""
    return value.coefficient(EPOCH), value.constant_term


def in_batches(driver: Driver, actions: Iterable[Any]) -> list[Callable[[list[int], int], None]]:
    """The actions, each run of memory operations on one stream as one, without those that are None."""
    found: list[Callable[[list[int], int], None]] = []
    run: list[MemoryOperation] = []
    for action in [*actions, None]:
        is_operation = isinstance(action, MemoryOperation)
        if run and not (is_operation and action.stream == run[0].stream and len(run) < _MOST):
            found.append(_action(driver, run))
            run = []
        if is_operation:
            run.append(action)
        elif action is not None:
            found.append(action)
    return found


def _action(driver: Driver, run: list[MemoryOperation]) -> Callable[[list[int], int], None]:
    if len(run) == 1 and not run[0].is_captured:
        return _single(driver, run[0])
    stream, batch = run[0].stream, driver.batch
    constants = [operation.value if isinstance(operation.value, int) else 0 for operation in run]
    operations = driver.memory_operations([(op.address, n, op.flags) for op, n in zip(run, constants, strict=True)])
    varying = [
        (operations[index], *slope_and_offset(operation.value))
        for index, operation in enumerate(run)
        if isinstance(operation.value, Polynomial)
    ]

    def action(bases: list[int], epoch: int) -> None:
        for operation, slope, offset in varying:
            operation.value = slope * epoch + offset
        batch(operations, stream)

    return action


def _single(driver: Driver, operation: MemoryOperation) -> Callable[[list[int], int], None]:
    stream, address, value, flags = operation.stream, operation.address, operation.value, operation.flags
    write, wait = driver.write_value, driver.wait_value
    slope, offset = slope_and_offset(value) if isinstance(value, Polynomial) else (0, value)
    if flags is None:
        return lambda bases, epoch: write(address, slope * epoch + offset, stream)
    return lambda bases, epoch: wait(address, slope * epoch + offset, flags, stream)
