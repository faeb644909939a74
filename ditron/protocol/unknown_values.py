"""What host code reads of what kernels compute, while it is captured: nothing is computed then.

Contents that a script makes by torch are known. Unknown are those of what a launch, a copy or a signal of a stream may
write, and what torch makes of them.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from ditron.protocol.dependence import decides, frames_of, is_polled
from ditron.protocol.host_values import HostValuesMode

if TYPE_CHECKING:
    from ditron.protocol.capture import CapturedRank

__all__ = ["CapturingMode", "NothingToPoll", "ReadMode"]

# Operators whose result, or its shape, is the contents of a tensor.
_READS = frozenset(
    "_local_scalar_dense equal nonzero masked_select _unique2 unique_consecutive unique_dim bincount".split()
)
_LISTS = {torch.Tensor.tolist: "tolist", torch.Tensor.numpy: "numpy"}
_MAX_POLLS = 1000


class NothingToPoll(BaseException):
    """Host code polls a value that no kernel changes here."""


class CapturingMode(HostValuesMode):
    """As :class:`HostValuesMode`; also notes where contents that are not known are read."""

    def __init__(self, rank: CapturedRank, values: Mapping[int, Any]):
        super().__init__(rank)
        self._captured, self._values = rank, values
        self._polls: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        result = super().__torch_dispatch__(func, types, args, kwargs)
        if getattr(getattr(func, "overloadpacket", func), "__name__", "") in _READS:
            given = [value for value in tree_leaves((args, kwargs or {})) if isinstance(value, torch.Tensor)]
            return result if all(map(self._captured.knows, given)) else self.read(result)
        return result

    def read(self, result: Any) -> Any:
        """An unknown value is read at a line of the user's: the one that is given for the line, or a note."""
        frames = frames_of(sys._getframe(1))
        file, line = (frames[0][0].co_filename, frames[0][1]) if frames else ("", 0)
        if line in self._values and not isinstance(result, torch.Tensor):
            return self._values[line]
        where = f"{file}:{line}"
        self._polls[where] += 1
        if self._polls[where] > _MAX_POLLS and is_polled(frames):
            self._captured.note(f"{where}: the script polls what a kernel computes; what follows is not checked")
            raise NothingToPoll
        self._captured.reads.append(where)
        if self._polls[where] == 1 and decides(frames):
            shown = f"{result} is" if isinstance(result, (bool, int, float)) else "what is there without it is"
            self._captured.note(
                f"{where}: the script reads what a kernel computes, which does not run here: {shown} taken, and what "
                f"depends on it may launch less. Give a value: ditron check --value {line}=VALUE"
            )
        return result


class ReadMode(TorchFunctionMode):
    """Reads of contents that no operator of torch's makes."""

    def __init__(self, mode: CapturingMode, rank: CapturedRank):
        super().__init__()
        self._mode, self._captured = mode, rank

    def __torch_function__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if func in _LISTS and not self._captured.knows(args[0]):
            return self._mode.read(result)
        return result
