"""The second half of mixture-of-experts layers, and whole layers, against torch on simulated ranks."""

import functools
import importlib
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from test_moe import corpus, drawn, run
from torch.utils.flop_counter import FlopCounterMode

import ditron
from ditron import kernels
from ditron.protocol.api import check_program
from ditron_compiler.errors import DitronError


class Problem:
    """Integers, so that products and sums in fp32 are exact: what is rounded to bfloat16, and when, decides the bits."""

    def __init__(self, ranks, tokens, top_k, experts, parallel, K=40, H=80, seed=0):
        generator = torch.Generator().manual_seed(seed)
        self.ranks, self.tokens, self.top_k, self.H, self.parallel = ranks, tokens, top_k, H, parallel
        self.experts, self.own = experts, experts // ranks if parallel == "ep" else experts
        integers = lambda *shape: torch.randint(-2, 3, shape, generator=generator).bfloat16()  # noqa: E731
        self.of_route = integers(ranks, ranks * tokens * top_k, K)  # of each rank, of all routes
        self.w = integers(ranks, self.own, H, K)
        self.weights = 2.0 ** torch.randint(-2, 2, (ranks, tokens, top_k), generator=generator)

    groups = None  # of stages

    def plan(self, ids):
        rank, options = ditron.rank(), {"parallel": self.parallel, "stage_groups": self.groups}
        return kernels.moe_plan(ids[rank], self.weights[rank], num_experts=self.experts, **options)

    def rows(self, plan):
        """Of this rank, with nothing that counts between and behind the experts' rows."""
        rows = torch.full((plan.max_rows, self.of_route.shape[2]), float("nan"), dtype=torch.bfloat16)
        row = plan.route_row.view(-1).long()
        rows[row[row >= 0]] = self.of_route[ditron.rank()][row >= 0]
        return rows

    def expected(self, ids):
        """Of all ranks' tokens."""
        total = torch.zeros(self.ranks * self.tokens, self.H)
        for rank in range(self.ranks):
            expert = ids.reshape(-1).long() - (rank * self.own if self.parallel == "ep" else 0)
            here = (expert >= 0) & (expert < self.own)
            y = torch.zeros(len(expert), self.H)
            y[here] = torch.einsum("rk,rhk->rh", self.of_route[rank][here].float(), self.w[rank].float()[expert[here]])
            weighted = y.bfloat16().float() * self.weights.view(-1, 1)
            total += weighted.view(-1, self.top_k, self.H).sum(1).bfloat16().float()
        return total.bfloat16()

    def check(self, ids, operators=("moe_rs", "moe_ar"), **schedule):
        plan, expected = self.plan(ids), self.expected(ids)
        mine = expected.view(self.ranks, self.tokens, self.H)[ditron.rank()]
        for operator in operators:
            got = getattr(kernels, operator)(self.rows(plan), self.w[ditron.rank()], plan, **schedule)
            assert torch.equal(got, mine if operator == "moe_rs" else expected), operator


@pytest.mark.parametrize("parallel", ["ep", "tp"])
@pytest.mark.parametrize("ranks, tokens, top_k", [(1, 24, 2), (2, 24, 2), (4, 24, 3)])
def test_corpus(ranks, tokens, top_k, parallel):
    problem = Problem(ranks, tokens, top_k, 4, parallel)

    def main():
        for ids in corpus(ranks, tokens, top_k, 4).values():
            problem.check(ids)

    run(main, ranks=ranks)


@pytest.mark.parametrize("tokens, top_k, experts, H", [(1, 1, 2, 8), (1, 4, 4, 48), (37, 6, 6, 104), (20, 16, 16, 32)])
def test_shapes(tokens, top_k, experts, H):
    problem = Problem(2, tokens, top_k, experts, "ep", K=24, H=H)
    run(lambda: problem.check(drawn(2, tokens, top_k, experts)), ranks=2)


@pytest.mark.parametrize("options", [dict(races=True), dict(weak=True), dict(races=True, graphs=True)])
@pytest.mark.parametrize(
    "schedule",
    [
        dict(words=64),
        dict(algorithm="after", words=128, programs=2),
        dict(swap_ab=False, block=(16, 64, 16)),
    ],
)
def test_schedules(schedule, options):
    problem = Problem(2, 20, 2, 4, "ep")

    def main():
        for call in range(3):
            problem.check(drawn(2, 20, 2, 4, seed=call), **schedule)

    run(main, ranks=2, **options)


