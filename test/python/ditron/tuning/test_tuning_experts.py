"""Operators of experts, and all-to-alls of unequal parts, as what is tuned and explained."""

import importlib
import json
from dataclasses import replace

import pytest
import torch

import ditron
import ditron.sim
from ditron import kernels, machines
from ditron.cli import main
from ditron.cli.shapes import _shapes
from ditron.kernels.expert_schedules import groups_of_stages
from ditron.kernels.route_draws import RouteDistribution
from ditron.tuning import compile_ahead, lookup, tables
from ditron.tuning.bench import call_of, operands
from ditron.tuning.floors import floor_of
from ditron.tuning.load import load_of
from ditron.tuning.prediction import Predictor
from ditron.tuning.problem import OF_EXPERTS, Problem
from ditron.tuning.registry import OPERATORS, candidates_of
from ditron.tuning.tables import Entry, Measured, Table, versions

assert kernels  # declares what can be tuned
META = torch.device("meta")


def shape(operator, *sizes, ranks=4, form="strong"):
    (found,) = _shapes(operator, [str(size) for size in sizes], ranks, "bf16", form)
    return found


def experts(operator, tokens=256, N=1536, K=2048, of=128, top_k=8, ranks=4, form="ep"):
    return shape(operator, tokens, N, K, of, top_k, ranks=ranks, form=form)


def test_sizes_of_a_rank():
    """Some of the experts, or a part of each; tokens to the ranks that need them."""
    some, part = experts("ag_moe", 8192), experts("ag_moe", 8192, form="tp")
    assert some == Problem("ag_moe", "bf16", 4, 2048, 1536, 2048, 128, 8, "ep")
    assert (some.own_experts, some.rows_of_expert, some.M) == (32, 512, 16384)
    assert (part.N, part.own_experts, part.M, part.needing) == (384, 128, 65536, 1.0)
    assert experts("moe_rs", N=2048, K=768, form="tp").K == 192
    one = experts("ag_moe", 8192, top_k=1)
    assert one.needing == pytest.approx(1 / 4) and some.needing == pytest.approx(1 - 0.75**8, abs=0.01)
    assert one.sent_bytes == 3 * 2048 // 4 * 2048 * 2
    assert experts("ep_moe", 8192, top_k=1).sent_bytes == 2 * one.sent_bytes
    assert shape("all_to_all_v", "64K").rows == 8192


def test_operands_are_what_calls_take():
    """The same shapes as of a call, and a result of the shape that is said."""
    problems = [experts(name, 64, 96, 64, 8, 2, ranks=2, form=form) for name in OF_EXPERTS for form in ("ep", "tp")]

    def rank():
        group = ditron.init()
        for problem in [*problems, Problem("all_to_all_v", "bf16", 2, 40)]:
            given, expected = operands(problem, group.rank, group.device)
            assert [t.shape for t in given] == [t.shape for t in operands(problem, group.rank, META)[0]]
            result = call_of(problem, given)()
            assert (result[0] if isinstance(result, tuple) else result).shape[1:] == expected[1:], problem

    ditron.sim.run(rank, ranks=2)


@pytest.mark.parametrize("tokens", [256, 2048, 32768])
@pytest.mark.parametrize("operator", sorted(OF_EXPERTS))
def test_candidates_begin_with_the_rule(operator, tokens):
    problem = experts(operator, tokens)
    found = candidates_of(problem)
    assert found[0] == OPERATORS[operator].rule(problem).options
    assert len({str(sorted(options.items())) for options in found}) == len(found) and 4 <= len(found) < 14
    both = {"ag_moe": tokens > 256, "moe_rs": problem.rows_of_expert > 96, "ep_moe": True}  # tiles of 64 rows or 128
    assert len({options["algorithm"] for options in found}) == 1 + both[operator]


MIXTRAL, DSV3 = {"of": 8, "top_k": 2}, {"of": 256, "top_k": 8}


