"""Tables of measured choices: their files, which are ignored, which entry a problem gets, and which candidate."""

import itertools
import json
import logging
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from ditron import kernels
from ditron._program.execute import executable
from ditron.kernels.schedules import goes_by_rank, product_rule, sent_bytes
from ditron.tuning import compile_ahead, tables
from ditron.tuning.bench import call_of, operands
from ditron.tuning.lookup import GroupChoices
from ditron.tuning.problem import DTYPES, Problem
from ditron.tuning.registry import OPERATORS, candidates_of, rule_of, space_of
from ditron.tuning.search import search
from ditron.tuning.tables import Entry, Measured, Table, tables_of, versions
from ditron_compiler.host import Launch

assert kernels  # declares what can be tuned
RULE = Measured({"algorithm": "overlapped", "block": (128, 256, 64), "pieces": 2}, 100.0, is_rule=True)


def problem(rows=4096, N=5504, K=4096, operator="ag_gemm", ranks=2):
    return Problem(operator, "bf16", ranks, rows, N, K)


def table(*candidates, machine="h200", of=None, **changes):
    made = Table(machine, 2, versions() | changes, {"date": "today"})
    made.add(Entry(of or problem(), list(candidates) or [RULE]))
    return made


@pytest.fixture
def folders(tmp_path, monkeypatch):
    """Where shipped tables and the user's lie."""
    monkeypatch.setattr(tables, "shipped_path", lambda machine, ranks: tmp_path / "shipped" / f"{machine}x{ranks}.json")
    monkeypatch.setenv("DITRON_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "shipped" / "h200x2.json", tmp_path / "cache" / "tuning" / "h200x2.json"


def test_a_file_holds_all_candidates(tmp_path):
    failed = Measured({"algorithm": "sequential"}, None, "hangs: rank 1 was ended after 4 s")
    faster = Measured({"algorithm": "nccl"}, 99.87654)
    made = table(failed, RULE, faster)
    made.save(tmp_path / "t.json")
    read = Table.from_text((tmp_path / "t.json").read_text())
    found = read.entries[problem()].candidates
    assert [c.options for c in found] == [faster.options, RULE.options, failed.options]
    assert [c.us for c in found] == [99.88, 100.0, None]
    assert [c.is_rule for c in found] == [False, True, False] and found[2].failure == failed.failure
    assert (read.machine, read.ranks, read.versions, read.about) == ("h200", 2, versions(), {"date": "today"})
    assert len(json.loads((tmp_path / "t.json").read_text())["entries"]) == 1


@pytest.mark.parametrize(
    "changes, why",
    [
        ({"triton": "3.5"}, "it was measured with triton 3.5, not"),
        ({"kernels": 0}, "it was measured with kernels 0, not"),
        ({"format": 0}, "it was measured with format 0, not"),
        ({"machine": "h100"}, "it was measured on h100 x 2"),
    ],
)
@pytest.mark.parametrize("which", [0, 1], ids=["shipped", "user's"])
def test_what_is_stale_is_ignored_with_a_line(folders, caplog, which, changes, why):
    table(**changes).save(folders[which])
    with caplog.at_level(logging.INFO, "ditron.tuning"):
        assert tables_of("h200", 2).entries == {}
    assert len(caplog.records) == 1
    assert str(folders[which]) in caplog.text and why in caplog.text


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"machine": "h200", "ranks": 2, "versions": {"format": 1}}'])
def test_what_is_no_table_is_ignored_with_a_line(folders, caplog, text):
    folders[1].parent.mkdir(parents=True)
    folders[1].write_text(text)
    assert tables_of("h200", 2).entries == {}
    assert len(caplog.records) == 1 and "not a table of measured choices" in caplog.text


