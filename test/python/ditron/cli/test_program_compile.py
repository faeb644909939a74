"""What ``ditron dump --stage program`` prints, ``ditron compile`` takes; and it compiles a program's kernels itself."""

from __future__ import annotations

import json

import paths
import pytest

from ditron.cli import main

PROGRAM = "examples/ag_gemm.py:ag_gemm"


@pytest.fixture(autouse=True)
def in_root(monkeypatch):
    monkeypatch.chdir(paths.ROOT)


@pytest.fixture
def dumped(tmp_path):
    assert main(["dump", PROGRAM, "--stage", "program", "-o", str(tmp_path / "p.mlir")]) == 0
    return tmp_path / "p.mlir"


def test_a_dumped_program_compiles(dumped, tmp_path, capsys):
    assert main(["compile", str(dumped), "--target", "sim", "-o", str(tmp_path / "out")]) == 0, capsys.readouterr().err
    assert (tmp_path / "out" / "ag_gemm_kernel.ll").is_file()


@pytest.mark.parametrize("how", ["file", "kernel", "source"])
def test_for_a_gpu(how, dumped, tmp_path, capsys):
    words = {"file": str(dumped), "kernel": f"{dumped}:ag_gemm_kernel", "source": PROGRAM}[how]
    assert main(["compile", words, "--target", "cuda:90", "-o", str(tmp_path / "out")]) == 0, capsys.readouterr().err
    assert "ag_gemm_kernel for cuda:90" in capsys.readouterr().out
    assert ".target sm_90a" in (tmp_path / "out" / "ag_gemm_kernel.ptx").read_text()
    assert json.loads((tmp_path / "out" / "ag_gemm_kernel.json").read_text())["metadata"]["num_warps"] == 8


def test_a_kernel_that_the_program_does_not_have(dumped, capsys):
    assert main(["compile", f"{dumped}:nothing"]) == 2
    assert "ag_gemm_kernel" in capsys.readouterr().err


def test_a_program_without_kernels(tmp_path, capsys):
    file = tmp_path / "copies.py"
    file.write_text(
        "import ditron\nimport ditron.host as dh\n\n\n"
        "@ditron.program(sample_args=lambda ranks: {'x': 'f16[8]'})\ndef clear(x):\n    dh.fill(x, 0.0)\n"
    )
    assert main(["compile", f"{file}:clear", "--target", "sim", "-o", str(tmp_path)]) == 2
    assert "launches no kernels" in capsys.readouterr().err
    assert main(["compile", f"{file}:nothing"]) == 2
    assert "has no kernel 'nothing'; its kernels are: none" in capsys.readouterr().err
