"""Weighted sums of tokens' rows on one GPU: ways to keep loads in flight, in GB/s of the bytes that must move.

    torchrun --nproc-per-node 1 benchmark/weighted_sums.py --json sums.json

``out`` [tokens, H] = of each token its rows of ``y`` by weight, added in fp32 in order of its routes: a rank's part of
moe_rs and ep_combine, of all tokens of a group of ``--ranks``, where the routes to other ranks' experts are -1.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from pathlib import Path
from typing import Any

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

sys.path.insert(0, str(Path(__file__).resolve().parent))
from grouped_gemm import MODELS  # noqa: E402


@triton.jit
def as_it_is(
    y_ptr,
    out_ptr,
    row_ptr,
    weight_ptr,
    tokens,
    splits,
    H,
    STEP: tl.constexpr,
    TB: tl.constexpr,
    CB: tl.constexpr,
    K: tl.constexpr,
    POLICY: tl.constexpr,
    STAGES: tl.constexpr,
):
    """A row after the other."""
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
                ptr = y_ptr + tl.maximum(rows[k], 0).to(tl.int64)[:, None] * H + col[None, :]
                total += weights[k][:, None] * tl.load(ptr, mask=mask, other=0.0, eviction_policy=POLICY).to(tl.float32)
            at = token.to(tl.int64)[:, None] * H + col[None, :]
            tl.store(out_ptr + at, total.to(y_ptr.dtype.element_ty), mask=exists[:, None] & (col < H)[None, :])


@triton.jit
def loads_first(
    y_ptr,
    out_ptr,
    row_ptr,
    weight_ptr,
    tokens,
    splits,
    H,
    STEP: tl.constexpr,
    TB: tl.constexpr,
    CB: tl.constexpr,
    K: tl.constexpr,
    POLICY: tl.constexpr,
    STAGES: tl.constexpr,
):
    """STEP rows are loaded, then added."""
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
        for begin in tl.range(first, tl.minimum(first + part, H), CB, num_stages=STAGES):
            col = begin + tl.arange(0, CB)
            total = tl.zeros((TB, CB), tl.float32)
            for some in tl.static_range(0, K, STEP):
                values = ()
                for k in tl.static_range(STEP):
                    mask = (rows[some + k] >= 0)[:, None] & (col < H)[None, :]
                    ptr = y_ptr + tl.maximum(rows[some + k], 0).to(tl.int64)[:, None] * H + col[None, :]
                    values = values + (tl.load(ptr, mask=mask, other=0.0, eviction_policy=POLICY),)
                for k in tl.static_range(STEP):
                    total += weights[some + k][:, None] * values[k].to(tl.float32)
            at = token.to(tl.int64)[:, None] * H + col[None, :]
            tl.store(out_ptr + at, total.to(y_ptr.dtype.element_ty), mask=exists[:, None] & (col < H)[None, :])


@triton.jit
def one_token(
    y_ptr,
    out_ptr,
    row_ptr,
    weight_ptr,
    tokens,
    splits,
    H,
    STEP: tl.constexpr,
    TB: tl.constexpr,
    CB: tl.constexpr,
    K: tl.constexpr,
    POLICY: tl.constexpr,
    STAGES: tl.constexpr,
):
    """A token at a time, of which rows and weights are scalars; STEP rows are loaded, then added."""
    for item in range(tl.program_id(0), tokens * splits, tl.num_programs(0)):
        token = item // splits
        rows = ()
        weights = ()
        for k in tl.static_range(K):
            rows = rows + (tl.load(row_ptr + token * K + k),)
            weights = weights + (tl.load(weight_ptr + token * K + k),)
        part = tl.cdiv(tl.cdiv(H, CB), splits) * CB
        first = item % splits * part
        for begin in tl.range(first, tl.minimum(first + part, H), CB, num_stages=STAGES):
            col = begin + tl.arange(0, CB)
            total = tl.zeros((CB,), tl.float32)
            for some in tl.static_range(0, K, STEP):
                values = ()
                for k in tl.static_range(STEP):
                    ptr = y_ptr + tl.maximum(rows[some + k], 0).to(tl.int64) * H + col
                    mask = (rows[some + k] >= 0) & (col < H)
                    values = values + (tl.load(ptr, mask=mask, other=0.0, eviction_policy=POLICY),)
                for k in tl.static_range(STEP):
                    total += weights[some + k] * values[k].to(tl.float32)
            tl.store(out_ptr + token.to(tl.int64) * H + col, total.to(y_ptr.dtype.element_ty), mask=col < H)


@triton.jit
def packed(
    y_ptr,
    out_ptr,
    row_ptr,
    weight_ptr,
    tokens,
    splits,
    H,
    STEP: tl.constexpr,
    TB: tl.constexpr,
    CB: tl.constexpr,
    K: tl.constexpr,
    POLICY: tl.constexpr,
    STAGES: tl.constexpr,
):
    """A token at a time; the rows that there are first, STEP of them at a time, as many times as needed."""
    k = tl.arange(0, K)
    for item in range(tl.program_id(0), tokens * splits, tl.num_programs(0)):
        token = item // splits
        row = tl.load(row_ptr + token * K + k)
        weight = tl.load(weight_ptr + token * K + k)
        place = tl.cumsum((row >= 0).to(tl.int32), 0) - 1
        count = tl.sum((row >= 0).to(tl.int32), 0)
        rows = ()
        weights = ()
        for j in tl.static_range(K):
            is_it = (row >= 0) & (place == j)
            rows = rows + (tl.sum(tl.where(is_it, row, 0), 0),)
            weights = weights + (tl.sum(tl.where(is_it, weight, 0.0), 0),)
        part = tl.cdiv(tl.cdiv(H, CB), splits) * CB
        first = item % splits * part
        for begin in tl.range(first, tl.minimum(first + part, H), CB):
            col = begin + tl.arange(0, CB)
            total = tl.zeros((CB,), tl.float32)
            for some in tl.static_range(0, K, STEP):
                if some < count:
                    values = ()
                    for j in tl.static_range(STEP):
                        ptr = y_ptr + rows[some + j].to(tl.int64) * H + col
                        mask = (some + j < count) & (col < H)
                        values = values + (tl.load(ptr, mask=mask, other=0.0, eviction_policy=POLICY),)
                    for j in tl.static_range(STEP):
                        total += weights[some + j] * values[j].to(tl.float32)
            tl.store(out_ptr + token.to(tl.int64) * H + col, total.to(y_ptr.dtype.element_ty), mask=col < H)


@triton.jit
def staged(
    y_ptr,
    out_ptr,
    row_ptr,
    weight_ptr,
    tokens,
    splits,
    H,
    STEP: tl.constexpr,
    TB: tl.constexpr,
    CB: tl.constexpr,
    K: tl.constexpr,
    POLICY: tl.constexpr,
    STAGES: tl.constexpr,
):
    """Rows of a block of tokens by a loop over routes that Triton pipelines through shared memory."""
    for item in range(tl.program_id(0), tl.cdiv(tokens, TB) * splits, tl.num_programs(0)):
        token = item // splits * TB + tl.arange(0, TB)
        exists = token < tokens
        part = tl.cdiv(tl.cdiv(H, CB), splits) * CB
        first = item % splits * part
        for begin in range(first, tl.minimum(first + part, H), CB):
            col = begin + tl.arange(0, CB)
            total = tl.zeros((TB, CB), tl.float32)
            for k in tl.range(0, K, num_stages=STAGES):
                row = tl.load(row_ptr + token * K + k, mask=exists, other=-1)
                weight = tl.load(weight_ptr + token * K + k, mask=exists, other=0.0)
                mask = (row >= 0)[:, None] & (col < H)[None, :]
                ptr = y_ptr + tl.maximum(row, 0).to(tl.int64)[:, None] * H + col[None, :]
                total += weight[:, None] * tl.load(ptr, mask=mask, other=0.0).to(tl.float32)
            at = token.to(tl.int64)[:, None] * H + col[None, :]
            tl.store(out_ptr + at, total.to(y_ptr.dtype.element_ty), mask=exists[:, None] & (col < H)[None, :])


@triton.jit
def flat(
    y_ptr,
    out_ptr,
    row_ptr,
    weight_ptr,
    tokens,
    splits,
    H,
    STEP: tl.constexpr,
    TB: tl.constexpr,
    CB: tl.constexpr,
    K: tl.constexpr,
    POLICY: tl.constexpr,
    STAGES: tl.constexpr,
):
    """As staged, by one loop over columns and routes, which is pipelined across columns too."""
    for item in range(tl.program_id(0), tl.cdiv(tokens, TB) * splits, tl.num_programs(0)):
        token = item // splits * TB + tl.arange(0, TB)
        exists = token < tokens
        part = tl.cdiv(tl.cdiv(H, CB), splits) * CB
        first = item % splits * part
        total = tl.zeros((TB, CB), tl.float32)
        blocks = tl.cdiv(tl.minimum(first + part, H) - first, CB)
        for i in tl.range(0, blocks * K, num_stages=STAGES):
            k = i % K
            col = first + i // K * CB + tl.arange(0, CB)
            row = tl.load(row_ptr + token * K + k, mask=exists, other=-1)
            weight = tl.load(weight_ptr + token * K + k, mask=exists, other=0.0)
            mask = (row >= 0)[:, None] & (col < H)[None, :]
            ptr = y_ptr + tl.maximum(row, 0).to(tl.int64)[:, None] * H + col[None, :]
            total += weight[:, None] * tl.load(ptr, mask=mask, other=0.0).to(tl.float32)
            if k == K - 1:
                at = token.to(tl.int64)[:, None] * H + col[None, :]
                tl.store(out_ptr + at, total.to(y_ptr.dtype.element_ty), mask=exists[:, None] & (col < H)[None, :])
                total = tl.zeros((TB, CB), tl.float32)


@triton.jit
def tma(
    y_ptr,
    out_ptr,
    row_ptr,
    weight_ptr,
    tokens,
    splits,
    H,
    STEP: tl.constexpr,
    TB: tl.constexpr,
    CB: tl.constexpr,
    K: tl.constexpr,
    POLICY: tl.constexpr,
    STAGES: tl.constexpr,
):
    """A token at a time, its rows by TMA, which gives zeros for row -1; ``y_ptr`` is a descriptor of [1, CB]."""
    for item in range(tl.program_id(0), tokens * splits, tl.num_programs(0)):
        token = item // splits
        part = tl.cdiv(tl.cdiv(H, CB), splits) * CB
        first = item % splits * part
        blocks = tl.cdiv(tl.minimum(first + part, H) - first, CB)
        total = tl.zeros((1, CB), tl.float32)
        for i in tl.range(0, blocks * K, num_stages=STAGES):
            k = i % K
            begin = first + i // K * CB
            row = tl.load(row_ptr + token * K + k)
            weight = tl.load(weight_ptr + token * K + k)
            total += weight * y_ptr.load([row, begin]).to(tl.float32)
            if k == K - 1:
                col = begin + tl.arange(0, CB)[None, :]
                tl.store(out_ptr + token.to(tl.int64) * H + col, total.to(out_ptr.dtype.element_ty), mask=col < H)
                total = tl.zeros((1, CB), tl.float32)


FORMS = {f.__name__: f for f in (as_it_is, loads_first, one_token, packed, staged, flat, tma)}


def variants() -> dict[str, tuple[str, dict[str, Any]]]:
    """Kernel and options by name; ``per_sm`` programs on an SM."""
    found = {}

    def add(form: str, TB: int, CB: int, warps: int, per_sm: int, step: int = 8, regs: int = 0, policy: str = "",
            stages: int = 1, splits: int = 0) -> None:  # fmt: skip
        name = f"{form} {TB}x{CB} w{warps} p{per_sm} step{step} r{regs} {policy or '-'} s{stages} split{splits}"
        options = {"TB": TB, "CB": CB, "num_warps": warps, "per_sm": per_sm, "STEP": step, "POLICY": policy}
        found[name] = form, options | {"STAGES": stages, "splits": splits, "maxnreg": regs or None}

    # TB, CB, warps, programs on an SM, splits: 64 registers each
    for TB, CB, warps, per_sm, splits in (
        (8, 256, 8, 4, 4),  # moe_rs, many tokens
        (1, 2048, 8, 4, 0),  # moe_rs, few tokens; ep_combine
        (1, 2048, 4, 8, 0),
        (1, 1024, 4, 8, 0),
        (2, 1024, 8, 4, 0),
        (2, 1024, 4, 8, 0),
        (4, 512, 8, 4, 0),
        (4, 512, 4, 8, 0),
        (4, 1024, 8, 4, 0),
        (2, 2048, 8, 4, 0),
        (8, 512, 8, 4, 4),
        (8, 256, 4, 8, 4),
        (1, 4096, 8, 4, 0),
        (4, 2048, 8, 4, 0),
    ):
        add("as_it_is", TB, CB, warps, per_sm, regs=64, splits=splits)
    # Beside a product: few programs, few registers.
    for TB, CB, warps, regs in (
        (8, 256, 8, 64),
        (8, 512, 8, 64),
        (2, 2048, 8, 64),
        (1, 2048, 4, 128),
        (2, 2048, 4, 128),
        (8, 256, 4, 128),
        (8, 512, 4, 128),
        (4, 1024, 4, 128),
    ):
        add("as_it_is", TB, CB, warps, 1, regs=regs)
    return found


def tables(ids: torch.Tensor, experts: int) -> torch.Tensor:
    """Rows by expert, without padding: [tokens, K] int32."""
    flat = ids.view(-1)
    order = torch.sort(torch.where(flat >= 0, flat, experts), stable=True).indices
    row = torch.empty_like(order)
    row[order] = torch.arange(len(order), device=ids.device)
    return torch.where(flat >= 0, row, -1).int().view_as(ids)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="*", default=["Qwen3-30B", "DSV3"], choices=list(MODELS))
    parser.add_argument("--tokens", type=int, default=4096, help="of each rank")
    parser.add_argument("--ranks", nargs="*", type=int, default=[1, 2, 4])
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--only", nargs="*", default=list(FORMS))
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    device = torch.device("cuda", 0)
    torch.cuda.set_device(device)
    sms = torch.cuda.get_device_properties(device).multi_processor_count
    cache = torch.zeros(48 << 20, dtype=torch.int32, device=device)
    results = {}
    for name in args.models:
        for ranks in args.ranks:
            model = MODELS[name]
            tokens, H, K = args.tokens * ranks, model.hidden, model.top_k
            generator = torch.Generator(device).manual_seed(1)
            ids = torch.rand(tokens, model.experts, device=device, generator=generator).topk(K).indices
            ids = torch.where(ids < model.experts // ranks, ids, -1)
            rows, count = tables(ids, model.experts), int((ids >= 0).sum())
            weights = torch.rand(tokens, K, device=device, generator=generator)
            y = torch.randn(count, H, device=device, generator=generator).bfloat16()
            expected = torch.zeros(tokens, H, device=device)
            for k in range(K):
                has = rows[:, k] >= 0
                expected[has] += weights[has, k, None] * y[rows[has, k].long()].float()
            nbytes = 2 * H * (count + tokens)
            graphs, attributes, outs = {}, {}, []
            for title, (form, options) in variants().items():
                if form not in args.only:
                    continue
                options = dict(options)
                per_sm, splits = options.pop("per_sm"), options.pop("splits") or -(-H // options["CB"])
                if options["maxnreg"] is None:
                    del options["maxnreg"]
                out = torch.full((tokens, H), float("nan"), device=device, dtype=torch.bfloat16)
                outs.append(out)  # graphs write to it
                given = TensorDescriptor.from_tensor(y, [1, options["CB"]]) if form == "tma" else y
                run = lambda f=FORMS[form], y=given, o=options, out=out, p=per_sm, s=splits: f[(p * sms,)](  # noqa: E731
                    y, out, rows, weights, tokens, s, H, K=K, **o
                )
                try:
                    compiled = run()
                    error = ((out.float() - expected).norm() / expected.norm()).item()
                    assert error < 4e-3, error
                except Exception as error:
                    print(f"{name} {ranks} {title}: FAILED {type(error).__name__} {str(error)[:160]}", flush=True)
                    continue
                attributes[title] = compiled.n_regs, compiled.n_spills
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph):
                    run()
                graphs[title] = graph
            times: dict[str, list] = {title: [] for title in graphs}
            for turn in range(args.rounds + 1):
                for title, graph in list(graphs.items())[:: -1 if turn % 2 else 1]:
                    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                    cache.sum()
                    begin.record()
                    graph.replay()
                    end.record()
                    times[title].append((begin, end))
                torch.cuda.synchronize()
            case = f"{name}, {ranks} ranks, {count} rows of {H}, {nbytes / 1e6:.0f} MB"
            print(case, flush=True)
            for title, pairs in times.items():
                ms = statistics.median(b.elapsed_time(e) for b, e in pairs[1:])
                results.setdefault(case, {})[title] = {"us": 1e3 * ms, "GB/s": nbytes / ms / 1e6}
                regs, spills = attributes[title]
                print(f"  {1e3 * ms:8.1f} us {nbytes / ms / 1e6:6.0f} GB/s  regs {regs} {spills}  {title}", flush=True)
            if args.json:
                args.json.write_text(json.dumps(results, indent=1))
            del graphs, outs
            torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
