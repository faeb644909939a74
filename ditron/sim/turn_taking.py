"""Threads of which one runs at a time, in an order that a driver decides."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

__all__ = ["Abandoned", "HostThread"]


class Abandoned(BaseException):
    """Ends the thread of a rank when another rank has failed. Not an Exception: scripts must not catch it."""


class HostThread:
    """A rank's script. It runs from :meth:`resume` until it calls :meth:`pause`, or ends.

    Attributes:
        rank: world rank.
        waits_for: what it is blocked in, for reports; empty when it can run.
        done: whether its function has returned or raised.
        result, error: what it returned or raised.
        then: what is to be called in the thread when it goes on, warnings for one.
    """

    def __init__(self, rank: int, function: Callable[[], Any]):
        self.rank = rank
        self.waits_for = ""
        self.done = False
        self.result: Any = None
        self.error: BaseException | None = None
        self.then: list[Callable[[], None]] = []
        self._function = function
        self._thrown: BaseException | None = None
        self._once = False
        self._go = threading.Semaphore(0)
        self._back = threading.Semaphore(0)
        # A daemon, so that a script that never comes back cannot keep the process alive.
        self._thread = threading.Thread(target=self._main, name=f"rank {rank}", daemon=True)
        self._thread.start()

    def _main(self) -> None:
        self._go.acquire()
        try:
            if self._thrown is not None:
                raise self._thrown
            self.result = self._function()
        except BaseException as error:
            self.error = error
        self._thrown = None  # its traceback holds on to the script's tensors
        self.done = True
        self._back.release()

    def resume(self) -> None:
        """Called by the driver: let the thread run until it pauses or ends."""
        self.waits_for = ""
        self._go.release()
        self._back.acquire()
        if self.done:
            self._thread.join()

    def pause(self, waits_for: str = "") -> None:
        """Called by the thread: let the driver go on, return when resumed. With ``waits_for`` it cannot run before
        :meth:`unblock`. Raises what the driver has thrown."""
        if self._thrown is None:
            self.waits_for = waits_for
            self._back.release()
            self._go.acquire()
        self.tell()
        if self._thrown is not None:
            error = self._thrown
            if self._once:
                self._thrown = None
            raise error

    def tell(self) -> None:
        """Call what is to be called."""
        while self.then:
            self.then.pop(0)()

    def unblock(self) -> None:
        """What the thread waited for has happened."""
        self.waits_for = ""

    def throw(self, error: BaseException, once: bool = False) -> None:
        """Make this and every later pause raise ``error``; ``once``: only this one."""
        self._thrown, self._once = error, once
        self.waits_for = ""
