"""Threads of which one runs at a time: the scheduler resumes one, which runs until it pauses."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any

from ditron_compiler.errors import DitronError

__all__ = ["Abandoned", "HostThread"]


class Abandoned(BaseException):
    """Ends the thread of a rank when another rank has failed. Not an Exception: host code must not catch it."""


class HostThread:
    """The host code of a rank. It runs from :meth:`resume` until it calls :meth:`pause`, or ends.

    Attributes:
        rank: world rank.
        blocked_in: the call that it is blocked in, for reports; empty when it can run.
        done: whether its function has returned or raised.
        result, error: what it returned or raised.
        callbacks: what is to be called in the thread when it continues, as warnings.
    """

    def __init__(self, rank: int, function: Callable[[], Any]):
        self.rank = rank
        self.blocked_in = ""
        self.done = False
        self.result: Any = None
        self.error: BaseException | None = None
        self.callbacks: list[Callable[[], None]] = []
        self._process = os.getpid()
        self._function = function
        self._thrown: BaseException | None = None
        self._once = False
        self._resumed = threading.Semaphore(0)
        self._paused = threading.Semaphore(0)
        # A daemon, so that host code that never returns cannot keep the process alive.
        self._thread = threading.Thread(target=self._main, name=f"rank {rank}", daemon=True)
        self._thread.start()

    def _main(self) -> None:
        self._resumed.acquire()
        try:
            if self._thrown is not None:
                raise self._thrown
            self.result = self._function()
        except BaseException as error:
            self.error = error
        self._thrown = None  # its traceback holds on to the host code's tensors
        self.done = True
        self._paused.release()

    def resume(self) -> None:
        """Called by the scheduler: let the thread run until it pauses or ends."""
        self.blocked_in = ""
        self._resumed.release()
        self._paused.acquire()
        if self.done:
            self._thread.join()

    def pause(self, blocked_in: str = "") -> None:
        """Called by the thread: let the scheduler continue, return when resumed. With ``blocked_in`` the thread is not
        ready before :meth:`unblock`. Raises what the scheduler has thrown, DitronError in a forked process."""
        if self._process != os.getpid():
            raise DitronError(
                f"rank {self.rank} forked this process, which has none of the simulator's other threads: call "
                "ditron.sim.run() in it, or start it by multiprocessing's 'spawn'"
            )
        if self._thrown is None:
            self.blocked_in = blocked_in
            self._paused.release()
            self._resumed.acquire()
        self.run_callbacks()
        if self._thrown is not None:
            error = self._thrown
            if self._once:
                self._thrown = None
            raise error

    def run_callbacks(self) -> None:
        """Call what is to be called in this thread."""
        while self.callbacks:
            self.callbacks.pop(0)()

    def unblock(self) -> None:
        """What the thread waited for has happened: it is ready."""
        self.blocked_in = ""

    def throw(self, error: BaseException, once: bool = False) -> None:
        """Make this and every later pause raise ``error``; ``once``: only this one."""
        self._thrown, self._once = error, once
        self.blocked_in = ""
