"""The search through schedules, and the order in which candidates are measured."""

import itertools
import math
from collections import Counter
from types import SimpleNamespace

import pytest

from ditron import kernels, machines  # noqa: F401 (kernels declares the operators)
from ditron._program.execute.kernels import compile_for_gpu
from ditron.kernels.schedules import SHARED_BYTES, schedule_for
from ditron.tuning import compile_ahead, processes
from ditron.tuning.order import ordered, predicted
from ditron.tuning.predict_ahead import predict
from ditron.tuning.problem import Problem
from ditron.tuning.registry import OPERATORS, candidates_of
from ditron.tuning.search import Space, search

GRID = Space("tiled", {"x": tuple(range(16)), "y": tuple(range(16))}, {"y": 0})


def bowl(options):
    """Least at (11, 6)."""
    return 10 + (options["x"] - 11) ** 2 + (options["y"] - 6) ** 2


def test_neighbours_are_one_step_away():
    found = list(GRID.neighbours({"algorithm": "tiled", "x": 0, "y": 5}))
    assert sorted((one["x"], one["y"]) for one in found) == [(0, 4), (0, 6), (1, 5)]
    valid = Space("tiled", GRID.parameters, {}, lambda options: options["x"] + options["y"] < 6)
    assert [one["y"] for one in valid.neighbours({"algorithm": "tiled", "x": 0, "y": 5})] == [4]


def test_a_value_that_is_no_step_leads_to_every_step():
    found = [one["x"] for one in GRID.neighbours({"algorithm": "tiled", "x": 99, "y": 0}) if one["y"] == 0]
    assert found == list(range(16))


def test_another_algorithm_has_no_neighbours():
    assert list(GRID.neighbours({"algorithm": "sequential"})) == []
    assert GRID.complete({"algorithm": "sequential"}) == {"algorithm": "sequential"}


@pytest.mark.parametrize("seed", range(5))
def test_the_search_finds_the_least(seed):
    """In a third of the evaluations that all points would take, from the farthest corner."""
    asked = Counter()

    def cost(options):
        asked[options["x"], options["y"]] += 1
        return bowl(options)

    found = search(GRID, cost, [{"algorithm": "tiled", "x": 0}], evaluations=85, seed=seed)
    assert found[0] == (10, {"algorithm": "tiled", "x": 11, "y": 6})
    assert len(found) == len(asked) == 85 and set(asked.values()) == {1}
    assert [us for us, _ in found] == sorted(us for us, _ in found)


def test_the_seed_decides():
    starts = [{"algorithm": "tiled", "x": 0}]
    assert search(GRID, bowl, starts, 40, seed=3) == search(GRID, bowl, starts, 40, seed=3)
    assert search(GRID, bowl, starts, 40, seed=3) != search(GRID, bowl, starts, 40, seed=4)


def test_better_points_start_more_steps():
    """By exp(-gamma (1 - v / v*)), of two points with two neighbours each, times 1 and 2."""
    apart = Space("tiled", {"x": (0, 1), "y": (0, 1)}, {}, lambda options: options["x"] == options["y"] or True)
    counts = Counter()
    for seed in range(2000):
        asked = []

        def cost(options, asked=asked):
            asked.append((options["x"], options["y"]))
            return {(0, 0): 1.0, (9, 9): 2.0}.get(asked[-1], 3.0)

        starts = [{"algorithm": "tiled", "x": 0, "y": 0}, {"algorithm": "tiled", "x": 9, "y": 9}]
        search(apart, cost, starts, 3, gamma=2.0, seed=seed)
        counts["far" if 9 in asked[2] else "near"] += 1
    expected = math.exp(-2.0 * (1 - 1 / 2))
    assert counts["far"] / counts["near"] == pytest.approx(expected, rel=0.15)


