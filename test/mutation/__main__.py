"""``make mutation``: how many mistakes in the order of things does the protocol checker find?

    python test/mutation [--seeds 6] [--jobs 2] [--only NAME ...] [--publish]

Every mutation of every shipped kernel and program is run on the simulator; whether its meaning has changed is what that
says (a wrong result, a race, a deadlock, a fault) with any of the seeds. Then the checker is asked.
Exit code 1: less than 95 % of those with another meaning are flagged, or an original is.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from datetime import date
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "docs" / "results"))

from publish import publish  # noqa: E402
from report import Outcome, table  # noqa: E402
from workers import run_all  # noqa: E402


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=6, help="runs of the simulator that a mutant must survive")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--only", nargs="*", help="names of kernels or programs")
    parser.add_argument("--publish", action="store_true", help="put the table into docs/results/protocol-checker.md")
    args = parser.parse_args()
    os.environ["DITRON_PIPELINE"] = "as-written"  # the default one mends what is mutated here
    os.environ["DITRON_PROTOCOL"] = "off"  # the checker is asked apart from the run
    start = time.perf_counter()
    outcomes = run_all(args.only, args.seeds, args.jobs)
    text, good = table([Outcome(*outcome) for outcome in outcomes], args.seeds, time.perf_counter() - start)
    print(text)
    if args.publish:
        publish("protocol-checker.md", "mutation", f"{date.today()}, {os.cpu_count()} cores.\n\n{text}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
