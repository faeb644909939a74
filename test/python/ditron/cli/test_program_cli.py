"""ditron dump --stage program, and --graph."""

import sys

import paths
import pytest

from ditron._program import graph
from ditron.cli import main

ROOT = paths.ROOT


@pytest.fixture
def dump(capsys, monkeypatch):
    """``ditron dump``: exit code, output and errors."""
    monkeypatch.chdir(ROOT)

    def run(*words):
        code = main(["dump", *words])
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return run


def test_example_is_traced(dump):
    code, out, err = dump("examples/ag_gemm.py:ag_gemm", "--stage", "program")
    assert code == 0, err
    assert "ditron.program @ag_gemm(%a: !ditron.buffer<?x?xbf16>" in out and "tt.func" in out
    assert "arith.constant 128 : i64" in out


def test_what_it_is_checked_with_is_an_example_too(dump, tmp_path):
    file = tmp_path / "checked.py"
    file.write_text(
        "import ditron\nimport ditron.host as dh\n\n\n"
        "@ditron.program(sample_args=lambda ranks: {'x': 'f16[8]'})\ndef clear(x):\n    dh.fill(x, 0.0)\n"
    )
    code, out, err = dump(f"{file}:clear", "--stage", "program")
    assert code == 0 and "ditron.program @clear(%x: !ditron.buffer<?xf16>)" in out, err


def test_signature_and_constants(dump, tmp_path):
    file = tmp_path / "program.mlir"
    code, _, err = dump(
        "examples/ag_gemm.py:ag_gemm",
        "--stage",
        "program",
        "--signature",
        "a=f16[75,80],b=f16[80,96], f16[300,96]",
        "--constexpr",
        "block=(16, 32, 64)",
        "-o",
        str(file),
    )
    assert code == 0, err
    text = file.read_text()
    assert "<?x?xf16>" in text and "arith.constant 16 : i64" in text and "arith.constant 32 : i64" in text


@pytest.mark.parametrize(
    "words,message",
    [
        (["examples/ag_gemm.py:nothing", "--stage", "program"], "has no program 'nothing'; its programs are: ag_gemm"),
        (["examples/none.py:ag_gemm", "--stage", "program"], "no such file"),
        (
            ["examples/ag_gemm.py:ag_gemm", "--stage", "program", "--signature", "z=f16[3]"],
            "none of the parameters a, b, c",
        ),
        (
            ["examples/ag_gemm.py:ag_gemm", "--stage", "program", "--signature", "a=f16,b=f16[3],c=f16[3]"],
            "expected a tensor as",
        ),
        (["examples/ag_gemm.py:ag_gemm", "--graph", "graph.txt"], "expected a file that ends in .png"),
        (["examples/ag_gemm.py:ag_gemm", "--graph", "graph.svg", "--ranks", "9"], "shows 1 to 8 ranks"),
    ],
)
def test_wrong_command_lines(dump, words, message):
    code, _, err = dump(*words)
    assert code == 2 and message in err, err


def test_a_wrong_program_is_shown(dump, tmp_path, monkeypatch):
    file = tmp_path / "wrong.py"
    file.write_text(
        "import ditron\nimport ditron.host as dh\n\n\n@ditron.program\ndef wrong(x):\n"
        "    if dh.rank() == 0:\n        dh.fill(x, 1.0)\n"
    )
    monkeypatch.chdir(tmp_path)
    code, _, err = dump("wrong.py:wrong", "--stage", "program", "--signature", "x=f32[4]")
    assert code == 1 and "wrong.py:7:8: error: a symbolic condition is not known" in err
    assert "Traceback" not in err
    code, _, err = dump("wrong.py:wrong", "--stage", "program")
    assert code == 2 and "--signature x=bf16[64,128]" in err


def test_graph(dump, tmp_path):
    file = tmp_path / "ring.svg"
    code, out, err = dump("examples/ag_gemm_ring.py:ag_gemm_ring", "--graph", str(file), "--ranks", "3")
    assert code == 0 and out.strip().endswith("ring.svg"), err
    assert file.read_text().count("<path") > 60


def test_boxes_stand_below_what_they_need():
    sys.path.insert(0, str(ROOT / "examples"))
    import ag_gemm_ring

    program = ag_gemm_ring.ag_gemm_ring
    executable, arguments = program.executable_and_arguments(program.example)
    boxes, edges = graph._boxes([executable.steps(arguments, rank, 3, 2) for rank in range(3)])
    for box in boxes:
        assert all(other.level < box.level for other in box.before)
    signals = [(source.rank, target.rank) for source, target, kind in edges if kind == "signal"]
    assert sorted(signals) == [(a, b) for a in range(3) for b in range(3) if a != b]
    assert len(boxes) == 3 * (1 + 2 * 3 + 2 * 3)
    events = [edge for edge in edges if edge[2] == "event"]
    assert not events  # fork and join stand at the ends, where there is no box


OVERLAPPED = """import ditron, ditron.host as dh
from dataclasses import dataclass
from typing import ClassVar
from ditron_compiler.passes import Pass

@dataclass(frozen=True)
class FailOnCopies(Pass):
    \"\"\"Fails where a copy between ranks is.\"\"\"
    name: ClassVar[str] = "fail-on-copies"
    def run(self, op):
        op.walk(lambda found: found.emit_error("a copy") if found.name == "ditron.rank_copy" else None)

FailOnCopies.register()

def right(x):
    outbox = dh.empty(x.shape, dtype=x.dtype, name="outbox")
    inbox = dh.symm_empty(x.shape, dtype=x.dtype, name="inbox")
    dh.copy(x, outbox)
    dh.rank_copy(outbox, inbox, (dh.rank() + 1) % dh.num_ranks())

to_the_right = ditron.program(right, passes="overlap", example={"x": "f32[16]"})
failing = ditron.program(right, passes=("fail-on-copies",), example={"x": "f32[16]"})
"""


def test_passes_of_a_program_are_watched(dump, tmp_path):
    file = tmp_path / "overlapped.py"
    file.write_text(OVERLAPPED)
    code, out, err = dump(f"{file}:to_the_right", "--stage", "program", "--pass-statistics", "--remarks")
    assert code == 0 and "ditron.program @right" in out and "eliminate-copies" in err, err
    code, out, err = dump(f"{file}:to_the_right", "--stage", "program", "--pass-diff")
    assert code == 0 and "eliminate-copies" in out and "-     ditron.copy" in out, out


def test_a_failing_pass_of_a_program_leaves_its_reproducer(dump, tmp_path):
    file, left = tmp_path / "overlapped.py", tmp_path / "left.mlir"
    file.write_text(OVERLAPPED)
    code, _, err = dump(f"{file}:failing", "--stage", "program", "--reproducer", str(left))
    assert code == 1 and f"{file}:19:5: error: a copy" in err, err
    assert "fail-on-copies" in left.read_text() and "ditron.rank_copy" in left.read_text()
