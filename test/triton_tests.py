"""Run Triton's own unit tests on the simulator: ``python test/triton_tests.py CHECKOUT [FILE ...] [--sample N]``.

CHECKOUT is a checkout of Triton's repository of the installed version; nothing in it is changed. FILE is below its
``python/test/unit``; without any, :data:`FILES` run. Further options are pytest's. What is about a GPU's own code is
counted as not applicable, with the reason; everything else that does not pass is listed.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import re
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from _pytest.runner import runtestprotocol

import ditron
import ditron_compiler.lowering.sim  # noqa: F401  once, not in each process of a test

FILES = [
    f"language/test_{name}.py"
    for name in (
        "annotations",
        "block_pointer",
        "compile_errors",
        "conversions",
        "core",
        "decorator",
        "frontend",
        "libdevice",
        "line_info",
        "matmul",
        "mxfp",
        "pipeliner",
        "random",
        "standard",
        "tensor_descriptor",
        "tuple",
        "warp_specialization",
    )
]
FILES += [
    "cuda/test_tensor_descriptor.py",
    "cuda/test_mixed_io.py",
    "cuda/test_flashattention.py",
    "runtime/test_autotuner.py",
    "runtime/test_jit.py",
    "runtime/test_launch.py",
    "test_debug.py",
]

# What the end of a failure's report has where a test is about a GPU's code, not about what a kernel computes.
NOT_APPLICABLE = {
    r"KeyError: '(sass|amdgcn)'": "looks at the text of a GPU's code",
    r"Parse MLIR file failed|from a file of ttgir|inline_asm|inline assembly": "has GPU code or assembly in it",
}


def protocol(item: pytest.Item, seconds: int) -> Iterator[dict]:
    """Reports of one test, which runs in a process of its own: one that writes out of bounds may end it."""
    source, sink = os.pipe()
    child = os.fork()
    if not child:
        signal.alarm(seconds)
        reports = runtestprotocol(item, log=False)
        with os.fdopen(sink, "w") as stream:
            json.dump(
                [
                    item.config.hook.pytest_report_to_serializable(config=item.config, report=report)
                    for report in reports
                ],
                stream,
            )
        os._exit(0)
    os.close(sink)
    with os.fdopen(source) as stream:
        text = stream.read()
    status = os.waitpid(child, 0)[1]
    if text:
        yield from json.loads(text)
        return
    ended = f"not done after {seconds} s" if os.WTERMSIG(status) == signal.SIGALRM else f"its process ended: {status}"
    yield {
        "nodeid": item.nodeid,
        "location": item.location,
        "keywords": {},
        "outcome": "failed",
        "longrepr": ended,
        "when": "call",
        "sections": [],
        "duration": seconds,
        "$report_type": "TestReport",
    }


class Harness:
    """A plugin of pytest: takes a sample, runs each test apart, sorts what fails."""

    def __init__(self, sample: int, seconds: int):
        self.sample, self.seconds = sample, seconds
        self.counts: dict[str, collections.Counter] = collections.defaultdict(collections.Counter)
        self.reasons: collections.Counter = collections.Counter()
        self.failures: list[str] = []

    def pytest_collection_modifyitems(self, items: list) -> None:
        groups: dict[str, list] = collections.defaultdict(list)
        for item in items:
            groups[item.nodeid.split("[")[0]].append(item)
        if self.sample:
            items[:] = [
                group[i * len(group) // kept]
                for group in groups.values()
                for kept in [min(self.sample, len(group))]
                for i in range(kept)
            ]

    def pytest_runtest_protocol(self, item: pytest.Item) -> bool:
        for data in protocol(item, self.seconds):
            report = item.config.hook.pytest_report_from_serializable(config=item.config, data=data)
            item.ihook.pytest_runtest_logreport(report=report)
        return True

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when != "call" and report.outcome == "passed":
            return
        counts = self.counts[report.nodeid.split("::")[0]]
        if report.outcome == "passed" or hasattr(report, "wasxfail"):
            counts["passed"] += 1
            return
        text = report.longrepr[2] if isinstance(report.longrepr, (tuple, list)) else str(report.longrepr)
        end = "\n".join(text.strip().splitlines()[-12:])
        found = [why for pattern, why in NOT_APPLICABLE.items() if re.search(pattern, end)]
        if report.outcome == "skipped" or found:
            counts["not applicable"] += 1
            self.reasons[found[0] if found else text] += 1
        else:
            counts["failed"] += 1
            errors = [line[1:].strip() for line in text.splitlines() if line.startswith("E ")]
            self.failures.append(f"{report.nodeid}: {' '.join(errors or [text])[:500]}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", type=Path)
    parser.add_argument("files", nargs="*")
    parser.add_argument("--sample", type=int, default=0, help="at most so many cases of a test (0: all)")
    parser.add_argument("--seconds", type=int, default=60, help="time limit of a test")
    parser.add_argument("--device", default="cuda", choices=("cpu", "cuda"), help="what the tests call the CPU")
    options, rest = parser.parse_known_intermixed_args()
    unit = (options.checkout / "python/test/unit").resolve()
    files = [str(unit / name) for name in options.files or FILES if (unit / name).exists()]
    harness = Harness(options.sample, options.seconds)
    torch.set_num_threads(1)  # threads do not live on in the tests' processes
    with ditron.sim.triton(as_cuda=options.device == "cuda"):
        pytest.main(
            [
                *files,
                "-q",
                "--tb=short",
                "--no-summary",
                "-p",
                "no:cacheprovider",
                f"--rootdir={unit}",
                "--device",
                options.device,
                *rest,
            ],
            plugins=[harness],
        )
    print(*harness.failures, sep="\n")
    for reason, count in harness.reasons.most_common():
        print(f"{count:6} not applicable: {reason}")
    for name, counts in sorted(harness.counts.items()):
        print(f"{name}: " + ", ".join(f"{counts[kind]} {kind}" for kind in ("passed", "not applicable", "failed")))
    return 1 if harness.failures or not harness.counts else 0


if __name__ == "__main__":
    sys.exit(main())