@pytest.mark.parametrize(
    "problem, algorithm, rows",  # or the whole tile
    [
        (experts("ep_moe", 512), "dispatched", 64),
        (experts("ep_moe", 512, **DSV3), "dispatched", 32),
        (experts("ep_moe", 512, **MIXTRAL), "dispatched", 64),
        (experts("ep_moe", 4096), "dispatched", 128),
        (experts("ep_moe", 4096, **DSV3), "dispatched", 64),
        (experts("ep_moe", 4096, **MIXTRAL), "gathered", 128),
        (experts("ep_moe", 16384, 28672, 4096, **MIXTRAL), "dispatched", 128),
        (experts("ep_moe", 16384, 28672, 4096, **MIXTRAL, form="tp"), "gathered", 128),
        (experts("ep_moe", 16384), "gathered", 128),
        (experts("ep_moe", 16384, **DSV3), "dispatched", 128),
        (experts("ep_moe", 16384, **DSV3, form="tp"), "gathered", 128),
        (experts("ep_moe", 512, ranks=2), "dispatched", 64),
        (experts("ep_moe", 512, ranks=1), "gathered", 64),
        (experts("ag_moe", 512), "stored", (64, 128, 128)),
        (experts("ag_moe", 1024), "stored", (64, 256, 64)),
        (experts("moe_rs", 1024), "after", (64, 128, 128)),
        (experts("moe_rs", 16384), "after", 128),
        (experts("moe_rs", 16384, **DSV3), "after", 128),
        (experts("moe_rs", 16384, 4096, 256, **MIXTRAL), "after", 128),
        (experts("moe_rs", 16384, **MIXTRAL), "by_stage", 128),
    ],
    ids=str,
)
def test_the_rule_of_what_was_measured(problem, algorithm, rows):
    """Four H100s and H200s, docs/results/moe.md."""
    options = OPERATORS[problem.operator].rule(problem).options
    if problem.operator == "ep_moe":  # tiles of 32 rows are slow where most tokens choose one expert
        least = min(candidate["block_m"] for candidate in candidates_of(problem))
        assert least >= 64 or least == options["block_m"]
    tile = options.get("block_m") or (options["block"] if isinstance(rows, tuple) else options["block"][0])
    assert (options["algorithm"], tile) == (algorithm, rows)


@pytest.mark.parametrize(
    "needs, named, groups", [(False, None, 1), (False, "gathered", None), (True, None, None), (True, "dispatched", 1)]
)
def test_a_layer_that_is_dispatched(needs, named, groups, monkeypatch):
    """Its plan has one group of stages, so that no matrix is read again. Gradients are of one that is gathered, whose
    rows are not kept, unless it is named, and that has what was measured of such.
    """
    planned, looked_up = [], []

    def plan_of(*args, **options):
        planned.append(options["stage_groups"])
        return kernels.moe_plan(*args, **options)

    module = importlib.import_module("ditron.kernels.ep_moe")
    monkeypatch.setattr(module, "moe_plan", plan_of)
    monkeypatch.setattr(
        module,
        "tuned",
        lambda what, group, named, given, *sizes: looked_up.append(named) or (named or "dispatched", given),
    )
    x, w13, w2 = torch.ones(4, 32).bfloat16(), torch.ones(1, 32, 32).bfloat16(), torch.ones(1, 32, 16).bfloat16()

    def rank():
        ditron.init()
        ids = torch.zeros(4, 1, dtype=torch.int32)
        kernels.ep_moe(x, ids, None, w13.clone().requires_grad_(needs), w2, num_experts=2, algorithm=named)

    ditron.sim.run(rank, ranks=2)
    assert planned == [groups, groups] and looked_up == 2 * ["gathered" if needs and named is None else named]


