"""The operators of ditron.kernels on real GPUs: results and gradients, called, compiled and from CUDA graphs.

    torchrun --nproc-per-node 2 test/gpu/check_operators.py

Each line is one check: the relative error against fp32 (Frobenius norm), and that of torch with NCCL in the same dtype, which
ours may exceed by a tenth. Before each call a rank chosen by chance sleeps on its GPU. What hangs is ended by ``--limit``.
"""

from __future__ import annotations

import argparse
import copy
import faulthandler
import functools
import os
import random
import sys
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import torch
import torch.distributed as dist

import ditron
from ditron import kernels

REPLAYS = 20
# Rows of a rank, N, K: whole tiles, ragged ones, what TMA cannot address, one row, what is overlapped, few steps of K.
FEWEST = (1, 8, 8)
SHAPES = [(256, 512, 256), (333, 200, 328), (77, 131, 67), FEWEST, (1024, 1024, 2048), (4096, 2048, 2048)]
SHAPES += [(4000, 4096, 320), (4096, 4096, 64)]

Tensors = list[torch.Tensor]


def total(leaves: list[Tensors]) -> torch.Tensor:
    """The sum over ranks of A times the transpose of B."""
    return functools.reduce(torch.add, (a @ b.t() for a, b in leaves))


def column(leaves: list[Tensors]) -> Tensors:
    whole = torch.cat([a for a, *_ in leaves])
    return [whole @ b.t() + (bias[0] if bias else 0) for _, b, *bias in leaves]


def nccl_gather(x: torch.Tensor) -> torch.Tensor:
    out = x.new_empty(len(x) * ditron.num_ranks(), *x.shape[1:])
    dist.all_gather_into_tensor(out, x.contiguous())
    return out


