"""The hook of fake CUDA: the one place where the simulator asks for :mod:`ditron.sim.fake_cuda`, which is optional.

The room installs itself here when it is imported, and it is imported when a caller asks for ``as_cuda``.
"""

from __future__ import annotations

import importlib
from contextlib import AbstractContextManager
from typing import Any, Protocol

__all__ = ["CudaHook", "install", "may_report_cuda", "patched"]


class CudaHook(Protocol):
    """What fake CUDA offers."""

    def patched(self) -> AbstractContextManager[None]:
        """Within it, torch reports that CPU tensors are CUDA tensors."""

    def may_report_cuda(self, value: Any) -> bool:
        """Whether an argument that reports a CUDA device may lie on the CPU."""


_installed: CudaHook | None = None


def install(hook: CudaHook) -> None:
    """Make ``hook`` the one that is asked."""
    global _installed
    _installed = hook


def patched() -> AbstractContextManager[None]:
    """As :meth:`CudaHook.patched`; imports fake CUDA."""
    if _installed is None:
        importlib.import_module("ditron.sim.fake_cuda")
    return _installed.patched()


def may_report_cuda(value: Any) -> bool:
    """As :meth:`CudaHook.may_report_cuda`; false where fake CUDA has never been asked for."""
    return _installed is not None and _installed.may_report_cuda(value)
