"""What the simulator's clock predicts for the layer of a mixture of experts over several nodes; needs no GPU.

    python benchmark/predicted_moe.py --machine h800x8x2
    python benchmark/predicted_moe.py --machine h800x8x2 --routing zipf:1.2

The second of two calls on the slowest rank, without the plan. Nothing was measured on several nodes.
"""

from __future__ import annotations

import argparse

import torch
from grouped_gemm import MODELS

import ditron
from ditron import kernels, machines, sim
from ditron.kernels.expert_activation import swiglu_rows
from ditron.kernels.route_draws import RouteDistribution


def row(name: str, machine: machines.Machine, tokens: int, routing: RouteDistribution) -> str:
    """A line of the table."""
    model, ranks = MODELS[name], machine.size
    H, inner, experts, top_k = model.hidden, model.intermediate, model.experts, model.top_k
    ids = [routing.draw(tokens, experts, top_k, rank)[0] for rank in range(ranks)]

    def main() -> None:
        ditron.init()
        rank = ditron.rank()
        x = torch.empty(tokens, H, dtype=torch.bfloat16)
        plan = kernels.moe_plan(ids[rank], num_experts=experts)
        w13 = torch.empty(experts // ranks, 2 * inner, H, dtype=torch.bfloat16)
        w2 = torch.empty(experts // ranks, H, inner, dtype=torch.bfloat16)
        for _ in range(2):
            hidden = swiglu_rows(kernels.grouped_mm(kernels.ep_dispatch(x, plan), w13, plan), plan.tables)
            kernels.ep_combine(kernels.grouped_mm(hidden, w2, plan), plan)

    prediction = sim.predict(main, machine, timing_only=True)
    dispatch, combine = prediction.calls[-2:]
    us = lambda call: max(one.us for one in call)  # noqa: E731
    whole = max(last.end - first.start for first, last in zip(dispatch, combine, strict=True)) / 1000
    node = lambda rank: rank // machine.ranks  # noqa: E731
    far = [len({e * ranks // experts for e in token} - local) for r in range(ranks) for token in ids[r].tolist()
           for local in [{peer for peer in range(ranks) if node(peer) == node(r)}]]  # fmt: skip
    sent = sum(far) / ranks * H * 2
    floor = sent / machine["nic.rate"]
    return (
        f"| {name} | {tokens} | {sent / 1e6:.1f} | {floor / 1000:.0f} | {us(dispatch):.0f} | {us(combine):.0f} | "
        f"{whole - us(dispatch) - us(combine):.0f} | {whole:.0f} |"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--machine", default="h800x8x2")
    parser.add_argument("--tokens", type=int, nargs="*", default=[128, 1024])
    parser.add_argument("--routing", type=RouteDistribution.parse, default="uniform", help="uniform, zipf:1.2, onehot")
    args = parser.parse_args()
    print("| | tokens of a rank | MB to other nodes | NIC alone | ep_dispatch | ep_combine | between them | all |")
    print("|---|---|---|---|---|---|---|---|")
    for name in ("DSV3", "Qwen3-30B"):
        for tokens in args.tokens:
            print(row(name, machines.load(args.machine), tokens, args.routing), flush=True)
