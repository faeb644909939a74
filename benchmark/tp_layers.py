"""Forward and backward of tensor-parallel layers on the GPUs of one host: one layer, and the blocks of a transformer.

    torchrun --nproc-per-node 2 benchmark/tp_layers.py column row --json layers.json
    torchrun --nproc-per-node 2 benchmark/tp_layers.py mlp attention

A sample is the output, the gradient of the input and that of the weight. Floor: the three products by cuBLAS, with
nothing to communicate (``mlp`` and ``attention``: the block with this rank's weights and all rows). Peers of a layer:
torch + NCCL one after the other; the same as Megatron-LM orders it, collectives of the backward beside its products;
torch's fused operators. Peers of a block: torch's ``parallelize_module``. Rows are divided between layers (sequence
parallelism). Every result is compared with fp32 torch.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
import torch.distributed as dist

sys.path.insert(0, str(Path(__file__).resolve().parent))
from cases import Case, Run, arguments, floor, measure, mlp_shapes  # noqa: E402
from measuring import random  # noqa: E402
from tp_blocks import attention, mlp  # noqa: E402

from ditron import kernels  # noqa: E402

Results = tuple[torch.Tensor, torch.Tensor, torch.Tensor]  # y, gradient of x, gradient of the weight


def column(args: argparse.Namespace, device: torch.device) -> Iterator[Case]:
    for name, N, K in mlp_shapes(dist.get_world_size(), args.shapes):
        yield column_case(f"{name} {N}x{K}", args.rows, N, K, device)


def column_case(name: str, M: int, N: int, K: int, device: torch.device) -> Case:
    """y [M, N] = all rows of x [M / ranks, K], times w [N, K] transposed."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    group = dist.group.WORLD.group_name
    x, w, grad = random(M // ranks, K, rank, device), random(N, K, 100 + rank, device), random(M, N, 200 + rank, device)
    whole, partial = torch.empty(M, K, dtype=x.dtype, device=device), torch.empty(M, K, dtype=x.dtype, device=device)
    y, of_x, of_w = torch.empty_like(grad), torch.empty_like(x), torch.empty_like(w)
    dist.all_gather_into_tensor(whole, x)
    exact_of_x = torch.empty(M // ranks, K, device=device)
    dist.reduce_scatter_tensor(exact_of_x, grad.float() @ w.float())
    expected = (whole.float() @ w.float().T, exact_of_x, grad.float().T @ whole.float())

    def products() -> None:
        torch.mm(whole, w.T, out=y)
        torch.mm(grad, w, out=partial)
        torch.mm(grad.T, whole, out=of_w)

    def nccl() -> Results:
        dist.all_gather_into_tensor(whole, x)
        torch.mm(whole, w.T, out=y)
        torch.mm(grad, w, out=partial)
        dist.reduce_scatter_tensor(of_x, partial)
        torch.mm(grad.T, whole, out=of_w)
        return y, of_x, of_w

    def megatron() -> Results:
        dist.all_gather_into_tensor(whole, x)
        torch.mm(whole, w.T, out=y)
        gathering = dist.all_gather_into_tensor(whole, x, async_op=True)
        torch.mm(grad, w, out=partial)
        gathering.wait()
        reducing = dist.reduce_scatter_tensor(of_x, partial, async_op=True)
        torch.mm(grad.T, whole, out=of_w)
        reducing.wait()
        return y, of_x, of_w

    def async_tp() -> Results:
        rows, (product,) = torch.ops.symm_mem.fused_all_gather_matmul(x, [w.T], gather_dim=0, group_name=group)
        given = torch.ops.symm_mem.fused_matmul_reduce_scatter(grad, w, "sum", 0, group)
        return product, given, torch.mm(grad.T, rows, out=of_w)

    runs: dict[str, Run] = {
        "cuBLAS alone": floor(products),
        "torch + NCCL": nccl,
        "Megatron order": megatron,
        "async-TP": async_tp,
        "ditron": backward(kernels.ag_gemm, x, w, grad),
        "ditron, kept": backward(lambda x, w: kernels.ag_gemm_gathered(x, w)[0], x, w, grad),
    }
    return Case("column", name, runs, expected, 6e-3)


def row(args: argparse.Namespace, device: torch.device) -> Iterator[Case]:
    for name, K, N in mlp_shapes(dist.get_world_size(), args.shapes):
        yield row_case(f"{name} {N}x{K}", args.rows, N, K, device)


def row_case(name: str, M: int, N: int, K: int, device: torch.device) -> Case:
    """y [M / ranks, N] = own rows of the sum over ranks of x [M, K] times w [N, K] transposed."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    group = dist.group.WORLD.group_name
    x, w, grad = random(M, K, rank, device), random(N, K, 100 + rank, device), random(M // ranks, N, 200 + rank, device)
    whole, product = torch.empty(M, N, dtype=x.dtype, device=device), torch.empty(M, N, dtype=x.dtype, device=device)
    y, of_x, of_w = torch.empty_like(grad), torch.empty_like(x), torch.empty_like(w)
    dist.all_gather_into_tensor(whole, grad)
    exact_y = torch.empty(M // ranks, N, device=device)
    dist.reduce_scatter_tensor(exact_y, x.float() @ w.float().T)
    expected = (exact_y, whole.float() @ w.float(), whole.float().T @ x.float())

    def products() -> None:
        torch.mm(x, w.T, out=product)
        torch.mm(whole, w, out=of_x)
        torch.mm(whole.T, x, out=of_w)

    def nccl() -> Results:
        torch.mm(x, w.T, out=product)
        dist.reduce_scatter_tensor(y, product)
        dist.all_gather_into_tensor(whole, grad)
        torch.mm(whole, w, out=of_x)
        torch.mm(whole.T, x, out=of_w)
        return y, of_x, of_w

    def async_tp() -> Results:
        own = torch.ops.symm_mem.fused_matmul_reduce_scatter(x, w.T, "sum", 0, group)
        rows, (given,) = torch.ops.symm_mem.fused_all_gather_matmul(grad, [w], gather_dim=0, group_name=group)
        return own, given, torch.mm(rows.T, x, out=of_w)

    runs: dict[str, Run] = {
        "cuBLAS alone": floor(products),
        "torch + NCCL": nccl,
        "async-TP": async_tp,
        "ditron": backward(kernels.gemm_rs, x, w, grad),
    }
    return Case("row", name, runs, expected, 6e-3)


def backward(forward: Callable[..., torch.Tensor], x: torch.Tensor, w: torch.Tensor, grad: torch.Tensor) -> Run:
    """A layer as a user of autograd runs it."""

    def run() -> Results:
        # New leaves each time: autograd keeps the stream on which a leaf was first used, which a capture must not join.
        leaves = x.detach().requires_grad_(), w.detach().requires_grad_()
        y = forward(*leaves)
        return y.detach(), *torch.autograd.grad(y, leaves, grad)

    return run


OPERATORS = {"column": column, "row": row, "mlp": mlp, "attention": attention}


def main() -> None:
    parser = arguments(__doc__, OPERATORS)
    parser.add_argument("--rows", type=int, default=8192, help="M of all ranks together")
    parser.add_argument("--shapes", nargs="*", default=[], help="e.g. '7B strong'; all by default")
    parser.add_argument("--compiled", action="store_true", help="blocks of torch also compiled, with passes")
    args = parser.parse_args()
    measure(OPERATORS, args, f"M = {args.rows}, forward and backward, ")


if __name__ == "__main__":
    main()
