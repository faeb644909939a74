"""Backward of the operators with a product: both gradients in one program, which hides what either has to gather."""

from __future__ import annotations

from typing import Any

import torch

import ditron
import ditron.host as dh
from ditron.distributed.torch_groups import AnyGroup
from ditron.kernels.all_gather import all_gather
from ditron.kernels.dispatch import torch_operator
from ditron.kernels.gemm_rs import gemm_rs
from ditron.kernels.operands import aligned, capacity_for, in_group, matrices, weight_layout
from ditron.kernels.pushes import ShardPushes
from ditron.kernels.reduce_scatter import add_parts_kernel
from ditron.kernels.schedules import block_for, is_large, sent_bytes
from ditron_compiler.errors import DitronError

__all__ = ["ag_gemm_backward", "column_gradients_program"]


def _product(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> None:
    torch.mm(a, b, out=out)


def _product_with_transposed(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> None:
    torch.mm(a, b.t(), out=out)


def _transposed_product(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> None:
    torch.mm(a.t(), b, out=out)


@ditron.program(
    example={
        "grad": "bf16[8192, 1792]",
        "b": "bf16[1792, 4096]",
        "a": "bf16[2048, 4096]",
        "grad_a": "bf16[2048, 4096]",
        "grad_b": "bf16[1792, 4096]",
        "capacity": 2048,
    },
    sample_args=lambda ranks: {
        "grad": f"bf16[{40 * ranks}, 32]",
        "b": "bf16[32, 48]",
        "a": "bf16[40, 48]",
        "grad_a": "bf16[40, 48]",
        "grad_b": "bf16[32, 48]",
        "capacity": 64,
        "block": 256,
    },
    max_nodes=1,
)
def column_gradients_program(grad, b, a, grad_a, grad_b, capacity, *, b_is_nk=True, block=4096, num_warps=8):
    """Of ``ag_gemm``: ``grad_a`` [rows, K] = own rows of the sum over ranks of ``grad`` [ranks * rows, N] times ``b``
    [N, K], and ``grad_b`` [N, K] = ``grad`` transposed times all ranks' ``a`` [rows, K].

    ``a`` is gathered during the first product, and the first's parts are scattered during the second. ``b`` is [K, N]
    if not b_is_nk. Memory is kept for up to ``capacity`` rows.
    """
    rank, ranks, epoch = dh.rank(), dh.num_ranks(), dh.epoch()
    (rows, K), total = a.shape, grad.shape[0]
    shards = ShardPushes(a, capacity)
    with dh.stream("gather"):
        shards.push()
        dh.copy(a, shards.of(rank))
        copied = dh.record()

    partial = dh.empty(ranks * capacity, K, dtype=a.dtype, name="partial")
    inbox = dh.symm_empty(ranks * capacity, K, dtype=a.dtype, name="inbox")
    arrived = dh.symm_zeros(ranks, dtype=torch.int64, name="arrived")
    done = dh.symm_zeros(ranks, dtype=torch.int64, name="done")
    dh.call(_product if b_is_nk else _product_with_transposed, reads=[grad, b], writes=[partial[:total]])
    multiplied = dh.record()
    with dh.stream("copy"):
        for step in dh.range(1, ranks):  # what the call before sent to this rank has been added
            dh.signal_write(done[rank], epoch, (rank + step) % ranks)
        dh.await_event(multiplied)
        for step in dh.range(1, ranks):
            owner = (rank + step) % ranks
            dh.signal_wait(done[owner], epoch)
            dh.rank_copy(partial[owner * rows : (owner + 1) * rows], inbox[rank * rows : (rank + 1) * rows], owner)
            dh.signal_write(arrived[rank], epoch, owner)

    dh.await_event(copied)
    shards.await_all()
    dh.call(_transposed_product, reads=[grad, shards.gathered[:total]], writes=[grad_b])
    for step in dh.range(1, ranks):
        dh.signal_wait(arrived[(rank + step) % ranks], epoch)
    own = partial[rank * rows : (rank + 1) * rows]
    n = rows * K
    add_parts_kernel[(dh.cdiv(n, block),)](own, inbox, grad_a, n, rank, ranks, BLOCK=block, num_warps=num_warps)


@torch_operator("grad", "a", "b")
def ag_gemm_backward(
    grad: torch.Tensor,
    a: torch.Tensor,
    b: torch.Tensor,
    *,
    group: AnyGroup = None,
    algorithm: str | None = None,
    **schedule: Any,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Both gradients of :func:`ag_gemm`: two products, with what is gathered and scattered hidden under them.

    Args:
        grad: ``[num_ranks * rows, N]``, of the result. a: ``[rows, K]``. b: ``[N, K]``. As of ag_gemm.
        group: the ranks; default the current group. One node.
        algorithm: ``"overlapped"``, or ``"sequential"`` for products and collectives one after the other, instead of
            the one that is chosen by size.
        schedule: keyword-only arguments of :func:`column_gradients_program`, instead of those that would be chosen.

    Returns the gradients of ``a``, ``[rows, K]``, and of ``b``, ``[N, K]``. Collective over the group. Raises
    DitronError for tensors that do not fit.

        grad_x, grad_weight = ditron.kernels.ag_gemm_backward(grad_y, x, weight)
    """
    with in_group(group, "ag_gemm_backward") as group:
        matrices("ag_gemm_backward", group, grad=grad, a=a, b=b)
        (rows, K), (N, columns), ranks = a.shape, b.shape, group.num_ranks
        if columns != K or grad.shape != (ranks * rows, N):
            raise DitronError(
                f"ag_gemm_backward: a is [{rows}, {K}], b is [{N}, {columns}] and grad is {list(grad.shape)}: expected "
                f"b to be [N, {K}], and grad [{ranks * rows}, N]"
            )
        if algorithm not in (None, "overlapped", "sequential"):
            raise DitronError(
                f"ag_gemm_backward: unknown algorithm {algorithm!r}: expected 'overlapped' or 'sequential'"
            )
        grad, a = aligned(grad), aligned(a)
        grad_a, grad_b = torch.empty_like(a), torch.empty_like(b, memory_format=torch.contiguous_format)
        if algorithm == "overlapped" or algorithm is None and is_large(group, sent_bytes(group, a)):
            weight, is_kn = weight_layout(b)
            options = block_for(group, "copied") | schedule
            column_gradients_program(grad, weight, a, grad_a, grad_b, capacity_for(rows), b_is_nk=not is_kn, **options)
            return grad_a, grad_b
        gemm_rs(grad, b.t(), out=grad_a)
        _transposed_product(grad, all_gather(a), grad_b)
        return grad_a, grad_b
