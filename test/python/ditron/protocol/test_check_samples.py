"""Values of arguments by samples, what is not known, and limits of time and memory."""

from __future__ import annotations

import time

import pytest
import torch
import triton.language as tl
from data_patterns import PATTERNS as DATA

import ditron
import ditron.host as dh
import ditron.language as dl
from ditron.cli import main as command
from ditron.protocol.api import check_function, check_program
from ditron_compiler.errors import DitronError

N = 16
PAIR = [(2, None)]


@ditron.jit(pipeline="as-written", do_not_specialize=["epoch"])
def scatter_rows(x, rows, box, flags, out, epoch, M: tl.constexpr, N: tl.constexpr):
    """Rows go to the places that a table names, and are read from there."""
    at, right = tl.arange(0, N), (dl.rank() + 1) % dl.num_ranks()
    for i in range(M):
        dl.putmem_nbi(box + tl.load(rows + i) * N, x + i * N, N * 4, right)
    dl.fence()
    dl.signal_op(flags, epoch, right)
    here = dl.consume_token(box, dl.wait(flags, 1, epoch))
    for i in range(M):
        tl.store(out + i * N + at, tl.load(here + tl.load(rows + i) * N + at))
    dl.barrier_all()


def exchange(sample_args):
    @ditron.program(sample_args=sample_args, max_nodes=1)
    def exchange(x, rows, out):
        box = dh.symm_empty(4, N, dtype=x.dtype, name="box")
        flags = dh.symm_zeros(1, dtype=torch.int64, name="flags")
        scatter_rows[(1,)](x, rows, box, flags, out, dh.epoch(), M=4, N=N)

    return exchange


def rows_are(spec):
    return exchange(lambda ranks: {"x": f"f32[4, {N}]", "rows": spec, "out": f"f32[4, {N}]"})


def drawn(ranks, generator):
    rows = torch.randperm(4, generator=generator).int()
    return {"x": f"f32[4, {N}]", "rows": rows, "out": f"f32[4, {N}]"}


@pytest.mark.parametrize(("program", "kinds"), [
    (rows_are("i32[4] = permutation"), set()),
    (rows_are("i32[4] = arange"), set()),
    (rows_are("i32[4] = [3, 1, 0, 2]"), set()),
    (rows_are("i32[4] = 0..4"), {"writers"}),  # of three samples, one at least has a row twice
    (rows_are("i32[4] = 1"), {"writers"}),
    (rows_are("i32[4] = [0, 1, 2, 4]"), {"bounds"}),
    (exchange(drawn), set()),
    (rows_are(lambda generator: torch.randperm(4, generator=generator)), set()),
    (rows_are(lambda generator: torch.randint(0, 4, (4,), generator=generator)), {"writers"}),
], ids=["permutation", "arange", "list", "random", "constant", "too-large", "callable", "argument", "argument, random"])  # fmt: skip
def test_arguments_have_values(program, kinds):
    report = check_program(program, PAIR)
    assert {finding.kind for finding in report.findings} == kinds and report.is_complete, str(report)


def test_values_that_are_none():
    with pytest.raises(DitronError, match="expected a tensor as"):
        check_program(rows_are("i32[4] = sorted"), PAIR)


def test_without_values_nothing_is_claimed():
    report = check_program(rows_are("i32[4]"), PAIR)
    assert not report.findings and not report.is_complete
    assert str(report).endswith("sample_args={'rows': 'i32[4] = permutation', ...}"), str(report)


SCRIPT = """
import torch, ditron, triton.language as tl, ditron.language as dl

@ditron.jit(pipeline="as-written")
def store(where, box, N: tl.constexpr):
    tl.store(box + tl.load(where + tl.program_id(0)) * N + tl.arange(0, N), 1.0)

ditron.init()
where = torch.randint(0, 8, (2,), dtype=torch.int32)
store[(2,)](where, torch.zeros(8, 16), N=16)
"""


def test_samples_of_a_script(tmp_path, capsys):
    """Two programs write the same row in one sample of eight."""
    file = tmp_path / "script.py"
    file.write_text(SCRIPT)
    assert command(["check", "--ranks", "1", "--samples", "1", str(file)]) == 0
    assert command(["check", "--ranks", "1", "--samples", "40", str(file)]) == 1
    assert "[writers]" in capsys.readouterr().out