WRONG_ENTRIES = [
    ({"us": "3"}, "us is '3': expected a positive number"),
    ({"us": -1}, "us is -1: expected a positive number"),
    ({"us": float("nan")}, "us is nan: expected a positive number"),
    ({"us": True}, "us is True: expected a positive number"),
    ({"rule": "yes"}, "rule is 'yes': expected true or false"),
    ({"failure": 3}, "failure is 3: expected a string"),
    ({"bogus": 1}, "a candidate has no 'bogus'"),
    ({"options": 3}, "options is an object, not 3"),
    ({"options": {"pieces": 1}}, "options needs algorithm"),
    (
        {"options": {"algorithm": "warp"}},
        "algorithm is 'warp': expected one of by_rank, k_slices, nccl, overlapped, sequential",
    ),
    ({"options": {"algorithm": ["warp"]}}, "algorithm is ['warp']: expected one of"),
    *(
        ({"options": {"algorithm": "overlapped", "block": block}}, f"block is {block!r}: expected 3 powers of two")
        for block in (
            "big",
            0,
            [128, 128],
            [128, 128, 0],
            [128, 100, 64],
            [128, "128", 64],
            [1, 1, 1],
            [4096, 4096, 64],
        )
    ),
    ({"options": {"algorithm": "k_slices", "slice_k": [1 << 17, 1 << 17]}}, "slice_k is [131072, 131072]: expected 2 "),
    ({"options": {"algorithm": "k_slices", "slice_k": [512, 256]}}, "slice_k is [512, 256]: expected from the depth"),
    ({"options": {"algorithm": "k_slices", "block": [64, 64, 64], "slice_k": [32, 64]}}, "slice_k is [32, 64]: expec"),
    ({"options": {"algorithm": "overlapped", "pieces": 1000000}}, "pieces is 1000000: expected at most 64"),
    ({"options": {"algorithm": "overlapped", "stages": 99}}, "stages is 99: expected at most 16"),
    ({"options": {"algorithm": "overlapped", "pieces": "2"}}, "pieces is '2': expected a positive integer"),
    ({"options": {"algorithm": "overlapped", "pieces": 0}}, "pieces is 0: expected a positive integer"),
    ({"options": {"algorithm": "overlapped", "bogus": 1}}, "overlapped of ag_gemm has no option 'bogus'"),
    ({"options": {"algorithm": "sequential", "pieces": 1}}, "sequential of ag_gemm has no option 'pieces'"),
    ({"N": "64"}, "N is '64': expected a positive integer"),
    ({"K": 0}, "K is 0: expected a positive integer"),
    ({"rows": 2.0}, "rows is 2.0: expected a positive integer"),
    ({"N": 10**400}, "N is 1000"),
    ({"operator": "nonesuch"}, "operator is 'nonesuch': expected one of a2a_gemm, ag_gemm"),
    ({"operator": "all_reduce"}, "N is 64: expected 0 of a collective"),
    ({"dtype": "bf15"}, "dtype is 'bf15': expected one of"),
    ({"timing": 3}, "timing is 3: expected one of call, graph"),
    ({"candidates": 3}, "candidates is 3: expected a list"),
    ({"color": "red"}, "an entry has no 'color'"),
]


@pytest.mark.parametrize("change, why", WRONG_ENTRIES, ids=lambda value: str(value)[:60])
def test_a_wrong_entry_is_ignored_with_a_line(folders, caplog, change, why):
    """And the file's others count."""
    made = table()
    made.add(Entry(problem(128, 64, 64), [Measured({"algorithm": "sequential"}, 1.0)]))
    read = json.loads(made.to_text())
    item = next(item for item in read["entries"] if item["rows"] == 128)
    (candidate,) = item["candidates"]
    for name, value in change.items():
        (candidate if name in ("us", "rule", "failure", "bogus", "options") else item)[name] = value
    folders[1].parent.mkdir(parents=True)
    folders[1].write_text(json.dumps(read))
    assert tables_of("h200", 2).entries.keys() == {problem()}
    assert len(caplog.records) == 1
    assert f"{folders[1]}: entry 1 (" in caplog.text and f"is ignored: {why}" in caplog.text


def test_an_entry_that_is_no_object(folders, caplog):
    read = json.loads(table().to_text())
    read["entries"].insert(0, 3)
    folders[1].parent.mkdir(parents=True)
    folders[1].write_text(json.dumps(read))
    assert tables_of("h200", 2).entries.keys() == {problem()}
    assert "entry 1 is ignored: an entry is an object, not 3" in caplog.text and len(caplog.records) == 1


