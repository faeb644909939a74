"""What operators run where tables know better: one answer for all ranks, asked for at every call."""

import logging
import threading
import time

import pytest
import torch

import ditron
import ditron.sim
from ditron import kernels
from ditron.distributed.group import Group
from ditron.tuning import lookup, processes, tables
from ditron.tuning.lookup import tuned
from ditron.tuning.problem import Problem, bucket_of
from ditron.tuning.tables import Entry, Measured, Table, versions
from ditron_compiler.errors import DitronError

OVERLAPPED = {"algorithm": "overlapped", "pieces": 4}
SEQUENTIAL = {"algorithm": "sequential"}


def table(*problems, candidates=((SEQUENTIAL, 10.0), (OVERLAPPED, 20.0)), ranks=2):
    made = Table("h200", ranks, versions())
    for problem in problems:
        made.add(Entry(problem, [Measured(dict(options), us) for options, us in candidates]))
    return made


def ask(group, algorithm=None, given=None, rows=128, N=64, K=32):
    return tuned("ag_gemm", group, algorithm, given or {}, torch.bfloat16, rows, N, K)


@pytest.fixture(autouse=True)
def settings(monkeypatch):
    monkeypatch.setattr(lookup._Settings, "lazily", None)
    monkeypatch.setattr(lookup._Settings, "simulator", None)


KNOWN = Problem("ag_gemm", "bf16", 2, 128, 64, 32)


def test_the_simulator_looks_at_no_table(monkeypatch):
    monkeypatch.setattr(lookup, "tables_of", lambda *_: pytest.fail("tables were read"))

    def main():
        return ask(ditron.init())

    assert ditron.sim.run(main, ranks=2) == [(None, {})] * 2


def test_asked_to_the_simulator_runs_what_a_table_says(monkeypatch):
    """The result is right with it, too; rows are rounded up to a bucket."""
    problem = Problem("all_reduce", "bf16", 2, 512)
    monkeypatch.setattr(
        lookup, "tables_of", lambda *_: table(problem, candidates=[({"algorithm": "two_shot", "block": 64}, 1.0)])
    )
    ditron.tuning.enable(simulator="h200")

    def main():
        group = ditron.init()
        total = kernels.all_reduce(torch.full((500,), 1.0 + group.rank).bfloat16())
        return total.unique().tolist(), group.choices.made

    for values, made in ditron.sim.run(main, ranks=2):
        assert values == [3.0]
        assert made == {("all_reduce", torch.bfloat16, 500, 0, 0, None): ("two_shot", {"block": 64})}


@pytest.mark.parametrize(
    "name, expected",
    [
        ("zzz", "simulator='zzz' is no machine: expected .*h200, "),
        ("h200x2", "simulator='h200x2' is no machine: 'h200' is meant, with as many ranks as are simulated"),
        (True, "simulator=True is no machine: expected .*h200, "),
    ],
)
def test_a_machine_that_is_not_known(monkeypatch, tmp_path, name, expected):
    monkeypatch.setenv("DITRON_CACHE_DIR", str(tmp_path))
    with pytest.raises(DitronError, match=expected):
        ditron.tuning.enable(simulator=name)


def test_a_machine_of_the_users_tables(monkeypatch, tmp_path):
    monkeypatch.setenv("DITRON_CACHE_DIR", str(tmp_path))
    Table("b300", 4, versions()).save(tables.user_path("b300", 4))
    ditron.tuning.enable(simulator="b300")
    assert lookup._Settings.simulator == "b300"


def test_what_the_caller_names_wins(monkeypatch):
    monkeypatch.setattr(lookup, "tables_of", lambda *_: table(KNOWN))
    ditron.tuning.enable(simulator="h200")

    def main():
        group = ditron.init()
        return [
            ask(group),
            ask(group, "overlapped"),
            ask(group, "nccl"),
            ask(group, None, {"pieces": 1}),
            ask(group, "overlapped", {"pieces": 1}),
            ask(group, rows=256),
        ]

    for found in ditron.sim.run(main, ranks=2):
        assert found == [
            ("sequential", {}),
            ("overlapped", {"pieces": 4}),
            ("nccl", {}),
            (None, {"pieces": 1}),
            ("overlapped", {"pieces": 1}),
            (None, {}),
        ]