def test_sums_by_stage_need_groups_of_stages(monkeypatch):
    """However many rows an expert has: without groups, all ranks' tokens are done at the end."""
    problem, chosen = Problem(2, 40, 2, 4, "ep"), []
    module = importlib.import_module("ditron.kernels.moe_rs")

    def record(what, group, rows, w, plan, scales, out, algorithm, schedule, to_all):
        chosen.append((len(plan.expert_tiles) > 0, algorithm))
        return out

    def main():
        for groups in (1, 2):
            problem.groups = groups
            plan = problem.plan(drawn(2, 40, 2, 4))
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(ditron.world(), "small_shapes", False)
                kernels.moe_rs(problem.rows(plan), problem.w[ditron.rank()], plan)

    monkeypatch.setattr(module, "_hides_sums", lambda *sizes: True)
    monkeypatch.setattr(module, "product_and_sums", record)
    run(main, ranks=2)
    assert sorted(chosen, key=str) == [(False, None)] * 2 + [(True, "by_stage")] * 2


@pytest.mark.parametrize("algorithm, unread", [("after", "tiles"), ("by_stage", "expert_tiles")])
def test_orders_of_tiles(algorithm, unread):
    """A product whose rows are all there does not read matrices again for each group of stages."""
    problem = Problem(2, 40, 2, 4, "ep")
    problem.groups = 2

    def main():
        ids = drawn(2, 40, 2, 4)
        plan, rank = problem.plan(ids), ditron.rank()
        assert not torch.equal(plan.tiles[: int(plan.num_tiles)], plan.expert_tiles[: int(plan.num_tiles)])
        plan = replace(plan, **{unread: torch.full_like(plan.tiles, 1 << 20)})
        got = kernels.moe_rs(problem.rows(plan), problem.w[rank], plan, algorithm=algorithm)
        assert torch.equal(got, problem.expected(ids).view(2, 40, problem.H)[rank])
        if algorithm == "after":
            one = kernels.moe_plan(ids[rank], num_experts=4, stage_groups=1)
            some, same = (kernels.grouped_mm(problem.rows(of), problem.w[rank], of) for of in (plan, one))
            row = plan.route_row[plan.route_row >= 0].long()
            assert torch.equal(some[row], same[row])

    run(main, ranks=2)


@pytest.mark.parametrize("options", [dict(races=True), dict(weak=True), dict(races=True, graphs=True)])
@pytest.mark.parametrize(
    "ranks, groups, schedule",
    [(1, 1, {}), (2, 2, {}), (2, 1, dict(programs=1)), (4, 4, dict(beside=1)), (4, 2, dict(words=64, programs=5))],
)
def test_by_stage(ranks, groups, schedule, options):
    """Plans with as many groups of stages as ranks, and with fewer, which only hide less."""
    problem = Problem(ranks, 20, 2, 4, "ep")
    problem.groups = groups

    def main():
        for call in range(3):
            problem.check(drawn(ranks, 20, 2, 4, seed=call), ("moe_rs",), algorithm="by_stage", **schedule)

    run(main, ranks=ranks, **options)


@pytest.mark.parametrize("parallel", ["ep", "tp"])
@pytest.mark.parametrize("ranks", [2, 4])
def test_by_stage_corpus(ranks, parallel):
    problem = Problem(ranks, 24, 3, 4, parallel)
    problem.groups = ranks

    def main():
        for ids in corpus(ranks, 24, 3, 4).values():
            problem.check(ids, ("moe_rs",), algorithm="by_stage")

    run(main, ranks=ranks)


@pytest.mark.parametrize("algorithm", [None, "by_stage"])
@pytest.mark.parametrize("parallel", ["ep", "tp"])
def test_in_any_order(parallel, algorithm):
    """Calls with other routes follow each other, however programs and ranks take turns."""
    problem = Problem(3, 12, 2, 6, parallel, H=40)
    problem.groups = 3
    routes = [drawn(3, 12, 2, 6, seed=1), torch.full((3, 12, 2), -1, dtype=torch.int32), drawn(3, 12, 2, 6, seed=2)]

    def main():
        for ids in routes:
            problem.check(ids, ("moe_rs",), algorithm=algorithm)

    for seed in range(20):
        run(main, ranks=3, seed=seed)


def test_large_moe_ar(monkeypatch):
    """Sums of their owners, gathered."""
    monkeypatch.setattr(sys.modules["ditron.kernels.moe_ar"], "ONE_SHOT_BYTES", 0)
    problem = Problem(2, 20, 2, 4, "tp")
    run(lambda: problem.check(drawn(2, 20, 2, 4), ("moe_ar",)), ranks=2)