@ditron.jit(pipeline="as-written")
def decided_by_data(x, box, flags, n, out, N: tl.constexpr, HOW: tl.constexpr):
    """What happens depends on n[0], which is not known."""
    rank, at = dl.rank(), tl.arange(0, N)
    right, seen = (rank + 1) % dl.num_ranks(), tl.load(n)
    if HOW == "signal":
        dl.putmem_signal(box, x, N * 4, flags, seen, right)
        tl.store(out + at, tl.load(dl.consume_token(box, dl.wait(flags, 1, 1)) + at))
    elif HOW == "branch":
        dl.putmem(box, x, N * 4, right)
        if seen > 0:
            dl.notify(flags, right, 1)
        tl.store(out + at, tl.load(dl.consume_token(box, dl.wait(flags, 1, 1)) + at))
    elif HOW == "wait":
        dl.putmem_signal(box, x, N * 4, flags, 1, right)
        if seen > 0:
            dl.wait(flags, 1, 1)
        tl.store(out + at, tl.load(box + at))
    elif HOW == "loop":
        dl.putmem(box, x, N * 4, right)
        for _ in range(seen):
            dl.notify(flags, right, 1, op="add")
        tl.store(out + at, tl.load(dl.consume_token(box, dl.wait(flags, 1, 3)) + at))
    elif HOW == "peer":
        dl.putmem_signal(box, x, N * 4, flags, 1, seen)
        tl.store(out + at, tl.load(dl.consume_token(box, dl.wait(flags, 1, 1)) + at))
    elif HOW == "stored":
        dl.putmem_signal(box, x, N * 4, flags, 1, right)
        tl.store(n + 1, seen)
        for _ in range(tl.load(n + 1)):
            dl.wait(flags, 1, 1)
        tl.store(out + at, tl.load(box + at))
    elif HOW == "address":
        dl.putmem_signal(box, x, N * 4, flags, 1, right)
        tl.store(dl.symm_at(box, right) + seen + at, tl.load(x + at))
        tl.store(out + at, tl.load(dl.consume_token(box, dl.wait(flags, 1, 1)) + at))
    elif HOW == "return":
        dl.putmem_signal(box, x, N * 4, flags, 1, right)
        if seen > 0:
            return
        dl.wait(flags, 1, 2)
    elif HOW == "poll":
        dl.putmem_signal(box, x, N * 4, flags, 1, right)
        while dl.ld(n, semantic="acquire") != 1:
            pass
        tl.store(out + at, tl.load(box + at))


def run_decided_by_data(how):
    ditron.init()
    box = ditron.symm_zeros(2, N, dtype=torch.float32, name="box")
    flags = ditron.symm_zeros(1, dtype=torch.int64, name="flags")
    n = torch.empty(2, dtype=torch.int32)
    decided_by_data[(1,)](torch.ones(N), box, flags, n, torch.empty(N), N=N, HOW=how)


@pytest.mark.parametrize("how", ["signal", "branch", "wait", "loop", "peer", "stored", "address", "return", "poll"])
def test_no_finding_rests_on_what_is_not_known(how):
    report = check_function(lambda: run_decided_by_data(how), [(2, None), (3, None)])
    assert not report.findings and not report.is_complete and report.unknown == ["n"], str(report)


@ditron.jit(pipeline="as-written")
def both_sides(x, n, out, N: tl.constexpr):
    at, pid = tl.arange(0, N), tl.program_id(0)
    if tl.load(n) > 0:
        tl.store(out + at, tl.load(x + at))
    else:
        tl.store(out + N + at, tl.load(x + at))
    tl.store(out + 2 * N * pid + at, 0.0)


def test_both_sides_of_a_branch_are_looked_at():
    """Each program writes what program 0 and program 1 write, on one side or the other."""

    def main():
        ditron.init()
        both_sides[(2,)](torch.ones(N), torch.empty(1, dtype=torch.int32), torch.empty(4 * N), N=N)

    report = check_function(main, [(1, None)])
    first = both_sides.fn.__code__.co_firstlineno
    assert {int(f.loc.split(":")[1]) - first for f in report.findings} <= {4, 7} and report.findings, str(report)
    assert not report.is_complete


@ditron.jit(pipeline="as-written")
def poll_with_a_limit(x, box, flag, out, LIMIT: tl.constexpr, N: tl.constexpr, ANYWAY: tl.constexpr):
    """A program that gives up after some looks; ANYWAY: and reads what has not come."""
    pid, at = tl.program_id(0), tl.arange(0, N)
    if pid == 1:
        tl.store(box + at, tl.load(x + at))
        dl.st(flag, 1, semantic="release")
    else:
        looks, seen = 0, 0
        while (seen == 0) & (looks < LIMIT):
            seen = dl.ld(flag, semantic="acquire")
            looks += 1
        if ANYWAY or seen == 1:
            tl.store(out + at, tl.load(box + at))


