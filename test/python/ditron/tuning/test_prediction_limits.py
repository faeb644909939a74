"""``ditron explain`` against floors, on links in pairs, and on several nodes."""

import dataclasses
import json
import re

import pytest

from ditron import cost_model, machines
from ditron.cli import main
from ditron.tuning.floors import floor_of
from ditron.tuning.moves import chain_of, what_moves
from ditron.tuning.outlook import outlook
from ditron.tuning.prediction import Predictor
from ditron.tuning.problem import Problem
from ditron.tuning.registry import candidates_of, rule_of

FEW_ROWS = Problem("gemm_ar", "bf16", 2, 16, 8192, 8192)  # bound by reading the weight
SIZES = ["64", "1536", "256", "16", "2"]  # tokens, N, K, experts, top_k

FUSED = {"algorithm": "fused", "block": (64, 256), "stages": 4, "protocol": "ll"}


def test_few_rows_take_what_memory_takes_for_their_weight():
    machine = machines.load("h200x2")
    floor = floor_of(FEW_ROWS, machine)
    found = outlook(FEW_ROWS, [FUSED], machine, "single calls")
    (schedule,) = found.schedules
    assert floor.bound == schedule.bound == "memory" and not schedule.is_floor
    assert floor.us < schedule.us < 1.3 * floor.us
    by = {change.what: change.us for change in found.changes}
    assert by["memory"] < 0.8 * schedule.us and by["tensor cores"] > 0.95 * schedule.us


@pytest.fixture
def too_fast(monkeypatch):
    """Predictions of the fused kernel of which the clock does not know what bounds it."""
    predict = Predictor.__call__

    def below(self, problem, options):
        found = predict(self, problem, options)
        return dataclasses.replace(found, us=found.us / 4) if options.get("algorithm") in ("fused", None) else found

    monkeypatch.setattr(Predictor, "__call__", below)


def test_nothing_is_below_the_floor(too_fast):
    """What is predicted below is the floor, and so is what better machines would take."""
    machine = machines.load("h200x2")
    fused, sequential = FUSED, {"algorithm": "sequential"}
    assert Predictor(machine)(FEW_ROWS, fused).us < floor_of(FEW_ROWS, machine).us
    found = outlook(FEW_ROWS, [sequential, fused], machine, "single calls")
    best, other = found.schedules
    assert best.options == fused and best.is_floor and best.us == found.floor and best.bound == "memory"
    assert best.exposed is None and not other.is_floor and other.us > found.floor and other.waves is None
    (line,) = [line for line in found.lines() if "fused" in line]
    assert re.match(r" +>= 31\.3 +1\.00 .* memory  ", line)
    by = {change.what: change.us for change in found.changes}
    assert by["tensor cores"] == best.us and by["memory"] < 0.8 * best.us


