"""docs/dialect.md is what the ODS says, and every example in it parses."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from collections import Counter

import paths
import pytest
from dialect_examples import PAGE, as_module, examples

ROOT = paths.ROOT
SCRIPT = ROOT / "docs" / "generate_dialect.py"


def load_generator():
    spec = importlib.util.spec_from_file_location("generate_dialect", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def records():
    return load_generator().Records()


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
        "cost": "dot8 dot16 dot32 load store vector special loop latency operand",
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
