"""Launches whose programs have nothing to do with each other, on several cores: the same results, the same errors."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import paths
import pytest
import torch
import triton
import triton.language as tl
from numerics import assert_product

import ditron
from ditron import sim
from ditron.sim.plain import run as plain

CORES = 4
N = 1 << 16
FOLDERS = [os.path.dirname(__file__), str(paths.ROOT / "test/python/support")]  # what this file imports


@pytest.fixture(autouse=True)
def cores(monkeypatch):
    """More threads than cores find more."""
    monkeypatch.setenv("DITRON_SIM_THREADS", str(CORES))
    monkeypatch.setattr("ditron.sim.plain.run._machines", plain._Machines())


@triton.jit
def scale(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, i < n) * 2 + tl.num_programs(0), i < n)


@triton.jit
def product(a, b, c, N: tl.constexpr, BLOCK: tl.constexpr):
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    cols = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    acc = tl.zeros((BLOCK, BLOCK), tl.float32)
    for k in range(0, N, BLOCK):
        ks = k + tl.arange(0, BLOCK)
        acc = tl.dot(tl.load(a + rows[:, None] * N + ks), tl.load(b + ks[:, None] * N + cols), acc)
    tl.store(c + rows[:, None] * N + cols, acc)


@triton.jit
def histogram(x, out, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(out + tl.load(x + i) % 8, 1)
    tl.atomic_max(out + 8, tl.program_id(0))


@triton.jit
def collatz(out, BLOCK: tl.constexpr):
    n, steps = tl.program_id(0) + 1, 0
    while n != 1:
        n = tl.where(n % 2 == 0, n // 2, 3 * n + 1)
        steps += 1
    tl.store(out + tl.program_id(0), steps)


@triton.jit
def sum_of_floats(x, out, BLOCK: tl.constexpr):
    tl.atomic_add(out, tl.sum(tl.load(x + tl.program_id(0) * BLOCK + tl.arange(0, BLOCK))))


@triton.jit
def tickets(out, BLOCK: tl.constexpr):
    tl.store(out + tl.program_id(0), tl.atomic_add(out + BLOCK, 1))


@triton.jit
def lock(out, BLOCK: tl.constexpr):
    while tl.atomic_cas(out, 0, 1) != 0:
        pass
    tl.store(out + 1, tl.load(out + 1) + 1)
    tl.atomic_xchg(out, 0)


@triton.jit
def in_turn(out, BLOCK: tl.constexpr):
    """Each program waits for the one before it, by an ordinary load."""
    me = tl.program_id(0)
    seen = tl.load(out)
    while seen != me:
        seen = tl.load(out)
    tl.store(out, seen + 1)


@triton.jit(noinline=True)
def look(out):
    return tl.load(out)


@triton.jit
def in_turn_apart(out, BLOCK: tl.constexpr):
    """The same, by a load in a function."""
    me = tl.program_id(0)
    while look(out) != me:
        pass
    tl.store(out, me + 1)


@triton.jit
def says(x, BLOCK: tl.constexpr):
    tl.device_print("here", tl.program_id(0))


@ditron.jit
def who(out, BLOCK: tl.constexpr):
    tl.store(out + tl.program_id(0), ditron.language.rank())


@ditron.jit
def meets(out, BLOCK: tl.constexpr):
    ditron.language.barrier_all()


@pytest.mark.parametrize(
    "kernel, expected",
    [
        (scale, True),
        (histogram, True),
        (collatz, True),
        (sum_of_floats, False),
        (tickets, False),
        (lock, False),
        (in_turn, False),
        (in_turn_apart, False),
        (says, False),
    ],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_which_are_independent(kernel, expected):
    out = torch.zeros(16, dtype=torch.float32 if kernel in (scale, sum_of_floats) else torch.int32)
    with sim.triton():
        args = {scale: (out, out, 16), histogram: (out, out), sum_of_floats: (out, out)}.get(kernel, (out,))
        assert kernel.warmup(*args, BLOCK=8, grid=(1,)).code.independent is expected


def test_results_are_equal():
    x = torch.randn(N)
    a, b = torch.randn(2, 256, 256)
    counts = torch.randint(0, 8, (N,), dtype=torch.int32)
    out, c, steps = torch.empty(N), torch.empty(256, 256), torch.zeros(300, dtype=torch.int32)
    found = torch.zeros(9, dtype=torch.int32)
    with sim.triton():
        for _ in range(5):
            found.zero_()
            scale[(N // 64,)](x, out, N, BLOCK=64)
            product[(8, 8)](a, b, c, N=256, BLOCK=32)
            histogram[(N // 64,)](counts, found, BLOCK=64)
            collatz[(300,)](steps, BLOCK=1)
            assert torch.equal(out, x * 2 + N // 64)
            assert_product(c, a, b)
            assert found[:8].tolist() == counts.bincount(minlength=8).tolist() and found[8] == N // 64 - 1
            assert steps[26] == 111 and steps[0] == 0


def threads_used() -> int:
    """How many threads ran programs of a launch: those whose CPU time grew."""

    def times() -> dict[str, int]:
        base = "/proc/self/task"
        ticks = {}
        for task in os.listdir(base):
            with open(f"{base}/{task}/schedstat") as file:
                ticks[task] = int(file.read().split()[0])
        return ticks

    a, b = torch.randn(2, 1024, 1024)
    c = torch.empty(1024, 1024)
    product[(16, 16)](a, b, c, N=1024, BLOCK=64)
    before = times()
    product[(16, 16)](a, b, c, N=1024, BLOCK=64)
    return sum(after - before.get(task, 0) > 1_000_000 for task, after in times().items())


@pytest.mark.skipif(not os.path.exists("/proc/self/schedstat"), reason="needs Linux's accounts of threads")
def test_several_threads_work(monkeypatch):
    with sim.triton():
        assert threads_used() > 1
        monkeypatch.setenv("DITRON_SIM_THREADS", "1")
        monkeypatch.setattr("ditron.sim.plain.run._machines", plain._Machines())
        assert threads_used() == 1


@triton.jit
def wild(x, BLOCK: tl.constexpr):
    if tl.program_id(0) >= 5:
        tl.store((x.to(tl.int64) + 0x7F0000000000).to(tl.pointer_type(tl.float32)), 1.0)  # only the CPU can tell
    for _ in range(100):
        tl.store(x, tl.load(x) * 0 + 1)


@triton.jit
def asserts(x, BLOCK: tl.constexpr):
    tl.device_assert(tl.program_id(0) < 9, "too far")
    tl.store(x + tl.program_id(0), 1.0)


@triton.jit
def divides(x, n, BLOCK: tl.constexpr):
    tl.store(x + tl.program_id(0), (10 // (tl.program_id(0) - 11 * n)).to(tl.float32))


@pytest.mark.parametrize(
    "kernel, says, program, line, arguments",
    [(wild, "load or store", 5, 3, ()), (asserts, "too far", 9, 2, ()), (divides, "divided by zero", 11, 2, (1,))],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_errors_name_the_line_and_the_first_program(kernel, says, program, line, arguments):
    first = kernel.fn.__code__.co_firstlineno
    x = torch.zeros(4096)
    with sim.triton():
        for _ in range(5):
            with pytest.raises(ditron.SimulationError, match=says) as caught:
                kernel[(4096,)](x, *arguments, BLOCK=1, **({"debug": True} if kernel is asserts else {}))
            assert caught.value.program == (program, 0, 0)
            assert caught.value.location.split(":")[-2] == str(first + line)
        scale[(4,)](torch.ones(16), x, 16, BLOCK=4)  # and the next launch works
        assert x[1] > 0


def test_ranks_run_in_parallel_without_a_seed():
    def main() -> tuple[list[float], list[int]]:
        ditron.init()
        out, x = torch.empty(N), torch.arange(N, dtype=torch.float32)
        scale[(N // 64,)](x, out, N, BLOCK=64)
        ranks = torch.zeros(64, dtype=torch.int32)
        who[(64,)](ranks, BLOCK=1)
        meets[(1,)](ranks, BLOCK=1)
        assert torch.equal(out, x * 2 + N // 64)
        return ranks.unique().tolist()

    assert sim.run(main, ranks=3, races=False) == [[0], [1], [2]]
    assert sim.run(main, ranks=3, races=False, seed=1) == [[0], [1], [2]]
    assert sim.run(main, ranks=3) == [[0], [1], [2]]


def test_two_machines_share_the_cores():
    """In two threads, each with a machine of its own."""
    results = []

    def main() -> int:
        x, out = torch.arange(N, dtype=torch.float32), torch.empty(N)
        right = 0
        for _ in range(20):
            scale[(N // 64,)](x, out, N, BLOCK=64)
            right += torch.equal(out, x * 2 + N // 64)
        return right

    threads = [threading.Thread(target=lambda: results.append(sim.run(main, ranks=1, races=False))) for _ in range(2)]
    with sim.triton():
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    assert results == [[20], [20]]


FORKS = """
import os, sys, torch, triton, triton.language as tl
sys.path[:0] = {folders!r}
import test_parallel as t
from ditron import sim
from ditron.sim import plain
torch.manual_seed(0)
x = torch.randn(t.N)  # by one thread: torch's others would not survive the fork
out = torch.empty(t.N)
with sim.triton():
    t.scale[(t.N // 64,)](x, out, t.N, BLOCK=64)
    child = os.fork()
    out.zero_()
    t.scale[(t.N // 64,)](x, out, t.N, BLOCK=64)
    good = torch.equal(out, x * 2 + t.N // 64)
    if child == 0:
        os._exit(0 if good else 1)
    assert good and os.waitpid(child, 0)[1] == 0
"""


def test_a_fork_can_go_on(tmp_path):
    script = tmp_path / "forks.py"
    script.write_text(FORKS.format(folders=FOLDERS))
    done = subprocess.run(
        [sys.executable, str(script)],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "DITRON_SIM_THREADS": "4"},
    )
    assert done.returncode == 0, done.stderr


@triton.jit
def long(x, rounds, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + i)
    for _ in range(rounds):
        value = tl.sqrt(value * value + 1)
    tl.store(x + i, value)


INTERRUPT = """
import signal, sys, threading, os, torch
sys.path[:0] = {folders!r}
import test_parallel as t
from ditron import sim
from ditron.sim import plain
x = torch.rand(1024 * 4096)
with sim.triton():
    t.long[(2,)](x, 1, BLOCK=1024)
    threading.Timer(1.0, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    try:
        t.long[(4096,)](x, 100000, BLOCK=1024)
    except KeyboardInterrupt:
        print("interrupted")
"""


def test_a_long_launch_can_be_interrupted(tmp_path):
    script = tmp_path / "interrupt.py"
    script.write_text(INTERRUPT.format(folders=FOLDERS))
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=240)
    assert done.stdout == "interrupted\n", done.stdout + done.stderr
