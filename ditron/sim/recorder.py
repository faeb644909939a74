"""Recording a run: its trace and its timeline are written when it ends, however it ends."""

from __future__ import annotations

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

    Raises ValueError for a folder that does not exist, or a picture of a kind or of so many ranks that cannot be made;
    ImportError when matplotlib is missing.
    """
    for path in (trace, timeline):
        if path is not None and not Path(path).resolve().parent.is_dir():
            raise ValueError(f"{path}: there is no folder {Path(path).resolve().parent}")
    if timeline is not None:
        from ditron.sim import timeline as drawing

        drawing.check(ranks, timeline, has_clock=has_clock)


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
