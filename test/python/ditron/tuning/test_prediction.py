"""Predicted times of an operator's schedules: ``ditron explain`` on machines of which nothing was measured."""

import json
import re

import pytest

from ditron import machines, sim
from ditron.cli import main
from ditron.sim.library_time import collective_us, product_us
from ditron.tuning import predict_beside, prediction, tables
from ditron.tuning.floors import floor_of
from ditron.tuning.outlook import outlook
from ditron.tuning.predict_beside import Asked, Predictions
from ditron.tuning.prediction import Predicted, Predictor, waves_of, without_communication
from ditron.tuning.problem import Problem
from ditron.tuning.registry import candidates_of
from ditron.tuning.tables import Entry, Measured, Table, versions

PRODUCT = Problem("ag_gemm", "bf16", 2, 1024, 2048, 4096)  # 8 MB to send: candidates of all algorithms
OVERLAPPED = {"algorithm": "overlapped", "block": (128, 256, 64), "pieces": 1, "group_m": 8}


@pytest.fixture
def no_tables(monkeypatch, tmp_path):
    monkeypatch.setattr(tables, "shipped_path", lambda machine, ranks: tmp_path / "none.json")
    monkeypatch.setenv("DITRON_CACHE_DIR", str(tmp_path))
    return tmp_path


def test_a_call_as_users_write_it():
    """The same as of a script that calls the operator twice."""
    machine = machines.load("h200x2")

    def script():
        import torch

        import ditron

        ditron.init()
        a, b = torch.empty(1024, 4096).bfloat16(), torch.empty(2048, 4096).bfloat16()
        for _ in range(2):
            ditron.kernels.ag_gemm(a, b, **OVERLAPPED)

    expected = max(call.us for call in sim.predict(script, machine).calls[-1])
    assert Predictor(machine)(PRODUCT, OVERLAPPED).us == pytest.approx(expected)


def test_a_library_computes_the_product():
    """Its time is a part of the call's, behind that of the collective; nothing is computed."""
    machine = machines.load("h200x2")
    predict = Predictor(machine)
    sequential = predict(PRODUCT, {"algorithm": "sequential"})
    gather = predict(Problem("all_gather", "bf16", 2, 1024 * 4096), {})
    product = product_us(machine, 1, 2048, 2048, 4096, 2)
    assert product > floor_of(PRODUCT, machine).product
    assert sequential.us == pytest.approx(gather.us + product, rel=0.01) and gather.library == 0
    assert sequential.library == pytest.approx(product, rel=0.01) and sum(sequential.path.values()) == pytest.approx(
        sequential.us, rel=0.01
    )
    assert predict(PRODUCT, OVERLAPPED).library == 0
    nccl = predict(PRODUCT, {"algorithm": "nccl"})
    assert nccl.us == pytest.approx(product + collective_us(machine, 1024 * 4096 * 2, 2), rel=0.01)
    assert nccl.library > 0.8 * nccl.us


def test_several_programs_in_a_call():
    """gemm_ar by a reduce-scatter and an all-gather takes as long as both."""
    predict = Predictor(machines.load("h200x2"))
    both = predict(Problem("gemm_ar", "bf16", 2, 2048, 2048, 1024), {"algorithm": "overlapped"})
    scatter = predict(Problem("gemm_rs", "bf16", 2, 1024, 2048, 1024), {"algorithm": "overlapped"})
    gather = predict(Problem("all_gather", "bf16", 2, 1024 * 2048), {})
    assert both.us == pytest.approx(scatter.us + gather.us, rel=0.05)
    assert sum(both.path.values()) == pytest.approx(both.us, rel=0.05)


def test_what_cannot_be_predicted_says_why():
    predict = Predictor(machines.load("h200x2"))
    wrong = predict(PRODUCT, {"algorithm": "warp"})
    assert wrong.us is None and "unknown algorithm 'warp'" in wrong.why


def test_waves():
    machine = machines.load("h200x2")
    assert waves_of(PRODUCT, OVERLAPPED, Predictor(machine)(PRODUCT, OVERLAPPED), machine) == 16 * 8 / 132
    total = Problem("all_reduce", "bf16", 2, 1 << 15)
    ll = {"algorithm": "ll", "block": 512}
    assert waves_of(total, ll, Predictor(machine)(total, ll), machine) == 64 / 132