def test_what_has_no_cost_starts_no_step():
    starts = [{"algorithm": "tiled", "x": 3, "y": 3}, {"algorithm": "tiled", "x": 9, "y": 9}]
    found = search(GRID, lambda options: None if options["x"] < 5 else bowl(options), starts, 30)
    assert found and min(options["x"] for _, options in found) >= 5
    assert search(GRID, lambda options: None, starts, 30) == []


def test_a_space_that_ends():
    small = Space("tiled", {"x": (0, 1), "y": (0, 1)}, {"y": 0})
    assert len(search(small, lambda options: 1.0, [{"algorithm": "tiled", "x": 0}], 100)) == 4


RULE, A, B, C = ({"algorithm": name} for name in ("rule", "a", "b", "c"))


def test_the_order():
    timed = [(RULE, 5.0), (A, 9.0), (B, None), (C, 2.0)]
    assert ordered([RULE, A, B, C], timed) == [RULE, C, A, B]
    assert ordered([RULE, A, B, C], timed, top=1) == [RULE, C]
    assert ordered([RULE, A, B, C], timed, top=2) == [RULE, C]  # of which the rule's is one
    assert ordered([RULE, A, B, C], timed, top=3) == [RULE, C, A]


def test_a_step_goes_to_any_other_tile():
    space = Space("tiled", {"block": ((64, 64), (64, 128), (128, 128)), "stages": (3, 4, 5)}, {})
    steps = list(space.neighbours({"algorithm": "tiled", "block": (64, 64), "stages": 3}))
    assert [step["block"] for step in steps if step["stages"] == 3] == [(64, 128), (128, 128)]
    assert [step["stages"] for step in steps if step["block"] == (64, 64)] == [4]


def test_each_algorithm_that_is_not_far_behind_is_measured():
    near, nearer, far = ({"algorithm": name} for name in ("near", "near", "far"))
    nearer["pieces"] = 2
    timed = [(RULE, 100.0), (A, 90.0), (near, 99.0), (nearer, 98.0), (far, 104.4)]
    assert ordered([RULE, A, near, nearer, far], timed, top=1) == [RULE, A, nearer]  # far: 1.16 times the best


def test_without_predictions_all_are_measured_as_declared():
    assert ordered([RULE, A, B], [], top=1) == [RULE, A, B]
    assert ordered([RULE, A, B], [(RULE, None), (A, None), (B, None)], top=1) == [RULE, A, B]


PROBLEM = Problem("ag_gemm", "bf16", 2, 512, 4096, 4096)


def test_candidates_are_predicted_in_other_processes():
    machine = machines.load("h200x2")
    problems = [(problem, candidates_of(problem)) for problem in (PROBLEM, Problem("all_reduce", "bf16", 2, 1 << 12))]
    said = []
    times = predicted(problems, machine, say=said.append)
    assert [[options for options, _ in timed] for timed in times] == [candidates for _, candidates in problems]
    here = [predict(problem, candidates, machine, 0, 0) for problem, candidates in problems]
    assert times == here
    assert all(us > 0 for timed in times for _, us in timed)
    assert said[0] == "predicting 2 shapes"


def test_predictions_that_take_too_long_are_left_out():
    assert predicted([(PROBLEM, candidates_of(PROBLEM))], machines.load("h200x2"), seconds=0.01) == [[]]


def test_a_search_among_an_operators_schedules():
    machine, candidates = machines.load("h200x2"), candidates_of(PROBLEM)
    plain, found = (predict(PROBLEM, candidates, machine, steps, 1) for steps in (0, 24))
    known = [us for _, us in found if us is not None]
    assert known == sorted(known) and len(known) == len(found) == 24
    times = {repr(options): us for options, us in found}
    assert all(times[repr(options)] == us for options, us in plain)  # those that are declared, under their own names
    assert found[0][1] <= min(us for _, us in plain if us is not None)


