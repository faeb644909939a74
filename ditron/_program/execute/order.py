"""Calls of a program that use the same memory follow each other, whatever streams they are on."""

from __future__ import annotations

from ditron._program.execute.driver import Driver

__all__ = ["CallOrder"]


class CallOrder:
    """The order of the calls that use one memory: a call on another stream than the one before it waits for its end.

    In a graph, the calls of one capture are ordered so among themselves. An event from outside cannot be awaited in a
    capture, nor one of a capture outside of it: graphs and other work are ordered by the streams they are launched on.
    """

    def __init__(self, driver: Driver):
        self._driver = driver
        self._events: dict[bool, int] = {}  # at the end of the latest call, by whether it was captured
        self._latest: dict[bool, tuple[int, int]] = {}  # its capture (0: none) and stream

    def begin(self, stream: int, captured: bool) -> None:
        """Before the steps of a call are enqueued."""
        latest = self._latest.get(captured)
        if latest is not None and latest[1] != stream and latest[0] == self._capture(stream, captured):
            self._driver.wait_event(self._events[captured], stream)

    def end(self, stream: int, captured: bool) -> None:
        """After the steps of a call: all of its streams have joined this one."""
        if captured not in self._events:
            self._events[captured] = self._driver.event()
        self._driver.record(self._events[captured], stream)
        self._latest[captured] = self._capture(stream, captured), stream

    def _capture(self, stream: int, captured: bool) -> int:
        return self._driver.capture_of(stream) if captured else 0