@pytest.mark.parametrize("chunk", [1 << 16, 64], ids=["one message", "many messages"])
def test_ranks_with_different_tables_choose_alike(monkeypatch, chunk):
    """Rank 0's counts: the others' files are not looked at, not even where rank 0 has none."""
    several = [Problem("ag_gemm", "bf16", 3, 1 << k, 64, 32) for k in range(6, 20)]
    by_rank = [table(*several, ranks=3), table(ranks=3), table(*several[:1], candidates=[(OVERLAPPED, 1.0)], ranks=3)]
    monkeypatch.setattr(lookup, "tables_of", lambda *_: by_rank[ditron.rank()])
    monkeypatch.setattr(lookup, "_CHUNK", chunk)
    ditron.tuning.enable(simulator="h200")

    def main():
        group = ditron.init()
        pair = ditron.new_group([2, 1])
        mine = ask(pair) if pair else None
        return ask(group, rows=128), mine

    world = ("sequential", {})
    assert ditron.sim.run(main, ranks=3) == [(world, None), (world, (None, {})), (world, (None, {}))]


def test_a_first_call_that_names_everything_on_one_rank(monkeypatch):
    """It still takes part in the agreement, or the others would wait for it."""
    monkeypatch.setattr(lookup, "tables_of", lambda *_: table(KNOWN))
    ditron.tuning.enable(simulator="h200")

    def main():
        group = ditron.init()
        return ask(group, "sequential", {"pieces": 1}) if group.rank else ask(group)

    assert ditron.sim.run(main, ranks=2) == [("sequential", {}), ("sequential", {"pieces": 1})]


class ThreadGroup(Group):
    """Ranks on GPUs that are not there, as threads."""

    meetings: dict = {}

    def __init__(self, rank, ranks, shared):
        super().__init__(range(ranks), rank, "p2p", torch.device("cpu"), ranks)
        self.shared, self.turn = shared, 0

    def all_gather_object(self, value):
        self.turn += 1
        values, barrier = self.shared
        values[self.turn, self.rank] = value
        barrier.wait(30)
        return [values[self.turn, rank] for rank in range(self.num_ranks)]

    def barrier(self):
        self.all_gather_object(None)


def on_ranks(function, ranks=2):
    shared, results = ({}, threading.Barrier(ranks)), [None] * ranks

    def run(rank):
        results[rank] = function(ThreadGroup(rank, ranks, shared))

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(ranks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return results


@pytest.fixture
def gpus(monkeypatch, tmp_path):
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "NVIDIA H200")
    monkeypatch.setattr(tables, "shipped_path", lambda machine, ranks: tmp_path / "none.json")
    monkeypatch.setenv("DITRON_CACHE_DIR", str(tmp_path))
    return tmp_path / "tuning" / "h200x2.json"


def test_an_unknown_bucket_is_tuned_at_its_first_call(monkeypatch, gpus, caplog):
    """Once, on rank 0's behalf; every rank gets what was found, and so does the next process."""
    calls = []

    def tune_one(problem, devices, limit, machine, top):
        calls.append((threading.current_thread(), problem, list(devices), limit))
        return table(problem).entries[problem]

    monkeypatch.setattr(processes, "tune_one", tune_one)
    ditron.tuning.enable()
    with caplog.at_level(logging.INFO, "ditron.tuning"):
        assert on_ranks(lambda group: (ask(group), ask(group))) == [(("sequential", {}),) * 2] * 2
    assert [call[1:] for call in calls] == [(KNOWN, [0, 0], 30.0)]
    assert "ag_gemm M=256 N=64 K=32 bf16, 2 ranks is tuned" in caplog.text
    assert Table.from_text(gpus.read_text()).entries.keys() == {KNOWN}
    ditron.tuning.lookup._Settings.lazily = None
    assert on_ranks(ask) == [("sequential", {})] * 2
    assert len(calls) == 1


def test_what_cannot_be_tuned_runs_by_the_rule(monkeypatch, gpus, caplog):
    def tune_one(*_):
        raise OSError("no process can start")

    monkeypatch.setattr(processes, "tune_one", tune_one)
    monkeypatch.setenv("DITRON_TUNE", "1")
    assert on_ranks(lambda group: (ask(group), ask(group))) == [((None, {}),) * 2] * 2
    assert len(caplog.records) == 1 and "cannot be tuned: OSError: no process can start" in caplog.text


def test_an_entry_without_a_time_is_not_kept(monkeypatch, gpus, caplog):
    """The group does not tune it again; the next process does."""
    calls = []

    def tune_one(problem, *_):
        calls.append(problem)
        return Entry(
            problem, [Measured(SEQUENTIAL, None, "not measured: no time"), Measured(OVERLAPPED, None, "hangs")]
        )

    monkeypatch.setattr(processes, "tune_one", tune_one)
    monkeypatch.setenv("DITRON_TUNE", "1")
    assert on_ranks(lambda group: (ask(group), ask(group, rows=127))) == [((None, {}),) * 2] * 2
    assert not gpus.exists() and len(calls) == 1
    assert len(caplog.records) == 1 and "nothing was measured, and nothing is kept: not measured: no" in caplog.text