@pytest.mark.parametrize("change", [{"about": 3}, {"versions": []}, {"ranks": "2"}, {"machine": 1}, {"entries": {}}])
def test_a_wrong_head_is_no_table(folders, caplog, change):
    folders[1].parent.mkdir(parents=True)
    folders[1].write_text(json.dumps(json.loads(table().to_text()) | change))
    assert tables_of("h200", 2).entries == {}
    assert len(caplog.records) == 1 and "not a table of measured choices" in caplog.text


def test_a_file_that_cannot_be_read_is_ignored_with_a_line(folders, caplog):
    folders[1].mkdir(parents=True)
    assert tables_of("h200", 2).entries == {}
    assert len(caplog.records) == 1 and str(folders[1]) in caplog.text


def test_shipped_tables_have_no_wrong_entry(caplog):
    for file in (tables.Path(tables.__file__).parent / "tables").glob("*.json"):
        assert len(Table.from_text(file.read_text()).entries) == len(json.loads(file.read_text())["entries"])
    assert not caplog.records


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 8])
def test_all_candidates_make_an_entry(ranks, caplog):
    made = Table("h200", ranks, versions())
    for asked in PROBLEMS:
        for dtype in DTYPES:
            asked = replace(asked, ranks=ranks, dtype=dtype)
            made.add(Entry(asked, [Measured(options, 1.0) for options in candidates_of(asked)]))
    assert Table.from_text(made.to_text()).entries == made.entries and not caplog.records


@pytest.mark.parametrize("operator", ["ag_gemm", "gemm_rs"])
def test_what_a_search_finds_makes_an_entry(operator, folders, caplog):
    asked = problem(2048, 1376, operator=operator)
    candidates = candidates_of(asked)
    found = [options for _, options in search(space_of(asked, 132), lambda options: 1.0, candidates, 80)]
    assert any(options not in candidates and options["stages"] == 5 for options in found)
    made = table(*(Measured(options, 1.0 + n) for n, options in enumerate(found)), of=asked)
    made.save(folders[1])
    assert tables_of("h200", 2).entries == made.entries and not caplog.records


class Launches(compile_ahead._Compiler):
    """Compiles, and remembers what would be launched."""

    def _compile(self, args):
        steps = self.program.evaluate(args, self.group, 5)
        self.group.launched += [
            (step.grid[0], step.options["num_stages"]) for step in steps if isinstance(step, Launch)
        ]
        super()._compile(args)


@pytest.mark.parametrize("operator", ["ag_gemm", "gemm_rs"])
def test_an_operator_runs_what_a_search_found(operator, folders, monkeypatch):
    """From a table's file to the launch: programs and stages that no candidate names."""
    asked = problem(operator=operator)
    searched = {"algorithm": "overlapped", "block": (128, 128, 64), "pieces": 2, "group_m": 4}
    searched |= {"stages": 5, "programs": 116}
    table(RULE, Measured(searched, 90.0), of=asked).save(folders[1])
    monkeypatch.setitem(executable.BACKENDS, "compile", Launches)
    group = compile_ahead.CompileGroup(2, 90, 132)
    group.choices, group.launched = GroupChoices(tables_of("h200", 2)), []
    with group:
        given, _ = operands(asked, 0, group.device)
        call_of(asked, given)(group=group)
    ((algorithm, schedule),) = group.choices.made.values()
    assert {"algorithm": algorithm} | schedule == searched
    assert group.launched == [(116, 5)]


def test_no_file_needs_no_line(folders, caplog):
    assert tables_of("h200", 2).entries == {}
    assert not caplog.records


def test_the_users_entries_come_first(folders):
    shipped = table(Measured({"algorithm": "sequential"}, 50.0))
    shipped.add(Entry(problem(64), [RULE]))
    shipped.save(folders[0])
    table(Measured({"algorithm": "nccl"}, 60.0)).save(folders[1])
    merged = tables_of("h200", 2)
    assert merged.find(problem()).entry.best().options == {"algorithm": "nccl"}
    assert merged.find(problem(64)).entry.best().options == RULE.options


