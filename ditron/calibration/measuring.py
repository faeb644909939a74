"""Probes on GPUs: a process per rank, started and watched as those of ``ditron tune``."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ditron.calibration.probes import HELD_OUT, PROBES, Probe, Rank
from ditron.tuning.bench import GpuBench
from ditron.tuning.problem import Options, Problem
from ditron.tuning.processes import Job, Settings, measure
from ditron_compiler.errors import DitronError

__all__ = ["ProbeBench", "disagreement", "measured_us"]

_BENCH = "ditron.calibration.measuring:ProbeBench"
_LIMIT, _TOTAL, _ROUNDS = 60.0, 240.0, 20  # seconds of a probe and of all; samples of each
_FIRST_SAMPLES = 3
_WARM_UP = 600  # samples before these, where repeated calls are to have lowered the clocks: a second and more
_MOST_APART, _NOISE = 1.25, 2.0  # of two ranks' times; us


def measured_us(probes: Sequence[Probe], ranks: int, say: Callable[[str], None]) -> dict[Probe, float]:
    """What each probe takes on the first ``ranks`` GPUs. Raises DitronError, with all that did not work."""
    probes = sorted(probes, key=lambda probe: probe.form == "sustained")  # the last, for they warm the GPUs
    jobs = [Job(Problem("probe", "bf16", ranks, 1), [{"probe": str(probe)}], str(probe)) for probe in probes]
    settings = Settings(range(ranks), _LIMIT, _TOTAL, _ROUNDS, bench=_BENCH, say=say)
    results = [entry.candidates[0] for entry in measure(jobs, settings)]
    failed = [f"  {probe}: {result.failure}" for probe, result in zip(probes, results, strict=True) if result.failure]
    if failed:
        raise DitronError("\n".join([f"{len(failed)} of {len(probes)} probes have no time:", *failed]))
    return {probe: result.us or 0.0 for probe, result in zip(probes, results, strict=True)}


def disagreement(us: Sequence[float]) -> str:
    """What is wrong with times of one call by rank, of which none should be much longer; empty: nothing."""
    fast, slow = min(us), max(us)
    if slow <= _MOST_APART * fast + _NOISE:
        return ""
    return (
        f"the ranks do not agree: {fast:.1f} us on rank {us.index(fast)} and {slow:.1f} on rank {us.index(slow)}: is "
        "something else running there, or is that GPU's power limited?"
    )


class ProbeBench(GpuBench):
    """A rank that times a probe, in the form that it says."""

    warm_up = 0

    def prepare(self, problem: Problem) -> Callable[[Options], Any]:
        self._free_programs()
        sms = torch.cuda.get_device_properties(self.device).multi_processor_count
        call: list[Callable[[], Any]] = []

        def run(options: Options) -> Any:
            if not call:
                (probe,) = [one for one in (*PROBES, *HELD_OUT) if str(one) == options["probe"]]
                self.timing, self.calls = ("call", 1) if probe.form == "call" else ("graph", probe.calls)
                self.warm_up = _WARM_UP if probe.form == "sustained" else 0
                call.append(probe.prepare(Rank(sms, problem.ranks, self._tensor)))
            return call[0]()

        return run

    def _tensor(self, *shape: int, dtype: torch.dtype) -> torch.Tensor:
        generator = torch.Generator(self.device).manual_seed(self.rank)
        scale = shape[-1] ** -0.25 if len(shape) > 1 else 1.0
        return (torch.randn(*shape, device=self.device, generator=generator) * scale).to(dtype)

    def differs(self, result: Any, expected: Any) -> str:
        torch.cuda.synchronize()
        return ""  # what probes compute is not looked at: the operators' tests do

    def sampler(self, call: Callable[[], Any]) -> Callable[[], float]:
        sample = super().sampler(call)
        for _ in range(self.warm_up):
            sample()
        ranks = self.gather(statistics.median(sample() for _ in range(_FIRST_SAMPLES)))
        if wrong := disagreement(ranks):
            raise DitronError(wrong)
        return sample
