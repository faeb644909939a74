"""How many seeds the examples are clean for: ``ditron run --seeds`` for each example, world and kind of search.

    python test/seeds.py                                  # prints a table; hours on 2 cores
    python test/seeds.py --only ring --world 4x1          # some rows of it
    python test/seeds.py --markdown out.md                # and writes what is done so far

    SEEDS=1000 pytest test/python/ditron/sim/test_clean_kernels.py   # small kernels that are right

Shapes are small, but every rank has several tiles or chunks. A row that has used up ``--minutes`` says how far it came.
Exits with 1 when an example is not clean.
"""

from __future__ import annotations

import argparse
import datetime
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
AT_ONCE = 250  # seeds of one command: between two, the time is looked at

_GEMM = ["--rows-per-rank", "40", "--n", "40", "--k", "40"]
EXAMPLES = {
    "ring": ["--elements", "301"],
    "put_signal": ["--elements", "1501"],
    "all_gather": ["--elements", "3001"],
    "ll_all_gather": ["--elements", "1301"],
    "ag_gemm": [*_GEMM, "--calls", "2"],
    "ag_gemm_in_kernel": [*_GEMM, "--calls", "2"],
    "ag_gemm_ring": _GEMM,
    "gemm_rs": _GEMM,
    "gemm_rs_chunks": _GEMM,
}
WORLDS = {"4x1": ["--sim", "4"], "2x2": ["--sim", "4", "--nodes", "2"]}
SEARCHES = {"races": ["--races"], "weak memory": ["--no-races", "--weak"]}
# Packets, and copies between ranks, reach the ranks of a node only.
SPECIAL = {("ll_all_gather", "2x2"): ["--protocol", "simple"]}
ON_ONE_NODE = {"ag_gemm", "ag_gemm_ring", "gemm_rs_chunks"}


@dataclass(frozen=True)
class Row:
    """One example in one world, and what was found with seeds 0 to ``seeds - 1``; empty: nothing."""

    command: list[str]
    seeds: int
    seconds: float
    found: str

    def __str__(self) -> str:
        said = "clean" if not self.found else f"seed {self.seeds}: {self.found}"
        return f"| `{' '.join(self.command)}` | {self.seeds} | {self.seconds:.0f} | {said} |"


def explore(example: str, world: str, search: str, seeds: int, jobs: int, limit: float) -> Row:
    """Seeds 0 to ``seeds - 1``, or as many as ``limit`` seconds allow, ``jobs`` at a time."""
    script = [f"examples/{example}.py", *EXAMPLES[example], *SPECIAL.get((example, world), [])]
    options = [*WORLDS[world], *SEARCHES[search]]
    began, done, found = time.monotonic(), 0, ""
    while done < seeds and not found and time.monotonic() - began < limit:
        part = min(AT_ONCE, seeds - done)
        command = [sys.executable, "-m", "ditron.cli", "run", *options, "--seed", str(done), "--seeds", str(part)]
        ran = subprocess.run([*command, "--jobs", str(jobs), *script], cwd=ROOT, capture_output=True, text=True)
        if ran.returncode:
            print(ran.stdout, ran.stderr, sep="\n", file=sys.stderr)
            found = ran.stderr.strip().splitlines()[-1]
        else:
            done += part
    return Row(["ditron", "run", *options, "--seeds", str(seeds), *script], done, time.monotonic() - began, found)


def table(rows: list[Row]) -> str:
    """Markdown."""
    head = f"{os.cpu_count()} cores, {datetime.date.today()}\n\n"
    return head + "| command | seeds | s | found |\n| --- | ---: | ---: | --- |\n" + "".join(f"{row}\n" for row in rows)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=1000)
    parser.add_argument("--only", nargs="+", choices=EXAMPLES, default=list(EXAMPLES), metavar="EXAMPLE")
    parser.add_argument("--world", nargs="+", choices=WORLDS, default=list(WORLDS), help="ranks on a node x nodes")
    parser.add_argument("--search", nargs="+", choices=SEARCHES, default=list(SEARCHES))
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes (default: one a core)")
    parser.add_argument("--minutes", type=float, default=30, help="for a row at most, about (default 30)")
    parser.add_argument("--markdown", type=Path, help="file for the table, written anew after each row")
    args = parser.parse_args()
    rows: list[Row] = []
    for world in args.world:
        for search in args.search:
            for example in args.only:
                if world != "4x1" and example in ON_ONE_NODE:
                    continue
                rows.append(explore(example, world, search, args.seeds, args.jobs, args.minutes * 60))
                print(rows[-1], flush=True)
                if args.markdown:
                    args.markdown.write_text(table(rows))
    return any(row.found for row in rows)


if __name__ == "__main__":
    sys.exit(main())
