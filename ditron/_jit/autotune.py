"""``@ditron.autotune``: ``triton.autotune`` whose ranks measure and decide together."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import triton

from ditron._jit.tracing import active
from ditron.distributed.state import current_group

__all__ = ["autotune"]


def autotune(configs: list, key: list[str], **kwargs: Any) -> Callable:
    """``triton.autotune`` for kernels that communicate, with its arguments.

    Every rank of the current group tries each configuration the same number of times, together, and all take the one
    whose slowest rank is fastest: Triton's own benchmark lets each rank decide how often to call, so that ranks would
    wait for each other for ever. On the simulator the first configuration is taken.
    """
    return triton.autotune(configs, key, do_bench=_benchmark, **kwargs)


def _benchmark(
    call: Callable[[], Any], quantiles: Iterable[float] = (0.5,), warmup: int = 3, repeat: int = 20
) -> list[float]:
    """Milliseconds of ``call`` on the slowest rank, per quantile."""
    quantiles = list(quantiles)
    if (trace := active()) is not None:
        trace.fail(
            "an autotuned kernel cannot be launched in a program, whose trace measures nothing: launch one "
            "configuration of it"
        )
    group = current_group()
    return [0.0] * len(quantiles) if group is None else group.benchmark(call, quantiles, warmup, repeat)
