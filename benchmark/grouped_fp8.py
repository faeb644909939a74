"""Grouped products of fp8 operands with scales of blocks (1 x 128, 128 x 128) on one GPU, and a layer of them.

    torchrun --nproc-per-node 1 benchmark/grouped_fp8.py --table out.md
    torchrun --nproc-per-node 1 benchmark/grouped_fp8.py --layers --models DSV3

As grouped_gemm.py measures. Peers: ``torch._scaled_grouped_mm``, whose scales are of rows and of columns, so that it
multiplies other numbers, with fast sums; and our own product in bf16. Every result is compared with the fp32 product of
what its operands stand for. ``--layers``: ``ep_moe`` of one rank's experts and all ranks' routes to them, in bf16 and
in fp8, without communication; its result is compared with the fp32 layer of the same quantized weights.
"""

from __future__ import annotations

import argparse
import datetime
import faulthandler
import json
from collections.abc import Callable
from pathlib import Path

import torch
import triton
from grouped_gemm import MODELS, RANKS, Model, Problem, graph_of, label, medians

import ditron
from ditron import kernels

FP8 = torch.float8_e4m3fn

# As in grouped_gemm.py.
MANY_ROWS = [
    (64, 128, 128, 4, 4, 16, 2),
    (128, 128, 128, 3, 8, 8, 1),
]
FEW_ROWS = [
    (16, 128, 128, 4, 4, 16, 3),
    (16, 128, 128, 5, 4, 16, 2),
    (32, 128, 128, 5, 4, 16, 2),
    (32, 128, 128, 8, 4, 16, 1),
    (64, 128, 128, 4, 4, 16, 2),
]
BF16 = {True: (32, 128, 128, 5, 4, 16, 1), False: (128, 256, 64, 4, 8, 8, 1)}  # by whether rows are few


