"""ditron run --machine: what it prints, and what is wrong with its options."""

from __future__ import annotations

import json
import re

import paths
import pytest

from ditron.cli import main

HERE = paths.ROOT / "test" / "python" / "support"
SCRIPT = str(HERE / "cli_script.py")
AG_GEMM = """
import sys, torch, ditron
ditron.init()
rows, N, K = 2048, 2752, 4096
a, b = torch.empty(rows, K, dtype=torch.bfloat16), torch.empty(N, K, dtype=torch.bfloat16)
for _ in range(2):
    ditron.kernels.ag_gemm(a, b)
"""


@pytest.fixture
def ag_gemm(tmp_path):
    path = tmp_path / "ag_gemm.py"
    path.write_text(AG_GEMM)
    return str(path)


def last_call(text):
    """us of the last call of the printed program."""
    lines = [line for line in text.splitlines() if line.startswith("program ag_gemm_program")]
    assert [line.split(": ")[0] for line in lines] == [f"program ag_gemm_program, call {n}" for n in (1, 2)]
    return float(lines[-1].split(": ")[1].split(" us")[0])


def predict(capsys, *arguments):
    assert main(["run", *arguments]) == 0
    return capsys.readouterr().out


def test_times_and_the_critical_path(capsys, ag_gemm):
    """A shape of full size, on all ranks of the machine; 7B strong was measured to take .273 to .290 ms, with a last round
    of whole tiles: without, the product alone takes .93 of the time (docs/results/tensor-parallel-experiments.md).
    """
    text = predict(capsys, "--machine", "h200x4", "--timing-only", ag_gemm)
    assert text.startswith("predicted for h200x4 (4 x H200, NVLink): timing only, 4 ranks\n")
    assert 243 < last_call(text) < 280
    assert "main stream: ag_gemm_kernel (132 programs); " in text
    assert "critical path of the last call, first to last:" in text and "compute" in text.splitlines()[-1]


def test_what_if(capsys, ag_gemm):
    base = last_call(predict(capsys, "--machine", "h200x4", "--timing-only", ag_gemm))
    text = predict(capsys, "--machine", "h200x4", "--timing-only", "--set", "link=40", ag_gemm)
    assert "with link=40:" in text.splitlines()[0]
    assert last_call(text) > 3 * base
    slow = ["--machine", "h200x4", "--timing-only", "--sustained", "--set", "sm.burst=0"]
    text = predict(capsys, *slow, ag_gemm)
    assert "with sustained, sm.burst=0:" in text.splitlines()[0] and last_call(text) > 1.1 * base
    assert "with graph:" in predict(capsys, "--machine", "h200x4", "--timing-only", "--graph", ag_gemm)


ROUTED = """
import torch

import ditron

ditron.init()
x, ids = torch.empty(1024, 1024, dtype=torch.bfloat16), ditron.kernels.draw_routes(1024, experts=16, top_k=2)
plan = ditron.kernels.moe_plan(*ids, num_experts=16)
ditron.kernels.ep_dispatch(x, plan)
"""


def test_routes_of_a_script(capsys, tmp_path):
    """As --routing says; more rows go to the hottest rank."""
    path = tmp_path / "routed.py"
    path.write_text(ROUTED)

    def us(*routing):
        text = predict(capsys, "--machine", "h200x4", "--timing-only", *routing, str(path))
        return float(re.search(r"(?m)^program ep_dispatch\S*, call \d+: ([\d.]+) us", text)[1])

    assert us() == us("--routing", "uniform") != us("--routing", "zipf:1.2")


def test_fewer_ranks_and_what_the_script_does(capsys):
    text = predict(capsys, "--machine", "h800x8", "--sim", "2", SCRIPT)
    assert "rank 0 []" in text and "rank 1 []" in text
    assert "uncalibrated" in text and "2 ranks" in text and "rank 0: kernel (1 programs)" in text


def test_the_trace_is_in_microseconds(capsys, ag_gemm, tmp_path):
    path = tmp_path / "trace.json"
    text = predict(capsys, "--machine", "h200x2", "--timing-only", "--trace", str(path), ag_gemm)
    trace = json.loads(path.read_text())
    assert trace["otherData"]["time"].startswith("us on h200x2")
    ends = [line["ts"] for line in trace["traceEvents"] if line["ph"] == "e"]
    assert max(ends) == pytest.approx(2 * last_call(text), rel=0.01)
    assert {line["name"] for line in trace["traceEvents"] if line.get("cat") == "compute"} == {"compute"}


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--set", "link=3", SCRIPT], "--set is for --machine: name one, as --machine h200x4"),
        (["--sim", "2", "--timing-only", SCRIPT], "--timing-only is for --machine"),
        ([SCRIPT], "--sim N says how many ranks, or --machine NAME which machine's"),
        (["--machine", "h200x4", "--seeds", "4", SCRIPT], "--seeds explores schedules"),
        (["--machine", "h200x4", "--routing", "zipf", SCRIPT], "--routing: 'zipf' is no distribution of routes"),
    ],
)
def test_options_that_do_not_go_together(capsys, arguments, message):
    assert main(["run", *arguments]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--machine", "h20x4", SCRIPT], r"there is no machine 'h20x4' \(did you mean 'h200x4'\?\)"),
        (["--machine", "h200x4", "--sim", "8", SCRIPT], "the machine h200x4 has 4 ranks, and 8 were asked for"),
        (["--machine", "h200x4", "--set", "link", SCRIPT], "expected link.rate=NUMBER, as link.rate=390"),
        (["--machine", "h200x2", "--routing", "zipf:2", SCRIPT], "routing 'zipf:2' was not used: .*draw_routes"),
    ],
)
def test_what_is_no_machine(capsys, arguments, message):
    assert main(["run", *arguments]) == 1
    assert re.search(message, capsys.readouterr().err)


@pytest.mark.parametrize("option", ["--trace", "--timeline"])
@pytest.mark.parametrize(
    "name, message", [("d.png", "d.png: expected a file, and it is a folder"), ("", "out.png: it cannot be written: ")]
)
def test_files_that_cannot_be_written(capsys, tmp_path, option, name, message):
    """Before the script runs."""
    (tmp_path / "d.png").mkdir()
    path = str(tmp_path / name) if name else "/proc/out.png"
    assert main(["run", "--machine", "h200x2", option, path, SCRIPT]) == 2
    found = capsys.readouterr()
    assert message in found.err and "rank 0" not in found.out


def test_an_error_says_how_to_run_it_again(capsys, ag_gemm):
    path = ag_gemm.replace("ag_gemm.py", "wrong.py")
    with open(path, "w") as file:
        file.write(AG_GEMM + "raise RuntimeError('at the end')\n")
    code = main(["run", "--machine", "h200x2", "--set", "link=100", "--timing-only", "--routing", "onehot", path])
    error = capsys.readouterr().err
    assert code == 1 and "at the end" in error
    assert "ditron run --sim 2 --machine h200x2 --set link=100 --timing-only --routing onehot --replay 0" in error
