"""NCCL's collectives as an algorithm of the operators: what a call takes of a group."""

from __future__ import annotations

from typing import Any

from ditron.distributed.group import Group
from ditron.tuning.lookup import has_nccl
from ditron_compiler.errors import DitronError

__all__ = ["nccl_group"]


def nccl_group(what: str, group: Group) -> Any:
    """The group's process group, for a call with ``algorithm="nccl"``. Raises DitronError when it has no NCCL."""
    if not has_nccl(group):
        raise DitronError(
            f"{what}: algorithm='nccl' takes a group of GPUs whose process group has NCCL and its ranks in the group's "
            "order: leave algorithm= out"
        )
    return group.process_group  # type: ignore[attr-defined]