def test_what_cannot_be_kept_is_used(monkeypatch, gpus, caplog):
    monkeypatch.setattr(processes, "tune_one", lambda problem, *_: table(problem).entries[problem])
    gpus.parent.write_text("a file where the folder should be")
    monkeypatch.setenv("DITRON_TUNE", "1")
    assert on_ranks(ask) == [("sequential", {})] * 2
    last = caplog.records[-1].getMessage()
    assert "was tuned and runs what was found, which cannot be kept" in last and "cannot be tuned" not in caplog.text


def test_nothing_is_tuned_in_a_capture(monkeypatch, gpus, caplog):
    """The rule's choice is captured, and a later call outside of one is tuned."""
    monkeypatch.setattr(processes, "tune_one", lambda problem, *_: table(problem).entries[problem])
    capturing = [True, True]
    monkeypatch.setattr(lookup, "_is_capturing", lambda group: capturing[group.rank])
    ditron.tuning.enable()

    def main(group):
        captured = ask(group)
        capturing[group.rank] = False
        return captured, ask(group)

    with caplog.at_level(logging.INFO, "ditron.tuning"):
        assert on_ranks(main) == [((None, {}), ("sequential", {}))] * 2
    assert sum("while a CUDA graph is captured" in record.message for record in caplog.records) == 2  # one per rank


def test_off(monkeypatch, gpus):
    monkeypatch.setattr(lookup, "tables_of", lambda *_: pytest.fail("tables were read"))
    monkeypatch.setenv("DITRON_TUNE", "0")
    assert on_ranks(ask) == [(None, {})] * 2
    monkeypatch.delenv("DITRON_TUNE")
    ditron.tuning.disable()
    assert on_ranks(ask) == [(None, {})] * 2


def test_nccl_runs_by_itself_only_where_the_group_has_it(monkeypatch, gpus):
    """And where sums are not rounded otherwise: not for gemm_rs."""
    problems = [Problem(name, "bf16", 2, 128, 64, 32) for name in ("ag_gemm", "gemm_rs")]
    found = table(*problems, candidates=[({"algorithm": "nccl"}, 1.0), (SEQUENTIAL, 2.0)])
    monkeypatch.setattr(lookup, "tables_of", lambda *_: found)

    def main(group):
        return [tuned(p.operator, group, None, {}, torch.bfloat16, 128, 64, 32)[0] for p in problems]

    assert on_ranks(main)[0] == ["sequential", "sequential"]
    monkeypatch.setattr(lookup, "has_nccl", lambda group: True)
    assert on_ranks(main)[0] == ["nccl", "sequential"]


def test_a_lookup_is_cheap(monkeypatch, gpus):
    monkeypatch.setattr(lookup, "tables_of", lambda *_: table(Problem("ag_gemm", "bf16", 1, 128, 64, 32), ranks=1))

    def main(group):
        ask(group)
        given, dtype, best = {}, torch.bfloat16, float("inf")
        for _ in range(50):
            begin = time.perf_counter()
            for _ in range(1000):
                tuned("ag_gemm", group, None, given, dtype, 128, 64, 32)
            best = min(best, (time.perf_counter() - begin) / 1000)
        return best

    assert on_ranks(main, 1)[0] < 1e-6


@pytest.mark.parametrize("options", [{"algorithm": "overlapped"}, {"algorithm": "fused"}], ids=lambda o: o["algorithm"])
def test_what_a_table_says_takes_any_operand(monkeypatch, options):
    """Where TMA does not reach the caller's tensor, it is copied: a table is no reason for an error."""
    problem = Problem("gemm_ar", "bf16", 2, 8, 32, 64)
    monkeypatch.setattr(lookup, "tables_of", lambda *_: table(problem, candidates=[(options, 1.0)]))
    ditron.tuning.enable(simulator="h200")

    def main():
        group = ditron.init()
        a, b = torch.ones(8 * 64 + 1).bfloat16()[1:].view(8, 64), torch.ones(32, 64).bfloat16()
        assert a.data_ptr() % 16
        return kernels.gemm_ar(a, b).unique().tolist(), [choice for choice in group.choices.made.values() if choice]

    for values, chosen in ditron.sim.run(main, ranks=2):
        assert values == [128.0] and chosen == [(options["algorithm"], {})]


def test_buckets():
    assert [bucket_of(rows) for rows in (1, 8, 9, 64, 65, 2048, 2049)] == [8, 8, 16, 64, 128, 2048, 4096]


def test_what_is_remembered_is_bounded(monkeypatch, gpus):
    monkeypatch.setattr(lookup, "tables_of", lambda *_: table(KNOWN))
    monkeypatch.setattr(lookup, "_MOST", 10)

    def main(group):
        found = {ask(group, rows=rows)[0] for rows in range(65, 129)}
        return found, len(group.choices.made) <= 10

    assert on_ranks(main) == [({"sequential"}, True)] * 2
