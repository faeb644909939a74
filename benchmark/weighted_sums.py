"""Weighted sums of tokens' rows on one GPU: ways to keep loads in flight, in GB/s of the bytes that must move.

    python benchmark/weighted_sums.py --models Qwen3-30B DSV3 --ranks 1 2 4 --json sums.json

``out`` [tokens, H] = of each token its rows of ``y`` by weight, added in fp32 in order of its routes: a rank's part of
moe_rs and ep_combine, of all tokens of a group of ``--ranks``, where the routes to other ranks' experts are -1. CUDA
graphs, in turns, other data in the L2 cache; every result is compared with fp32 torch.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from pathlib import Path
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

sys.path.insert(0, str(Path(__file__).resolve().parent))
from grouped_gemm import MODELS, Model  # noqa: E402


@triton.jit
def registers(
    y, out_ptr, row_ptr, weight_ptr, tokens, splits, H, TB: tl.constexpr, CB: tl.constexpr, K: tl.constexpr,
    STAGES: tl.constexpr,
):  # fmt: skip
    """As ditron/kernels/combine.py: all rows of some tokens and columns are loaded to registers."""
    for item in range(tl.program_id(0), tl.cdiv(tokens, TB) * splits, tl.num_programs(0)):
        token = item // splits * TB + tl.arange(0, TB)
        exists = token < tokens
        rows = ()
        weights = ()
        for k in tl.static_range(K):
            rows = rows + (tl.load(row_ptr + token * K + k, mask=exists, other=-1),)
            weights = weights + (tl.load(weight_ptr + token * K + k, mask=exists, other=0.0),)
        part = tl.cdiv(tl.cdiv(H, CB), splits) * CB
        first = item % splits * part
        for begin in tl.range(first, tl.minimum(first + part, H), CB):
            col = begin + tl.arange(0, CB)
            total = tl.zeros((TB, CB), tl.float32)
            for k in tl.static_range(K):
                mask = (rows[k] >= 0)[:, None] & (col < H)[None, :]
                ptr = y + tl.maximum(rows[k], 0).to(tl.int64)[:, None] * H + col[None, :]
                total += weights[k][:, None] * tl.load(ptr, mask=mask, other=0.0).to(tl.float32)
            at = token.to(tl.int64)[:, None] * H + col[None, :]
            tl.store(out_ptr + at, total.to(out_ptr.dtype.element_ty), mask=exists[:, None] & (col < H)[None, :])


@triton.jit
def shared(
    y, out_ptr, row_ptr, weight_ptr, tokens, splits, H, TB: tl.constexpr, CB: tl.constexpr, K: tl.constexpr,
    STAGES: tl.constexpr,
):  # fmt: skip
    """One loop over columns and routes, which Triton pipelines through shared memory."""
    for item in range(tl.program_id(0), tl.cdiv(tokens, TB) * splits, tl.num_programs(0)):
        token = item // splits * TB + tl.arange(0, TB)
        exists = token < tokens
        part = tl.cdiv(tl.cdiv(H, CB), splits) * CB
        first = item % splits * part
        total = tl.zeros((TB, CB), tl.float32)
        for i in tl.range(0, tl.cdiv(tl.minimum(first + part, H) - first, CB) * K, num_stages=STAGES):
            k = i % K
            col = first + i // K * CB + tl.arange(0, CB)
            row = tl.load(row_ptr + token * K + k, mask=exists, other=-1)
            weight = tl.load(weight_ptr + token * K + k, mask=exists, other=0.0)
            mask = (row >= 0)[:, None] & (col < H)[None, :]
            ptr = y + tl.maximum(row, 0).to(tl.int64)[:, None] * H + col[None, :]
            total += weight[:, None] * tl.load(ptr, mask=mask, other=0.0).to(tl.float32)
            if k == K - 1:
                at = token.to(tl.int64)[:, None] * H + col[None, :]
                tl.store(out_ptr + at, total.to(out_ptr.dtype.element_ty), mask=exists[:, None] & (col < H)[None, :])
                total = tl.zeros((TB, CB), tl.float32)


@triton.jit
def tma(
    y, out_ptr, row_ptr, weight_ptr, tokens, splits, H, TB: tl.constexpr, CB: tl.constexpr, K: tl.constexpr,
    STAGES: tl.constexpr,
):  # fmt: skip
    """A token at a time, its rows by TMA, which gives zeros for row -1; ``y`` is a descriptor of [1, CB]."""
    for item in range(tl.program_id(0), tokens * splits, tl.num_programs(0)):
        token = item // splits
        part = tl.cdiv(tl.cdiv(H, CB), splits) * CB
        first = item % splits * part
        total = tl.zeros((1, CB), tl.float32)
        for i in tl.range(0, tl.cdiv(tl.minimum(first + part, H) - first, CB) * K, num_stages=STAGES):
            k = i % K
            begin = first + i // K * CB
            row = tl.load(row_ptr + token * K + k)
            total += tl.load(weight_ptr + token * K + k) * y.load([row, begin]).to(tl.float32)
            if k == K - 1:
                col = begin + tl.arange(0, CB)[None, :]
                tl.store(out_ptr + token.to(tl.int64) * H + col, total.to(out_ptr.dtype.element_ty), mask=col < H)
                total = tl.zeros((1, CB), tl.float32)


class Form(NamedTuple):
    """A kernel; tokens and columns at a time, warps, programs on an SM, registers, stages of a pipeline."""

    kernel: Any
    TB: int
    CB: int
    warps: int
    per_sm: int
    registers: int = 64
    stages: int = 1
    splits: int = 0  # of a token's columns; 0: each block of them

    def __str__(self) -> str:
        splits = f", {self.splits} splits" if self.splits else ""
        stages = f", {self.stages} stages" if self.stages > 1 else ""
        sizes = f"{self.TB} x {self.CB}, {self.warps} warps, {self.per_sm} on an SM, {self.registers} registers"
        return f"{self.kernel.__name__}: {sizes}{stages}{splits}"


FORMS = [
    Form(registers, 8, 256, 8, 4, splits=4),
    Form(registers, 1, 1024, 4, 8),
    Form(registers, 1, 2048, 8, 4),
    Form(registers, 1, 2048, 4, 8),
    Form(registers, 1, 4096, 8, 4),
    Form(registers, 8, 512, 8, 4, splits=4),
    Form(shared, 4, 512, 8, 4, stages=5),
    Form(shared, 1, 2048, 8, 4, stages=3),
    Form(tma, 1, 1024, 4, 8, stages=5),
    # Beside a product there is place for one program, and for 16384 registers.
    Form(registers, 8, 256, 8, 1),
    Form(registers, 1, 2048, 4, 1, 128),
    Form(registers, 2, 2048, 4, 1, 128),
    Form(shared, 8, 256, 8, 1, stages=6),
]


class Problem:
    """Rows by expert without padding, weights, and the sums in fp32."""

    def __init__(self, model: Model, ranks: int, tokens: int):
        generator = torch.Generator("cuda").manual_seed(1)
        scores = torch.rand(tokens, model.experts, device="cuda", generator=generator)
        ids = scores.topk(model.top_k).indices
        ids = torch.where(ids < model.experts // ranks, ids, model.experts)
        order = torch.sort(ids.view(-1), stable=True).indices
        row = torch.empty_like(order)
        row[order] = torch.arange(len(order), device="cuda")
        self.rows = torch.where(ids < model.experts, row.view_as(ids), -1).int()
        self.count = int((self.rows >= 0).sum())
        self.weights = torch.rand(self.rows.shape, device="cuda", generator=generator)
        self.y = torch.randn(self.count, model.hidden, device="cuda", generator=generator).bfloat16()
        self.expected = torch.zeros(tokens, model.hidden, device="cuda")
        for k in range(model.top_k):
            has = self.rows[:, k] >= 0
            self.expected[has] += self.weights[has, k, None] * self.y[self.rows[has, k].long()].float()
        self.nbytes = 2 * model.hidden * (self.count + tokens)

    def graph(self, form: Form, out: torch.Tensor) -> torch.cuda.CUDAGraph:
        """A call, after it has been compared."""
        tokens, H = out.shape
        sms = torch.cuda.get_device_properties(0).multi_processor_count
        y = TensorDescriptor.from_tensor(self.y, [1, form.CB]) if form.kernel is tma else self.y
        operands = (y, out, self.rows, self.weights, tokens, form.splits or -(-H // form.CB), H)
        options = {"num_warps": form.warps, "maxnreg": form.registers}
        constants = {"TB": form.TB, "CB": form.CB, "K": self.rows.shape[1], "STAGES": form.stages}
        run = lambda: form.kernel[(form.per_sm * sms,)](*operands, **constants, **options)  # noqa: E731
        run()
        error = ((out.float() - self.expected).norm() / self.expected.norm()).item()
        assert error < 4e-3, f"{form}: relative error {error}"
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            run()
        return graph


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="*", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--tokens", type=int, default=4096, help="of each rank")
    parser.add_argument("--ranks", nargs="*", type=int, default=[1, 2, 4])
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--json", type=Path, help="write all of it to this file, after every problem")
    args = parser.parse_args()
    cache = torch.zeros(48 << 20, dtype=torch.int32, device="cuda")
    results: dict[str, dict[str, float]] = {}
    for name in args.models:
        for ranks in args.ranks:
            tokens = args.tokens * ranks
            problem = Problem(MODELS[name], ranks, tokens)
            outs = [torch.full((tokens, MODELS[name].hidden), float("nan"), device="cuda").bfloat16() for _ in FORMS]
            graphs = {str(form): problem.graph(form, out) for form, out in zip(FORMS, outs, strict=True)}
            times: dict[str, list] = {form: [] for form in graphs}
            for turn in range(args.rounds + 1):
                for form, graph in list(graphs.items())[:: -1 if turn % 2 else 1]:
                    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                    cache.sum()
                    begin.record()
                    graph.replay()
                    end.record()
                    times[form].append((begin, end))
                torch.cuda.synchronize()
            title = f"{name}, {ranks} ranks, {problem.count} rows, {problem.nbytes / 1e6:.0f} MB"
            print(title, flush=True)
            for form, pairs in times.items():
                ms = statistics.median(begin.elapsed_time(end) for begin, end in pairs[1:])
                results.setdefault(title, {})[form] = 1e3 * ms
                print(f"  {1e3 * ms:8.1f} us {problem.nbytes / ms / 1e6:6.0f} GB/s  {form}", flush=True)
            if args.json:
                args.json.write_text(json.dumps(results, indent=1))
            del problem, graphs, outs
            torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
