"""The examples of docs/dialect.md, which are those of the ODS, as modules that parse."""

from __future__ import annotations

import functools
import re

import paths

PAGE = paths.ROOT / "docs" / "dialect.md"

# What the examples use without having made it: name -> type. One name has one type on the whole page.
NAMES = {
    "sig": "!tt.ptr<i64>",
    "epoch": "i64",
    "one": "i64",
    "bytes": "i64",
    "n": "i32",
    "rank": "i32",
    "token": "!ditron.token",
    "ptr": "!tt.ptr<bf16>",
    "ptrs": "tensor<64x!tt.ptr<bf16>>",
    "ranks": "tensor<64xi32>",
    "dst": "!tt.ptr<bf16>",
    "src": "!tt.ptr<bf16>",
    "cell": "!tt.ptr<i32>",
    "cells": "tensor<64x!tt.ptr<f32>>",
    "mc": "!tt.ptr<bf16>",
    "mcs": "tensor<64x!tt.ptr<bf16>>",
    "x": "bf16",
    "value": "i32",
    "cmp": "i32",
    "tile": "i32",
    "size": "i32",
    "block": "i32",
    "lane": "i32",
    "mask": "i32",
    "pred": "i1",
    "a": "i32",
    "b": "i64",
    "f": "f32",
    "counts": "!tt.ptr<i32>",
}
# The same for examples of host programs.
HOST_NAMES = {
    "a": "!ditron.buffer<?x?xbf16>",
    "b": "!ditron.buffer<?x?xbf16>",
    "c": "!ditron.buffer<?x?xbf16>",
    "all": "!ditron.buffer<?x?xbf16, symmetric>",
    "arrived": "!ditron.buffer<?xi64, symmetric>",
    "count": "!ditron.buffer<1xi64, symmetric>",
    "workspace": "!ditron.buffer<2x?x?xbf16, symmetric>",
    "n": "i64",
    "m": "i64",
    "k": "i64",
    "i": "i64",
    "one": "i64",
    "peer": "i64",
    "rank": "i64",
    "chunk": "i64",
    "epoch": "i64",
    "parity": "i64",
    "tiles": "i64",
    "size": "i32",
    "zero": "bf16",
}
HOST_MADE = {"main": "ditron.stream", "copy": 'ditron.stream "copy"', "event": "ditron.record"}
KERNEL = """"tt.func"() <{sym_name = "gemm", function_type =
  (!tt.ptr<bf16>, !tt.ptr<bf16>, !tt.ptr<bf16>, i32) -> ()}> ({}) : () -> ()
"""


def examples() -> list[str]:
    return re.findall(r"```mlir\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)


def as_module(example: str) -> str:
    """The example in a function, or in a program, whose arguments are what it uses and does not make."""
    if example.startswith("ditron.program"):
        return example
    made = set(re.findall(r"^%(\w+)(?::\d+)? =", example, flags=re.MULTILINE))
    used = dict.fromkeys(name for name in re.findall(r"%(\w+)", example) if name not in made)
    if not any(re.search(pattern, example) for pattern in host_operations()):
        arguments = ", ".join(f"%{name}: {NAMES[name]}" for name in used)
        return f"func.func @example({arguments}) {{\n{example}return\n}}\n"
    arguments = ", ".join(f"%{name}: {HOST_NAMES[name]}" for name in used if name not in HOST_MADE)
    streams = "".join(f"%{name} = {op}\n" for name, op in HOST_MADE.items() if name in used)
    return f"{KERNEL}ditron.program @example({arguments}) {{\n{streams}{example}}}\n"


@functools.cache
def host_operations() -> list[str]:
    """``ditron\\.copy\\b`` and the like: what stands in programs only."""
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| Host programs")]
    return [rf"ditron\.{name}\b" for row in rows for name in re.findall(r"\[(\w+)\]", row)]


def device_examples() -> dict[str, str]:
    """The example of each operation that stands in kernels, by the operation's name."""
    sections = re.findall(
        r"^### `(ditron\.\w+)`\n(.*?)```mlir\n(.*?)```", PAGE.read_text(), flags=re.DOTALL | re.MULTILINE
    )
    host = host_operations()
    return {name: example for name, _, example in sections if not any(re.fullmatch(pattern, name) for pattern in host)}


def as_kernel(body: str, **types: str) -> str:
    """``body`` in a ``tt.func`` whose arguments are what it uses and does not make, of the types of NAMES or ``types``."""
    made = set(re.findall(r"^\s*%(\w+)(?::\d+)? =", body, flags=re.MULTILINE))
    used = dict.fromkeys(name for name in re.findall(r"%(\w+)", body) if name not in made)
    arguments = ", ".join(f"%{name}: {types.get(name) or NAMES[name]}" for name in used)
    return f"tt.func public @example({arguments}) attributes {{ditron.kernel}} {{\n{body}\ntt.return\n}}\n"