@pytest.mark.parametrize(
    "tokens, form, usual, others",
    [(16384, "ep", 2, [1, 3, 4]), (8192, "ep", 1, [2]), (8192, "tp", 2, [1]), (512, "ep", 1, []), (512, "tp", 1, [])],
)
def test_groups_of_stages(tokens, form, usual, others):
    """Four H200s and H100s, docs/results/moe-experiments.md; the tuner tries as many as leave an expert 256 rows in each."""
    problem = experts("ep_moe", tokens, form=form)
    assert groups_of_stages(problem.ranks, problem.rows_of_expert, form) == usual
    found = [options for options in candidates_of(problem) if "stage_groups" in options]
    assert [options["stage_groups"] for options in found] == others
    assert all(options["algorithm"] == "gathered" for options in found)


@pytest.mark.parametrize("least, groups", [(2, 2), (4, 1)])
def test_a_layer_has_the_groups_of_a_table(least, groups, monkeypatch):
    """Unless the caller names others, or fewer tokens than were measured leave an expert, here of 4 rows, too few."""
    planned, given = [], []

    def plan_of(*args, **options):
        planned.append(options["stage_groups"])
        return kernels.moe_plan(*args, **options)

    def tuned_to(what, group, named, schedule, *sizes):
        given.append((named, schedule))
        return ("gathered", schedule or {"block_m": 16, "stage_groups": 2})

    module = importlib.import_module("ditron.kernels.ep_moe")
    monkeypatch.setattr(module, "moe_plan", plan_of)
    monkeypatch.setattr(module, "tuned", tuned_to)
    monkeypatch.setattr(module, "LEAST_ROWS_OF_GROUP", least)
    x, w13, w2 = torch.ones(4, 32).bfloat16(), torch.ones(1, 32, 32).bfloat16(), torch.ones(1, 32, 16).bfloat16()

    def rank():
        ditron.init()
        ids = torch.zeros(4, 1, dtype=torch.int32)
        for options in ({}, {"stage_groups": 1}, {"stage_groups": 2}):
            kernels.ep_moe(x, ids, None, w13, w2, num_experts=2, **options)

    ditron.sim.run(rank, ranks=2)
    assert sorted(planned) == sorted([groups, 1, 2] * 2)
    assert given.count((None, {"stage_groups": 1})) == given.count(("gathered", {"stage_groups": 2})) == 2


@pytest.mark.parametrize(
    "problem",
    [
        experts("ag_moe", 64, 256, 512, 8, 2, ranks=2),
        experts("ag_moe", 256, 256, 512, 8, 2, ranks=2),
        experts("moe_rs", 2048, 1024, 1024, 8, 2, ranks=2),
        experts("moe_rs", 256, 512, 2048, 8, 2, ranks=2),
        experts("ep_moe", 64, 256, 512, 8, 2, ranks=2),
        shape("all_to_all_v", "4M", ranks=2),
    ],
    ids=str,
)
def test_the_rule_is_what_a_call_runs(problem):
    """On a GPU, by the clock: the same time as of a call that names nothing, and others have other times."""
    predict, found = Predictor(machines.load("h200x2")), candidates_of(problem)
    times = [predict(problem, options).us for options in [*found[:4], found[-1]]]
    assert times[0] == predict(problem, {}).us > 0 and len({round(us, 3) for us in times}) > 1


def test_floors():
    """Of experts that nobody needs, no matrix is read; the layer has both products, and both ways of tokens."""
    machine = machines.load("h200x4")
    first, second, layer = (
        floor_of(experts(*of), machine) for of in (("ag_moe", 16384), ("moe_rs", 16384, 2048, 768), ("ep_moe", 16384))
    )
    assert layer.product == pytest.approx(first.product + second.product, rel=1e-6) and layer.bound == "tensor cores"
    assert layer.link == pytest.approx(first.link + second.link, rel=1e-3)
    few, many = (floor_of(experts("ag_moe", tokens, top_k=1), machine).product for tokens in (4, 1024))
    assert few < 0.05 * many
    rate = machine["hbm.rate"] * 1e3
    assert many == pytest.approx(32 * 1536 * 2048 * 2 / rate, rel=0.1)


