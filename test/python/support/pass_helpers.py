"""Run one rank function under several pipelines, and look at what they made of a kernel."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import ditron


@contextmanager
def pipeline(name: str) -> Iterator[None]:
    """Within it, kernels that name no pipeline are compiled by ``name``."""
    before = os.environ.get("DITRON_PIPELINE")
    os.environ["DITRON_PIPELINE"] = name
    try:
        yield
    finally:
        os.environ.pop("DITRON_PIPELINE")
        if before is not None:
            os.environ["DITRON_PIPELINE"] = before


def run(name: str, main: Callable[[], Any], seeds: int = 10, **world: Any) -> list:
    """What ``main`` returns on each rank under the pipeline ``name``, the same for every seed; races are looked for."""
    results = []
    with pipeline(name):
        for seed in range(seeds):
            results.append(ditron.sim.run(main, seed=seed, **world))
    assert all(result == results[0] for result in results), results
    return results[0]


def count(kernel: Any, what: str, name: str, target: str = "sim", **options: Any) -> int:
    """How often the operation ``what`` stands in ``kernel``, compiled by the pipeline ``name``."""
    text = ditron.compile(kernel, target=target, pipeline=name, stop_after="ditron", **options).asm["ditron"]
    return len(re.findall(rf"\b{re.escape(what)}\b", text))
