"""What an order of tiles costs in machine code: registers and instructions of the examples, with and without it.

    python benchmark/swizzle_cost.py                   # compiles for sm_90; needs no GPU
    python benchmark/swizzle_cost.py --table FILE.md   # appends the table

Each example is compiled in plain order, with the order that ``insert-swizzle`` gives it, and as it is written.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import plain_examples
import triton

import ditron

KERNELS = {"ag_gemm_in_kernel": "ag_gemm_kernel", "gemm_rs": "gemm_rs_kernel"}
TOOLS = Path(triton.__file__).parent / "backends/nvidia/bin"


class Cost(NamedTuple):
    """Of one kernel: registers and bytes of stack per thread, instructions, and of those the ones in its loops."""

    registers: int
    stack: int
    instructions: int
    in_loops: int


def measure(kernel: Any, example: dict, pipeline: str, arch: int, folder: Path) -> Cost:
    """Compile ``kernel`` and look at its machine code."""
    program = ditron.compile(
        kernel,
        example["signature"],
        example["constexprs"],
        f"cuda:{arch}",
        options=example["options"],
        pipeline=pipeline,
    )
    if "cubin" not in program.asm:
        raise SystemExit(f"no machine code of {program.name}: {program.missing.get('cubin')}")
    path = folder / "kernel.cubin"
    path.write_bytes(program.asm["cubin"])
    usage = _run("cuobjdump", "-res-usage", path)
    registers, stack = (int(re.search(rf"{what}:(\d+)", usage)[1]) for what in ("REG", "STACK"))
    return Cost(registers, stack, *_instructions(_run("nvdisasm", "-c", path)))


def _instructions(listing: str) -> tuple[int, int]:
    """How many there are, and how many stand between a backward branch and where it leads."""
    labels: dict[str, int] = {}
    branches: list[tuple[int, str]] = []
    count = 0
    for line in listing.splitlines():
        if label := re.match(r"(\.L\w+):", line.strip()):
            labels[label[1]] = count
        elif instruction := re.search(r"/\*[0-9a-f]{4,}\*/\s+(.*?);", line):
            if instruction[1].strip() != "NOP":
                count += 1
            if branch := re.search(r"\bBRA\b.*?`\((\.L\w+)\)", instruction[1]):
                branches.append((count, branch[1]))
    inside = [False] * count
    for at, label in branches:
        if label in labels and labels[label] < at - 1:
            inside[labels[label] : at] = [True] * (at - labels[label])
    return count, sum(inside)


def _run(tool: str, *arguments: object) -> str:
    return subprocess.run([TOOLS / tool, *map(str, arguments)], capture_output=True, text=True, check=True).stdout


def report(arch: int) -> list[str]:
    """A Markdown table."""
    lines = [
        "| kernel | order of tiles | registers | bytes of stack | instructions | of them in loops |",
        "|---|---|---:|---:|---:|---:|",
    ]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for example, kernel in KERNELS.items():
            unordered = plain_examples.plain(example, folder)
            written = plain_examples.load(plain_examples.EXAMPLES / f"{example}.py")
            for title, module, pipeline in (
                ("none", unordered, "default"),
                ("insert-swizzle", unordered, "swizzled"),
                ("as written", written, "default"),
            ):
                cost = measure(getattr(module, kernel), module.EXAMPLE, pipeline, arch, folder)
                lines.append(f"| {kernel} | {title} | " + " | ".join(map(str, cost)) + " |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--arch", type=int, default=90, help="compute capability (default 90)")
    parser.add_argument("--table", type=Path, help="append the table to this file")
    args = parser.parse_args()
    lines = report(args.arch)
    print("\n".join(lines))
    if args.table:
        with args.table.open("a") as file:
            print("", *lines, sep="\n", file=file)


if __name__ == "__main__":
    main()
