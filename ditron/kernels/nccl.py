"""NCCL's collectives as an algorithm of the operators: what a call takes of a group."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ditron.distributed.group import Group
from ditron.tuning.lookup import has_nccl
from ditron_compiler.errors import DitronError

if TYPE_CHECKING:
    import torch

__all__ = ["nccl_group", "run_by_nccl"]


def run_by_nccl(what: str, group: Group, sent: float, out: torch.Tensor, call: Callable[[Any], Any]) -> None:
    """``call`` an NCCL collective into ``out`` with the group's process group, in which each rank sends so many bytes.

    Timing-only on the simulator, its time passes instead. Raises DitronError for a group without NCCL.
    """
    if group.is_sim and not group.is_captured and group.world.timing_only:  # type: ignore[attr-defined]
        group.world.library_collective(f"NCCL {what}", sent, out, group.handle)  # type: ignore[attr-defined]
    else:
        call(nccl_group(what, group))


def nccl_group(what: str, group: Group) -> Any:
    """The group's process group, for a call with ``algorithm="nccl"``. Raises DitronError when it has no NCCL."""
    if not has_nccl(group):
        raise DitronError(
            f"{what}: algorithm='nccl' takes a group of GPUs whose process group has NCCL and its ranks in the group's "
            "order: leave algorithm= out"
        )
    return group.process_group  # type: ignore[attr-defined]
