"""Waiting for this rank's GPU, which may wait for a rank that is gone."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from ditron.distributed.local_sockets import GroupSockets, RankLeft

if TYPE_CHECKING:
    import torch

__all__ = ["GpuWaits", "wait_for_device"]

_SECONDS = 1.0  # between looks at the other ranks


class GpuWaits(RankLeft):
    """A rank has ended, and this rank's GPU does not: it waits for that rank, most likely."""


def wait_for_device(device: torch.device, peers: GroupSockets | None) -> None:
    """Wait until the GPU has finished. Raises GpuWaits when it goes on after a rank of the group has ended."""
    import torch

    if peers is None or len(peers.ranks) == 1:
        torch.cuda.synchronize(device)
        return
    finished, failures = threading.Event(), []

    def wait() -> None:
        try:
            torch.cuda.synchronize(device)
        except RuntimeError as error:
            failures.append(error)
        finally:
            finished.set()

    # The driver's wait cannot be given up, so it has a thread, which does not keep the process from its end.
    threading.Thread(target=wait, name="ditron: waits for the GPU", daemon=True).start()
    ended: list[int] = []
    while not finished.wait(_SECONDS):
        if ended:  # since a second: the GPU had time to finish what did not need them
            ranks = ", ".join(f"rank {rank}" for rank in ended)
            raise GpuWaits(f"{ranks} ended while this rank's GPU works, which waits for it most likely")
        ended = peers.ended()
    if failures:
        raise failures[0]
