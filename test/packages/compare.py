"""Kernels of other packages on one simulated rank, unmodified, against plain torch: prints the table of docs/results.

    python test/packages/compare.py [fla|conch|gems|lm|gemlite|small ...] [-k PATTERN]

The exit code is 1 when an operator fails or exceeds its bound.
"""

from __future__ import annotations

import argparse
import importlib
import os
import re
import sys
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
PACKAGES = Path(os.environ.get("PACKAGES", HERE.parents[1] / ".venv-matrix" / "packages"))
sys.path[:0] = [str(HERE)]
sys.path += [str(PACKAGES)]

import harness  # noqa: E402

import ditron  # noqa: E402

GROUPS = ("fla", "conch", "gems", "lm", "gemlite", "small")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("groups", nargs="*", default=GROUPS, help=f"of {', '.join(GROUPS)} (default: all)")
    parser.add_argument("-k", type=re.compile, default=re.compile(""), help="only operators whose name has this")
    options = parser.parse_args(arguments)
    versions = {d.metadata["Name"]: d.version for d in distributions(path=[str(PACKAGES)])}
    print("Versions: " + ", ".join(f"{name} {version}" for name, version in sorted(versions.items())))
    return max(group(importlib.import_module(f"{name}_cases"), options.k) for name in options.groups)


def group(module: Any, pattern: re.Pattern) -> int:
    """Print the table of one file of cases; 1 when something in it is wrong."""
    wrong = 0
    print(f"\n## {module.__doc__.splitlines()[0]}\n")
    print("| operator | type | forward | backward | bound |\n| --- | --- | --- | --- | --- |")
    with ditron.sim.triton(as_cuda=module.AS_CUDA):
        cases = module.cases()
    for name, this in cases.items():
        for dtype in this.dtypes if pattern.search(name) else ():
            try:
                with ditron.sim.triton(as_cuda=module.AS_CUDA):
                    forward, backward, bound = harness.measure(this, dtype)
            except Exception as error:
                text, exceeded = f"{type(error).__name__}: {' '.join(str(error).split())[:200]} | |", True
            else:
                text = f"{forward:.1e} | {'none' if backward is None else f'{backward:.1e}'} | {bound:.0e}"
                exceeded = not max(forward, backward or 0.0) <= bound
            wrong |= exceeded
            print(f"| {name} | {str(dtype)[6:]} | {text} |{' <-- WRONG' * exceeded}", flush=True)
    print("\n| cannot run | reason |\n| --- | --- |")
    for name, reason in module.IMPOSSIBLE.items():
        print(f"| {name} | {reason} |")
    return wrong


if __name__ == "__main__":
    sys.exit(main())