@pytest.mark.parametrize(
    "operator, algorithm, kilobytes, measured",
    [
        ("all_reduce", "ll", 8, 3.1),
        ("all_reduce", "ll", 256, 5.4),
        ("all_reduce", "two_shot_ll", 512, 6.3),
        ("all_reduce", "two_shot_ll", 2048, 13.6),
        ("reduce_scatter", "ll", 1024, 12.2),
    ],
)
def test_words_take_one_way_and_what_links_take(operator, algorithm, kilobytes, measured):
    """Four H200s (docs/results/links.md): a tensor is loaded at once, and what it stores to peers passes links."""
    problem = Problem(operator, "bf16", 4, kilobytes << 9)
    predicted = Predictor(machines.load("h200x4"))(problem, {"algorithm": algorithm, "block": 256}).us
    assert 0.75 < predicted / measured < 1.1


@pytest.mark.parametrize("M, protocol, measured", [(16, "ll", 20.6), (64, "ll", 29.5), (64, "two_shot_ll", 24.4)])
def test_products_that_exchange_words(M, protocol, measured):
    """As above, where a word's rank is chosen element by element."""
    problem, options = Problem("gemm_ar", "bf16", 4, M, 8192, 3584), {"algorithm": "fused", "protocol": protocol}
    predicted = Predictor(machines.load("h200x4"))(problem, options)
    assert 0.85 < predicted.us / measured < 1.1 and predicted.path["store"] > 1


def test_the_outlook():
    """On links that are slow, communication is exposed, and nothing else helps; on fast ones, tensor cores do."""
    slow, fast = (machines.load("h200x2").with_changes([f"link={rate}"]) for rate in (10, 2000))
    candidates = [one for one in candidates_of(PRODUCT) if one["algorithm"] != "by_rank"]  # which has no steps
    of_slow = outlook(PRODUCT, candidates, slow, "single calls")
    hiding = [one for one in candidates if one["algorithm"] != "sequential"]
    of_fast = outlook(PRODUCT, hiding, fast, "single calls")
    best = of_slow.schedules[0]
    assert best.us == min(one.us for one in of_slow.schedules if one.us) and best.us > of_slow.floor
    assert best.exposed > 0.8 * best.us and best.bound == "link" and best.share > 0.8
    assert of_slow.changes[0].what == "link" and of_slow.changes[0].us < 0.6 * best.us
    best = next(one for one in of_fast.schedules if one.options["algorithm"] == "overlapped")
    assert best.exposed < 0.2 * best.us and best.bound == "tensor cores"
    assert of_fast.changes[0].what == "tensor cores"
    steps = {change.what: change.us for change in of_fast.changes if change.is_schedule}
    fewer = Predictor(fast)(PRODUCT, best.options | {"stages": 4, "programs": 128})
    assert steps["programs=128"] == fewer.us and fewer.us >= best.us
    assert {one.options["algorithm"] for one in of_slow.schedules if one.us} == {
        "overlapped",
        "k_slices",
        "sequential",
        "nccl",
    }
    (nccl,) = [one for one in of_slow.schedules if one.options == {"algorithm": "nccl"}]
    assert nccl.bound == "library"


def test_predictions_that_take_long_are_in_processes(monkeypatch):
    """They are those of one process, in order, and what cannot be predicted says why."""
    problem, told, machine = Problem("all_reduce", "bf16", 2, 1 << 15), [], machines.load("h200x2")
    options = [{"algorithm": name} for name in ("one_shot", "two_shot", "nothing", "nccl")]
    asked = [Asked(machine, one, f"schedule {number}") for number, one in enumerate(options)]
    monkeypatch.setattr(predict_beside, "processes_for", lambda tasks: min(tasks, 2))
    alone = Predictions(problem, told.append)(asked)
    assert len(told) == 4 and told[1].endswith("schedule 1") and alone[2].raises and "nothing" in alone[2].why
    monkeypatch.setattr(predict_beside, "_LONG", 0.0)
    assert Predictions(problem, told.append)(asked) == alone
    assert [text.rpartition(": ")[2] for text in told[4:]] == [
        "schedule 0", *(f"{done} of 3 predictions, in 2 processes" for done in range(4))
    ]  # fmt: skip
    slow = machine.with_changes(["link=20"])
    assert Predictions(problem, told.append)([Asked(slow, one, "") for one in options[:3]])[1].us > alone[1].us
    monkeypatch.setattr(predict_beside.sys, "executable", "false")  # its process fails
    assert "exit code 1" in Predictions(problem, told.append)(asked)[1].why


