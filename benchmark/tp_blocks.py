"""MLP and attention of a transformer, divided among ranks by ``ditron.nn`` and by torch: cases of tp_layers.py."""

from __future__ import annotations

import argparse
import copy
from collections.abc import Iterator

import torch
import torch.distributed as dist
from cases import Case, Run, floor
from measuring import random
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    parallelize_module,
)

import ditron

# hidden size, inner size of the MLP, heads, heads of K and V, size of a head
MODELS = {"Qwen3-32B": (5120, 25600, 64, 8, 128), "LLaMA-3.1-70B": (8192, 28672, 64, 8, 128)}


class MLP(nn.Module):
    """Of LLaMA: ``down(silu(gate(x)) * up(x))``."""

    def __init__(self, size: int, inner: int):
        super().__init__()
        self.gate, self.up = nn.Linear(size, inner, bias=False), nn.Linear(size, inner, bias=False)
        self.down = nn.Linear(inner, size, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(nn.functional.silu(self.gate(x)) * self.up(x))


class Attention(nn.Module):
    """Causal, with grouped heads; ``[1, sequence, size]``. As many heads as the projections give."""

    def __init__(self, size: int, heads: int, kv_heads: int, head: int):
        super().__init__()
        self.head = head
        self.q, self.o = nn.Linear(size, heads * head, bias=False), nn.Linear(heads * head, size, bias=False)
        self.k, self.v = (nn.Linear(size, kv_heads * head, bias=False) for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (part.unflatten(-1, (-1, self.head)).transpose(1, 2) for part in (self.q(x), self.k(x), self.v(x)))
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return self.o(y.transpose(1, 2).flatten(2))


def mlp(args: argparse.Namespace, device: torch.device) -> Iterator[Case]:
    for name, (size, inner, *_) in MODELS.items():
        with torch.device("meta"):
            block, own = MLP(size, inner), MLP(size, inner // dist.get_world_size())
        yield block_case("mlp", name, block, own, ("gate", "up"), "down", args, size, device)


def attention(args: argparse.Namespace, device: torch.device) -> Iterator[Case]:
    ranks = dist.get_world_size()
    for name, (size, _, heads, kv_heads, head) in MODELS.items():
        with torch.device("meta"):
            block = Attention(size, heads, kv_heads, head)
            own = Attention(size, heads // ranks, kv_heads // ranks, head)
        yield block_case("attention", name, block, own, ("q", "k", "v"), "o", args, size, device)


def block_case(
    operator: str,
    name: str,
    block: nn.Module,
    own: nn.Module,
    columns: tuple[str, ...],
    row: str,
    args: argparse.Namespace,
    size: int,
    device: torch.device,
) -> Case:
    """``own`` is the block with this rank's parts of the weights."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    block = block.to_empty(device=device).bfloat16()
    for index, parameter in enumerate(block.parameters()):
        parameter.data = random(*parameter.shape, 50 + index, device) * parameter.shape[1] ** -0.25
    x, grad = (random(args.rows, size, seed, device)[None] for seed in (1, 2))
    mine, my_grad = (tensor.chunk(ranks, 1)[rank].contiguous() for tensor in (x, grad))

    exact = copy.deepcopy(block).float()
    y, of_x, *of_weights = step(exact, x.float(), grad.float())
    parts = [w.chunk(ranks, int(n.startswith(row)))[rank] for (n, _), w in zip(exact.named_parameters(), of_weights)]  # noqa: B905
    expected = tuple(t.clone() for t in (y.chunk(ranks, 1)[rank], of_x.chunk(ranks, 1)[rank], *parts))
    del exact, y, of_x, of_weights, parts

    own = own.to_empty(device=device).bfloat16()
    for (parameter_name, parameter), whole in zip(own.named_parameters(), block.parameters(), strict=True):
        parameter.data = whole.data.chunk(ranks, int(parameter_name.startswith(row)))[rank].clone()
    mesh = DeviceMesh("cuda", range(ranks))
    torch_plan = {
        "": PrepareModuleInput(input_layouts=Shard(1), desired_input_layouts=Replicate()),
        **dict.fromkeys(columns, ColwiseParallel()),
        row: RowwiseParallel(output_layouts=Shard(1)),
    }
    by_torch = parallelize_module(copy.deepcopy(block), mesh, torch_plan)
    plan = {"": "gather", **dict.fromkeys(columns, "colwise"), row: "rowwise"}
    by_ditron = ditron.nn.parallelize(copy.deepcopy(block), plan)
    runs: dict[str, Run] = {
        "no communication": floor(lambda: step(own, x, grad)),
        "torch TP": lambda: step(by_torch, mine, my_grad),
        "ditron": lambda: step(by_ditron, mine, my_grad),
    }
    if args.compiled:
        fuse = {"post_grad_custom_pre_pass": ditron.nn.fuse_collectives(mesh)}
        for how, options in (("", {}), (", async-TP", {"_micro_pipeline_tp": True}), (", fuse_collectives", fuse)):
            compiled = torch.compile(by_torch, options=options)
            contender = "ditron, torch TP compiled" if options is fuse else "torch TP compiled"
            runs[contender + how] = lambda module=compiled: step(module, mine, my_grad)
    return Case(operator, f"{name} {args.rows} rows", runs, expected, 2e-2, calls=0, cycles=4_000_000)


def step(module: nn.Module, x: torch.Tensor, grad: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Output, gradient of the input and those of the weights: this rank's parts."""
    x = x.detach().requires_grad_()
    y = module(x)
    gradients = torch.autograd.grad(y, [x, *module.parameters()], grad)
    return tuple(t.to_local() if isinstance(t, DTensor) else t for t in (y.detach(), *gradients))
