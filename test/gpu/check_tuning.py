"""The tuner on GPUs: a candidate that hangs there, one that kills its context, tuning at the first call.

python test/gpu/check_tuning.py
torchrun --nproc-per-node 2 test/gpu/check_tuning.py --lazily
"""

import argparse
import os
import sys
import time

import torch

import ditron
import ditron.language as dl
from ditron.tuning.bench import GpuBench
from ditron.tuning.problem import Problem
from ditron.tuning.processes import Job, Settings, measure


@ditron.jit
def wait_for_nobody_kernel(signal_ptr):
    dl.wait(signal_ptr, 1, 1)


class BadBench(GpuBench):
    """Candidates whose algorithm is "hangs" or "faults" do so, on rank 1."""

    def prepare(self, problem):
        call = super().prepare(problem)
        signal = ditron.symm_zeros(1, dtype=torch.int64, name="signal")

        def bad(options):
            algorithm = options["algorithm"]
            if algorithm == "hangs" and self.rank == 1:
                wait_for_nobody_kernel[(1,)](signal)
            if algorithm == "faults" and self.rank == 1:
                torch.ones(8, device=self.device)[torch.tensor([1 << 40], device=self.device)]
            result = call({"algorithm": "sequential"} if algorithm in ("hangs", "faults") else options)
            if not torch.cuda.is_current_stream_capturing():
                torch.cuda.synchronize()
            return result

        return bad


def ended():
    """Candidates that hang and that fault are recorded, and the rest is measured."""
    algorithms = ("sequential", "hangs", "nccl", "faults", "overlapped")
    job = Job(Problem("ag_gemm", "bf16", 2, 256, 1024, 1024), [{"algorithm": name} for name in algorithms])
    begin = time.monotonic()
    entry = measure([job], Settings([0, 1], limit=8.0, rounds=4, bench="check_tuning:BadBench", say=print))[0]
    found = {candidate.options["algorithm"]: candidate for candidate in entry.candidates}
    print(f"{time.monotonic() - begin:.0f} s", *found.items(), sep="\n")
    assert "hangs: rank 1 was ended" in found["hangs"].failure or "hangs: rank 0 was ended" in found["hangs"].failure
    assert "rank 1" in found["faults"].failure
    assert all(found[name].us for name in ("sequential", "nccl", "overlapped"))


def lazily():
    """An unknown shape is tuned at its first call, by processes of their own, and runs what was found."""
    os.environ["DITRON_TUNE_SECONDS"] = "10"
    ditron.tuning.enable()
    group = ditron.init(transport="p2p")
    a, b = (torch.randn(rows, 2048, device=ditron.device()).bfloat16() for rows in (1024, 1536))
    expected = ditron.kernels.ag_gemm(a, b, algorithm="nccl")
    begin = time.monotonic()
    result = ditron.kernels.ag_gemm(a, b)
    first = time.monotonic() - begin
    torch.testing.assert_close(result, expected, rtol=2e-2, atol=2e-1)
    begin = time.monotonic()
    for _ in range(1000):
        ditron.tuning.lookup.tuned("ag_gemm", group, None, {}, a.dtype, 1024, 1536, 2048)
    each = (time.monotonic() - begin) / 1000
    found = [key for key, value in group.choices.made.items() if value is not None]
    print(f"rank {group.rank}: {first:.0f} s, then {each * 1e6:.2f} us a lookup: {group.choices.made}", flush=True)
    assert found and each < 1e-6
    ditron.finalize()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lazily", action="store_true")
    sys.exit(lazily() if parser.parse_args().lazily else ended())