@pytest.mark.parametrize(
    "asked, nearest",
    [
        (problem(), False),
        (problem(N=5632), True),
        (problem(K=4608), True),
        (problem(N=5632, K=4608), True),
        (problem(N=11008), None),
        (problem(N=6144, K=4608), None),  # 16 % and 12 %: too far together
        (problem(rows=2048), None),
        (problem(N=5500), None),  # rows of no multiple of 16 bytes
        (problem(operator="gemm_rs"), None),
        (Problem("ag_gemm", "fp16", 2, 4096, 5504, 4096), None),
    ],
)
def test_which_entry(asked, nearest):
    found = table().find(asked)
    assert (found.is_nearest if found else None) is nearest


def test_the_nearest_of_several():
    made = table()
    for N in (5376, 5888):
        made.add(Entry(problem(N=N), [Measured({"algorithm": "sequential", "block": N}, 1.0)]))
    assert made.find(problem(N=5760)).entry.problem.N == 5888
    assert made.find(problem(N=5440)).entry.problem.N in (5376, 5504)


def test_collectives_have_no_nearest():
    made = table(of=Problem("all_reduce", "bf16", 2, 4096))
    assert made.find(Problem("all_reduce", "bf16", 2, 4096)) and not made.find(Problem("all_reduce", "bf16", 2, 8192))


def test_which_candidate():
    other = {"algorithm": "sequential"}
    assert table(RULE, Measured(other, 97.0)).find(problem()).entry.best().options == other
    assert table(RULE, Measured(other, 98.5)).find(problem()).entry.best() == RULE  # noise
    assert table(RULE, Measured(other, None, "hangs")).find(problem()).entry.best() == RULE
    entry = table(RULE, Measured({"algorithm": "nccl"}, 10.0), Measured(other, 120.0)).find(problem()).entry
    assert entry.best(None, ("nccl",)) == RULE  # it runs only where it is named
    assert entry.best("nccl", ("nccl",)).us == 10.0 and entry.best("sequential").us == 120.0
    assert entry.best("two_shot") is None
    assert Entry(problem(), [Measured(other, None, "hangs")]).best() is None


PROBLEMS = [
    problem(),
    problem(2048, 1376),
    problem(64, 3584, 8192),
    problem(4096, 4096, 5504, "gemm_rs"),
    problem(1024, 8192, 3584, "gemm_rs"),
    problem(128, 8192, 3584, "gemm_ar"),
    problem(8192, 8192, 3584, "gemm_ar"),
    Problem("ag_gemm", "fp32", 2, 4096, 5504, 4096),
    *(
        Problem(name, "bf16", 2, 1 << k)
        for name in ("all_reduce", "all_gather", "reduce_scatter")
        for k in (11, 20, 26)
    ),
    *(Problem("all_reduce", "bf16", ranks, 1 << k) for ranks in (4, 8) for k in (17, 19, 23)),
]


@pytest.mark.parametrize("asked", PROBLEMS, ids=str)
def test_candidates_begin_with_the_rule_and_do_not_repeat(asked):
    found = candidates_of(asked)
    assert found[0] == OPERATORS[asked.operator].rule(asked).options
    assert (len(found) > 1 or asked.dtype == "fp32") and len(
        {str(sorted(options.items())) for options in found}
    ) == len(found) < 14
    assert all(isinstance(options["algorithm"], str) for options in found)


@pytest.mark.parametrize(
    "asked", [PROBLEMS[1], PROBLEMS[4], PROBLEMS[5], PROBLEMS[9], PROBLEMS[12], PROBLEMS[18]], ids=str
)
def test_candidates_compile_for_hopper(asked):
    """Every keyword is one of the operator's, and every kernel compiles (whether it fits an SM, only a GPU says)."""
    for options in candidates_of(asked):
        if options["algorithm"] != "nccl":
            compile_ahead.compile_task(asked, options, 90, 132)


@pytest.mark.parametrize(
    "gpu, name",
    [
        ("NVIDIA H200", "h200"),
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("NVIDIA H100 PCIe", "h100-pcie"),
        ("NVIDIA A100-SXM4-80GB", "a100-sxm4-80gb"),
        ("AMD Instinct MI300X", "amd-instinct-mi300x"),
    ],
)
def test_names_of_machines(gpu, name):
    assert tables.machine_name(gpu) == name


