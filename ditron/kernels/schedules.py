"""Which schedule an operator uses where the caller names none."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch

from ditron.distributed.group import Group
from ditron.kernels.operands import capacity_for, reaches_by_tma
from ditron_compiler.errors import DitronError

__all__ = [
    "LL_BYTES",
    "STORED_BYTES",
    "block_for",
    "by_size",
    "fits_tile_kernel",
    "num_sms",
    "overlaps",
    "schedule_for",
    "sent_bytes",
]

#: From so many bytes sent by each rank on, communication is hidden under the product: below, a product and a collective
#: one after the other take less than the persistent kernel's signals and last tiles (docs/results/tensor-parallel.md).
OVERLAPPED_BYTES = 12 << 20

#: Up to so many bytes sent by each rank, a collective sends packets: twice the bytes, without a fence and a signal.
LL_BYTES = 128 << 10

#: Up to so many bytes sent by each rank, a collective is stores of a kernel: faster than copy engines and a copy out of
#: the workspace (docs/results/tensor-parallel.md).
STORED_BYTES = 128 << 20


@cache
def num_sms(device: torch.device) -> int:
    """Streaming multiprocessors of a GPU."""
    return torch.cuda.get_device_properties(device).multi_processor_count


def fits_tile_kernel(group: Group, *matrices: torch.Tensor) -> bool:
    """Whether the persistent kernel can address the matrices, and is at home on the device (TMA: from Hopper on)."""
    if not reaches_by_tma(*matrices) or matrices[0].dtype == torch.float32:
        return False
    return group.is_sim or torch.cuda.get_device_capability(group.device)[0] >= 9


def sent_bytes(group: Group, part: torch.Tensor) -> int:
    """Bytes that a rank sends when every other one gets a tensor like ``part``."""
    return part.nbytes * (group.num_ranks - 1)


def by_size(nbytes: int) -> str:
    """The algorithm of an all-gather or reduce-scatter in which each rank sends ``nbytes``."""
    return "ll" if nbytes <= LL_BYTES else "stored" if nbytes <= STORED_BYTES else "copied"


def block_for(group: Group, algorithm: str) -> dict[str, int]:
    """Elements that a program of a collective sends to each rank at once, small ones on the simulator."""
    return {"block": 256 if group.is_sim else 1024 if algorithm == "ll" else 4096}


def overlaps(what: str, group: Group, algorithm: str | None, nbytes: int, *matrices: torch.Tensor) -> bool:
    """Whether an operator runs its persistent kernel, and not a matrix product and a collective, one by one.

    Each rank sends ``nbytes``.

    Raises DitronError when ``algorithm`` is neither of them, or cannot address the matrices.
    """
    fits = fits_tile_kernel(group, *matrices)
    if algorithm is None:
        return fits and (group.is_sim or nbytes >= OVERLAPPED_BYTES)
    if algorithm not in ("overlapped", "sequential"):
        raise DitronError(f"{what}: unknown algorithm {algorithm!r}: expected 'overlapped' or 'sequential'")
    if algorithm == "overlapped" and not fits:
        raise DitronError(
            f"{what}: algorithm='overlapped' takes bfloat16 or float16 matrices with rows of a multiple of 16 bytes, "
            "on GPUs from Hopper on: leave algorithm= out, or pad them"
        )
    return algorithm == "overlapped"


def schedule_for(
    what: str, group: Group, rows: int, most_pieces: int, given: dict[str, Any], *, whole_pieces: bool
) -> dict[str, Any]:
    """Keyword arguments of a program with the persistent kernel, for ``rows`` rows per rank: ``given``, and others.

    The others depend on the capacity of ``rows`` rather than on themselves, and so do memory and code. Raises
    DitronError for more pieces than rows of tiles where each piece must have one (``whole_pieces``).
    """
    block = given.get(
        "block", (32, 32, 32) if group.is_sim else (128, 256, 64)
    )  # small ones: the simulator's are small
    capacity = capacity_for(rows)
    fewest = capacity // 2 + 1 if rows > 64 else 1  # rows of the smallest call that has this capacity
    pieces = given.get("pieces", min(most_pieces, -(-fewest // block[0])))
    tile_rows = -(-rows // block[0])
    if pieces < 1 or whole_pieces and pieces > tile_rows:
        raise DitronError(f"{what}: pieces must be from 1 to {tile_rows}, the rows of tiles of a rank, got {pieces}")
    return {
        "block": block,
        "pieces": pieces,
        "group_m": max(1, min(8, -(-capacity // block[0]) // pieces)),  # a group of rows of tiles is of one piece
        "programs": 8 if group.is_sim else num_sms(group.device),
    } | given
