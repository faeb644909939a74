"""Counts of this rank alone in captured calls: waited for by memory operations of a stream, which need no SM.

The value of a memory operation is fixed when it is captured, and a count grows with the number of the call. So captured
calls have signals of their own in place of those of calls that are not: each call counts from 0, waits for a fixed
number, and clears what it has waited for. Which signals these are, :func:`own_counts` says.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ditron_compiler import host

if TYPE_CHECKING:
    import torch

__all__ = ["CapturedCounts"]


@dataclass
class CapturedCounts:
    """The counts of captured calls, by storage, and how much each signal of it grows in a call.

    ``cleared``: the signals that calls clear when they have waited. All calls must clear the same, or one may find what
    another has left; those that would not, clear everything at their beginning and their end.
    """

    tensors: dict[Any, torch.Tensor] = field(default_factory=dict)
    growth: dict[Any, int] = field(default_factory=dict)
    cleared: frozenset[Any] | None = None

    @classmethod
    def allocate(cls, runner: Any, storages: Iterable[Any]) -> CapturedCounts:
        """For those of the storages that have counts, where the driver can capture waits for them."""
        import torch

        counts, group = cls(), runner.group
        if group.sanitize or group.transport != "p2p":  # a time limit is a kernel's; other memory is not symmetric
            return counts
        for storage in storages:
            if storage.name in runner.executable.counts and storage.kind == "symmetric":
                tensor = torch.zeros(storage.shape, dtype=torch.int64, device=group.device)
                if not runner.driver.captures_batches(tensor.data_ptr()):
                    return cls()
                counts.tensors[storage], counts.growth[storage] = tensor, runner.executable.counts[storage.name]
        return counts

    def clears_waits(self, steps: Iterable[Any]) -> bool:
        """Whether calls of these steps clear the signals that they wait for, each by itself."""
        waited = [
            (step.signal.storage, step.signal.offset)
            for step in steps
            if isinstance(step, host.SignalWait) and step.signal.storage in self.tensors
        ]
        if len(set(waited)) != len(waited):
            return False
        if self.cleared is None:
            self.cleared = frozenset(waited)
        return self.cleared == frozenset(waited)
