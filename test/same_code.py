"""Whether two versions of this repository make the same code, and the simulator takes the same steps.

    python test/same_code.py --write before.json            # in the one tree
    python test/same_code.py --against before.json          # in the other: exit 1 and a list of what differs

Every example's kernel is compiled for both vendors, by every transport that needs no library of a vendor to be
installed, and the PTX or AMDGCN compared without its line tables. Every example is run with some seeds, and the order
of events in its trace compared, without their names.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import ditron

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
sys.path.insert(0, str(EXAMPLES))

#: Example, kernel, pipelines that change it.
KERNELS = [
    ("ring", "ring_kernel", ("default", "pcie")),
    ("put_signal", "shift_kernel", ("default", "low-latency")),
    ("all_gather", "all_gather_kernel", ("default", "as-written")),
    ("ll_all_gather", "all_gather_kernel", ("low-latency-ll", "low-latency-ll128", "default")),
    ("ag_gemm", "ag_gemm_kernel", ("default",)),
    ("ag_gemm_in_kernel", "ag_gemm_kernel", ("default", "swizzled")),
    ("gemm_rs", "gemm_rs_kernel", ("default", "swizzled", "pcie")),
]
TARGETS = [("cuda:90", "p2p", "ptx"), ("hip:gfx942", "p2p", "amdgcn"), ("hip:gfx942", "rocshmem", "llir")]
SMALL = "--rows-per-rank 40 --n 40 --k 40".split()
RUNS = [
    ("ring.py", ["--elements", "301"]),
    ("put_signal.py", ["--elements", "1501"]),
    ("all_gather.py", ["--elements", "3001"]),
    ("ll_all_gather.py", ["--elements", "1301"]),
    ("ag_gemm.py", [*SMALL, "--calls", "2"]),
    ("ag_gemm_in_kernel.py", [*SMALL, "--calls", "2"]),
    ("ag_gemm_ring.py", SMALL),
    ("gemm_rs.py", SMALL),
    ("gemm_rs_chunks.py", SMALL),
]


def code(text: str) -> str:
    """Assembly or LLVM IR without line tables, debug sections, comments and paths."""
    text = re.split(r"^\s*\.section\s+\.debug|^!\d+ = ", text, maxsplit=1, flags=re.M)[0]
    text = re.sub(r"^\s*(\.loc|\.file|\$L__tmp\d+:|\.Ltmp\d+:|;|//|source_filename).*\n", "", text, flags=re.M)
    text = re.sub(r"(, |\s)!(dbg|srcloc) !\d+|\s*//.*|\s*;.*", "", text)
    return "\n".join(line.rstrip() for line in text.splitlines() if line.strip())


def order(trace: Path) -> list[list]:
    """The events of a trace in order: phase, rank, track, time, and numbers."""
    events = json.loads(trace.read_text())["traceEvents"]
    numbers = [sorted(v for v in event.get("args", {}).values() if isinstance(v, int | float)) for event in events]
    return [[event["ph"], event["pid"], event["tid"], event["ts"], n] for event, n in zip(events, numbers, strict=True)]


def digest(value) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()[:16]


def measure(seeds: int) -> dict[str, str]:
    found = {}
    for module, kernel, pipelines in KERNELS:
        example = importlib.import_module(module)
        for pipeline in pipelines:
            for target, transport, stage in TARGETS:
                name = f"{module}:{kernel} {pipeline} {target} {transport} {stage}"
                print(name, flush=True)
                try:
                    program = ditron.compile(
                        getattr(example, kernel),
                        target=target,
                        transport=transport,
                        pipeline=pipeline,
                        **example.EXAMPLE,
                    )
                    found[name] = digest(code(program.asm[stage]))
                except ditron.CompileError as error:  # a pipeline that refuses the kernel must do so in both trees
                    found[name] = type(error).__name__
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "trace.json"
        for script, arguments in RUNS:
            for seed in range(seeds):
                name = f"{script} seed {seed}"
                print(name, flush=True)
                command = [sys.executable, "-m", "ditron.cli", "run", "--sim", "4", "--seed", str(seed), "--trace"]
                subprocess.run(
                    [*command, str(trace), str(EXAMPLES / script), *arguments], check=True, stdout=subprocess.DEVNULL
                )
                found[name] = digest(order(trace))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", type=Path, help="file for what this tree makes")
    parser.add_argument("--against", type=Path, help="file that the other tree wrote")
    parser.add_argument("--seeds", type=int, default=3)
    args = parser.parse_args()
    found = measure(args.seeds)
    if args.write:
        args.write.write_text(json.dumps(found, indent=1))
    if args.against:
        before = json.loads(args.against.read_text())
        differ = [name for name in before.keys() | found.keys() if before.get(name) != found.get(name)]
        print(
            *(f"DIFFERS: {name}" for name in sorted(differ)),
            f"{len(found) - len(differ)} same, {len(differ)} differ",
            sep="\n",
        )
        return 1 if differ else 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
