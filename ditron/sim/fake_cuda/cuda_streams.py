"""Streams and the current device of fake CUDA; :mod:`ditron.sim.fake_cuda.torch_cuda` hands them out.

Whatever is launched has ended when its launch returns, so streams and events have nothing to wait for. Which stream is
the current one is kept by thread, for programs that ask.
"""

from __future__ import annotations

import itertools
import threading
from typing import Any

import torch

from ditron.sim.plain.driver import Event

__all__ = ["DEVICE", "STREAMS", "DeviceGuard", "Stream"]

DEVICE = torch.device("cuda", 0)

_numbers = itertools.count(1)
_thread = threading.local()


class Stream:
    """``torch.cuda.Stream``, ``torch.Stream``, ``torch.cuda.ExternalStream``: equal where they are the same stream."""

    device, device_index, device_type = DEVICE, 0, 1

    def __init__(self, *_: Any, stream_id: int | None = None, priority: int = 0, **__: Any):
        self.stream_id = self.cuda_stream = next(_numbers) if stream_id is None else stream_id
        self.priority = priority
        self._before: list[Stream] = []

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream) and other.stream_id == self.stream_id

    def __hash__(self) -> int:
        return hash(self.stream_id)

    def synchronize(self, *_: Any) -> None:
        pass

    wait_stream = wait_event = synchronize

    def query(self) -> bool:
        return True

    @staticmethod
    def priority_range() -> tuple[int, int]:
        return 0, -5

    def is_capturing(self) -> bool:
        return False

    def record_event(self, event: Event | None = None) -> Event:
        event = event or Event()
        event.record()
        return event

    def __enter__(self) -> Stream:
        self._before.append(_current())
        _set(self)
        return self

    def __exit__(self, *_: object) -> None:
        _set(self._before.pop())


_default = Stream(stream_id=0)


def _current(_: Any = None) -> Stream:
    return getattr(_thread, "stream", _default)


def _set(stream: Stream | None) -> None:
    if stream is not None:
        _thread.stream = stream


class StreamContext:
    """``torch.cuda.stream(None)`` leaves the current stream as it is."""

    def __init__(self, stream: Stream | None):
        self.stream = stream

    def __enter__(self) -> None:
        if self.stream is not None:
            self.stream.__enter__()

    def __exit__(self, *_: object) -> None:
        if self.stream is not None:
            self.stream.__exit__()


class DeviceGuard:
    """``torch.cuda.device`` and what is like it: there is one device, so nothing changes."""

    prev_idx = -1

    def __init__(self, *_: Any):
        self.idx = 0

    def __enter__(self) -> DeviceGuard:
        return self

    def __exit__(self, *_: object) -> bool:
        return False


class _Raw:
    """``ExternalStream(pointer)``: the stream of that number."""

    def __new__(cls, stream_ptr: int, *_: Any, **__: Any) -> Any:
        return Stream(stream_id=stream_ptr)


STREAMS: dict[tuple[Any, str], Any] = {
    **{(home, "Stream"): Stream for home in (torch, torch.cuda, torch.cuda.streams)},
    **{(home, "Event"): Event for home in (torch, torch.cuda, torch.cuda.streams)},
    **{(home, "ExternalStream"): _Raw for home in (torch.cuda, torch.cuda.streams)},
    **{(torch.cuda, name): StreamContext for name in ("stream", "StreamContext")},
    **{(torch.cuda, name): DeviceGuard for name in ("device", "device_of", "_DeviceGuard")},
    # Functions of their own for each name: torch.compile tells torch's functions apart by what they are.
    **{(home, "current_stream"): lambda device=None: _current() for home in (torch.cuda, torch.accelerator)},
    **{(home, "set_stream"): lambda stream: _set(stream) for home in (torch.cuda, torch.accelerator)},
    (torch.cuda, "default_stream"): lambda device=None: _default,
    (torch._C, "_cuda_getCurrentRawStream"): lambda _=None: _current().cuda_stream,
}