def test_explain_says_where_the_time_is_the_floor(too_fast, capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("DITRON_CACHE_DIR", str(tmp_path))
    assert main(["explain", "gemm_ar", "16", "8192", "16384", "--machine", "h200x2", "--set", "latency.peer=1"]) == 0
    assert re.search(r"\n  time    >= 31.3 us, the floor", capsys.readouterr().out)


def test_twice_the_link_is_twice_the_link_between_two():
    machine = machines.load("mi300x8")
    problem = Problem("ag_gemm", "bf16", 8, 1024, 1376, 4096)
    options = {"algorithm": "overlapped", "block": (128, 256, 64), "pieces": 1, "group_m": 8}
    found = outlook(problem, [options], machine, "single calls")
    both = Predictor(
        machine.with_changes([f"link={2 * machine['link.rate']}", f"link.pair={2 * machine['link.pair']}"])
    )
    by = {change.what: change.us for change in found.changes}
    assert by["link"] == both(problem, options).us < 0.6 * found.schedules[0].us


@pytest.mark.parametrize(
    "problem",
    [
        Problem("ag_gemm", "bf16", 16, 16, 32, 512),
        Problem("ag_gemm", "bf16", 16, 512, 688, 4096),
        Problem("gemm_rs", "bf16", 16, 512, 4096, 688),
        Problem("all_gather", "bf16", 16, 2048),
        Problem("reduce_scatter", "bf16", 16, 2048),
    ],
    ids=str,
)
def test_what_runs_on_nodes(problem):
    """The operator runs what is said of it: the same time, and each candidate has one."""
    predict = Predictor(machines.load("h800x8x2"))
    rule = rule_of(problem, 2)
    assert rule is not None and predict(problem, rule.options).us == predict(problem, {}).us is not None
    for options in candidates_of(problem, 2):
        assert predict(problem, options).us is not None, predict(problem, options).why


@pytest.mark.parametrize(
    "problem",
    [
        Problem("all_reduce", "bf16", 16, 1 << 15),
        Problem("all_to_all", "bf16", 16, 1 << 11),
        Problem("gemm_ar", "bf16", 16, 16, 8192, 1024),
        Problem("ag_gemm", "fp32", 16, 16, 32, 512),
    ],
    ids=str,
)
def test_what_does_not_run_on_nodes(problem):
    predict = Predictor(machines.load("h800x8x2"))
    assert rule_of(problem, 2) is None and predict(problem, {}).why.startswith("NodesError: ")
    assert candidates_of(problem, 2) == [{"algorithm": "nccl"}] and predict(problem, {"algorithm": "nccl"}).us


def test_explain_on_nodes(capsys):
    command = ["explain", "all_reduce", "64K", "--machine", "h800x8x2"]
    assert main(command) == 0
    out = capsys.readouterr().out
    assert "runs    nothing\n  why     NodesError: " in out and 'force   all_reduce(x, algorithm="nccl")' in out
    assert out.count("NodesError") == 1 and " us predicted" not in out
    assert main([*command, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["options"] is None
    assert main([*command, "--ranks", "8"]) == 0
    assert 'runs    algorithm="ll", block=256' in capsys.readouterr().out
    assert main(["explain", "ag_gemm", "256", "512", "512", "--machine", "mi300x8x2"]) == 0
    out = capsys.readouterr().out
    assert 'runs    algorithm="overlapped"' in out and "NodesError" not in out


@pytest.mark.parametrize(
    "command, why",
    [
        (["ep_moe", *SIZES, "--machine", "h200x2", "--dtype", "fp32"], "DitronError: ep_moe: x is of torch.float32"),
        (["ep_moe", "64", "1538", *SIZES[2:], "--machine", "h200x2"], "expected rows of a multiple of 16 bytes"),
        (["ag_moe", *SIZES, "--machine", "h800x8x2"], "ag_moe is of one node: make a group for each node, by"),
        (["moe_rs", *SIZES, "--machine", "h800x8x2"], "or call ep_moe, or ep_dispatch, grouped_mm and ep_combine"),
        (["all_to_all_v", "64K", "--machine", "h800x8x2"], "by ditron.new_group"),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(value),
)
def test_explain_says_what_does_not_run(capsys, command, why):
    """A call raises: nothing is said to run, and no algorithm is named that the operator does not have."""
    assert main(["explain", *command]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1] == "  runs    nothing" and lines[2].startswith("  why     ") and why in lines[2]
    assert "Error: " in lines[2] and not any("force" in line or "nccl" in line for line in lines)


def test_too_many_puts_are_not_predicted():
    predict = Predictor(machines.load("h800x8x2"))
    for problem in (Problem("reduce_scatter", "bf16", 16, 1 << 21), Problem("gemm_ar", "bf16", 16, 8192, 8192, 1024)):
        rule = rule_of(problem, 2)
        assert rule is not None and "puts, and those of more than 8192" in predict(problem, rule.options).why


def test_moves_says_what_its_bound_assumes():
    """One shard of 15 by NIC; the floor lets NICs and links share all of them, and is less."""
    problem, machine = Problem("ag_gemm", "bf16", 16, 512, 688, 4096), machines.load("h800x8x2")
    best = cost_model.placements(chain_of(problem)[0], machine, 16, chain_of(problem)[1])[0]
    assert best.us == pytest.approx(14 * 512 * 4096 * 2 / (machine["link.rate"] * 1e3))
    assert best.us > floor_of(problem, machine).us
    says = "us by link, if each shard crosses to a node once by NIC, and the rest is by link"
    assert says in what_moves(problem, machine)
    one = dataclasses.replace(problem, ranks=8)
    assert "by NIC" not in what_moves(one, machine)


def test_one_rank():
    assert str(Problem("all_reduce", "bf16", 1, 8)).endswith(", 1 rank")
