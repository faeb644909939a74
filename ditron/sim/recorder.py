"""Recording a run: its trace and its timeline are written when it ends, however it ends."""

from __future__ import annotations

import errno
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ditron.sim.world import World

__all__ = ["recording", "require_writable"]

CAPACITY = 4_000_000  # events, about 1 GB; a run of minutes


def require_writable(
    ranks: int, trace: str | Path | None, timeline: str | Path | None, *, has_clock: bool = False
) -> None:
    """Raise before a run what would be raised at its end.

    Raises ValueError for a file that cannot be written, or a picture of a kind or of so many ranks that cannot be made;
    ImportError when matplotlib is missing.
    """
    for path in (trace, timeline):
        if path is not None:
            _require_writable_file(path)
    if timeline is not None:
        from ditron.sim import timeline as drawing

        drawing.check(ranks, timeline, has_clock=has_clock)


def _require_writable_file(path: str | Path) -> None:
    """Raise ValueError for a folder, and for a file that cannot be made or written to."""
    file = Path(path)
    if not file.resolve().parent.is_dir():
        raise ValueError(f"{path}: there is no folder {file.resolve().parent}")
    if file.is_dir():
        raise ValueError(f"{path}: expected a file, and it is a folder")
    try:
        if file.exists():
            if not os.access(file, os.W_OK):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        else:  # permissions of the folder do not say all: its file system may take no files
            with open(file, "xb"):
                pass
            file.unlink()
    except OSError as error:
        raise ValueError(f"{path}: it cannot be written: {error.strerror}") from None


@contextmanager
def recording(
    world: World, title: str, trace: str | Path | None = None, timeline: str | Path | None = None
) -> Iterator[None]:
    """Record what the world does within it, then write ``trace`` (JSON) and ``timeline`` (a picture) where asked for.

    A run that fails is written too: a deadlock is best seen there. Raises as :func:`require_writable`, and OSError.
    """
    if trace is None and timeline is None:
        yield
        return
    require_writable(world.size, trace, timeline, has_clock=world.timing is not None)
    world.machine.enable_trace(CAPACITY)
    world.keeps_state = True
    try:
        yield
    finally:
        from ditron.sim import trace as format

        recorded = format.Recording(
            world.machine.take_trace(),
            title,
            world.size,
            world.ranks_per_node,
            world.seed,
            not world.machine.trace_truncated,
            world.prediction if world.timing else None,
        )
        if not recorded.complete:
            warnings.warn(
                f"the run is longer than the {CAPACITY} events that are kept: its end is not in the trace", stacklevel=3
            )
        if trace is not None:
            format.write(recorded, trace)
        if timeline is not None:
            from ditron.sim import machine_timeline
            from ditron.sim import timeline as drawing

            (machine_timeline if world.timing else drawing).draw(recorded, timeline)