def test_shipped_tables_name_what_operators_offer():
    files = sorted((tables.Path(tables.__file__).parent / "tables").glob("*.json"))
    for file in files:
        read = Table.from_text(file.read_text())
        assert file.stem == f"{read.machine}x{read.ranks}"
        assert {name: read.versions[name] for name in ("format", "kernels")} == {
            "format": tables.FORMAT,
            "kernels": tables.KERNELS,
        }
        for entry in read.entries.values():
            best = entry.best(None, OPERATORS[entry.problem.operator].named_only)
            assert best is not None and is_offered(entry.problem, best.options), entry.problem


def is_offered(asked, options):
    """A declared candidate, or a schedule that a search may come to."""
    space = space_of(asked, 132)
    searched = space is not None and options["algorithm"] == space.algorithm
    return options in candidates_of(asked) or searched and space.is_valid(space.complete(options))


@pytest.mark.parametrize("operator", ["ag_gemm", "gemm_rs"])
@pytest.mark.parametrize("dtype", ["bf16", "fp32"])
@pytest.mark.parametrize("ranks", [1, 2, 4, 8])
def test_calls_go_by_rank_where_the_rule_says_so(ranks, dtype, operator):
    """What is explained without a table is what runs: below and above all limits, with rows that TMA reaches or not."""
    group = SimpleNamespace(small_shapes=False, has_tma=True, num_ranks=ranks)
    of, seen = {"bf16": torch.bfloat16, "fp32": torch.float32}[dtype], set()
    for rows, N, K in itertools.product((64, 128, 512, 2048), (1024, 4096, 4100), (1024, 4096, 16384)):
        own, whole = (rows, K), (ranks * rows, N)
        if operator == "gemm_rs":
            own, whole = (rows, N), (ranks * rows, K)
        part, every, weight = (torch.empty(shape, dtype=of, device="meta") for shape in (own, whole, (N, K)))
        a, out = (part, every) if operator == "ag_gemm" else (every, part)
        runs = goes_by_rank(operator, group, rows, sent_bytes(group, part), a, weight, out)
        rule = product_rule(Problem(operator, dtype, ranks, rows, N, K), 2)
        assert runs == (rule.options["algorithm"] == "by_rank"), (rows, N, K)
        seen.add(runs)
    assert seen == ({False} if ranks == 1 else {False, True})


@pytest.mark.parametrize("N, K", [(3584, 8192), (1792, 4096)])
@pytest.mark.parametrize("rows, divides_k", [(1, True), (16, True), (32, False)])
def test_few_rows_divide_k(rows, divides_k, N, K):
    """Up to 64 rows of all ranks, also of a small weight: docs/results/links.md."""
    asked = problem(rows, N, K, ranks=4)
    assert (OPERATORS["ag_gemm"].rule(asked).options["algorithm"] == "split_k") == divides_k
    assert any(options["algorithm"] == "split_k" for options in candidates_of(asked)) == divides_k


@pytest.mark.parametrize(
    "operator, ranks, rows, N, K, algorithm",
    [
        ("ag_gemm", 4, 256, 3584, 8192, "k_slices"),
        ("ag_gemm", 4, 512, 1792, 4096, "k_slices"),
        ("ag_gemm", 4, 512, 3584, 8192, "by_rank"),  # two rounds of tiles
        ("ag_gemm", 4, 1024, 1376, 4096, "by_rank"),
        ("ag_gemm", 4, 1024, 3200, 5120, "overlapped"),  # 10.5 MB for each other rank
        ("gemm_rs", 4, 1024, 5120, 3200, "by_rank"),  # as many
        ("ag_gemm", 8, 256, 1792, 4096, "overlapped"),  # which was not measured
        ("ag_gemm", 2, 1024, 1376, 8192, "k_slices"),  # two rounds
    ],
)
def test_rules_of_products(operator, ranks, rows, N, K, algorithm):
    """What was measured to be ahead (docs/results/tensor-parallel.md)."""
    assert rule_of(Problem(operator, "bf16", ranks, rows, N, K)).options["algorithm"] == algorithm
