"""Grouped matrix products of MoE layers on one GPU: ways to read the rows, tiles, against torch.

    torchrun --nproc-per-node 1 benchmark/grouped_gemm.py --table out.md
    torchrun --nproc-per-node 1 benchmark/grouped_gemm.py --tokens 128 --calls 6

One rank of an expert-parallel group of four: ``--tokens`` tokens a rank, each with the experts that a uniform router
draws. *gather*: rows of the first product are read where the dispatch leaves them, through a table; *rows*: from a
matrix sorted by expert, which has to be made first (the time of that is a column). Peer: ``torch._grouped_mm``.
Floors: the larger of the products at ``--tflops`` and the bytes at ``--gbytes`` of memory; with few tokens a kernel
that does nothing but read the weights. CUDA graphs, taken in turns, the L2 cache full of other data before each; with
``--calls`` a graph has several products, one behind the other, each of weights of its own, and a time is of one. Every
result is compared with fp32 torch.
"""

from __future__ import annotations

import argparse
import datetime
import faulthandler
import itertools
import json
import os
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import torch
import triton
from triton.tools.tensor_descriptor import TensorDescriptor

sys.path.insert(0, str(Path(__file__).resolve().parent))
import grouped_kernels  # noqa: E402

import ditron  # noqa: E402

RANKS = 4


class Model(NamedTuple):
    hidden: int
    intermediate: int
    experts: int
    top_k: int


MODELS = {
    "Qwen3-30B": Model(2048, 768, 128, 8),
    "Qwen3-235B": Model(4096, 1536, 128, 8),
    "DSV3": Model(7168, 2048, 256, 8),
    "Mixtral": Model(4096, 14336, 8, 2),
}

# Tiles: rows, columns, K, stages, warps, groups of rows of tiles, programs per SM.
MANY_ROWS = [
    (128, 256, 64, 4, 8, 8, 1),
    (128, 256, 64, 4, 8, 16, 1),
    (128, 256, 64, 3, 8, 8, 1),
    (64, 256, 64, 4, 4, 16, 1),
]
FEW_ROWS = [  # the weights are the left operand
    (16, 128, 128, 5, 4, 16, 1),
    (32, 128, 128, 5, 4, 16, 1),
    (32, 128, 64, 5, 4, 16, 2),
    (32, 64, 128, 4, 4, 16, 2),
    (32, 128, 256, 2, 4, 16, 1),
    (64, 128, 128, 4, 4, 16, 1),
    (64, 128, 64, 4, 4, 16, 2),
    (64, 64, 128, 4, 4, 16, 2),
    (64, 256, 64, 5, 8, 16, 1),
    (128, 128, 64, 6, 8, 16, 1),
    (128, 128, 128, 3, 8, 16, 1),
]
ROWS_OF_FEW = [  # as of many, the rows are
    (64, 128, 128, 4, 4, 16, 1),
    (64, 256, 64, 4, 4, 8, 1),
]
READ_BLOCK = 16384


