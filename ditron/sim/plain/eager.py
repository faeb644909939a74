"""``torch.compile`` on the simulator: functions run as they are written.

What torch compiles for the CPU cannot launch a Triton kernel. Functions that were compiled before are compiled again
when the simulator is left.
"""

from __future__ import annotations

import sys
from typing import Any

import torch

__all__ = ["enter", "leave"]

_compile = torch.compile
_stance: Any = None  # what puts back what torch did before


def enter() -> None:
    """From now on, what ``torch.compile`` gives runs eagerly."""
    torch.compile = _compile_eager
    if "torch._dynamo" in sys.modules:
        _force()


def leave() -> None:
    """As before :func:`enter`."""
    global _stance
    torch.compile = _compile
    if _stance is not None:
        _stance.__exit__(None, None, None)
        _stance = None


def _force() -> None:
    global _stance
    if _stance is None:
        _stance = torch.compiler.set_stance("force_eager")


def _compile_eager(*args: Any, **kwargs: Any) -> Any:
    _force()  # here, for torch's compiler takes seconds to import, and most scripts do not
    return _compile(*args, **kwargs)