def test_communication_that_takes_no_time():
    machine = machines.load("h800x8x2")
    ideal = without_communication(machine)
    assert ideal["link.rate"] == ideal["nic.rate"] == 1e4 and ideal["latency.fence"] == ideal["nic.post"] == 0
    assert ideal["copy_engine.busy_share"] == 1 and ideal["copy_engine.setup"] == 0
    same = ("sm.dot16", "hbm.rate", "latency.launch", "latency.local")
    assert [ideal[name] for name in same] == [machine[name] for name in same]


EXPLAIN = ["explain", "ag_gemm", "2048", "4096", "4096"]


def test_explain_on_a_machine_without_a_table(capsys, no_tables):
    assert main([*EXPLAIN, "--machine", "h800x8", "--ranks", "2"]) == 0
    out = capsys.readouterr().out
    assert out.count("uncalibrated: nothing was measured on it") == 2
    assert "predicted for h800x8 (8 x H800, NVLink), calls that follow each other in CUDA graphs; uncalibrated" in out
    times = [float(us) for us in re.findall(r"^ {3,}([0-9.]+) .*algorithm=", out, re.MULTILINE)]
    assert len(times) > 3 and times == sorted(times)
    assert 'algorithm="sequential"' in out and 'algorithm="nccl"' in out
    assert re.search(r"next    .* twice as good: [0-9.]+ us \(-[0-9]+ %\)", out)
    assert re.search(r"moves   gather A: 8 MB, at least [0-9.]+ us by link \(gather B", out)
    assert "measured" not in out.partition("predicted for")[2].partition("\n")[2]


def test_explain_has_what_was_measured_beside_what_is_predicted(capsys, no_tables):
    table = Table("h200", 2, versions())
    table.add(Entry(PRODUCT, [Measured(dict(OVERLAPPED), 77.0), Measured({"algorithm": "nccl"}, 88.0)]))
    table.save(no_tables / "tuning" / "h200x2.json")
    assert main([*EXPLAIN, "--machine", "h200x2"]) == 0
    out = capsys.readouterr().out
    (overlapped,) = [line for line in out.splitlines() if "pieces=1, group_m=8" in line and " 77.0 " in line]
    assert overlapped.split()[2] == "77.0" and 50 < float(overlapped.split()[0]) < 110
    assert "\n  measured for" not in out
    assert main(["explain", "ag_gemm", "1800", "4096", "4096", "--machine", "h200x2"]) == 0
    assert "\n  measured for ag_gemm M=2048 N=2048 K=4096 bf16, 2 ranks\n" in capsys.readouterr().out
    (nccl,) = [line for line in out.splitlines() if line.endswith(' algorithm="nccl"')]
    assert nccl.split()[2] == "88.0"


def test_explain_what_if(capsys, no_tables):
    """Another number is of the floor and of what is predicted; what was measured is not of that machine."""
    measured = Table("h200", 2, versions())
    measured.add(Entry(PRODUCT, [Measured(dict(OVERLAPPED), 77.0)]))
    measured.save(no_tables / "tuning" / "h200x2.json")
    answers = []
    for change in ([], ["--set", "link=20"]):
        assert main([*EXPLAIN, "--machine", "h200x2", "--json", "--timing", "call", *change]) == 0
        answers.append(json.loads(capsys.readouterr().out)[0])
    base, slow = answers
    assert base["source"] == "measured" and slow["source"] == "rule"
    assert [answer["predicted"]["state"] for answer in answers] == [
        "single calls, after a pause",
        "single calls, after a pause, link=20",
    ]
    times = [
        next(one["us"] for one in answer["predicted"]["schedules"] if one["options"]["algorithm"] == "overlapped")
        for answer in answers
    ]
    assert times[1] > 4 * times[0] and slow["floor"]["link"] == pytest.approx(390 / 20 * base["floor"]["link"])
    assert {one["measured"] for one in slow["predicted"]["schedules"]} == {None}


def test_explain_where_no_schedule_can_be_predicted(capsys, no_tables, monkeypatch):
    monkeypatch.setattr(prediction, "_predicted", lambda *_: Predicted(None, "DitronError: one node"))
    assert main(["explain", "all_reduce", "64K", "--machine", "h800x8x2"]) == 0
    out = capsys.readouterr().out
    assert "next" not in out and " us predicted" not in out and out.count("DitronError: one node") == 1
    assert out.endswith("no schedule can be: DitronError: one node\n")
