"""What the simulator's clock predicts for the layer of a mixture of experts, dispatched; needs no GPU.

    python benchmark/predicted_moe.py --machine h800x8x2
    python benchmark/predicted_moe.py --machine h800x8x2 --routing zipf:1.2
    python benchmark/predicted_moe.py --machine h200x4 --tokens 128 4096

The second of two calls on the slowest rank, without the plan. Nothing was measured on several nodes.
"""

from __future__ import annotations

import argparse

import torch
from grouped_gemm import MODELS

import ditron
from ditron import kernels, machines, sim
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
            hidden = kernels.grouped_mm(kernels.ep_dispatch(x, plan), w13, plan, activation="swiglu")
            kernels.ep_combine(kernels.grouped_mm(hidden, w2, plan), plan)

    prediction = sim.predict(main, machine, timing_only=True)
    latest = {call[0].name: call for call in prediction.calls}
    dispatch, combine = (
        next(call for program, call in latest.items() if program.startswith(what))
        for what in ("ep_dispatch", "ep_comb")
    )
    us = lambda call: max(one.us for one in call)  # noqa: E731
    whole = max(last.end - first.start for first, last in zip(dispatch, combine, strict=True)) / 1000
    # Ranks to which nothing goes by what is slowest: those of a node, or of one node a rank itself.
    near = lambda rank: rank // (machine.ranks if machine.nodes > 1 else 1)  # noqa: E731
    far = [len({e * ranks // experts for e in token} - local) for r in range(ranks) for token in ids[r].tolist()
           for local in [{peer for peer in range(ranks) if near(peer) == near(r)}]]  # fmt: skip
    sent = sum(far) / ranks * H * 2
    floor = sent / machine["nic.rate" if machine.nodes > 1 else "link.rate"]
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
    columns = ["", "tokens of a rank", "MB to other nodes, or ranks", "NIC, or link alone"]
    print("|", " | ".join([*columns, "ep_dispatch", "ep_combine", "between them", "all"]), "|")
    print("|---|---|---|---|---|---|---|---|")
    for name in ("DSV3", "Qwen3-30B"):
        for tokens in args.tokens:
            print(row(name, machines.load(args.machine), tokens, args.routing), flush=True)
