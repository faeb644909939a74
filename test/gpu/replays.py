"""Replays of CUDA graphs with other arguments in each, ranks out of step, results compared: what the checks here share.

On GPUs a graph holds one call, or three, whose arguments a counter on the device makes; a delay of random length stands
before every other replay, and now and then a call without a graph. The simulator makes the calls without graphs.
"""

from __future__ import annotations

import argparse
import faulthandler
import random
from collections.abc import Callable, Iterable

import torch

import ditron


class Calls:
    """Calls of an operator. ``count`` of them were made; ``bad`` elements were wrong. Both are on the device."""

    def __init__(self):
        self.device, self.rank, self.ranks = ditron.device(), ditron.rank(), ditron.num_ranks()
        self.count, self.bad = (torch.zeros(1, dtype=torch.int64, device=self.device) for _ in range(2))

    def __call__(self) -> None:
        """The next call: it adds to both counters."""
        raise NotImplementedError

    def compare(self) -> None:
        """Called behind each replay, outside of graphs."""


def _replay(calls: Calls, replays: int, latest: int) -> int:
    late = random.Random(calls.rank)
    runs: list[Callable[[], None]] = [calls]
    if calls.device.type == "cuda":
        for _ in range(2):
            calls()
        torch.cuda.synchronize()
        ditron.barrier()
        for length in (1, 3):
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, capture_error_mode="relaxed"):
                for _ in range(length):
                    calls()
            runs.append(graph.replay)
        torch.cuda.synchronize()
        ditron.barrier()
    for replay in range(replays):
        if len(runs) > 1 and replay % 2:
            torch.cuda._sleep(late.randrange(latest))
        runs[1 + replay % 2 if len(runs) > 1 and replay % 17 else 0]()
        calls.compare()
    ditron.barrier()
    return int(calls.bad)


def parser(description: str, *, replays: int, limit: int) -> argparse.ArgumentParser:
    """The options that :func:`check` needs, with their defaults."""
    parser = argparse.ArgumentParser(description=description.splitlines()[0])
    parser.add_argument("--replays", type=int, default=replays)
    parser.add_argument("--only", default="", help="cases with this in their name")
    parser.add_argument("--limit", type=int, default=limit, help="seconds that a case may take until its rank is ended")
    return parser


def check(cases: Iterable[tuple[str, Callable[[], Calls]]], args: argparse.Namespace, *, latest: int) -> None:
    """Make each case's calls and replay them, delayed by up to ``latest`` clocks; end with an error if one was wrong."""
    wrong = {}
    for name, make in cases:
        if args.only in name:
            faulthandler.dump_traceback_later(args.limit, exit=True)
            wrong[name] = _replay(make(), args.replays, latest)
            if wrong[name] or ditron.rank() == 0:
                print(f"rank {ditron.rank()}: {name}: {wrong[name]} wrong elements", flush=True)
    assert wrong, f"no case has {args.only!r} in its name"
    if ditron.rank() == 0:
        print(f"{len(wrong)} cases, {args.replays} replays each: {sum(wrong.values())} wrong elements", flush=True)
    assert not any(wrong.values()), {name: count for name, count in wrong.items() if count}
    ditron.finalize()