@pytest.mark.parametrize("anyway", [False, True])
def test_a_poll_with_a_limit(anyway):
    def main():
        ditron.init()
        flag = torch.zeros(1, dtype=torch.int32)
        poll_with_a_limit[(2,)](torch.ones(N), torch.ones(N), flag, torch.ones(N), LIMIT=9, N=N, ANYWAY=anyway)

    report = check_function(main, [(1, None)])
    assert [finding.kind for finding in report.findings] == ["unordered"] * anyway and report.is_complete, str(report)


ENDLESS = {
    "kernel": """
@ditron.jit
def kernel(flags):
    for i in range(19000):
        for j in range(19000):
            if i > 18990:
                dl.notify(flags, 0, i * j, op="add")
kernel[(1,)](ditron.symm_zeros(1, dtype=torch.int64, name="flags"))
""",
    "host": "while True: pass\n",
    "operations": "while True: torch.zeros(1).add_(1)\n",
}


@pytest.mark.parametrize("what", ENDLESS)
def test_a_limit_of_time_gives_a_partial_verdict(what, tmp_path, capsys):
    file = tmp_path / "endless.py"
    file.write_text("import torch, ditron, ditron.language as dl\nditron.init()\n" + ENDLESS[what])
    start = time.perf_counter()
    assert command(["check", "--ranks", "2", "--time-limit", "1", str(file)]) == 3
    assert time.perf_counter() - start < 30
    assert "stopped after 1 s (--time-limit)" in capsys.readouterr().out.splitlines()[-1]


def test_a_limit_of_memory_gives_a_partial_verdict(tmp_path, capsys):
    file = tmp_path / "script.py"
    file.write_text(SCRIPT)
    assert command(["check", "--memory-limit", "0", str(file)]) == 3
    assert "stopped at 0 GB (--memory-limit)" in capsys.readouterr().out.splitlines()[-1]


def test_a_poll_by_an_addition_takes_no_time():
    report = check_function(lambda: DATA["poll_by_an_atomic"].run("not-sent"), [(4, None)])
    assert report.seconds < 10 and [finding.kind for finding in report.findings] == ["never-signalled"], str(report)


@ditron.jit(pipeline="as-written", do_not_specialize=["epoch"])
def lamport_of_floats(x, box, out, epoch, N: tl.constexpr):
    """An all-reduce whose data is its own flag: -0.0 is what has not come. Of three slots the last one is emptied."""
    rank, ranks, at = dl.rank(), dl.num_ranks(), tl.arange(0, N)
    now, last = box + (epoch % 3) * ranks * N, box + ((epoch + 2) % 3) * ranks * N
    for peer in range(ranks):
        empty = tl.full((N,), -2147483648, tl.int32).to(tl.float32, bitcast=True)
        dl.st(last + peer * N + at, empty, scope="node")
    for peer in range(ranks):
        dl.st(dl.symm_at(now, peer) + rank * N + at, tl.load(x + at), scope="node")
    total = tl.zeros((N,), tl.float32)
    for peer in range(ranks):
        got = dl.ld(now + peer * N + at, scope="node")
        while tl.min(got.to(tl.int32, bitcast=True)) == -2147483648:
            got = dl.ld(now + peer * N + at, scope="node")
        total += got
    tl.store(out + at, total)


def run_lamport_of_floats():
    ditron.init()
    ranks = ditron.num_ranks()
    x, out = torch.ones(N), torch.empty(N)
    box = ditron.symm_empty(3, ranks, N, dtype=torch.float32, name="box")
    box.fill_(-0.0)
    ditron.barrier()
    for epoch in range(1, 6):
        lamport_of_floats[(1,)](x, box, out, epoch, N=N)
    ditron.barrier()
    assert (out == ranks).all()


def test_polled_floats_are_not_followed():
    report = check_function(run_lamport_of_floats, [(2, None), (3, None)])
    assert not report.findings and not report.is_complete, str(report)
    assert "the condition of a loop depends on data" in str(report).splitlines()[-1]
    for seed in range(4):
        ditron.sim.run(run_lamport_of_floats, 3, seed=seed)


def test_arguments_of_a_rank():
    """Who has a parameter of that name gets the rank; another one keeps its default."""
    seen, others = [], []

    def of_rank(ranks, generator, rank):
        seen.append(rank)
        return {"x": "f32[4]", "out": "f32[4]"}

    def with_default(ranks, generator, size=4):
        others.append(size)
        return {"x": f"f32[{size}]", "out": f"f32[{size}]"}

    for sample_args in (of_rank, with_default):

        @ditron.program(sample_args=sample_args, max_nodes=1)
        def program(x, out):
            dh.copy(x, out)

        check_program(program, groups=[(3, None)])
    assert set(seen) == {0, 1, 2} and set(others) == {4}
