"""docs/dialect.md is what the ODS says, and every example in it parses."""

from __future__ import annotations

import functools
import importlib.util
import re
import subprocess
import sys
from collections import Counter

import paths
import pytest

ROOT = paths.ROOT
SCRIPT = ROOT / "docs" / "generate_dialect.py"
PAGE = ROOT / "docs" / "dialect.md"

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


def load_generator():
    spec = importlib.util.spec_from_file_location("generate_dialect", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def records():
    return load_generator().Records()


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


def test_page_is_not_stale():
    done = subprocess.run([sys.executable, SCRIPT, "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_check_finds_a_stale_page(tmp_path, monkeypatch, capsys):
    generator = load_generator()
    stale = tmp_path / "dialect.md"
    stale.write_text(PAGE.read_text().replace("token", "tokens", 1))
    monkeypatch.setattr(generator, "PAGE", stale)
    monkeypatch.setattr(sys, "argv", [str(SCRIPT), "--check"])
    assert generator.main() == 1
    assert "stale" in capsys.readouterr().err


def test_every_operation_says_what_it_is(records):
    summaries = {op["opName"]: op["summary"] for op in records.ops()}
    written = "".join(path.read_text() for path in (ROOT / "dialect" / "IR").glob("*Ops.td"))
    assert len(summaries) == len(re.findall(r"^def Ditron_\w+Op ", written, flags=re.MULTILINE))
    assert not [name for name, summary in summaries.items() if not summary]
    assert not [text for text, count in Counter(summaries.values()).items() if count > 1]


def test_every_operation_has_text_and_an_example_of_itself(records):
    for op in records.ops():
        example = re.search(r"```mlir\n(.*?)```", op["description"], flags=re.DOTALL)
        assert example, f"{op['opName']} has no example"
        assert f"ditron.{op['opName']}" in example.group(1)
        assert len(op["description"].split("```")[0].split()) >= 4, f"{op['opName']} has no description"


def test_every_operand_and_result_is_described(records):
    for op in records.ops():
        for reference, name in op["arguments"]["args"] + op["results"]["args"]:
            assert records.resolve(reference).get("summary"), f"{op['opName']}: {name} has no description"


def test_enumeration_values_are_the_abi(records):
    values = {records.mnemonic(enum): records.cases(enum) for enum in records.enums()}
    assert {name: " ".join(keyword for keyword, _ in cases) for name, cases in values.items()} == {
        "scope": "gpu node world",
        "semantic": "relaxed acquire release acq_rel",
        "signal_op": "set add",
        "cmp": "eq ne gt ge lt le",
        "granularity": "thread warp block",
        "protocol": "simple ll ll128",
        "swizzle_mode": "gather scatter",
        "team": "group node world",
        "reduce_op": "add min max",
        "shfl_mode": "idx up down bfly",
        "memory_space": "local symmetric",
    }
    for cases in values.values():
        assert [value for _, value in cases] == list(range(len(cases)))


def test_python_gives_the_same_values(records):
    from ditron_compiler import ir
    from ditron_compiler.ir.dialects.enums import keyword, number

    with ir.Context():
        for enum in records.enums():
            for name, value in records.cases(enum):
                attribute = ir.Attribute.parse(f"#ditron.{records.mnemonic(enum)}<{name}>")
                assert (keyword(attribute), number(attribute)) == (name, value)


def test_every_enumeration_is_a_table_on_the_page(records):
    page = PAGE.read_text()
    for enum in records.enums():
        section = page.split(f"### {records.mnemonic(enum)}\n")[1].split("\n### ")[0]
        for keyword, value in records.cases(enum):
            assert f"| `{keyword}` | {value} |" in section


def test_there_is_an_example_per_operation_and_type(records):
    assert len(examples()) == len(records.ops()) + 4


@pytest.mark.parametrize("example", examples(), ids=lambda text: re.search(r"ditron\.\w+", text).group())
def test_example_parses_and_prints_as_written(example):
    from ditron_compiler import ir

    with ir.Context(), ir.Location.unknown():
        printed = str(ir.Module.parse(as_module(example)))
    written = [
        re.sub(r"%\w+", "%", line.strip().partition(" = ")[2] or line.strip())
        for line in example.splitlines()
        if line.strip()
    ]
    body = [re.sub(r"%\w+", "%", line.strip().partition(" = ")[2] or line.strip()) for line in printed.splitlines()]
    for line in written:
        assert line in body, f"{line!r} prints as something else:\n{printed}"
