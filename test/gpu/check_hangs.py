"""The sanitizer on real GPUs: broken programs end in a report on every rank, and the GPUs are usable afterwards.

    test/gpu/check_hangs.py --table table.md

Each program of hanging.py is a job of its own under a time limit. It must exit with an error on every rank; each rank's
report must name the Python line, rank, program, signal, expected and actual value; then the ring example must be
right on the same GPUs.
"""

from __future__ import annotations

import argparse
import datetime
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
RANKS = 2

# Program -> (error, what the report says of the rank that gave up or erred, as a regular expression).
WAIT, ACCESS = "WaitTimeout", "SanitizerError"
PROGRAMS = {
    "missing_notify": (WAIT, r"rank 0, program \(0, 0, 0\), thread 0: wait on signals\[1\]: expected >= 1, actual 0"),
    "wrong_rank": (
        WAIT,
        r"rank [01], program \([012], 0, 0\), thread 0: wait on signals\[[0-5]\]: expected >= 1, "
        r"actual 0",
    ),
    "cyclic_wait": (
        WAIT,
        r"rank [01], program \(0, 0, 0\), thread 0: signal_wait_until on signals\[0\]: "
        r"expected >= 1, actual 0",
    ),
    "off_by_one": (WAIT, r"rank [01], program \(0, 0, 0\), thread 0: wait on signals\[3\]: expected >= 3, actual 2"),
    "starved_producer": (
        WAIT,
        r"rank [01], program \(\d+, 0, 0\), thread 0: wait on signals\[0\]: expected >= 1, "
        r"actual 0",
    ),
    "absent_from_barrier": (
        WAIT,
        r"rank 0, program \(0, 0, 0\), thread 1: barrier_all on the barrier's counters, "
        r"for rank 1: expected >= \d+, actual \d+",
    ),
    "stream_wait": (
        WAIT,
        r"rank 1, program \(0, 0, 0\), thread \d+: signal_wait_until on "
        r"stream_wait_kernel\.signals\[1\]: expected >= 1, actual 0",
    ),
    "rank_out_of_range": (
        ACCESS,
        r"rank 1, program \(0, 0, 0\), thread \d+: notify to rank 2: expected a rank from "
        r"0 to 1",
    ),
    "not_symmetric": (
        ACCESS,
        r"rank [01], program \(0, 0, 0\), thread \d+: putmem of 256 bytes at address 0x\w+, "
        r"which is outside of the symmetric heap",
    ),
}


def torchrun(*command: str, limit: float, **environment: str) -> tuple[int | None, str, float]:
    """Exit code (None: ended at the limit), output and seconds of a job."""
    start = time.perf_counter()
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(RANKS)]
    process = subprocess.Popen(
        [*launcher, *command],
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=limit)
        code: int | None = process.returncode
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, 9)
        output, _ = process.communicate()
        code = None
    return code, output, time.perf_counter() - start


def line_of(program: str) -> int:
    """The line of hanging.py that the report must name."""
    kernel = "consumer" if program == "starved_producer" else program
    lines = (HERE / "hanging.py").read_text().splitlines()
    start = next(i for i, text in enumerate(lines) if text.startswith(f"def {kernel}_kernel("))
    return next(i for i in range(start, len(lines)) if lines[i].endswith("# <-")) + 1


def judge(program: str, code: int | None, out: Path) -> tuple[list[str], str]:
    """What is wrong with a job's end (nothing, if it is right), and the report of rank 0."""
    error, pattern = PROGRAMS[program]
    wrong = [] if code not in (0, None) else ["exit code 0" if code == 0 else "ended by the time limit"]
    texts = [file.read_text() if (file := out / f"rank{rank}.txt").is_file() else "" for rank in range(RANKS)]
    for rank, text in enumerate(texts):
        if not text.startswith(error):
            wrong.append(f"rank {rank} raised no {error}")
            continue
        if not re.search(pattern, text):
            wrong.append(f"rank {rank}'s report lacks {pattern!r}")
        if not re.search(rf"hanging\.py:{line_of(program)}, kernel \w+", text):
            wrong.append(f"rank {rank}'s report lacks line {line_of(program)}")
    return wrong, texts[0]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--table", type=Path, help="append the table to this file")
    parser.add_argument("--only", default="", help="programs whose name contains this word")
    parser.add_argument("--transport", default="p2p")
    parser.add_argument("--seconds", default="2", help="DITRON_SANITIZE_SECONDS")
    parser.add_argument("--limit", type=float, default=60, help="seconds a job may take")
    args = parser.parse_args()
    failed, rows = (
        0,
        [
            "| program | exit code | s | every rank reports the line, signal and values | ring afterwards |",
            "|---|---|---|---|---|",
        ],
    )
    example = ""
    for program in (name for name in PROGRAMS if args.only in name):
        with tempfile.TemporaryDirectory() as folder:
            code, output, seconds = torchrun(
                str(HERE / "hanging.py"),
                program,
                "--out",
                folder,
                "--transport",
                args.transport,
                limit=args.limit,
                DITRON_SANITIZE="1",
                DITRON_SANITIZE_SECONDS=args.seconds,
            )
            wrong, text = judge(program, code, Path(folder))
        ring, ring_output, _ = torchrun(
            str(HERE.parents[1] / "examples/ring.py"), limit=args.limit, DITRON_TRANSPORT=args.transport
        )
        passed = ring_output.count("PASS")
        if ring != 0 or passed != RANKS:
            wrong.append(f"ring afterwards: exit code {ring}, {passed} ranks pass")
        rows.append(
            f"| {program} | {code} | {seconds:.1f} | {'yes' if not wrong else '; '.join(wrong)} | "
            f"{'PASS' if passed == RANKS else 'FAILED'} |"
        )
        print(rows[-1], flush=True)
        print(text or output[-3000:], flush=True)
        if ring != 0:
            print(ring_output[-2000:], flush=True)
        failed += bool(wrong)
        example = example or text
    if args.table:
        import torch

        with args.table.open("a") as file:
            file.write(
                f"\n{RANKS} x {torch.cuda.get_device_name()}, torch {torch.__version__}, {args.transport}, "
                f"{datetime.date.today()}: {len(rows) - 2 - failed} of {len(rows) - 2} programs end as they "
                f"should\n\n" + "\n".join(rows) + f"\n\nThe first report:\n\n```\n{example}```\n"
            )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
