"""Thousands of calls of the MoE operators, every result checked: random token counts, routing, capacities, lagging ranks.

    torchrun --nproc-per-node 2 test/gpu/soak_moe.py --calls 10000
    test/gpu/mps.sh 2 test/gpu/soak_moe.py       # all ranks on one GPU
    ditron run --sim 2 test/gpu/soak_moe.py --calls 500 --small

Every rank draws the tokens of all, so that it knows the result without another exchange. Rows behind those of experts
are NaN before each call. Memory must not grow after the first tenth of the calls. Exit code 1 for a wrong result.
"""

from __future__ import annotations

import argparse
import faulthandler
import os
import random
import resource
import sys
import time

import torch

import ditron
from ditron import kernels


class Layer:
    """Weights of all experts, the same on every rank, and calls that all ranks draw alike."""

    def __init__(self, seed: int, most: int, hidden: int, inner: int):
        self.draw, self.most, self.hidden = random.Random(seed), most, hidden
        self.device, self.rank, self.ranks = ditron.device(), ditron.rank(), ditron.num_ranks()
        self.generator = torch.Generator(self.device).manual_seed(seed)
        self.experts = 2 * self.ranks + 1
        self.w13 = self.random(self.experts, 2 * inner, hidden) / hidden**0.5
        self.w2 = self.random(self.experts, hidden, inner) / inner**0.5
        first, behind = (r * self.experts // self.ranks for r in (self.rank, self.rank + 1))
        most_experts = -(-self.experts // self.ranks)
        self.mine = [torch.full((most_experts, *w.shape[1:]), torch.nan).to(w) for w in (self.w13, self.w2)]
        for mine, whole in zip(self.mine, (self.w13, self.w2), strict=True):
            mine[: behind - first] = whole[first:behind]

    def random(self, *shape: int) -> torch.Tensor:
        return torch.randn(*shape, device=self.device, generator=self.generator).bfloat16()

    def one(self) -> int:
        """A call; how many elements are wrong."""
        # Few values of top_k: each is a compilation of all kernels.
        most, top_k = self.draw.randint(1, self.most), self.draw.choice([1, min(4, self.experts)])
        given = [self.draw.randint(1, most) for _ in range(self.ranks)]
        skew = self.draw.choice([0.0, 0.0, 1.2, 8.0])
        scores = torch.rand(self.ranks, most, self.experts, device=self.device, generator=self.generator).log()
        ids = (scores * torch.arange(1, self.experts + 1, device=self.device) ** skew).topk(top_k).indices
        ids[torch.rand(ids.shape, device=self.device, generator=self.generator) < self.draw.choice([0, 0.3, 1])] = -1
        for rank, count in enumerate(given):
            ids[rank, count:] = -1
        x = self.random(self.ranks, most, self.hidden)
        weights = torch.rand(ids.shape, device=self.device, generator=self.generator)
        capacity, dropped = self.draw.choice([None, None, 1 + most // 2]), None
        if capacity is not None:
            dropped = torch.zeros(1, dtype=torch.int64, device=self.device)
        mine = slice(0, given[self.rank])
        options = {"num_experts": self.experts, "max_tokens": most, "capacity": capacity, "on_overflow": "drop"}
        options["algorithm"] = self.draw.choice(["gathered", "dispatched"])
        options["stage_groups"] = self.draw.choice([None, 1, 2, self.ranks])
        y = kernels.ep_moe(
            x[self.rank, mine].contiguous(),
            ids[self.rank, mine].contiguous(),
            weights[self.rank, mine].contiguous(),
            *self.mine,
            dropped=dropped,
            **options,
        )
        kept = ids if capacity is None else self.kept(ids, capacity)
        expected, bound = self.expected(x[self.rank], kept[self.rank], weights[self.rank])
        bad = int(((y.float() - expected[mine]).abs() > bound[mine]).sum()) + int(y.isnan().sum())
        return bad + (dropped is not None and int(dropped) != int((kept != ids)[self.rank].sum()))

    def kept(self, ids: torch.Tensor, capacity: int) -> torch.Tensor:
        one_hot = torch.nn.functional.one_hot(ids.flatten() + 1, self.experts + 1)
        place = (one_hot.cumsum(0) * one_hot).sum(1).view(ids.shape)
        return torch.where(place <= capacity, ids, -1)

    def expected(self, x: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """In fp32, and how far rounding of rows to bf16, three times, can be from it."""
        gate, up = torch.einsum("th,enh->ten", x.float(), self.w13.float()).chunk(2, 2)
        hidden, w2 = torch.nn.functional.silu(gate) * up, self.w2.float()
        down = torch.einsum("tei,ehi->teh", hidden, w2)
        spread = torch.einsum("tei,ehi->teh", hidden.square(), w2.square()).sqrt() * 2 + 0.05
        at = torch.zeros(len(x), self.experts, device=x.device)
        at.scatter_add_(1, ids.clamp(min=0), torch.where(ids >= 0, weights, 0.0))
        total, parts = ((at[:, :, None] * of_experts).sum(1) for of_experts in (down, spread))
        return total, 2.0**-5 * (parts + total.abs())


def memory() -> float:
    """MB."""
    if torch.cuda.is_available():
        return torch.cuda.memory_reserved() / 2**20
    with open("/proc/self/statm") as pages:
        return int(pages.read().split()[1]) * resource.getpagesize() / 2**20


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--calls", type=int, default=10000)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="end with fewer calls after so long")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--small", action="store_true", help="sizes for the simulator")
    parser.add_argument("--limit", type=int, default=60, help="seconds without progress on a GPU")
    args = parser.parse_args()
    if "LOCAL_RANK" in os.environ:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    ditron.init()
    layer = Layer(args.seed, *((24, 32, 32) if args.small else (600, 512, 256)))
    late, settled, bad, done = random.Random(1000 + args.seed + layer.rank), 0.0, 0, 0
    begin = printed = time.perf_counter()
    on_gpu = not ditron.world().is_sim
    for call in range(args.calls):
        seconds = ditron.all_gather_object(time.perf_counter() - begin)[0] if call % 20 == 0 else 0.0
        if seconds > args.seconds:
            break
        if on_gpu:
            faulthandler.dump_traceback_later(args.limit, exit=True)
            if late.random() < 0.1:
                torch.cuda._sleep(late.randint(1, 4_000_000))
        wrong = layer.one()
        if wrong:
            print(f"rank {layer.rank}, call {call}: {wrong} elements are wrong", flush=True)
        bad, done = bad + wrong, call + 1
        if settled == 0.0 and (done > args.calls // 10 or seconds > args.seconds / 10):
            settled = memory()
        if on_gpu and layer.rank == 0 and time.perf_counter() > printed + 10:
            printed = time.perf_counter()
            print(f"{call + 1} calls, {printed - begin:.0f} s", flush=True)
    ditron.synchronize()
    grown = memory() - settled
    seconds = time.perf_counter() - begin
    print(f"rank {layer.rank}: {done} calls in {seconds:.0f} s, {bad} wrong, memory {grown:+.1f} MB", flush=True)
    ditron.finalize()
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