def test_every_point_of_a_space_fits_its_program():
    """What a search may find, the operator takes."""
    for name, module in (("ag_gemm", kernels.ag_gemm), ("gemm_rs", kernels.gemm_rs)):
        problem = Problem(name, "bf16", 2, 2048, 4096, 4096)
        space = OPERATORS[name].space(problem, 132)
        start = space.complete(next(one for one in candidates_of(problem) if one["algorithm"] == "overlapped"))
        assert space.is_valid(start) and module
        found = search(space, lambda options: 1.0, [start], 200, seed=2)
        assert len(found) == 200
        for _, options in found:
            rows = options["block"][0]
            assert options["pieces"] * options["group_m"] * rows <= problem.rows or options["group_m"] == 1


@pytest.mark.parametrize("rows", [128, 256, 1024])
def test_every_call_of_a_bucket_takes_what_a_search_finds_for_it(rows):
    """A piece of gemm_rs has a row of tiles, also in the call with fewest rows."""
    space = OPERATORS["gemm_rs"].space(Problem("gemm_rs", "bf16", 2, rows, 8192, 4096), 132)
    group = SimpleNamespace(small_shapes=False, sms=132)
    names, valid = list(space.parameters), 0
    for values in itertools.product(*space.parameters.values()):
        options = dict(zip(names, values, strict=True))
        if space.is_valid(options):
            valid += 1
            schedule_for("gemm_rs", group, rows // 2 + 1, 4, options, whole_pieces=True)
    assert valid


@pytest.mark.parametrize("operator", ["ag_gemm", "gemm_rs"])
@pytest.mark.parametrize("block", [(64, 256, 64), (128, 128, 128), (128, 256, 64), (256, 128, 64)], ids=str)
def test_as_many_stages_as_shared_memory_has_room_for(operator, block, monkeypatch):
    """As Triton allocates it: the most that a space has fit, and one more would not."""
    problem = Problem(operator, "bf16", 2, 2048, 4096, 4096)
    space = OPERATORS[operator].space(problem, 132)
    start = space.complete({"algorithm": "overlapped", "block": block, "pieces": 1, "group_m": 1})
    stages = max(count for count in space.parameters["stages"] if space.is_valid(start | {"stages": count}))
    shared = []

    def compiled(*args):
        shared.append(compile_for_gpu(*args).metadata.shared)

    monkeypatch.setattr(compile_ahead, "compile_for_gpu", compiled)
    compile_ahead.compile_task(problem, start | {"stages": stages}, 90, 132)
    of_a_stage = (block[0] + block[1]) * block[2] * problem.itemsize
    assert len(shared) == 2 and stages * of_a_stage < max(shared) <= SHARED_BYTES
    assert min(shared) + of_a_stage > SHARED_BYTES


def test_the_operators_without_a_space(monkeypatch):
    assert OPERATORS["all_reduce"].space is None
    none = Problem("ag_gemm", "fp32", 2, 512, 4096, 4096)
    assert OPERATORS["ag_gemm"].space(none, 132) is None
    wrong = [{"algorithm": "warp"}]
    assert predict(none, wrong, machines.load("h200x2"), 50, 0) == [(wrong[0], None)]


def test_tuning_at_the_first_call_measures_the_best_predicted(monkeypatch):
    """With DITRON_TUNE_TOP: all others are left out; without it, and where no file describes the GPU, nothing is."""
    measured = []
    monkeypatch.setattr(processes, "_PREDICTION_SECONDS", 300.0)
    monkeypatch.setattr(processes, "measure", lambda jobs, settings: measured.append(jobs[0].candidates) or [None])
    candidates = candidates_of(PROBLEM)
    for machine, top in (("h200", 0), ("b300", 2), ("h200", 2)):
        processes.tune_one(PROBLEM, [0, 1], 30.0, machine, top)
    assert measured[:2] == [candidates] * 2 and len(candidates) > 3
    times = predict(PROBLEM, candidates, machines.load("h200x2"), 0, 0)
    assert measured[2] == ordered(candidates, times, 2) and measured[2][0] == candidates[0]
    assert len(measured[2]) in (2, 3)