@pytest.mark.parametrize("parallel", ["ep", "tp"])
@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_layer(ranks, parallel):
    tokens, top_k, experts, inner, H = 20, 2, 4, 64, 48
    generator = torch.Generator().manual_seed(ranks)
    draw = lambda *shape: torch.randn(*shape, generator=generator).bfloat16()  # noqa: E731
    x, weights = draw(ranks, tokens, H), torch.rand(ranks, tokens, top_k, generator=generator)
    gate, up, down = draw(experts, inner, H) / 4, draw(experts, inner, H) / 4, draw(experts, H, inner) / 4

    def exact(ids):
        y = torch.zeros(ranks, tokens, H, dtype=torch.float64)
        for rank, token, k in torch.nonzero(ids >= 0).tolist():
            e, row = ids[rank, token, k], x[rank, token].double()
            hidden = torch.nn.functional.silu(gate[e].double() @ row) * (up[e].double() @ row)
            y[rank, token] += weights[rank, token, k].double() * (down[e].double() @ hidden)
        return y

    def main():
        rank = ditron.rank()
        experts_here, part = slice(None), slice(None)
        if parallel == "ep":
            experts_here = slice(rank * experts // ranks, (rank + 1) * experts // ranks)
        else:
            part = slice(rank * inner // ranks, (rank + 1) * inner // ranks)
        w13 = torch.cat([gate[experts_here, part], up[experts_here, part]], 1)
        w2 = down[experts_here, :, part].contiguous()
        for name, ids in corpus(ranks, tokens, top_k, experts).items():
            layer = lambda i=ids: kernels.ep_moe(  # noqa: E731
                x[rank], i[rank], weights[rank], w13, w2, num_experts=experts, parallel=parallel
            )
            y, expected = layer(), exact(ids)[rank]
            assert (y.double() - expected).norm() <= 6e-3 * expected.norm(), name
            assert torch.equal(y, layer()), name

    run(main, ranks=ranks)


@pytest.mark.parametrize("block_m", [16, 64])
@pytest.mark.parametrize("operator", ["ag_moe", "grouped_mm"])
def test_activation(operator, block_m):
    """Rows of SwiGLU, of one rounding: an expert's gates are the first half of its matrix. The weights are the left
    operand of 16 rows in a tile.
    """
    x, w, ids = torch.randn(2, 12, 32).half(), torch.randn(2, 2, 80, 32).half() / 4, drawn(2, 12, 2, 4)

    def main():
        rank = ditron.rank()
        plan = kernels.moe_plan(ids[rank], num_experts=4, block_m=block_m)
        if operator == "ag_moe":
            product = functools.partial(kernels.ag_moe, x[rank], w[rank], plan)
        else:
            product = functools.partial(kernels.grouped_mm, kernels.ep_dispatch(x[rank], plan), w[rank], plan)
        rows = product(activation="swiglu")
        assert rows.shape == (plan.max_rows, 40)
        row = plan.route_row.view(-1).long()
        here = torch.nonzero(row >= 0)[:, 0]
        expert = ids.view(-1)[here].long() - 2 * rank
        gate, up = torch.einsum("rk,rnk->rn", x.view(-1, 32)[here // 2].double(), w[rank][expert].double()).chunk(2, 1)
        exact = torch.nn.functional.silu(gate) * up
        torch.testing.assert_close(rows[row[here]].double(), exact, rtol=1e-3, atol=1e-3)
        of_gradients = functools.partial(product.func, product.args[0].clone().requires_grad_(), *product.args[1:])
        twice = of_gradients(activation="swiglu")
        assert twice.requires_grad
        torch.testing.assert_close(twice.detach()[row[here]].double(), exact, rtol=4e-3, atol=4e-3)
        for one in (product, of_gradients):
            with pytest.raises(DitronError, match="unknown activation 'gelu' of 80 columns: expected 'swiglu'"):
                one(activation="gelu")
        fewer = functools.partial(product.func, product.args[0], w[rank][:, :24].contiguous(), plan)
        with pytest.raises(DitronError, match="the result has 12 columns: expected a multiple of 16 bytes"):
            fewer(activation="swiglu")

    run(main, ranks=2)


class Subclass(torch.Tensor):
    pass


def test_a_layer_that_torch_sees():
    """A mode that sees torch's operators, and subclasses of tensors: those have no activation in the first product."""
    x, ids = torch.randn(2, 8, 32).bfloat16(), drawn(2, 8, 2, 4)
    w13, w2 = torch.randn(2, 2, 64, 32).bfloat16() / 4, torch.randn(2, 2, 32, 32).bfloat16() / 4

    def main():
        rank = ditron.rank()
        call = functools.partial(kernels.ep_moe, num_experts=4)
        given = x[rank], ids[rank], None, w13[rank], w2[rank]
        with_gradients = call(x[rank].clone().requires_grad_(), *given[1:]).detach()
        with FlopCounterMode(display=False):
            seen = call(*given)
        assert torch.equal(seen, with_gradients)
        assert torch.equal(call(x[rank].as_subclass(Subclass), *given[1:]).as_subclass(torch.Tensor), with_gradients)
        torch.testing.assert_close(call(*given), with_gradients, rtol=2e-2, atol=2e-2 * float(seen.abs().max()))

    run(main, ranks=2)


def moe_rs(rows=(128, 32), w=(2, 48, 32), dtype=torch.float16, **options):
    plan = kernels.moe_plan(torch.arange(2).expand(4, 2), num_experts=4, block_m=64)
    return kernels.moe_rs(torch.zeros(rows, dtype=dtype), torch.zeros(w, dtype=dtype), plan, **options)


def layer(w13=(2, 64, 48), w2=(2, 48, 32), dtypes=(torch.float16,) * 3, **options):
    ids, shapes = torch.arange(2).expand(4, 2), ((4, 48), w13, w2)
    x, first, second = (torch.zeros(shape, dtype=dtype) for shape, dtype in zip(shapes, dtypes, strict=True))
    return kernels.ep_moe(x, ids, None, first, second, num_experts=4, **options)


@pytest.mark.parametrize(
    "call, message",
    [
        (
            lambda: moe_rs(dtype=torch.float32),
            "rows must have 2 dimensions and be bfloat16 or float16, .*, got .* of torch.float32",
        ),
        (lambda: moe_rs(w=(48, 32)), "w must have 3 dimensions"),
        (lambda: moe_rs(rows=(64, 32)), "there are 64 rows and 2 experts, and the plan is for .* and 2"),
        (lambda: moe_rs(w=(2, 48, 40)), "expected w to be .2, 48, 32. of it too, got .2, 48, 40."),
        (lambda: moe_rs(w=(2, 44, 32)), "expected rows of a multiple of 16 bytes"),
        (
            lambda: kernels.moe_rs(torch.zeros(4, 8).half(), torch.zeros(2, 8, 8).half(), 3),
            "plan must be a Plan, got int",
        ),
        (lambda: moe_rs(pieces=2), "unknown argument 'pieces': a schedule has block, programs, words"),
        (lambda: moe_rs(swap_ab=1), "swap_ab must be True or False, got 1"),
        (lambda: moe_rs(algorithm="during"), "unknown algorithm 'during': expected 'after' or 'by_stage'"),
        (lambda: moe_rs(block=(32, 32, 32)), "block=.32, 32, 32. has 32 rows, and a tile of the plan 64: make it with"),
        (lambda: moe_rs(out=torch.zeros(5, 48).half()), "out must be contiguous, of shape .4, 48."),
        (lambda: layer(activation="gelu"), "unknown activation 'gelu'.*: expected 'swiglu'"),
        (
            lambda: layer(dtypes=(torch.float16, torch.float16, torch.bfloat16)),
            "ep_moe: x is of torch.float16, w13 of torch.float16 and w2 of torch.bfloat16: expected bfloat16 or float16",
        ),
        (lambda: layer(dtypes=(torch.float32,) * 3), "ep_moe: x is of torch.float32, .*, or weights of float8_e4m3fn"),
        (lambda: layer(w2=(2, 48, 64)), "expected .experts, 2 . I, H. and .experts, H, I."),
    ],
)
def test_errors(call, message):
    def main():
        with pytest.raises(DitronError, match=message):
            call()

    run(main, ranks=2)


def test_moe_ar_knows_two_gradients():
    def main():
        plan = kernels.moe_plan(torch.arange(2).expand(4, 2), num_experts=4)
        with pytest.raises(DitronError, match="moe_ar: unknown gradient 'sum': expected 'replicate' or 'partial'"):
            kernels.moe_ar(torch.zeros(plan.max_rows, 32).half(), torch.zeros(2, 48, 32).half(), plan, gradient="sum")

    run(main, ranks=2)


def test_tokens_of_some_ranks():
    """With ``max_tokens`` ranks have as many as they have; the experts do not divide evenly."""
    x, experts = torch.randn(2, 12, 32).bfloat16(), 5
    w13, w2 = torch.randn(experts, 96, 32).bfloat16() / 4, torch.randn(experts, 32, 48).bfloat16() / 4
    ids, weights = drawn(2, 12, 2, experts), torch.rand(2, 12, 2)

    def main():
        rank = ditron.rank()
        mine = slice(rank * experts // 2, rank * experts // 2 + 3)
        w = [torch.cat([each[mine], each.new_zeros(1, *each.shape[1:])])[:3].contiguous() for each in (w13, w2)]
        given = 12 - 5 * rank
        options = {"num_experts": experts, "max_tokens": 12}
        y = kernels.ep_moe(x[rank, :given], ids[rank, :given], weights[rank, :given], *w, **options)
        gate, up = torch.einsum("th,ekh->tek", x[rank].double(), w13.double()).chunk(2, 2)
        of_all = torch.einsum("tek,ehk->teh", torch.nn.functional.silu(gate) * up, w2.double())
        chosen = of_all[torch.arange(12)[:, None], ids[rank].long()]
        expected = (chosen * weights[rank, :, :, None].double()).sum(1)[:given]
        assert (y.double() - expected).norm() <= 6e-3 * expected.norm()

    run(main, ranks=2)


def findings_of(
    program,
    module,
    line,
    instead,
    tmp_path,
    monkeypatch,
    names=("combine", "ep_exchange_kernels", "moe_rs_stages", "moe_rs"),
    **options,
):
    """The checker's, of a program of the last of the modules ``names``, of which one has another line."""
    sources = {
        name: Path(sys.modules[f"ditron.kernels.{name}"].__file__).read_text().replace("@torch_operator()\n", "")
        for name in names
    }
    assert line in sources[module]
    sources[module] = sources[module].replace(line, instead)
    for name, source in sources.items():
        for other in names:
            source = source.replace(f"ditron.kernels.{other} ", f"mutated_{other} ")
        (tmp_path / f"mutated_{name}.py").write_text(source)
        monkeypatch.delitem(sys.modules, f"mutated_{name}", raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    return check_program(getattr(importlib.import_module(f"mutated_{names[-1]}"), program), **options).findings


@pytest.mark.parametrize(
    "module, line, instead, kind",
    [
        ("ep_exchange_kernels", "(epoch % 2).to(tl.int64) * RANKS * capacity", "epoch.to(tl.int64) * 0", "reuse"),
        ("ep_exchange_kernels", "        exchange_signals(begun_ptr, epoch, RANKS)", "        pass", "reuse"),
        ("combine", "        if last_row >= 0:", "        if last_row >= 16:", "count"),
        ("combine", "            has_sent &= (sender == own) |", "            has_sent &= (sender <= own) |", "count"),
    ],
)
def test_what_the_checker_finds(module, line, instead, kind, tmp_path, monkeypatch):
    """Memory of one half; ranks that may be two calls ahead of one that has nothing for them; sums that nobody sends, and
    of tokens without rows ones that are waited for.
    """
    findings = findings_of("moe_rs_program", module, line, instead, tmp_path, monkeypatch)
    assert findings and findings[0].kind == kind


@pytest.mark.parametrize(
    "module, line, instead, kind",
    [
        ("moe_rs_stages", "    dl.wait(done_ptr, RANKS - 1, epoch)\n", "", "reuse"),
        ("moe_rs_stages", "counts_ptr + stage, RANKS - stage, counted", "counts_ptr + stage, 0, counted", "unordered"),
        ("moe_rs_stages", "if worker <= last_tile:", "if worker < 0:", "count"),
        ("moe_rs_stages", "ALL_TILES - rows * tiles_n, op", "ALL_TILES - rows * tiles_n + 1, op", "too-early"),
        ("combine", "        if last_row >= 0:", "        if last_row >= 16:", "count"),
    ],
)
def test_what_the_checker_finds_by_stage(module, line, instead, kind, tmp_path, monkeypatch):
    """No credit; rows that nobody waits for; tiles that are not counted; a stage that is done a tile early; sums that
    nobody sends.
    """
    groups = {"groups": [(2, None)], "larger": False}  # which is enough for these, and takes a tenth of the time
    findings = findings_of("moe_rs_by_stage_program", module, line, instead, tmp_path, monkeypatch, **groups)
    assert findings and findings[0].kind == kind
