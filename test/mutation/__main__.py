"""``make mutation``: how many mistakes in the order of things does the protocol checker find?

    python test/mutation [--seeds 6] [--jobs 2] [--only NAME ...] [--markdown FILE]

Every mutation of every shipped kernel and program is run on the simulator; whether its meaning has changed is what that
says (a wrong result, a race, a deadlock, a fault) with any of the seeds. Then the checker is asked.
Exit code 1: less than 95 % of those with another meaning are flagged, or an original is.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from report import Outcome, table  # noqa: E402
from workers import run_all  # noqa: E402

HEAD = """# Mutants of every shipped kernel and program

`make mutation` changes one operation that orders things at a time, in the IR: it removes, duplicates, weakens or
re-indexes it, or exchanges it with its neighbour. What the simulator then finds with any of its seeds (a wrong result,
a race, a deadlock, a fault) has another meaning. The protocol checker ([checker.md](../checker.md)) is asked without
it. It runs on 2 cores without a GPU. The last six rows are protocols that people write by hand
(`test/python/support/check_patterns.py`).

"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=6, help="runs of the simulator that a mutant must survive")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--only", nargs="*", help="names of kernels or programs")
    parser.add_argument("--markdown", type=Path, help="file for the table")
    args = parser.parse_args()
    os.environ["DITRON_PIPELINE"] = "as-written"  # the default one mends what is mutated here
    os.environ["DITRON_PROTOCOL"] = "off"  # the checker is asked apart from the run
    start = time.perf_counter()
    outcomes = run_all(args.only, args.seeds, args.jobs)
    text, good = table([Outcome(*outcome) for outcome in outcomes], args.seeds, time.perf_counter() - start)
    print(text)
    if args.markdown:
        args.markdown.write_text(HEAD + text + "\n")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