class Problem:
    """One of the two products of a layer on one rank."""

    scale_x: torch.Tensor | None = None  # of quantized operands, as scale_rows and scale_w
    scale_rows: torch.Tensor | None = None
    scale_w: torch.Tensor | None = None

    def __init__(self, model: Model, tokens: int, first: bool):
        self.first, self.experts = first, model.experts // RANKS
        self.N = 2 * model.intermediate if first else model.hidden
        self.K = model.hidden if first else model.intermediate
        self.programs = torch.cuda.get_device_properties(0).multi_processor_count
        generator = torch.Generator("cuda").manual_seed(tokens)
        scores = torch.rand(RANKS * tokens, model.experts, device="cuda", generator=generator)
        ids = scores.topk(model.top_k).indices
        token, route = torch.nonzero(ids < self.experts, as_tuple=True)
        expert = ids[token, route]
        order = torch.sort(expert, stable=True).indices
        self.slot, self.expert = token[order].int(), expert[order]
        self.counts = torch.bincount(expert, minlength=self.experts)
        self.offsets = self.counts.cumsum(0).int()
        self.x = torch.randn(RANKS * tokens, self.K, device="cuda", generator=generator).bfloat16()
        shape = (self.experts, self.N, self.K)
        self.w = torch.empty(shape, dtype=torch.bfloat16, device="cuda").normal_(std=self.K**-0.5, generator=generator)
        self.rows = self.x[self.slot.long()]
        self.expected = self.product(self.rows, self.w)

    def product(self, rows: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        """In fp32."""
        out, begin = torch.empty(len(rows), self.N, device="cuda"), 0
        for e, end in enumerate(self.offsets.tolist()):
            torch.mm(rows[begin:end].float(), w[e].float().T, out=out[begin:end])
            begin = end
        return out

    def torch(self, w: torch.Tensor | None = None) -> Callable[[], torch.Tensor]:
        w = self.w if w is None else w
        return lambda: torch._grouped_mm(self.rows, w.transpose(1, 2), offs=self.offsets)

    def tables(self, BM: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        """Where routes are among rows that are padded to whole tiles of an expert; slots, tiles and their number."""
        padded = (self.counts + BM - 1) // BM * BM
        begins = padded.cumsum(0) - padded
        places = begins[self.expert] + torch.arange(len(self.slot), device="cuda")
        places -= (self.counts.cumsum(0) - self.counts)[self.expert]
        total = int(padded.sum())
        slots = torch.full((total,), -1, dtype=torch.int32, device="cuda")
        slots[places] = self.slot
        many = padded // BM
        first, zero = begins // BM, torch.zeros_like(many)  # a run for each expert, of stage 0
        table = torch.stack([torch.arange(self.experts, device="cuda"), first, first, many, zero, zero], 1).int()
        count = torch.tensor([total // BM], dtype=torch.int32, device="cuda")
        return places, slots, table.repeat_interleave(many, 0), count

    def reads(self, w: torch.Tensor) -> Callable[[], object]:
        """Nothing but reading weights."""
        sums = torch.empty(triton.cdiv(w.numel(), READ_BLOCK), device="cuda")
        return lambda: grouped_kernels.read_elements[(len(sums),)](w, sums, w.numel(), BLOCK=READ_BLOCK, num_warps=8)

    def ours(
        self, form: tuple[int, ...], few: bool, gather: bool, w: torch.Tensor | None = None
    ) -> tuple[Callable[[], object], torch.Tensor]:
        """A call, and the rows of its result, which has padding between experts, in the order of the routes.

        ``few``: the weights are the left operand. ``w``: other weights.
        """
        w = self.w if w is None else w
        BM, BN, BK, stages, warps, group, resident = form
        places, slots, tiles, count = self.tables(BM)
        rows = placed(self.rows, places, len(slots))
        out = torch.full((len(slots), self.N), float("nan"), dtype=torch.bfloat16, device="cuda")
        x = self.x
        descriptors = (
            TensorDescriptor.from_tensor(rows, [BM, BK]),
            TensorDescriptor.from_tensor(w.view(-1, self.K), [BN, BK]),
        )
        constants = {"BM": BM, "BN": BN, "BK": BK, "GATHER": gather, "FLATTEN": True}
        constants |= {"PROGRAMS": resident * self.programs, "GROUP": group, "num_stages": stages, "num_warps": warps}
        scales = (None, None)
        if self.scale_w is not None:
            scales = (self.scale_x if gather else placed(self.scale_rows, places, len(slots))), self.scale_w
            constants["SCALED"] = True
        tables = (slots, tiles, count, *scales, self.N, self.K)
        grid = (resident * self.programs,)
        c = TensorDescriptor.from_tensor(out[None], [1, BM, BN // 2])
        constants |= {"PARTS": 2, "SWAP_AB": few}
        return lambda: grouped_kernels.grouped_gemm[grid](x, *descriptors, out, c, *tables, **constants), (out, places)

    def error(self, result: torch.Tensor) -> float:
        return ((result.float() - self.expected).norm() / self.expected.norm()).item()

    def floor(self, tflops: float, gbytes: float) -> float:
        """Milliseconds."""
        rows = len(self.slot)
        nbytes = 2 * (self.w.numel() + rows * (self.N + self.K))
        return max(2 * rows * self.N * self.K / tflops / 1e9, nbytes / gbytes / 1e6)


def placed(values: torch.Tensor, places: torch.Tensor, rows: int) -> torch.Tensor:
    """``rows`` rows of zeros, with ``values`` at their places; of any dtype."""
    nbytes = values.contiguous().view(torch.uint8)
    out = torch.zeros(rows, nbytes.shape[1], dtype=torch.uint8, device=values.device)
    out[places] = nbytes
    return out.view(values.dtype)


def graph_of(run: Callable[[], object]) -> torch.cuda.CUDAGraph:
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="relaxed"):
        run()
    return graph


def medians(
    graphs: dict[str, torch.cuda.CUDAGraph], rounds: int, cache: torch.Tensor, calls: int = 1
) -> dict[str, float]:
    """Milliseconds of one of a graph's ``calls``."""
    names, times = list(graphs), {name: [] for name in graphs}
    for turn in range(rounds + 2):
        shift = turn % len(names)
        for name in (names[shift:] + names[:shift])[:: -1 if turn % 2 else 1]:
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            cache.sum()
            begin.record()
            graphs[name].replay()
            end.record()
            times[name].append((begin, end))
        torch.cuda.synchronize()
    return {name: statistics.median(b.elapsed_time(e) for b, e in pairs[2:]) / calls for name, pairs in times.items()}


def label(tiles: tuple[int, ...], few: bool, gather: bool) -> str:
    BM, BN, BK, stages, warps, group, resident = tiles
    form = ("few " if few else "") + ("gather" if gather else "rows")
    return f"{form} {BM}x{BN}x{BK} s{stages} w{warps} g{group} p{resident}"


def measured(problem: Problem, tokens: int, args: argparse.Namespace, cache: torch.Tensor) -> dict:
    is_few, weights = tokens <= 512, [problem.w] + [problem.w.clone() for _ in range(args.calls - 1)]
    runs: dict[str, list[Callable[[], object]]] = {"torch": [problem.torch(w) for w in weights]}
    if is_few:
        runs["reads alone"] = [problem.reads(w) for w in weights]
    theirs = problem.error(runs["torch"][0]())
    errors, failures = {"torch": theirs}, {}
    of_rows = ROWS_OF_FEW if is_few else MANY_ROWS
    forms = [(tiles, False) for tiles in of_rows] + [(tiles, True) for tiles in FEW_ROWS if is_few]
    for (tiles, few), gather in itertools.product(forms, (False, True) if problem.first else (False,)):
        name = label(tiles, few, gather)
        calls = [problem.ours(tiles, few, gather, w) for w in weights]
        run, (out, places) = calls[0]
        try:
            run()
            torch.cuda.synchronize()
        except Exception as error:
            failures[name] = f"{type(error).__name__}: {str(error).splitlines()[0][:120]}"
            continue
        errors[name] = problem.error(out[places])
        assert errors[name] <= 1.1 * theirs, f"{name}: relative error {errors[name]}, torch's {theirs}"
        runs[name] = [run for run, _ in calls]
    if problem.first:
        slot, rows = problem.slot.long(), torch.empty_like(problem.rows)
        runs["rows made"] = [lambda: torch.index_select(problem.x, 0, slot, out=rows)] * args.calls
    graphs = {name: graph_of(lambda calls=calls: [run() for run in calls]) for name, calls in runs.items()}
    times = medians(graphs, args.rounds, cache, args.calls)
    # The fastest once more against torch alone: a GPU that has rested during a slow form runs the next one faster.
    finalists = ["torch", *(["reads alone"] if is_few else []), *(form for _, form in fastest(times) if form)]
    final = medians({name: graphs[name] for name in finalists}, 2 * args.rounds, cache, args.calls)
    return {"times": times, "final": final, "errors": errors, "failures": failures}


def fastest(times: dict[str, float]) -> list[tuple[float, str]]:
    """Of the forms that read rows, and of those that gather, the fastest; (0, "") if there is none."""
    of_word = lambda word: [(time, form) for form, time in times.items() if word in form.split() and "made" not in form]  # noqa: E731
    return [min(of_word(word), default=(0.0, "")) for word in ("rows", "gather")]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="*", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--tokens", nargs="*", type=int, default=[128, 4096], help="of each rank")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--calls", type=int, default=1, help="products in a graph, of weights of their own")
    parser.add_argument("--tflops", type=float, default=700)
    parser.add_argument("--gbytes", type=float, default=4200, help="GB/s of memory")
    parser.add_argument("--limit", type=int, default=60, help="seconds a product may take")
    parser.add_argument("--table", type=Path, help="append the table to this file")
    parser.add_argument("--json", type=Path, help="write all medians to this file, after every product")
    args = parser.parse_args()
    ditron.init(transport="p2p")
    torch.backends.cuda.matmul.allow_tf32 = False
    cache = torch.zeros(48 << 20, dtype=torch.int32, device="cuda")
    table = [
        "| product | rows | floor | reads alone | torch | ditron, rows | ditron, gather | rows made | tiles of each |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    results = {}
    for name in args.models:
        for tokens in args.tokens:
            for first in (True, False):
                faulthandler.dump_traceback_later(args.limit, exit=True)
                problem = Problem(MODELS[name], tokens, first)
                result = measured(problem, tokens, args, cache)
                title = f"{name}, {tokens} tokens, {'w13' if first else 'w2'}"
                floor = problem.floor(args.tflops, args.gbytes)
                results[title] = {**result, "floor": floor, "rows": len(problem.slot)}
                times = result["final"]
                best = fastest(times)
                cells = [f"{t:.4f} ({t / floor:.2f})" if t else "" for t in (times["torch"], *(t for t, _ in best))]
                reads = times.get("reads alone")
                row = [title, str(len(problem.slot)), f"{floor:.4f}", f"{reads:.4f}" if reads else "", *cells]
                made = result["times"].get("rows made")
                row += [f"{made:.4f}" if made else "", "; ".join(form for _, form in best if form)]
                table.append(f"| {' | '.join(row)} |")
                print(table[-1], flush=True)
                for form, why in result["failures"].items():
                    print(f"    {form}: {why}", flush=True)
                if args.json:
                    args.json.write_text(json.dumps(results, indent=1))
                del problem
                torch.cuda.empty_cache()
    machine = f"{torch.cuda.get_device_name()}, torch {torch.__version__}, triton {triton.__version__}"
    title = (
        f"A rank of {RANKS}, bf16, {machine}, {datetime.date.today()}; ms (over the floor of {args.tflops:g} TFLOP/s"
    )
    title += f" and {args.gbytes:g} GB/s)"
    if args.table:
        with args.table.open("a") as file:
            file.write("\n".join(["", title, "", *table, ""]))
    ditron.finalize()


if __name__ == "__main__":
    os.environ.setdefault("DITRON_PROTOCOL", "off")
    main()
