"""``ditron tune`` and ``ditron explain``: what they print, and their exit codes."""

import json
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch

from ditron import machines
from ditron.cli import main
from ditron.tuning import compile_ahead, order, prediction, processes, tables
from ditron.tuning.problem import Problem
from ditron.tuning.tables import Entry, Measured, Table, versions
from ditron_compiler.errors import DitronError


@pytest.fixture
def user_table(tmp_path, monkeypatch):
    """Where the user's table is read and written; no table is shipped, and predictions take no time."""
    monkeypatch.setattr(prediction, "_predicted", lambda problem, options, machine: prediction.Predicted(500.0))
    monkeypatch.setattr(tables, "shipped_path", lambda machine, ranks: tmp_path / "none.json")
    monkeypatch.setenv("DITRON_CACHE_DIR", str(tmp_path))
    return tmp_path / "tuning" / "h200x2.json"


@pytest.fixture
def gpus(monkeypatch, user_table):
    """Two H200s on which candidates take times of their own."""
    gpu = SimpleNamespace(name="NVIDIA H200", multi_processor_count=132, major=9, minor=0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: gpu)
    monkeypatch.setattr(compile_ahead, "run", lambda *_: None)
    monkeypatch.setattr(processes, "GPU_BENCH", "fake_bench:TimedBench")
    monkeypatch.setattr(order, "predicted", lambda problems, *_, **__: [[] for _ in problems])
    return user_table


EXPLAIN = ["explain", "ag_gemm", "8192", "11008", "4096", "--machine", "h200x2"]


def test_explain_by_the_rule(capsys, user_table):
    assert main(EXPLAIN) == 0
    out = capsys.readouterr().out
    assert out.startswith("ag_gemm M=8192 N=5504 K=4096 bf16, 2 ranks on h200 x 2\n")
    assert 'runs    algorithm="overlapped", block=(128, 256, 64), pieces=2, group_m=8' in out
    assert "nothing is measured" in out and "a rank sends 32.0 MB, and overlapping pays from 14 MB on" in out
    assert (
        "time    500.0 us predicted, 1.08 of the floor" in out
        and "floor   461.7 us: product 461.7, link 86.0, of h200x2 (2 x H200, NVLink)" in out
    )
    assert 'force   ag_gemm(a, b, algorithm="overlapped"' in out


def measured(rows=4096, N=5504):
    best = Measured({"algorithm": "overlapped", "block": (128, 256, 64), "pieces": 1}, 490.0)
    rule = Measured({"algorithm": "overlapped", "block": (128, 256, 64), "pieces": 2}, 500.0, is_rule=True)
    failed = Measured({"algorithm": "sequential"}, None, "hangs: rank 1 was ended after 4 s")
    table = Table("h200", 2, versions())
    table.add(Entry(Problem("ag_gemm", "bf16", 2, rows, N, 4096), [best, rule, failed]))
    return table


def test_explain_what_was_measured(capsys, user_table):
    measured().save(user_table)
    assert main(EXPLAIN) == 0
    out = capsys.readouterr().out
    assert 'runs    algorithm="overlapped", block=(128, 256, 64), pieces=1' in out
    assert (
        "the fastest of 3 candidates measured for ag_gemm M=8192 N=5504 K=4096 bf16, 2 ranks (in a CUDA graph)" in out
    )
    assert "time    490.0 us measured, 1.06 of the floor" in out
    assert 'second  algorithm="overlapped", block=(128, 256, 64), pieces=2: 500.0 us, +2.0 %' in out


def test_explain_the_nearest(capsys, user_table):
    measured(N=5632).save(user_table)
    assert main([*EXPLAIN, "--json"]) == 0
    (answer,) = json.loads(capsys.readouterr().out)
    assert answer["source"] == "nearest" and answer["bucket"]["N"] == 5632 and answer["problem"]["N"] == 5504
    assert answer["options"]["pieces"] == 1 and answer["us"] == 490.0
    assert [other["failure"][:5] for other in answer["others"]] == ["", "hangs"]
    assert answer["floor"]["product"] == pytest.approx(461.7, abs=0.1)


