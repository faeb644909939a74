"""The kernels of moe_plan on one GPU, each by itself: what a rank of a group computes, without the exchange.

    torchrun --nproc-per-node 1 benchmark/plan_kernels.py --tokens 128 4096 8192 --ranks 2 4
    torchrun --nproc-per-node 1 benchmark/plan_kernels.py --tokens 128 --plans at_once=False,places=512
    test/gpu/mps.sh 2 benchmark/plan_kernels.py --tokens 128 4096 8192

One rank takes the routes of all tokens of a group of ``--ranks``, and counts those to its own experts. us: a call in a
CUDA graph with other data in the L2 cache; in a graph of many, one after the other; and its kernels, as the profiler
sees them in both. Several ranks are a group, with the exchange: many calls in a graph. Every plan is compared with
plain loops.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
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


class Routes:
    """Routes of all tokens of a group of ``ranks``, and one rank's plan; if it runs alone, all of them are its own."""

    def __init__(self, model: Model, ranks: int, tokens: int, device: torch.device):
        drawn = torch.Generator(device).manual_seed(tokens)
        ids = torch.rand(ranks * tokens, model.experts, device=device, generator=drawn).topk(model.top_k).indices.int()
        self.rank, group = dist.get_rank(), dist.get_world_size()
        self.experts, self.tokens = model.experts // ranks, len(ids) // group
        self.of_group = model.experts if group > 1 else self.experts
        self.ids = ids if group > 1 else torch.where(ids < self.experts, ids, -1)
        self.weights = torch.rand(ids.shape, device=device, generator=drawn)
        self.block_m = block_rows(ids.numel() // model.experts)

    def plan(self, **schedule: Any) -> Plan:
        own = slice(self.rank * self.tokens, (self.rank + 1) * self.tokens)
        options = {"num_experts": self.of_group, "block_m": self.block_m, "stage_groups": 1, **schedule}
        return moe_plan(self.ids[own], self.weights[own], **options)

    def compare(self, plan: Plan) -> None:
        """Fail if a plan is not what plain loops make."""
        ids, weights = (each.cpu().unflatten(0, (-1, self.tokens)) for each in (self.ids, self.weights))
        host = tables_on_host(ids, self.rank, self.rank * self.experts, self.experts, plan.block_m, 1, weights)
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


def warm(replay: Any, rounds: int, calls: int) -> float:
    times = []
    for _ in range(rounds):
        dist.barrier()
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda._sleep(100_000)
        begin.record()
        replay()
        end.record()
        torch.cuda.synchronize()
        times.append(1e3 * begin.elapsed_time(end) / calls)
    return statistics.median(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="*", default=["Qwen3-30B", "DSV3"], choices=list(MODELS))
    parser.add_argument("--ranks", nargs="*", type=int, default=[2, 4], help="of the group, if this is its only one")
    parser.add_argument("--tokens", nargs="*", type=int, default=[128, 4096, 8192], help="of each rank")
    parser.add_argument("--plans", nargs="*", type=parse_schedule, default=[], help="of moe_plan: e.g. places=512")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--json", type=Path, help="write everything to this file, after every case")
    args = parser.parse_args()
    device = start(100)
    ditron.init(transport="p2p")
    cache = torch.zeros(48 << 20, dtype=torch.int32, device=device)
    if dist.get_world_size() == 1:
        empty = capture(lambda: cache[:1].add_(1), 1)
        print(f"a graph of one small kernel: cold {cold(empty.replay, cache, args.rounds):.1f}", flush=True)
    results = []
    for name in args.models:
        for ranks in [dist.get_world_size()] if dist.get_world_size() > 1 else args.ranks:
            for tokens in args.tokens:
                routes = Routes(MODELS[name], ranks, tokens, device)
                for how, schedule in [("", {}), *args.plans]:
                    extend(100)
                    title = f"{name} {ranks} ranks {tokens} tokens {how}"
                    make = lambda routes=routes, schedule=schedule: routes.plan(**schedule)  # noqa: E731
                    try:
                        for _ in range(2):
                            routes.compare(make())
                    except Exception as error:
                        if dist.get_world_size() > 1:
                            raise
                        print(f"{title}: FAILED {type(error).__name__}: {str(error)[:200]}", flush=True)
                        continue
                    if dist.get_world_size() > 1:  # so many calls that it does not count which rank begins first
                        found = {"warm": warm(capture(make, 10 * CALLS).replay, args.rounds, 10 * CALLS)}
                        print(f"{title}: rank {dist.get_rank()}, warm {found['warm']:.1f}", flush=True)
                        continue
                    one, many = capture(make, 1), capture(make, CALLS)
                    found = {
                        "cold": cold(one.replay, cache, args.rounds),
                        "warm": warm(many.replay, args.rounds, CALLS),
                    }
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
