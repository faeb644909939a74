"""What ``benchmark/ranking.py`` says of predicted and measured orders, and what ``ranking_gpu.py`` measures."""

import importlib.util
import subprocess
import sys

import paths
import pytest

from ditron import kernels  # noqa: F401 (declares the operators)
from ditron.tuning.prediction import Predicted
from ditron.tuning.problem import Problem
from ditron.tuning.registry import candidates_of, space_of
from ditron.tuning.tables import Entry, Measured, Table, versions


def benchmark(name):
    spec = importlib.util.spec_from_file_location(f"benchmark_{name}", paths.ROOT / "benchmark" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


ranking, ranking_gpu = benchmark("ranking"), benchmark("ranking_gpu")
PROBLEM = Problem("ag_gemm", "bf16", 2, 1024, 3584, 8192)


def test_places():
    assert ranking.ranks_of([30.0, 10.0, 20.0]) == [2, 0, 1]
    assert ranking.ranks_of([10.0, 10.05, 20.0], noise=0.01) == [0.5, 0.5, 2]
    assert ranking.ranks_of([10.0, 10.05, 20.0]) == [0, 1, 2]


def test_spearman():
    assert ranking.spearman([0, 1, 2, 3], [0, 1, 2, 3]) == pytest.approx(1)
    assert ranking.spearman([0, 1, 2, 3], [3, 2, 1, 0]) == pytest.approx(-1)
    assert ranking.spearman([0, 1, 2, 3], [0, 1, 3, 2]) == pytest.approx(0.8)  # 1 - 6 * 2 / (4 * 15)
    assert ranking.spearman([1.5] * 4, [0, 1, 2, 3]) is None


def test_regret_is_of_the_best_of_the_predicted_top():
    measured = {"a": 10.0, "b": 11.0, "c": 20.0, "d": 30.0, "nccl": 5.0, "failed": None}
    predicted = {"a": 8.0, "b": 7.0, "c": 5.0, "d": 9.0, "nccl": None, "failed": 1.0}
    entry = Entry(PROBLEM, [Measured({"algorithm": name}, us) for name, us in measured.items()])
    row = ranking.compare(entry, lambda problem, options: Predicted(predicted[options["algorithm"]]), 0.0)
    assert row["candidates"] == 4 and row["regret"] == pytest.approx({1: 1.0, 2: 0.1, 3: 0, 4: 0, 8: 0})
    assert row["spearman"] == pytest.approx(0.2)  # places 0 1 2 3 against 2 1 0 3: 1 - 6 * 8 / 60


@pytest.mark.parametrize("names, of", [([], " of gemm_rs"), (["nccl"], "")], ids=["no problem", "one candidate"])
def test_a_table_with_nothing_to_compare(names, of, tmp_path):
    table = Table("h200", 2, versions())
    table.add(Entry(PROBLEM, [Measured({"algorithm": name}, 10.0) for name in names or ["sequential", "nccl"]]))
    table.save(file := tmp_path / "ranking.json")
    command = [sys.executable, paths.ROOT / "benchmark" / "ranking.py", "--table", file]
    done = subprocess.run(
        command + (["--operator", "gemm_rs"] if of else []), capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 1 and not done.stdout
    assert done.stderr.splitlines()[-1] == (
        f"{file}: there is nothing to compare: none of its {len(names)} problems{of} has two candidates that were "
        "measured and can be predicted for h200x2"
    )


def test_a_table_in_short(tmp_path):
    """Its times are the table's, without the candidates that have none; and what is in short stays as it is."""
    table = Table("h200", 2, versions(), {"date": "2026-11-24"})
    tile = {"algorithm": "overlapped", "block": (128, 256, 64), "pieces": 2, "group_m": 8}
    timed = [Measured(tile, 10.25), Measured(tile | {"stages": 3, "programs": 128}, 11.0, is_rule=True)]
    table.add(
        Entry(PROBLEM, [*timed, Measured(tile | {"pieces": 4}, None, "hung"), Measured({"algorithm": "nccl"}, 9.0)])
    )
    table.save(whole := tmp_path / "whole.json")
    (short := tmp_path / "short.json").write_text(ranking.in_short(ranking.table_of(whole)))
    read = ranking.table_of(short)
    assert [(one.options, one.us) for one in read.entries[PROBLEM].candidates] == [
        ({"algorithm": "nccl"}, 9.0),
        (tile, 10.25),
        (tile | {"stages": 3, "programs": 128}, 11.0),
    ]
    assert (read.machine, read.about, read.versions) == (table.machine, table.about, table.versions)
    assert ranking.in_short(read) == short.read_text()


@pytest.mark.parametrize("seed, fewest", [(0, 45), (1, 64)])
def test_tables_beside_the_results(seed, fewest):
    """What docs/results/clock.md says was measured can be read, and is of the shapes that ``ranking_gpu.py`` names."""
    entries = ranking.table_of(paths.ROOT / f"docs/results/data/ranking_seed{seed}.json").entries
    assert {(p.operator, p.rows, p.N, p.K) for p in entries} == set(ranking_gpu.SHAPES)
    assert min(len(entry.candidates) for entry in entries.values()) == fewest
    assert all(candidate.us for entry in entries.values() for candidate in entry.candidates)


def test_what_is_measured_in_one_run():
    """The declared candidates first, then the best predicted, and others that can run; none twice."""
    space = space_of(PROBLEM, 132)
    best = ranking_gpu.every(space)[5:13]
    found = ranking_gpu.schedules(PROBLEM, best, 64, 132)
    declared = candidates_of(PROBLEM)
    assert len(found) == 64 and found[: len(declared)] == declared
    assert all(options in found for options in best)
    complete = [space.complete(options) for options in found]
    assert all(complete.count(options) == 1 for options in complete)
    assert all(space.is_valid(options) for options in found[len(declared) :])
    assert found == ranking_gpu.schedules(PROBLEM, best, 64, 132)


def test_another_seed_draws_other_schedules():
    """And the same declared and predicted ones."""
    best = ranking_gpu.every(space_of(PROBLEM, 132))[5:13]
    first, second = (ranking_gpu.schedules(PROBLEM, best, 64, 132, seed) for seed in (0, 1))
    same = len(candidates_of(PROBLEM)) + len(best)
    assert first[:same] == second[:same] and first == ranking_gpu.schedules(PROBLEM, best, 64, 132)
    assert sum(options in first for options in second[same:]) < (64 - same) / 2