def test_explain_rounds_rows_up(capsys, user_table):
    measured().save(user_table)
    assert main(["explain", "ag_gemm", "5000", "11008", "4096"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("ag_gemm M=5000 N=5504") and "measured for ag_gemm M=8192 N=5504" in out


def test_explain_an_unknown_machine(capsys, user_table):
    """Without a file and a table nothing is known; a table alone says what was measured, and no floor."""
    b300 = ["explain", "all_reduce", "64K", "2M", "--machine", "b300x8"]
    assert main(b300) == 2
    error = capsys.readouterr().err
    assert "--machine b300x8: there is neither a file nor a table of it; there are files of h" in error
    assert "'ditron tune'" in error and ".toml" in error
    table = Table("b300", 8, versions())
    table.add(Entry(Problem("all_reduce", "bf16", 8, 1 << 15), [Measured({"algorithm": "ll", "block": 512}, 9.5)]))
    table.save(user_table.with_name("b300x8.json"))
    assert main(b300) == 0
    out = capsys.readouterr().out
    assert out.count("the limits of b300 x 8 are not known") == 2 and "9.5 us measured" in out
    assert main([*b300, "--set", "link=450"]) == 2
    assert "--set is for machines with a file, and b300 x 8 has none" in capsys.readouterr().err


@pytest.mark.parametrize(
    "options, expected",
    [
        (["--machine", "h200x4", "--ranks", "8"], "--machine h200x4 has 4 ranks, and --ranks says 8: ask for fewer"),
        (["--machine", "h200x16"], "--machine h200x16: there is neither a file nor a table of it"),
    ],
)
def test_ranks_that_the_machine_does_not_have(options, expected, capsys, user_table):
    assert main(["explain", "all_reduce", "64K", *options]) == 2
    assert expected in capsys.readouterr().err


@pytest.mark.parametrize("name", machines.names())
def test_every_machine_is_known(name, capsys, user_table):
    """By its name, and nodes of it where it has NICs."""
    machine = machines.load(name)
    for nodes in (1, 2) if "nic.rate" in machine.numbers else (1,):
        named = name if nodes == 1 else f"{name}x{nodes}"
        assert main(["explain", "all_reduce", "64K", "--machine", named, "--json"]) == 0
        (answer,) = json.loads(capsys.readouterr().out)
        assert answer["problem"]["ranks"] == nodes * machine.ranks and answer["predicted"]["machine"].startswith(named)


def test_a_number_that_the_machine_does_not_have(capsys, user_table):
    assert main([*EXPLAIN, "--set", "lnk=450"]) == 1
    assert "lnk=450: the machine h200x2 has no number 'lnk'" in capsys.readouterr().err


def test_floors_of_machines(capsys, user_table, tmp_path):
    """Fewer ranks than a machine has; another number; a file of the user's; nodes, which share NICs."""
    mine = tmp_path / "mine.toml"
    source = 'source = "data sheet: PCIe 5.0 x16"'
    mine.write_text(
        f'base = "h200x4"\ntitle = "PCIe"\nranks = 4\n[link]\nrate = {{value = 50, unit = "GB/s", {source}}}\n'
    )

    def floor(*options):
        assert main(["explain", "ag_gemm", "12288", "12288", "4096", "--json", *options]) == 0
        (answer,) = json.loads(capsys.readouterr().out)
        return answer["problem"]["ranks"], answer["floor"]["link"], answer["floor"]["source"]

    shard = 12288 * 4096 * 2 / 1e3
    pairs = machines.load("mi300x8")
    assert floor("--machine", "mi300x8", "--ranks", "2")[1] == pytest.approx(1 / 2 * shard / pairs["link.pair"])
    assert floor("--machine", "h200x3") == (3, pytest.approx(2 / 3 * shard / 390), "h200x4 (4 x H200, NVLink)")
    assert floor("--machine", "h200x4", "--ranks", "2")[:2] == (2, pytest.approx(1 / 2 * shard / 390))
    assert floor("--machine", "h200x2", "--set", "link=100")[1] == pytest.approx(1 / 2 * shard / 100)
    assert floor("--machine", str(mine))[:2] == (4, pytest.approx(3 / 4 * shard / 50))
    ranks, link, source = floor("--machine", "h800x8x4")
    node = machines.load("h800x8")
    assert (ranks, link) == (32, pytest.approx(31 / 32 * shard / (node["link.rate"] + node["nic.rate"])))
    assert floor("--machine", "h800x8x4", "--set", "nic=5")[1] == pytest.approx(3 / 32 * shard / 5)
    assert "uncalibrated: nothing was measured on it" in source


@pytest.mark.parametrize(
    "arguments, expected",
    [
        (["nonesuch", "1"], "'nonesuch' has no choice to make: expected one of a2a_gemm, ag_gemm, ag_moe, all_gather"),
        (["ag_gemm", "8192", "11008"], "ag_gemm takes M N K, or several times M N K, got 8192 11008"),
        (["ag_gemm", "8192", "x", "4096"], "'x' is no size"),
        (["ag_gemm", "0", "8", "8"], "'0' is no size"),
        (["ag_gemm", "8192", "11007", "4096"], "2 ranks cannot share N = 11007 (--form weight-per-rank?)"),
        (["gemm_rs", "8191", "4096", "4096"], "2 ranks cannot share 8191 rows: ask for 8190 or 8192"),
        (["ag_gemm", "7", "4096", "4096"], "ag_gemm: 2 ranks cannot share 7 rows: ask for 6 or 8"),
        (["ag_gemm", "1", "4096", "4096"], "ag_gemm: 2 ranks cannot share 1 rows: ask for 2"),
        (["all_reduce", "7"], "all_reduce: 7 bytes are no elements of bf16: ask for 6 or 8"),
        (["reduce_scatter", "6"], "reduce_scatter: 6 bytes are no elements of bf16 in 2 equal parts: ask for 4 or 8"),
        (["all_reduce"], "all_reduce takes sizes in bytes"),
        ([], "name an operator and its sizes"),
        (["--shapes", "none.txt"], "cannot read none.txt"),
        (
            ["all_reduce", "1M", "--machine", "h200x2", "--ranks", "4"],
            "--machine h200x2 has 2 ranks, and --ranks says 4",
        ),
    ],
)
def test_a_wrong_command_line(arguments, expected, capsys, user_table):
    assert main(["explain", *arguments]) == 2
    assert expected in capsys.readouterr().err


@pytest.mark.parametrize("name", ["", "h200x0", "x2", "../../etc", "/h200x2", "h 200"])
def test_a_wrong_machine(name, capsys, user_table):
    assert main(["explain", "all_reduce", "64K", "--machine", name]) == 2
    assert f"--machine {name!r}: expected a GPU and how many, from 1, as h200x2" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments, expected",
    [
        (["explain", "--ranks", "0"], "argument --ranks: '0' is no positive number"),
        (["explain", "--ranks", "-1"], "argument --ranks: '-1' is no positive number"),
        (["tune", "--ranks", "two"], "argument --ranks: invalid int value: 'two'"),
        (["tune", "--limit", "0"], "argument --limit: '0' is no positive number"),
        (["tune", "--limit", "nan"], "argument --limit: 'nan' is no positive number"),
        (["tune", "--total", "-1"], "argument --total: '-1' is no positive number"),
        (["tune", "--total", "0"], "argument --total: '0' is no positive number"),
        (["tune", "--rounds", "0"], "argument --rounds: '0' is no positive number"),
    ],
)
def test_a_wrong_number(arguments, expected, capsys, user_table):
    with pytest.raises(SystemExit) as ended:
        main([*arguments, "all_reduce", "64K"])
    assert ended.value.code == 2 and expected in capsys.readouterr().err


def test_options_between_the_operator_and_its_sizes(capsys, user_table):
    assert main(EXPLAIN) == 0
    expected = capsys.readouterr().out
    assert main(["explain", "ag_gemm", "--machine", "h200x2", "8192", "11008", "--dtype", "bf16", "4096"]) == 0
    assert capsys.readouterr().out == expected


def test_a_floor_of_nothing_is_not_compared_with(capsys, user_table):
    assert main(["explain", "all_reduce", "2", "--machine", "h200x2"]) == 0
    out = capsys.readouterr().out
    assert "time    500.0 us predicted\n" in out and "floor   0.0 us" in out


def test_explain_ignores_a_wrong_entry(capsys, caplog, user_table):
    measured().save(user_table)
    user_table.write_text(user_table.read_text().replace('"us": 490.0', '"us": "3"'))
    assert main(EXPLAIN) == 0
    assert "nothing is measured" in capsys.readouterr().out
    assert f"{user_table}: entry 1 (ag_gemm bf16 4096 5504 4096) is ignored: us is '3'" in caplog.text


@pytest.mark.parametrize(
    "text, expected",
    [
        ("", " has no shapes: expected lines as 'ag_gemm 8192 11008 4096'"),
        ("# 7B\n\n", " has no shapes: expected lines as 'ag_gemm 8192 11008 4096'"),
        (
            "all_reduce 64K\nag_gemm 8192 1376 4096 weigth-per-rank\n",
            ":2: 'weigth-per-rank' is neither a size nor a form: forms are strong, weight-per-rank",
        ),
    ],
)
def test_a_wrong_file_of_shapes(tmp_path, text, expected, capsys, user_table):
    file = tmp_path / "shapes.txt"
    file.write_text(text)
    assert main(["explain", "--shapes", str(file)]) == 2
    assert f"{file}{expected}" in capsys.readouterr().err


def test_a_file_of_shapes(tmp_path, capsys, user_table):
    file = tmp_path / "shapes.txt"
    file.write_text("ag_gemm 8192 11008 4096  # 7B\n\nag_gemm 8192 1376 4096 weight-per-rank\nall_reduce 64K\n")
    assert main(["explain", "--shapes", str(file), "--json"]) == 0
    answers = json.loads(capsys.readouterr().out)
    assert [(a["problem"]["rows"], a["problem"]["N"]) for a in answers] == [(4096, 5504), (4096, 1376), (32768, 0)]
    file.write_text("ag_gemm 8192\n")
    assert main(["explain", "--shapes", str(file)]) == 2
    assert f"{file}:1: ag_gemm takes M N K" in capsys.readouterr().err


def test_tune_without_a_gpu(capsys, user_table):
    assert main(["tune", "ag_gemm", "8192", "11008", "4096"]) == 1
    assert "measures on GPUs, and there is none here" in capsys.readouterr().err


def test_tune(gpus, capsys):
    """Candidates in a table, the best of them in the user's file, which calls and explain then look at."""
    assert main(["tune", "ag_gemm", "8192", "11008", "4096", "--rounds", "3", "--verbose"]) == 0
    said = capsys.readouterr()
    assert "ag_gemm M=8192 N=5504 K=4096 bf16, 2 ranks, floor 461.7 us" in said.out
    lines = said.out.splitlines()
    chosen = [line for line in lines if "chosen" in line]
    assert len(chosen) == 1 and "pieces=4" in chosen[0] and "10.0 us" in chosen[0]
    assert len([line for line in lines if "<- rule" in line]) == 1
    assert f"{gpus}: 1 of 1 shapes" in said.out and "candidate 2 of" in said.err
    assert main(EXPLAIN) == 0
    assert "pieces=4" in capsys.readouterr().out


def test_tune_adds_to_a_file(gpus, tmp_path, capsys):
    output = tmp_path / "mine.json"
    for sizes in (["64K"], ["128K", "64K"]):
        assert main(["tune", "all_reduce", *sizes, "--rounds", "2", "--output", str(output)]) == 0
    read = Table.from_text(output.read_text())
    assert sorted(problem.rows for problem in read.entries) == [1 << 15, 1 << 16]
    candidates = next(iter(read.entries.values())).candidates
    assert any("nccl" in c.options["algorithm"] and c.us for c in candidates)
    assert not gpus.exists()


def test_only(gpus, capsys):
    assert main(["tune", "ag_gemm", "2048", "11008", "4096", "--only", "nccl", "--rounds", "2"]) == 0
    entry = next(iter(Table.from_text(gpus.read_text()).entries.values()))
    assert sorted(c.options["algorithm"] for c in entry.candidates) == ["by_rank", "nccl"]


def algorithms(table):
    """Of the candidates of the one entry of a user's table, the rule's first."""
    (entry,) = Table.from_text(table.read_text()).entries.values()
    return [c.options["algorithm"] for c in sorted(entry.candidates, key=lambda c: not c.is_rule)]


def test_top(gpus, capsys, monkeypatch):
    """The rule's choice, and those that are predicted to be fastest, in this order."""
    measured = []

    def measure(jobs, settings):
        measured.append(jobs[0].candidates)
        return [Entry(jobs[0].problem, [Measured(o, 1.0, "", n == 0) for n, o in enumerate(jobs[0].candidates)])]

    def predicted(problems, machine, search, seed, say):
        assert (machine.name, search, seed) == ("h200x2", 0, 0)
        times = {"by_rank": 9.0, "nccl": None, "overlapped": 5.0, "sequential": 20.0, "k_slices": 30.0}
        return [[(o, times[o["algorithm"]] and times[o["algorithm"]] + o.get("pieces", 0)) for o in problems[0][1]]]

    monkeypatch.setattr(order, "predicted", predicted)
    monkeypatch.setattr(processes, "measure", measure)
    for options in ([], ["--top", "1"], ["--top", "3"]):
        assert main(["tune", "ag_gemm", "2048", "11008", "4096", *options]) == 0
    every, one, three = measured
    overlapped = [o for o in every if o["algorithm"] == "overlapped"]
    others = [o["algorithm"] for o in every if o["algorithm"] != "overlapped"]
    assert list(dict.fromkeys(others)) == ["by_rank", "k_slices", "sequential", "nccl"]
    fastest = sorted(overlapped, key=lambda o: o["pieces"])
    assert one == [every[0], fastest[0]] and three == [every[0], *fastest[:3]]


def test_a_search_measures_the_best_that_it_found(gpus, capsys, monkeypatch):
    asked, found = [], [({"algorithm": "overlapped", "pieces": pieces}, 5.0 + pieces) for pieces in range(1, 20)]
    monkeypatch.setattr(order, "predicted", lambda *given, say: asked.append(given) or [found])
    assert main(["tune", "ag_gemm", "2048", "11008", "4096", "--search", "40", "--seed", "7", "--rounds", "2"]) == 0
    assert [given[2:] for given in asked] == [(40, 7)]
    assert algorithms(gpus) == ["by_rank", *["overlapped"] * 8]


@pytest.mark.parametrize("option", ["--top", "--search"])
def test_predictions_need_a_file_of_the_gpu(option, gpus, capsys, monkeypatch):
    gpu = SimpleNamespace(name="NVIDIA B300", multi_processor_count=160, major=10, minor=0)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: gpu)
    assert main(["tune", "all_reduce", "64K", option, "3"]) == 2
    assert f"{option} needs predictions, and no file in ditron/machines describes b300" in capsys.readouterr().err
    assert main(["tune", "all_reduce", "64K", "--rounds", "2"]) == 0


