"""What the processes that measure do where there is no GPU: a candidate says itself how it behaves, and how long it takes.

``how=``: "hangs", "raises", "raises and loses the GPU", "raises on 1" (the others hang), "dies", "dies and warns", "wrong",
"hangs when timed"; ``us=`` by rank.
"""

from __future__ import annotations

import json
import os
import time
import traceback
from pathlib import Path


class FakeBench:
    """Ranks that meet by files."""

    def __init__(self, rank: int, ranks: int, folder: str, timing: str):
        self.rank, self.ranks, self.folder, self.meetings, self.options = rank, ranks, Path(folder), 0, {}

    def gather(self, value):
        self.meetings += 1
        part = self.folder / f"meeting{self.meetings}-{self.rank}.part"
        part.write_text(json.dumps(list(value.items()) if isinstance(value, dict) else value))
        part.rename(part.with_suffix(".json"))
        read = []
        for rank in range(self.ranks):
            path = self.folder / f"meeting{self.meetings}-{rank}.json"
            while not path.exists():
                time.sleep(0.005)
            read.append(json.loads(path.read_text()))
        return [dict(other) for other in read] if isinstance(value, dict) else read

    def prepare(self, problem):
        if problem.rows == 666:
            raise MemoryError("operands of 666 rows")
        return self.call

    def call(self, options):
        self.options = options
        how = options.get("how", "")
        if how == "hangs" or how == "raises on 1" and self.rank != 1:
            time.sleep(1000)
        if how.startswith("raises"):
            raise RuntimeError(f"no kernel for {options['algorithm']}")
        if how == "dies" and self.rank == 1:
            print("a fault in the driver", flush=True)
            os._exit(9)
        if how == "dies and warns" and self.rank == 1:  # as a process that NCCL's watchdog ends
            try:
                raise KeyError("nic.rate")
            except KeyError:
                traceback.print_exc()
            print("[rank1]:[W807 12:00:00] Warning: destroy_process_group() was not called", flush=True)
            os._exit(1)
        return "wrong" if how == "wrong" else "right"

    def differs(self, result, expected):
        return "" if result == expected else f"{result}, not {expected}"

    def sampler(self, call):
        options = self.options

        def sample():
            if options.get("how") == "hangs when timed" and self.rank == 1:
                time.sleep(1000)
            return options["us"][self.rank]

        return sample

    def recover(self):
        if self.options.get("how") == "raises and loses the GPU":
            raise RuntimeError("the context is lost")


class TimedBench(FakeBench):
    """Candidates of the operators: overlapping in four pieces is fastest, one shot is wrong."""

    def call(self, options):
        self.options = {"us": [50.0, 10.0 + 20.0 * (options.get("pieces") != 4)][options["algorithm"] == "overlapped"]}
        self.options["us"] = [self.options["us"]] * self.ranks
        return "wrong" if options["algorithm"] == "one_shot" else "right"


class ProbesBench(FakeBench):
    """Probes of ``ditron calibrate`` take 7 us, but those of latency.local raise."""

    def call(self, options):
        how = "raises" if options["probe"].startswith("latency.local") else ""
        return super().call({"algorithm": options["probe"], "us": [7.0] * self.ranks, "how": how})


class NoBench:
    """What cannot start."""

    def __init__(self, *_):
        raise RuntimeError("no GPU of that number")