def nccl_scatter(x: torch.Tensor) -> torch.Tensor:
    out = x.new_empty(len(x) // ditron.num_ranks(), *x.shape[1:])
    dist.reduce_scatter_tensor(out, x.contiguous())
    return out


def nccl_reduce(x: torch.Tensor) -> torch.Tensor:
    x = x.clone()
    dist.all_reduce(x)
    return x


def linears(x: torch.Tensor, *weights: torch.Tensor) -> torch.Tensor:
    """Layers side by side, as torch has them: the gradient of ``x`` is rounded once for each."""
    return torch.cat([torch.nn.functional.linear(x, w) for w in weights], 1)


@dataclass
class Operator:
    """``whole`` computes every rank's result from every rank's tensors, ``nccl`` this rank's from its own."""

    ours: Callable[..., torch.Tensor]
    whole: Callable[[list[Tensors]], Tensors]
    nccl: Callable[..., torch.Tensor]
    shapes: Callable[[int, int, int, int], list[tuple[int, ...]]]  # of ranks, rows, N, K
    outs: dict[str, int] = field(default_factory=dict)  # arguments that are written
    gradient: dict[str, str] = field(default_factory=dict)


PARTIAL = {"gradient": "partial"}
OPERATORS = {
    "ag_gemm": Operator(
        kernels.ag_gemm,
        column,
        lambda a, b, *bias: torch.nn.functional.linear(nccl_gather(a), b, *bias),
        lambda W, M, N, K: [(M, K), (N, K)],
    ),
    "ag_gemm, bias": Operator(
        kernels.ag_gemm,
        column,
        lambda a, b, bias: torch.nn.functional.linear(nccl_gather(a), b, bias),
        lambda W, M, N, K: [(M, K), (N, K), (N,)],
    ),
    "ag_gemm_gathered": Operator(
        lambda a, b: kernels.ag_gemm_gathered(a, b)[0],
        column,
        lambda a, b: nccl_gather(a) @ b.t(),
        lambda W, M, N, K: [(M, K), (N, K)],
    ),
    "ag_gemm_multi": Operator(
        lambda a, b, c: torch.cat(kernels.ag_gemm_multi(a, [b, c])[0], 1),
        lambda leaves: [linears(torch.cat([a for a, *_ in leaves]), b, c) for _, b, c in leaves],
        lambda a, b, c: linears(nccl_gather(a), b, c),
        lambda W, M, N, K: [(M, K), (N, K), (N // 2, K)],
    ),
    "gemm_rs": Operator(
        kernels.gemm_rs,
        lambda leaves: list(total(leaves).chunk(len(leaves))),
        lambda a, b: nccl_scatter(a @ b.t()),
        lambda W, M, N, K: [(W * M, K), (N, K)],
    ),
    "gemm_ar": Operator(
        kernels.gemm_ar,
        lambda leaves: [total(leaves)] * len(leaves),
        lambda a, b: nccl_reduce(a @ b.t()),
        lambda W, M, N, K: [(W * M, K), (N, K)],
        gradient=PARTIAL,
    ),
    "all_gather": Operator(
        kernels.all_gather,
        lambda leaves: [torch.cat([x for (x,) in leaves])] * len(leaves),
        nccl_gather,
        lambda W, M, N, K: [(M, N)],
    ),
    "reduce_scatter": Operator(
        kernels.reduce_scatter,
        lambda leaves: list(sum(x for (x,) in leaves).chunk(len(leaves))),
        nccl_scatter,
        lambda W, M, N, K: [(W * M, N)],
    ),
    "all_reduce": Operator(
        kernels.all_reduce,
        lambda leaves: [sum(x for (x,) in leaves)] * len(leaves),
        nccl_reduce,
        lambda W, M, N, K: [(M, N)],
        gradient=PARTIAL,
    ),
}


def random_tensor(shape: tuple[int, ...], seed: int, layout: str, dtype: torch.dtype) -> torch.Tensor:
    generator = torch.Generator(ditron.device()).manual_seed(seed)
    tensor = torch.randn(*shape, device=ditron.device(), generator=generator).to(dtype)
    return tensor.t().contiguous().t() if layout == "kn" and tensor.ndim == 2 else tensor


class Problem:
    """An operator, and every rank's tensors."""

    def __init__(self, operator: Operator, shape: tuple[int, int, int], layout: str, dtype: torch.dtype, seed: int = 0):
        self.operator, self.rank, self.dtype = operator, ditron.rank(), dtype
        ranks = ditron.num_ranks()
        shapes = operator.shapes(ranks, *shape)
        self.leaves = [
            [
                random_tensor(extents, 1000 * seed + 10 * rank + i, layout if i == 1 else "nk", dtype)
                for i, extents in enumerate(shapes)
            ]
            for rank in range(ranks)
        ]
        with torch.no_grad():
            self.exact = operator.whole([[t.float() for t in tensors] for tensors in self.leaves])[self.rank]
        self.mine = self.leaves[self.rank]

    def error(self, got: torch.Tensor) -> float:
        return relative_error(got, self.exact)

    def theirs(self) -> float:
        return self.error(self.operator.nccl(*self.mine))

    def gradients(self, ours: Callable[..., torch.Tensor]) -> list[tuple[float, float]]:
        """Errors of the gradients of this rank's tensors, and of those that torch finds in the same dtype."""
        grads = [random_tensor(tuple(self.exact.shape), 77 + r, "nk", self.dtype) for r in range(len(self.leaves))]

        def of_whole(dtype: torch.dtype) -> Tensors:
            leaves = [[t.to(dtype).requires_grad_() for t in copies(tensors)] for tensors in self.leaves]
            torch.autograd.backward(self.operator.whole(leaves), [g.to(dtype) for g in grads])
            return [t.grad for t in leaves[self.rank]]

        mine = [t.requires_grad_() for t in copies(self.mine)]
        ours(*mine).backward(grads[self.rank])
        exact, same = of_whole(torch.float32), of_whole(self.dtype)
        return [(relative_error(t.grad, e), relative_error(s, e)) for t, e, s in zip(mine, exact, same, strict=True)]


def copies(tensors: Tensors) -> Tensors:
    return [t.detach().clone() for t in tensors]


def relative_error(got: torch.Tensor, exact: torch.Tensor) -> float:
    assert got.shape == exact.shape, (got.shape, exact.shape)
    return ((got.float() - exact).norm() / exact.norm()).item()


def lag(chance: random.Random) -> None:
    """Let one rank's GPU sleep up to 1 ms; the same one is chosen on every rank."""
    rank, cycles = chance.randrange(ditron.num_ranks()), chance.randrange(10_000, 1_500_000)
    if rank == ditron.rank():
        torch.cuda._sleep(cycles)


def called(problems: list[Problem], calls: int = 6) -> list[tuple[float, float]]:
    """Calls one after the other, compared at the end; twice the same is bitwise the same."""
    chance, results = random.Random(1), []
    for call in range(calls):
        lag(chance)
        problem = problems[call % len(problems)]
        results.append((problem, problem.operator.ours(*problem.mine)))
    half = len(problems)
    assert torch.equal(results[0][1], results[half][1]), "two calls with the same tensors differ"
    return [(problem.error(got), problem.theirs()) for problem, got in results[:half]]


def written(problem: Problem) -> list[tuple[float, float]]:
    """Into ``out``; ``ag_gemm`` into ``gathered`` too."""
    out = problem.exact.to(problem.dtype)
    out.zero_()
    options = {"out": out}
    if problem.operator.ours is kernels.ag_gemm:
        a = problem.mine[0]
        options["gathered"] = a.new_empty(ditron.num_ranks() * len(a), a.shape[1])
    assert problem.operator.ours(*problem.mine, **options) is out
    if "gathered" in options:
        assert torch.equal(options["gathered"], torch.cat([tensors[0] for tensors in problem.leaves]))
    return [(problem.error(out), problem.theirs())]


def replayed(problems: list[Problem], backward: bool) -> list[tuple[float, float]]:
    """From a CUDA graph, with other data each time; with ``backward`` the graph holds gradients too."""
    first, chance, results = problems[0], random.Random(2), []
    tensors = [t.requires_grad_(backward) for t in copies(first.mine)]
    grad = torch.ones_like(first.exact, dtype=first.dtype)

    def call() -> Tensors:
        y = first.operator.ours(*tensors, **(first.operator.gradient if backward else {}))
        return [y, *(torch.autograd.grad(y, tensors, grad) if backward else ())]

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        call()
    torch.cuda.current_stream().wait_stream(side)
    expected = [[t.detach().clone() for t in eager(problem, tensors, call)] for problem in problems]
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        outputs = call()
    for replay in range(REPLAYS):
        number = replay % len(problems)
        fill(tensors, problems[number])
        lag(chance)
        graph.replay()
        results.append((number, [t.detach().clone() for t in outputs]))
    torch.cuda.synchronize()
    for number, got in results:
        for ours, theirs in zip(got, expected[number], strict=True):
            assert torch.equal(ours, theirs), "a replay differs from the call"
    return [(problems[number].error(got[0]), problems[number].theirs()) for number, got in results[: len(problems)]]


def fill(tensors: Tensors, problem: Problem) -> None:
    with torch.no_grad():
        for tensor, value in zip(tensors, problem.mine, strict=True):
            tensor.copy_(value)


def eager(problem: Problem, tensors: Tensors, call: Callable[[], Tensors]) -> Tensors:
    fill(tensors, problem)
    return call()


def groups() -> list[tuple[float, float]]:
    """Subgroups in another order, a process group, a mesh."""
    ranks, rank = ditron.num_ranks(), ditron.rank()
    x = torch.full((3, 5), float(rank), device=ditron.device())
    turned = ditron.new_group(list(reversed(range(ranks))))
    expected = (
        torch.arange(ranks, device=ditron.device(), dtype=torch.float32).repeat_interleave(3)[:, None].expand(-1, 5)
    )
    assert torch.equal(kernels.all_gather(x, group=turned), expected.flip(0))
    assert ditron.all_gather_object(rank, turned) == list(reversed(range(ranks)))
    mesh = dist.init_device_mesh("cuda", (ranks,), mesh_dim_names=("tp",))["tp"]
    for group in (dist.group.WORLD, mesh, mesh.get_group()):
        assert torch.equal(kernels.all_gather(x, group=group), expected)
    pair = dist.new_group([0, 1])
    if rank < 2:
        assert torch.equal(kernels.all_reduce(x, group=pair), torch.ones_like(x))
    y = x.clone().requires_grad_()
    with turned:
        z = kernels.all_gather(y)
    z.backward(
        torch.arange(3.0 * ranks, device=x.device)[:, None].expand(-1, 5).contiguous()
    )  # in a thread of autograd's
    rows = torch.arange(3.0, device=x.device) + 3 * turned.rank
    assert torch.equal(y.grad, ranks * rows[:, None].expand(-1, 5))
    assert torch.equal(kernels.own_part(expected.contiguous()), x)
    return []


def misaligned() -> list[tuple[float, float]]:
    """Views that begin at 16 bytes on some ranks only."""
    rank, ranks = ditron.rank(), ditron.num_ranks()
    flat = torch.arange(641.0, device=ditron.device()).bfloat16()
    for shift in (rank % 2, 0, 1 - rank % 2):
        x = flat[shift : shift + 640].view(64, 10)
        shifts = ditron.all_gather_object(shift)
        parts = torch.cat([flat[s : s + 640].view(64, 10) for s in shifts])
        assert torch.equal(kernels.all_gather(x), parts)
        assert torch.equal(kernels.all_reduce(x).float(), parts.view(ranks, 64, 10).float().sum(0).bfloat16().float())
    return []


class MLP(torch.nn.Module):
    """Knows nothing of ranks."""

    def __init__(self, size: int, inner: int):
        super().__init__()
        self.gate, self.up = (torch.nn.Linear(size, inner, bias=False) for _ in range(2))
        self.down = torch.nn.Linear(inner, size, bias=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(torch.nn.functional.silu(self.gate(x)) * self.up(x))


def layers(compiles: bool) -> list[tuple[float, float]]:
    """An MLP that ``ditron.nn.parallelize`` has divided, with its gradients, against itself on one GPU."""
    rank, ranks = ditron.rank(), ditron.num_ranks()
    torch.manual_seed(0)
    plain = MLP(512, 256 * ranks).to(ditron.device(), torch.bfloat16)
    x, grad = (random_tensor((2, 64 * ranks, 512), seed, "nk", torch.bfloat16) for seed in (1, 2))

    def part(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.chunk(ranks, 1)[rank].contiguous()

    def results(module: Callable, x: torch.Tensor, grad: torch.Tensor) -> Tensors:
        x = x.clone().requires_grad_()
        y = module(x)
        y.backward(grad)
        return [y.detach(), x.grad]

    exact = [part(t) for t in results(copy.deepcopy(plain).float(), x.float(), grad.float())]
    same = [part(t) for t in results(copy.deepcopy(plain), x, grad)]
    plan = {"": "gather", "gate": "colwise", "up": "colwise", "down": "rowwise"}
    divided: Callable = ditron.nn.parallelize(copy.deepcopy(plain), plan)
    if compiles:
        divided = torch.compile(divided, fullgraph=True)
    got = results(divided, part(x), part(grad))
    more = 1.25  # the parts of a sum over ranks are rounded, which one GPU does not do
    return [(relative_error(g, e), more * relative_error(s, e)) for g, s, e in zip(got, same, exact, strict=True)]


def fused() -> list[tuple[float, float]]:
    """torch's functional collectives, replaced by operators when they are compiled, against what they are eagerly."""
    import torch.distributed._functional_collectives as collectives

    ranks, group = ditron.num_ranks(), dist.group.WORLD
    fuse = ditron.nn.fuse_collectives(group)

    def mlp(x: torch.Tensor, up: torch.Tensor, down: torch.Tensor) -> torch.Tensor:
        hidden = torch.relu(torch.nn.functional.linear(collectives.all_gather_tensor_autograd(x, 0, group), up))
        return collectives.reduce_scatter_tensor_autograd(torch.nn.functional.linear(hidden, down), "sum", 0, group)

    shapes = [(64, 2, 512), (256, 512), (512, 256)]
    leaves = [[random_tensor(s, 10 * r + i, "nk", torch.bfloat16) for i, s in enumerate(shapes)] for r in range(ranks)]

    def results(function: Callable, tensors: Tensors) -> Tensors:
        tensors = [t.clone().requires_grad_() for t in tensors]
        y = function(*tensors)
        y.square().sum().backward()
        return [y.detach(), *(t.grad for t in tensors)]

    mine = leaves[ditron.rank()]
    exact, same = results(mlp, [t.float() for t in mine]), results(mlp, mine)
    with torch.compiler.config.patch(force_disable_caches=True):
        got = results(torch.compile(mlp, fullgraph=True, options={"post_grad_custom_pre_pass": fuse}), mine)
    assert fuse.replaced == {"ag_gemm": 2, "gemm_rs": 2}, fuse.replaced
    return [(relative_error(g, e), relative_error(s, e)) for g, s, e in zip(got, same, exact, strict=True)]


def checks(args: argparse.Namespace) -> Iterator[tuple[str, Callable[[], list[tuple[float, float]]]]]:
    yield "groups", groups
    yield "misaligned tensors", misaligned
    yield "layers", lambda: layers(compiles=False)
    yield "layers, compiled", lambda: layers(compiles=True)
    yield "collectives fused by torch.compile", fused
    for name, operator in OPERATORS.items():
        if args.only and args.only not in name:
            continue
        has_weight = "gemm" in name
        for shape in SHAPES[: 3 if args.small else None]:
            for layout in ("nk", "kn") if has_weight else ("nk",):
                for dtype in (torch.bfloat16, torch.float16) if shape == SHAPES[0] else (torch.bfloat16,):
                    title = f"{name}, {shape}, {layout}, {str(dtype).removeprefix('torch.')}"
                    problems = [Problem(operator, shape, layout, dtype, seed) for seed in range(3)]
                    problem = problems[0]
                    whole = lambda *tensors, o=operator: o.ours(*tensors, **o.gradient)  # noqa: E731
                    yield f"{title}: called", lambda p=problems: called(p)
                    if name not in ("ag_gemm_gathered", "ag_gemm_multi"):
                        yield f"{title}: out=", lambda p=problem: written(p)
                    yield f"{title}: backward", lambda p=problem, f=whole: p.gradients(f)
                    yield f"{title}: graph", lambda p=problems: replayed(p, backward=False)
                    if shape in SHAPES[1:3]:
                        yield f"{title}: graph with backward", lambda p=problems: replayed(p, backward=True)
                    if shape == SHAPES[1]:

                        def compiled(p: Problem = problem, f: Callable = whole) -> list[tuple[float, float]]:
                            torch._dynamo.reset()
                            function = torch.compile(f, fullgraph=True)
                            with torch.no_grad():
                                forward = p.error(function(*p.mine)), p.theirs()
                            return [forward, *p.gradients(function)]

                        yield f"{title}: compiled", compiled


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="operators whose name contains this word")
    parser.add_argument("--small", action="store_true", help="the first shapes only")
    parser.add_argument("--limit", type=int, default=60, help="seconds a check may take")
    args = parser.parse_args()
    os.environ.setdefault("DITRON_PROTOCOL", "off")  # the checker needs no GPU, and has tests of its own
    ditron.init(transport="p2p")
    rank, done, failed = ditron.rank(), 0, []
    for title, check in checks(args):
        faulthandler.dump_traceback_later(args.limit, exit=True)
        try:
            errors, wrong = check(), ""
        except Exception as error:
            errors, wrong = [], f"{type(error).__name__}: {error}"
            if rank == 0:
                traceback.print_exc()
        unit = torch.finfo(torch.float16 if "float16" in title and "bfloat16" not in title else torch.bfloat16).eps / 2
        least = 2 * unit if str(FEWEST) in title else 0.75 * unit  # a norm of few roundings says little
        if not wrong and not all(ours <= max(1.1 * theirs, least) for ours, theirs in errors):
            wrong = "less exact than torch"
        shown = " ".join(f"{ours:.1e}/{theirs:.1e}" for ours, theirs in errors)
        everywhere = [f"rank {r}: {w}" for r, w in enumerate(ditron.all_gather_object(wrong)) if w]
        faulthandler.cancel_dump_traceback_later()
        done += 1
        failed += [title] if everywhere else []
        if rank == 0:
            print(f"{'FAILED' if everywhere else 'ok    '} {title} {shown} {'; '.join(everywhere)}", flush=True)
    if rank == 0:
        print(
            f"{done - len(failed)} of {done} checks of the operators are right on {ditron.num_ranks()} GPUs", flush=True
        )
        for title in failed:
            print(f"  failed: {title}")
    ditron.finalize()
    return 1 if failed or not done else 0


if __name__ == "__main__":
    sys.exit(main())