def test_too_little_time_is_no_entry(gpus, capsys):
    assert main(["tune", "all_reduce", "64K", "--total", "0.01"]) == 1
    assert "0 of 1 shapes" in capsys.readouterr().out and not Table.from_text(gpus.read_text()).entries


def test_more_ranks_than_gpus(gpus, capsys):
    assert main(["tune", "all_reduce", "64K", "--ranks", "4"]) == 2
    assert "--ranks 4: this machine has 2 GPUs" in capsys.readouterr().err


def test_only_what_is_a_candidate(gpus, capsys):
    assert main(["tune", "ag_gemm", "2048", "11008", "4096", "--only", "nccl", "warp"]) == 2
    assert (
        "--only warp: no candidate of these shapes; there are by_rank, k_slices, nccl, overlapped, sequential"
        in capsys.readouterr().err
    )


NO_TABLE = {
    "notes.txt": "what I have to do\n",
    "other.json": '{"machine": "h200"}',
    "h100x2.json": Table("h100", 2, versions()).to_text(),
}


@pytest.mark.parametrize("name", NO_TABLE)
def test_tune_replaces_no_other_file(name, gpus, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(processes, "measure", lambda *_: pytest.fail("measured"))
    output = tmp_path / name
    output.write_text(NO_TABLE[name])
    assert main(["tune", "all_reduce", "64K", "--output", str(output)]) == 2
    assert f"{output} is not replaced: " in capsys.readouterr().err
    assert output.read_text() == NO_TABLE[name]
    with pytest.raises(DitronError, match="choose another file"):
        processes.keep(measured(), output)
    assert output.read_text() == NO_TABLE[name]


@pytest.mark.parametrize("name", ["folder", "file/h200x2.json", "/proc/h200x2.json", "/dev/null"])
def test_tune_says_before_measuring_that_it_cannot_write(name, gpus, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(processes, "measure", lambda *_: pytest.fail("measured"))
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    assert main(["tune", "all_reduce", "64K", "--output", str(tmp_path / name)]) == 2
    error = capsys.readouterr().err
    assert str(tmp_path / name) in error and ": choose another" in error


def test_explain_in_a_process_of_its_own_knows_the_shipped_table():
    """Entries are checked against the operators, which nothing has imported before."""
    command = [sys.executable, "-m", "ditron.cli", "explain", "ag_gemm", "8192", "11008", "4096", "--machine", "h200x2"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert "us measured" in done.stdout and done.stderr == ""
