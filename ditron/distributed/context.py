"""The layout of a group's context, the table a GPU kernel finds itself and its peers by.

A kernel's hidden last argument ``__ditron_ctx`` points to it: an array of int64 in the memory of the GPU, one per
group and rank. The device libraries under ``runtime/`` read the same slots; ``runtime/README.md`` documents them.
"""

from __future__ import annotations

from enum import IntEnum

__all__ = ["NUM_FIXED_SLOTS", "Slot", "pack"]

NUM_FIXED_SLOTS = 16


class Slot(IntEnum):
    """Index of each fixed entry; after them come ``num_ranks`` peer bases and ``num_ranks`` world ranks."""

    RANK = 0
    NUM_RANKS = 1
    LOCAL_RANK = 2
    NUM_LOCAL_RANKS = 3
    NODE = 4
    WORLD_RANK = 5
    WORLD_SIZE = 6
    TEAM = 7
    HEAP_BASE = 8
    HEAP_BYTES = 9
    BARRIER_OFFSET = 10
    REPORT = 11
    MULTICAST_BASE = 12
    LIMIT_NS = 13


def barrier_area_bytes(num_ranks: int) -> int:
    """Bytes at ``BARRIER_OFFSET`` that the device library uses, zero before the first launch.

    int64[2 * num_ranks + 2] of the in-kernel barriers; int64[2] of the sanitizer: poison, number of reports.
    """
    return 8 * (2 * num_ranks + 4)


def pack(fixed: dict[Slot, int], peer_bases: list[int], world_ranks: list[int]) -> list[int]:
    """The context as a list of ``16 + 2 * num_ranks`` integers; slots left out are 0.

    ``peer_bases[r]`` is the address at which group rank ``r``'s heap is mapped here, 0 when it is not (another node).
    """
    head = [0] * NUM_FIXED_SLOTS
    for slot, value in fixed.items():
        head[slot] = value
    return head + peer_bases + world_ranks
