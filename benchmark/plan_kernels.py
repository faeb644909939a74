"""The kernels of moe_plan on one GPU, each by itself: what a rank of a group computes, without the exchange.

    torchrun --nproc-per-node 1 benchmark/plan_kernels.py --tokens 128 4096 8192 --ranks 2 4
    torchrun --nproc-per-node 1 benchmark/plan_kernels.py --tokens 128 --plans at_once=False,places=512

One rank takes the routes of all tokens of a group of ``--ranks``, and counts those to its own experts. us: a call in a
CUDA graph with other data in the L2 cache; in a graph of many, one after the other; and its kernels, as the profiler
sees them in both. Every plan is compared with plain loops.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

sys.path.insert(0, str(Path(__file__).resolve().parent))
from cases import parse_schedule  # noqa: E402
from grouped_gemm import MODELS, Model  # noqa: E402
from measuring import capture, extend, start  # noqa: E402

import ditron  # noqa: E402
from ditron.kernels import Plan, moe_plan  # noqa: E402
from ditron.kernels.moe_plan import block_rows  # noqa: E402
from ditron.kernels.routing import tables_on_host  # noqa: E402

CALLS = 20


def routes(model: Model, ranks: int, tokens: int, device: torch.device) -> torch.Tensor:
    """Of all tokens of a group the experts that rank 0 has, -1 for others: [ranks * tokens, top_k]."""
    generator = torch.Generator(device).manual_seed(tokens)
    ids = torch.rand(ranks * tokens, model.experts, device=device, generator=generator).topk(model.top_k).indices
    return torch.where(ids < model.experts // ranks, ids, -1).int()


def compare(plan: Plan, ids: torch.Tensor, weights: torch.Tensor, experts: int) -> None:
    """Fail if a plan is not what plain loops make."""
    host = tables_on_host(ids.cpu()[None], 0, 0, experts, plan.block_m, 1, weights.cpu())
    count = int(host.num_tiles)
    plan.check()
    assert int(plan.num_tiles) == count, (int(plan.num_tiles), count)
    for field in ("row_slot", "row_route", "tiles", "route_row", "route_weight", "expert_rows"):
        expected = getattr(host, field)
        assert torch.equal(getattr(plan, field)[: len(expected)].cpu(), expected), field


def of_kernels(replay: Any, cache: torch.Tensor | None, rounds: int) -> dict[str, float]:
    """Median us of each kernel of ours."""
    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        for _ in range(rounds):
            if cache is not None:
                cache.sum()
            replay()
        torch.cuda.synchronize()
    times: dict[str, list[float]] = {}
    for event in profiler.events():
        name = event.name
        if name.endswith(("_kernel", "_advance")) and "at::" not in name:
            times.setdefault(name, []).append(event.time_range.elapsed_us())
    return {name: statistics.median(found) for name, found in times.items()}


def cold(replay: Any, cache: torch.Tensor, rounds: int) -> float:
    pairs = []
    for _ in range(rounds + 2):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        cache.sum()
        torch.cuda._sleep(30_000)
        begin.record()
        replay()
        end.record()
        pairs.append((begin, end))
    torch.cuda.synchronize()
    return 1e3 * statistics.median(b.elapsed_time(e) for b, e in pairs[2:])


def warm(replay: Any, rounds: int) -> float:
    times = []
    for _ in range(rounds):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda._sleep(100_000)
        begin.record()
        replay()
        end.record()
        torch.cuda.synchronize()
        times.append(1e3 * begin.elapsed_time(end) / CALLS)
    return statistics.median(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="*", default=["Qwen3-30B", "DSV3"], choices=list(MODELS))
    parser.add_argument("--ranks", nargs="*", type=int, default=[2, 4], help="of the group whose rank is measured")
    parser.add_argument("--tokens", nargs="*", type=int, default=[128, 4096, 8192], help="of each rank")
    parser.add_argument("--plans", nargs="*", type=parse_schedule, default=[], help="of moe_plan: e.g. places=512")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--json", type=Path, help="write everything to this file, after every case")
    args = parser.parse_args()
    device = start(100)
    ditron.init(transport="p2p")
    cache = torch.zeros(48 << 20, dtype=torch.int32, device=device)
    empty = capture(lambda: cache[:1].add_(1), 1)
    print(f"a graph of one small kernel: cold {cold(empty.replay, cache, args.rounds):.1f}", flush=True)
    results = []
    for name in args.models:
        for ranks in args.ranks:
            for tokens in args.tokens:
                model = MODELS[name]
                ids = routes(model, ranks, tokens, device)
                weights = torch.rand(ids.shape, device=device, generator=torch.Generator(device).manual_seed(0))
                for how, schedule in [("", {}), *args.plans]:
                    extend(100)
                    title = f"{name} {ranks} ranks {tokens} tokens {how}"
                    options = {"num_experts": model.experts // ranks, **schedule}
                    options["block_m"] = block_rows(ids.numel() // model.experts)
                    make = lambda ids=ids, weights=weights, options=options: moe_plan(ids, weights, **options)  # noqa: E731
                    try:
                        compare(make(), ids, weights, model.experts // ranks)
                        compare(make(), ids, weights, model.experts // ranks)
                    except Exception as error:
                        print(f"{title}: FAILED {type(error).__name__}: {str(error)[:200]}", flush=True)
                        continue
                    one, many = capture(make, 1), capture(make, CALLS)
                    found = {"cold": cold(one.replay, cache, args.rounds), "warm": warm(many.replay, args.rounds)}
                    found["cold kernels"] = of_kernels(one.replay, cache, args.rounds)
                    found["warm kernels"] = of_kernels(many.replay, None, 3)
                    results.append({"case": title, **found})
                    parts = "; ".join(
                        f"{kernel.removesuffix('_kernel')} {us:.1f} ({found['warm kernels'].get(kernel, 0):.1f})"
                        for kernel, us in found["cold kernels"].items()
                    )
                    print(f"{title}: cold {found['cold']:.1f}, warm {found['warm']:.1f}; kernels {parts}", flush=True)
                    if args.json:
                        args.json.write_text(json.dumps(results, indent=1))
    ditron.finalize()


if __name__ == "__main__":
    main()
