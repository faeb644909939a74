"""A mixture-of-experts block is trained with its experts divided among the ranks, beside the same block in plain torch.

    ditron run --sim 4 examples/train_moe.py
    torchrun --nproc-per-node 4 examples/train_moe.py

Each rank has its own tokens. Parameters are fp32, tokens and products bfloat16; plain torch has every expert and all
tokens on each rank, in fp32. Both losses are printed, and stay together.
"""

import argparse

import torch
from torch import nn

import ditron


class PlainMoE(nn.Module):
    """A loop over experts: gates, what they multiply, and projections back."""

    def __init__(self, size, inner, experts, top_k):
        super().__init__()
        self.router = nn.Linear(size, experts, bias=False)
        self.experts = nn.ModuleList(
            nn.ModuleList([nn.Linear(size, inner, False), nn.Linear(size, inner, False), nn.Linear(inner, size, False)])
            for _ in range(experts)
        )
        self.top_k = top_k

    def forward(self, x):
        weights, ids = self.router(x).softmax(-1).topk(self.top_k, -1)
        weights = weights / weights.sum(-1, keepdim=True)
        y = torch.zeros_like(x)
        for number, (gate, up, down) in enumerate(self.experts):
            token, k = torch.nonzero(ids == number, as_tuple=True)
            hidden = nn.functional.silu(gate(x[token])) * up(x[token])
            y = y.index_add(0, token, down(hidden) * weights[token, k, None])
        return y


def check(steps=10, tokens=32, size=32, inner=48, experts=8, show=False):
    """The largest relative difference of the two losses, and the first and the last of ours."""
    rank, ranks, device = ditron.rank(), ditron.num_ranks(), ditron.device()
    generator = torch.Generator().manual_seed(0)
    drawn = torch.randn(2, ranks * tokens, size, generator=generator).to(device)
    x, target = drawn[0].bfloat16().float(), drawn[1].roll(1, 0)  # the same on every rank
    torch.manual_seed(1)
    plain = PlainMoE(size, inner, experts, top_k=2).to(device)
    moe = ditron.nn.MoE.from_experts(plain.router, [tuple(expert) for expert in plain.experts], top_k=2)
    mine = slice(rank * tokens, (rank + 1) * tokens)

    def loss_of(block, x, target):
        return (block(x).float() - target).square().sum() / drawn[1].numel()

    optimizers = [torch.optim.Adam(block.parameters(), lr=1e-2) for block in (plain, moe)]
    losses = []
    for step in range(steps):
        for optimizer in optimizers:
            optimizer.zero_grad()
        expected = loss_of(plain, x, target)
        loss = loss_of(moe, x[mine].bfloat16(), target[mine])  # this rank's share of it
        expected.backward()
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
        whole = ditron.kernels.all_reduce(loss.detach().view(1)).item()
        losses.append((whole, expected.item()))
        if show and rank == 0:
            print(f"step {step}: loss {whole:.4f}, plain torch {expected.item():.4f}", flush=True)
    return max(abs(ours - theirs) / theirs for ours, theirs in losses), losses[0][0], losses[-1][0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--tokens", type=int, default=32, help="of each rank")
    args = parser.parse_args()
    ditron.init()
    difference, first, last = check(args.steps, args.tokens, show=True)
    assert difference < 2e-2 and last < first, (difference, first, last)
    print(f"rank {ditron.rank()}: OK, losses differ by at most {100 * difference:.2f} %")
    ditron.finalize()


if __name__ == "__main__":
    main()