def counted(problem):
    """Rows of ranks' products, and what each rank gets and gives, by plain loops over the routes."""
    first = [rank * problem.experts // problem.ranks for rank in range(problem.ranks + 1)]
    owner = [rank for rank in range(problem.ranks) for _ in range(first[rank], first[rank + 1])]
    rows, got, given = ([0] * problem.ranks for _ in range(3))
    used = [set() for _ in range(problem.ranks)]
    for rank in range(problem.ranks):
        distribution = RouteDistribution.parse(problem.routing)
        for token in distribution.draw(problem.rows, problem.experts, problem.top_k, rank)[0].tolist():
            for expert in token:
                rows[owner[expert]] += 1
                used[owner[expert]].add(expert)
            for other in {owner[expert] for expert in token} - {rank}:
                got[other] += 1
                given[rank] += 1
    return max(rows), max(map(len, used)), max(got + given)


@pytest.mark.parametrize("routing", ["zipf:1.2", "onehot", "zipf:3"])
def test_the_load_of_routes_is_the_hottest_ranks(routing):
    problem = replace(experts("ep_moe", 4 * 37, of=18, top_k=3), routing=routing)  # experts that ranks do not divide
    load = load_of(problem)
    assert (load.rows, load.matrices, load.tokens) == counted(problem)
    part = replace(problem, parallel="tp")
    assert load_of(part).rows == 4 * 37 * 3 and load_of(part).tokens == 3 * 37


def test_the_floor_of_a_skew_is_the_hottest_ranks():
    """As much higher as that has more rows than the average; uniform routes are at most 5 % beyond it."""
    machine, problem = machines.load("h200x4"), experts("ag_moe", 65536)
    uniform = floor_of(problem, machine)
    drawn = load_of(replace(problem, routing="zipf:0"))
    assert drawn.rows == pytest.approx(load_of(problem).rows, rel=0.05) and drawn.matrices == 32
    assert drawn.tokens == pytest.approx(load_of(problem).tokens, rel=0.05)
    skewed = replace(problem, routing="zipf:1.2")
    assert floor_of(skewed, machine).product / uniform.product == pytest.approx(load_of(skewed).rows / problem.M)
    assert load_of(skewed).rows > 1.2 * problem.M


def test_a_skew_takes_longer():
    """Of products that hide the way of their tokens; the rank with most rows has 1.5 times the average."""
    problem, predict = experts("ep_moe", 1024, of=32, top_k=4), Predictor(machines.load("h200x4"))
    options = OPERATORS["ep_moe"].rule(problem).options
    uniform, zipf, onehot = (
        predict(replace(problem, routing=routing), options).us for routing in ("uniform", "zipf:1.2", "onehot")
    )
    assert min(zipf, onehot) > 1.1 * uniform


def test_words_that_a_rank_sends_late():
    """Programs that poll many words look often while another rank's product is under way: that is no deadlock."""
    problem, predict = experts("moe_rs", 64, 2048, 768), Predictor(machines.load("h200x4"))
    predicted = predict(problem, OPERATORS["moe_rs"].rule(problem).options)
    assert predicted.us is not None and predicted.us > 10, predicted.why


def test_explain_of_a_skew(capsys):
    """Of the schedule that calls take, which do not know the routes."""
    asked = ["explain", "ag_moe", "4096", "2048", "512", "8", "2", "--machine", "h200x2", "--json", "--routing"]
    answers = []
    for routing in ("uniform", "onehot"):
        assert main([*asked, routing]) == 0
        answers += json.loads(capsys.readouterr().out)
    uniform, onehot = answers
    assert uniform["options"] == onehot["options"] and uniform["bucket"] == onehot["bucket"]
    assert (uniform["problem"]["routing"], onehot["problem"]["routing"]) == ("uniform", "onehot")
    assert uniform["us"] != onehot["us"] and uniform["floor"]["link"] < onehot["floor"]["link"]
    assert str(experts("ag_moe")).endswith("4 ranks ep")
    assert str(replace(experts("ag_moe"), routing="onehot")).endswith("4 ranks ep, onehot routes")


@pytest.mark.parametrize(
    "arguments, expected",
    [
        (["ag_moe", "64", "64", "64", "8", "2", "--routing", "zipf"], "--routing: 'zipf' is no distribution of routes"),
        (["ag_gemm", "64", "64", "64", "--routing", "onehot"], "--routing onehot: ag_gemm has no experts, as ag_moe,"),
        (["all_to_all_v", "64K", "--routing", "zipf:1.2"], "all_to_all_v has no experts, as ag_moe, ep_moe, moe_rs"),
    ],
)
def test_wrong_routing(arguments, expected, capsys):
    assert main(["explain", *arguments, "--machine", "h200x2"]) == 2
    assert expected in capsys.readouterr().err


@pytest.fixture
def of_simulator(monkeypatch, tmp_path):
    """Tables in a folder, which simulated ranks look at."""
    monkeypatch.setattr(tables, "shipped_path", lambda machine, ranks: tmp_path / "none.json")
    monkeypatch.setenv("DITRON_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(lookup._Settings, "simulator", "h200")


def keep(*entries):
    made = Table("h200", 2, versions())
    for problem, *candidates in entries:
        made.add(Entry(problem, [Measured(options, 1.0 + at) for at, options in enumerate(candidates)]))
    made.save(tables.user_path("h200", 2))


def test_calls_look_at_tables(of_simulator):
    """A layer that is dispatched, and products with other schedules; tiles of other rows than the plan's are not taken."""
    of_layer, of_first = experts("ep_moe", 64, 96, 64, 8, 2, ranks=2), experts("ag_moe", 64, 96, 64, 8, 2, ranks=2)
    of_second = experts("moe_rs", 64, 64, 48, 8, 2, ranks=2)
    keep(
        (of_layer, {"algorithm": "dispatched", "block_m": 32}),
        (of_first, {"algorithm": "copied", "block": (16, 64, 32)}),
        (of_second, {"algorithm": "after", "block": (32, 32, 32), "group_m": 2}),
    )

    def rank():
        group = ditron.init()
        given, _ = operands(of_layer, group.rank, group.device)
        x, ids, weights, w13, w2 = given
        plan = kernels.moe_plan(ids, weights, num_experts=8)
        rows = kernels.ag_moe(x, w13, plan)
        assert torch.equal(rows[plan.route_row.max()], kernels.ag_moe(x, w13, plan, num_warps=4)[plan.route_row.max()])
        kernels.moe_rs(rows[:, :48].contiguous(), w2, plan)
        torch.testing.assert_close(
            call_of(of_layer, given)(), call_of(of_layer, given)(algorithm="gathered"), rtol=0.1, atol=0.1
        )
        return group.choices.made, plan.block_m

    for made, block_m in ditron.sim.run(rank, ranks=2):
        by_operator = {key[0]: choice for key, choice in made.items() if key[5] is None}
        assert by_operator["ep_moe"] == ("dispatched", {"block_m": 32}) and block_m == 16
        assert by_operator["ag_moe"] == ("copied", {"block": (16, 64, 32)})
        assert by_operator["moe_rs"] == ("after", {"block": (32, 32, 32), "group_m": 2})


def test_tables_hold_experts(of_simulator):
    """Another number of experts, or another form, is another problem; other columns may be the nearest."""
    problem = experts("ag_moe", 64, 1024, 2048, 8, 2, ranks=2)
    keep((problem, OPERATORS["ag_moe"].rule(problem).options))
    table = tables.tables_of("h200", 2)
    assert table.find(problem).entry.problem == problem
    assert table.find(experts("ag_moe", 64, 1152, 2048, 8, 2, ranks=2)).is_nearest
    for other in (dict(of=16), dict(top_k=1), dict(form="tp", N=2048)):
        given = {"tokens": 64, "N": 1024, "K": 2048, "of": 8, "top_k": 2, "ranks": 2} | other
        assert table.find(experts("ag_moe", **given)) is None


@pytest.mark.parametrize(
    "changes, why",
    [
        ('"top_k": 2', "top_k is 9: expected from 1 to 8"),
        ('"experts": 8', "experts is 1: expected an integer from 2 on"),
        ('"parallel": "ep"', "parallel is 'pp': expected one of ep, tp"),
        ('"operator": "ag_moe"', "all_reduce has no experts, parallel, top_k"),
    ],
)
def test_a_wrong_entry_is_ignored(of_simulator, caplog, changes, why):
    problem = experts("ag_moe", 64, 1024, 2048, 8, 2, ranks=2)
    keep((problem, OPERATORS["ag_moe"].rule(problem).options))
    path = tables.user_path("h200", 2)
    wrong = {"top_k": '"top_k": 9', "experts": '"experts": 1', "parallel": '"parallel": "pp"'}
    name = changes.split('"')[1]
    text = path.read_text().replace(changes, wrong.get(name, '"operator": "all_reduce"'))
    path.write_text(text if name != "operator" else text.replace('"N": 1024, "K": 2048', '"N": 0, "K": 0'))
    assert not tables.tables_of("h200", 2).entries and why in caplog.text


@pytest.mark.parametrize(
    "arguments, expected",
    [
        (["ag_moe", "8192", "1536", "2048"], "ag_moe takes TOKENS N K EXPERTS TOP_K, or several times these, got 8192"),
        (["ep_moe", "8192", "1535", "2048", "128", "8"], "ep_moe: N = 1535 cannot be divided by 2"),
        (["ag_moe", "8191", "1536", "2048", "128", "8"], "ag_moe: 2 ranks cannot share 8191 tokens"),
        (["ag_moe", "8192", "1536", "2048", "4", "8"], "ag_moe: 8 experts of a token, and there are 4"),
        (["ag_moe", "8192", "1536", "2048", "1", "1"], "2 ranks cannot share 1 experts (--form tp?)"),
        (["moe_rs", "8192", "2048", "767", "128", "8", "--form", "tp"], "moe_rs: K = 767 cannot be divided by 2"),
        (["moe_rs", "64", "64", "64", "8", "2", "--form", "weight-per-rank"], "forms of experts are ep and tp"),
        (
            ["ag_gemm", "64", "64", "64", "--form", "tp"],
            "ag_gemm has no experts: --form tp is of ag_moe, ep_moe, moe_rs",
        ),
    ],
)
def test_wrong_sizes(arguments, expected, capsys):
    assert main(["explain", *arguments, "--machine", "h200x2"]) == 2
    assert expected in capsys.readouterr().err


def test_explain(capsys):
    sizes = ["64", "256", "512", "8", "2"]
    assert main(["explain", "ep_moe", *sizes, "--machine", "h200x2"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("ep_moe 64 tokens to 2 of 8 experts N=256 K=512 bf16, 2 ranks ep on h200 x 2\n")
    assert 'force   ep_moe(x, topk_ids, topk_weights, w13, w2, algorithm="dispatched", block_m=32)' in text
    assert text.count('algorithm="gathered"') >= 2
    assert main(["explain", "ag_moe", *sizes, "--form", "tp", "--machine", "h200x2"]) == 0
    text = capsys.readouterr().out
    assert "N=128 K=512 bf16, 2 ranks tp" in text and 'runs    algorithm="stored", block=(32, 128, 128)' in text
    assert main(["explain", "ep_moe", "64", "256", "512", "16", "2", "--machine", "h800x8x2"]) == 0
    text = capsys.readouterr().out
    assert 'runs    algorithm="dispatched", block_m=16' in text and "gathered" not in text and " us predicted" in text


@pytest.mark.parametrize(
    "asked, number",
    [(experts("ag_moe", 8192), -1), (experts("moe_rs", 256, 2048, 768), 0), (experts("ep_moe", 256), 1)],
    ids=lambda value: str(value),
)
def test_a_candidate_compiles_for_hopper(asked, number):
    compile_ahead.compile_task(asked, candidates_of(asked)[number], 90, 132)