def quantized(x: torch.Tensor, rows: int, columns: int) -> tuple[torch.Tensor, torch.Tensor]:
    """fp8, and the scales of blocks of ``rows`` x ``columns`` of the last two dimensions."""
    *lead, M, K = x.shape
    blocks = x.view(*lead, M // rows, rows, K // columns, columns)
    scale = blocks.abs().amax((-3, -1), keepdim=True).float() / torch.finfo(FP8).max
    return (blocks / scale).to(FP8).view(x.shape), scale.view(*lead, M // rows, K // columns)


def exact(x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """What a quantized matrix, or several, stand for, in fp32."""
    rows, columns = x.shape[-2] // scale.shape[-2], x.shape[-1] // scale.shape[-1]
    return x.float() * scale.repeat_interleave(rows, -2).repeat_interleave(columns, -1)


class Scaled(Problem):
    """Of fp8."""

    def __init__(self, model: Model, tokens: int, first: bool):
        super().__init__(model, tokens, first)
        self.bf16 = self.x, self.rows, self.w, self.expected
        x, self.scale_x = quantized(self.x, 1, 128)
        of_slot = self.slot.long()
        rows, self.scale_rows = x.view(torch.uint8)[of_slot].view(FP8), self.scale_x[of_slot]
        parts = [quantized(w, 128, 128) for w in self.w]
        w, self.scale_w = (
            torch.stack([part[i].view(torch.uint8) if i == 0 else part[i] for part in parts]) for i in (0, 1)
        )
        self.x, self.rows, self.w = x, rows, w.view(FP8)
        self.expected = self.product(
            exact(rows, self.scale_rows), [exact(*of) for of in zip(self.w, self.scale_w, strict=True)]
        )

    def torch_scaled(self) -> tuple[Callable[[], torch.Tensor], float]:
        """The call, and its error: of each row, and of each column of the result, one scale."""
        _, rows, w, _ = self.bf16
        a, of_rows = quantized(rows, 1, self.K)
        parts = [quantized(each, 1, self.K) for each in w]
        b = torch.stack([part[0].view(torch.uint8) for part in parts]).view(FP8).transpose(1, 2)
        of_columns, of_rows = torch.stack([part[1] for part in parts]).squeeze(2), of_rows.squeeze(1)
        options = {"offs": self.offsets, "out_dtype": torch.bfloat16, "use_fast_accum": True}
        run = lambda: torch._scaled_grouped_mm(a, b, of_rows, of_columns, **options)  # noqa: E731
        expected = self.product(exact(a, of_rows[:, None]), [exact(*part) for part in parts])
        return run, ((run().float() - expected).norm() / expected.norm()).item()

    def in_bf16(self, few: bool, gather: bool) -> tuple[Callable[[], object], float]:
        """Our own product of the operands before they were quantized."""
        plain = Problem.__new__(Problem)
        plain.__dict__ |= self.__dict__ | {"scale_x": None, "scale_rows": None, "scale_w": None}
        plain.x, plain.rows, plain.w, plain.expected = self.bf16
        run, (out, places) = plain.ours(BF16[few], few, gather)
        run()
        return run, plain.error(out[places])

    def floor(self, tflops: float, gbytes: float) -> float:
        rows = len(self.slot)
        nbytes = self.w.numel() + rows * (2 * self.N + self.K)
        return max(2 * rows * self.N * self.K / tflops / 1e9, nbytes / gbytes / 1e6)


def measured(problem: Scaled, tokens: int, rounds: int, cache: torch.Tensor) -> dict:
    forms = [(tiles, True) for tiles in FEW_ROWS if tokens <= 512]
    forms += [(tiles, False) for tiles in MANY_ROWS if tokens >= 256]
    runs, errors, failures = {}, {}, {}
    try:
        runs["torch"], errors["torch"] = problem.torch_scaled()
    except Exception as error:
        failures["torch"] = f"{type(error).__name__}: {str(error).splitlines()[0][:200]}"
    for gather in (False, True) if problem.first else (False,):
        name = f"bf16 {'gather' if gather else 'rows'}"
        runs[name], errors[name] = problem.in_bf16(tokens <= 512, gather)
        for tiles, few in forms:
            name = label(tiles, few, gather)
            run, (out, places) = problem.ours(tiles, few, gather)
            try:
                run()
                torch.cuda.synchronize()
            except Exception as error:
                failures[name] = f"{type(error).__name__}: {str(error).splitlines()[0][:120]}"
                continue
            errors[name] = problem.error(out[places])
            assert errors[name] < 3e-3, f"{name}: relative error {errors[name]}"  # of bfloat16's rounding: 1.7e-3
            runs[name] = run
    graphs = {name: graph_of(run) for name, run in runs.items()}
    times = medians(graphs, rounds, cache)
    best = {}
    for word in ("rows", "gather"):
        own = [(time, name) for name, time in times.items() if word in name.split() and not name.startswith("bf16")]
        if own:
            best[word] = min(own)[1]
    finalists = [name for name in times if name.startswith(("torch", "bf16"))] + list(best.values())
    final = medians({name: graphs[name] for name in finalists}, 2 * rounds, cache)
    return {"times": times, "final": final, "best": best, "errors": errors, "failures": failures}


class Layer:
    """``ep_moe`` on one rank, with as many routes to its experts as a rank of several has."""

    def __init__(self, model: Model, tokens: int):
        self.experts, self.top_k = model.experts // RANKS, max(1, model.top_k // RANKS)
        H, inner = model.hidden, model.intermediate
        generator = torch.Generator("cuda").manual_seed(tokens)
        draw = lambda *shape: torch.empty(shape, dtype=torch.bfloat16, device="cuda").normal_(generator=generator)  # noqa: E731
        self.x = draw(RANKS * tokens, H)
        scores = torch.rand(RANKS * tokens, self.experts, device="cuda", generator=generator)
        self.weights, self.ids = scores.topk(self.top_k)
        self.w = draw(self.experts, 2 * inner, H) / H**0.5, draw(self.experts, H, inner) / inner**0.5
        self.w8, self.scales = [], []
        for w in self.w:
            parts = [quantized(each, 128, 128) for each in w]
            self.w8.append(torch.stack([part[0].view(torch.uint8) for part in parts]).view(FP8))
            self.scales.append(torch.stack([part[1] for part in parts]))

    def call(self, scaled: bool, algorithm: str = "gathered") -> torch.Tensor:
        scales = dict(zip(("scale_w13", "scale_w2"), self.scales, strict=True)) if scaled else {}
        return kernels.ep_moe(
            self.x,
            self.ids,
            self.weights,
            *(self.w8 if scaled else self.w),
            num_experts=self.experts,
            algorithm=algorithm,
            **scales,
        )

    def error(self, got: torch.Tensor, scaled: bool) -> float:
        """To the layer in fp32 of the same weights, which quantizes nothing."""
        expected = torch.zeros(self.x.shape, device="cuda")
        for e in range(self.experts):
            w13, w2 = (
                exact(w[e], s[e]) if scaled else v[e].float()
                for w, s, v in zip(self.w8, self.scales, self.w, strict=True)
            )
            token, k = torch.nonzero(self.ids == e, as_tuple=True)
            gate, up = (self.x[token].float() @ w13.T).chunk(2, 1)
            y = (torch.nn.functional.silu(gate) * up) @ w2.T
            expected.index_add_(0, token, y * self.weights[token, k, None])
        return ((got.float() - expected).norm() / expected.norm()).item()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="*", default=["DSV3", "Qwen3-235B", "Qwen3-30B"], choices=list(MODELS))
    parser.add_argument("--tokens", nargs="*", type=int, default=[128, 4096], help="of each rank")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--layers", action="store_true", help="layers instead of products")
    parser.add_argument("--tflops", type=float, default=1400)
    parser.add_argument("--gbytes", type=float, default=4200, help="GB/s of memory")
    parser.add_argument("--limit", type=int, default=60, help="seconds a product may take")
    parser.add_argument("--table", type=Path, help="append the table to this file")
    parser.add_argument("--json", type=Path, help="write all medians to this file, after every product")
    args = parser.parse_args()
    ditron.init(transport="p2p")
    torch.backends.cuda.matmul.allow_tf32 = False
    cache = torch.zeros(48 << 20, dtype=torch.int32, device="cuda")
    heads = "product | rows | floor | torch, fp8 of rows | bf16, rows | bf16, gather | fp8, rows | fp8, gather | tiles"
    if args.layers:
        heads = (
            "layer | bf16, gathered | dispatched | fp8, gathered | dispatched | bf16 / fp8 | error, bf16 | error, fp8"
        )
    table, results = [f"| {heads} |", "|---" * (heads.count("|") + 1) + "|"], {}
    for name in args.models:
        for tokens in args.tokens:
            if args.layers:
                faulthandler.dump_traceback_later(args.limit, exit=True)
                layer = Layer(MODELS[name], tokens)
                forms = [(scaled, how) for scaled in (False, True) for how in ("gathered", "dispatched")]
                errors = [layer.error(layer.call(*form), form[0]) for form in forms]
                assert max(errors[2:]) < 0.06, errors  # of e4m3's three bits, in tokens and behind the activation
                graphs = {str(form): graph_of(lambda form=form, of=layer: of.call(*form)) for form in forms}
                times = list(medians(graphs, 2 * args.rounds, cache).values())
                ratio = times[0] / times[2]
                cells = [*(f"{time:.4f}" for time in times), f"{ratio:.2f}", f"{errors[0]:.4f}", f"{errors[2]:.4f}"]
                table.append(f"| {' | '.join([f'{name}, {tokens} tokens', *cells])} |")
                print(table[-1], flush=True)
                del layer, graphs
                torch.cuda.empty_cache()
                continue
            for first in (True, False):
                faulthandler.dump_traceback_later(args.limit, exit=True)
                problem = Scaled(MODELS[name], tokens, first)
                result = measured(problem, tokens, args.rounds, cache)
                title = f"{name}, {tokens} tokens, {'w13' if first else 'w2'}"
                floor, final = problem.floor(args.tflops, args.gbytes), result["final"]
                results[title] = {**result, "floor": floor, "rows": len(problem.slot)}
                names = [
                    "torch",
                    "bf16 rows",
                    "bf16 gather",
                    *(result["best"].get(word) for word in ("rows", "gather")),
                ]
                cells = [f"{final[each]:.4f}" if each in final else "" for each in names]
                forms = "; ".join(result["best"].values())
                table.append(f"| {' | '.join([title, str(len(problem.slot)), f'{floor:.4f}', *cells, forms])} |")
                print(table[-1], flush=True)
                for form, why in result["failures"].items():
                    print(f"    {form}: {why}", flush=True)
                if args.json:
                    args.json.write_text(json.dumps(results, indent=1))
                del problem
                torch.cuda.empty_cache()
    machine = f"{torch.cuda.get_device_name()}, torch {torch.__version__}, triton {triton.__version__}"
    title = (
        f"A rank of {RANKS}, fp8 with scales of blocks, {machine}, {datetime.date.today()}; ms in graphs; floor of "
        f"{args.tflops:g} TFLOP/s, {args.gbytes:g} GB/s; tiles: rows x columns x K, stages, warps, group, programs"
    )
    print("\n".join([title, "", *table]))
    if args.table:
        with args.table.open("a") as file:
            file.write("\n".join([title, "", *table, "", ""]))
    ditron.finalize()


if __name__ == "__main__":
    main()
