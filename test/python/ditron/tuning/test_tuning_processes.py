"""Processes that measure, real ones: candidates that hang, raise, die or compute something else end nothing but themselves."""

import os
import subprocess
import sys
import time

import pytest

from ditron.tuning.problem import Problem
from ditron.tuning.processes import Job, Settings, measure
from ditron_compiler.errors import DitronError

RULE = {"algorithm": "rule", "us": (10.0, 12.0)}
LIMIT = 4.0  # seconds, also on a machine with much else to do
FAST = {"algorithm": "fast", "us": (8.0, 9.0)}


def run(*candidates, rows=128, **settings):
    job = Job(Problem("ag_gemm", "bf16", 2, rows, 64, 64), [RULE, *candidates])
    settings = {"limit": LIMIT, "rounds": 3, "bench": "fake_bench:FakeBench"} | settings
    entry = measure([job], Settings([0, 1], **settings))[0]
    return {candidate.options["algorithm"]: candidate for candidate in entry.candidates}, entry


def test_the_slowest_rank_counts():
    uneven = {"algorithm": "uneven", "us": (1.0, 11.0)}
    found, entry = run(FAST, uneven)
    assert {name: candidate.us for name, candidate in found.items()} == {"rule": 12.0, "fast": 9.0, "uneven": 11.0}
    assert [candidate.options["algorithm"] for candidate in entry.candidates] == ["fast", "uneven", "rule"]
    assert entry.best().options["algorithm"] == "fast" and found["rule"].is_rule and not found["fast"].is_rule


@pytest.mark.parametrize(
    "how, why",
    [
        ("hangs", "hangs: rank 0 was ended after 4 s"),
        ("hangs when timed", "hangs: rank 1 was ended after 4 s"),
        ("raises", "every rank: RuntimeError: no kernel for bad"),
        ("raises on 1", "rank 1: RuntimeError: no kernel for bad"),
        ("raises and loses the GPU", "rank 0: RuntimeError: no kernel for bad"),
        ("dies", "rank 1: the process ended with exit code 9: a fault in the driver"),
        ("dies and warns", "rank 1: the process ended with exit code 1: KeyError: 'nic.rate'"),
        (
            "wrong",
            "every rank: ValueError: wrong result: wrong, not right",
        ),
    ],
)
def test_a_bad_candidate_is_recorded_and_the_rest_is_measured(how, why):
    bad = {"algorithm": "bad", "us": (1.0, 1.0), "how": how}
    found, entry = run(bad, FAST)
    assert found["bad"].us is None
    either = how in ("hangs", "raises and loses the GPU")  # rank is noticed first
    assert found["bad"].failure in (why, why.replace("rank 0", "rank 1") if either else why)
    assert (found["rule"].us, found["fast"].us) == (12.0, 9.0)
    assert entry.best().options == FAST


def test_several_that_hang():
    hanging = [{"algorithm": f"bad{number}", "us": (1.0, 1.0), "how": "hangs"} for number in range(2)]
    found, _ = run(*hanging, FAST)
    assert found["bad0"].failure and found["bad1"].failure and found["fast"].us == 9.0


def test_the_rule_itself_may_fail():
    job = Job(Problem("ag_gemm", "bf16", 2, 128, 64, 64), [RULE | {"how": "raises"}, FAST])
    entry = measure([job], Settings([0, 1], limit=LIMIT, rounds=3, bench="fake_bench:FakeBench"))[0]
    assert entry.best().options == FAST


def test_operands_that_cannot_be_made():
    """The problem fails, and the next one is measured."""
    jobs = [Job(Problem("ag_gemm", "bf16", 2, rows, 64, 64), [RULE, FAST]) for rows in (666, 128)]
    first, second = measure(jobs, Settings([0, 1], limit=LIMIT, rounds=3, bench="fake_bench:FakeBench"))
    assert first.best() is None and "operands" in first.candidates[0].failure
    assert second.best().options == FAST


def test_a_candidate_far_behind_is_sampled_less_and_has_a_time():
    slow = {"algorithm": "slow", "us": (90.0, 95.0)}
    found, _ = run(slow, FAST, rounds=6)
    assert found["slow"].us == 95.0


def test_what_cannot_start():
    with pytest.raises(DitronError, match="no GPU of that number"):
        run(bench="fake_bench:NoBench")


def test_the_time_for_everything():
    begin = time.monotonic()
    found, _ = run({"algorithm": "bad", "us": (1.0, 1.0), "how": "hangs"}, FAST, limit=60.0, total=4.0)
    assert time.monotonic() - begin < 30
    assert found["fast"].failure == "not measured: the time for everything was over"


def test_nobody_is_left_behind():
    """Every process that was started has ended, also those of candidates that hung."""
    script = (
        "import os, test_tuning_processes as t\n"
        "t.run({'algorithm': 'bad', 'us': (1.0, 1.0), 'how': 'hangs'}, t.FAST)\n"
        "print(os.system('pgrep -P %d' % os.getpid()))"
    )
    here = os.path.dirname(__file__)
    env = os.environ | {"PYTHONPATH": os.pathsep.join([here, *filter(None, sys.path)])}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, env=env)
    children = done.stdout.splitlines()[:-1]
    assert len(children) == 1, done.stdout + done.stderr  # the shell of os.system itself


def test_a_parent_that_is_killed_takes_its_children_along(tmp_path):
    script = (
        "import test_tuning_processes as t\n"
        "t.run({'algorithm': 'bad', 'us': (1.0, 1.0), 'how': 'hangs'}, limit=1000.0, total=1000.0)\n"
    )
    here = os.path.dirname(__file__)
    env = os.environ | {
        "PYTHONPATH": os.pathsep.join([here, *filter(None, sys.path)]),
        "TMPDIR": str(tmp_path),
    }
    parent = subprocess.Popen([sys.executable, "-c", script], env=env)

    def workers():
        listed = subprocess.run(["pgrep", "-f", f"ditron.tuning.worker {tmp_path}"], capture_output=True, text=True)
        return listed.stdout.split()

    for _ in range(600):
        if len(workers()) == 2:
            break
        time.sleep(0.1)
    assert len(workers()) == 2
    time.sleep(1.0)  # they ask to be ended with their parent first thing
    parent.kill()
    parent.wait()
    for _ in range(100):
        if not workers():
            break
        time.sleep(0.1)
    assert not workers()
