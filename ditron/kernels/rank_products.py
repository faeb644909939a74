"""AllGather + GEMM and GEMM + ReduceScatter by products of a library: one for each rank's rows, beside the copies.

For sizes of which a product of one rank's rows still fills the GPU, and where a library's is faster than ours: what is
exposed is a copy's signal, and the sum behind the last copy.
"""

from __future__ import annotations

import torch

import ditron
import ditron.host as dh
from ditron.kernels.pushes import ShardPushes
from ditron.kernels.reduce_scatter import add_parts_kernel

__all__ = ["ag_gemm_by_rank_program", "gemm_rs_by_rank_program", "product", "product_with_transposed"]


def product(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> None:
    torch.mm(a, b, out=out)


def product_with_transposed(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> None:
    torch.mm(a, b.t(), out=out)


def _biased_product(a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor, out: torch.Tensor) -> None:
    torch.addmm(bias, a, b, out=out)


def _biased_product_with_transposed(a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor, out: torch.Tensor) -> None:
    torch.addmm(bias, a, b.t(), out=out)


@ditron.program(
    example={
        "a": "bf16[512, 8192]",
        "b": "bf16[3584, 8192]",
        "bias": "bf16[3584]",
        "c": "bf16[2048, 3584]",
        "gathered_out": "bf16[1, 8192]",
        "capacity": 512,
    },
    sample_args=lambda ranks: {
        "a": "bf16[40, 32]",
        "b": "bf16[48, 32]",
        "bias": "bf16[48]",
        "c": f"bf16[{40 * ranks}, 48]",
        "gathered_out": f"bf16[{40 * ranks}, 32]",
        "capacity": 64,
        "has_bias": True,
        "keep": True,
    },
    max_nodes=1,
)
def ag_gemm_by_rank_program(a, b, bias, c, gathered_out, capacity, *, b_is_kn=False, has_bias=False, keep=False):
    """``c`` [ranks * rows, N] = all ranks' ``a`` [rows, K], times ``b`` [N, K] transposed, plus ``bias``.

    ``b`` is ``[K, N]`` if b_is_kn; ``bias`` [N] counts if has_bias. With ``keep``, all ranks' rows go to
    ``gathered_out``. Memory is kept for up to ``capacity`` rows.
    """
    rank, ranks = dh.rank(), dh.num_ranks()
    rows = a.shape[0]
    shards = ShardPushes(a, capacity)
    with dh.stream("copy"):
        shards.push()
    if has_bias:
        multiply, operands = _biased_product if b_is_kn else _biased_product_with_transposed, [b, bias]
    else:
        multiply, operands = product if b_is_kn else product_with_transposed, [b]
    dh.call(multiply, reads=[a, *operands], writes=[c[rank * rows : (rank + 1) * rows]])
    for step in dh.range(1, ranks):
        sender = (rank + step) % ranks
        shards.await_one(step)
        dh.call(multiply, reads=[shards.of(sender), *operands], writes=[c[sender * rows : (sender + 1) * rows]])
    if keep:
        dh.copy(a, gathered_out[rank * rows : (rank + 1) * rows])
        for step in dh.range(1, ranks):
            sender = (rank + step) % ranks
            dh.copy(shards.of(sender), gathered_out[sender * rows : (sender + 1) * rows])


@ditron.program(
    example={"a": "bf16[2048, 3584]", "b": "bf16[8192, 3584]", "out": "bf16[512, 8192]", "capacity": 512},
    sample_args=lambda ranks: {
        "a": f"bf16[{40 * ranks}, 32]",
        "b": "bf16[48, 32]",
        "out": "bf16[40, 48]",
        "capacity": 64,
        "block": 256,
    },
    max_nodes=1,
)
def gemm_rs_by_rank_program(a, b, out, capacity, *, b_is_kn=False, block=4096, num_warps=8):
    """``out`` [rows, N] = own rows of the sum over ranks of ``a`` [ranks * rows, K] times ``b`` [N, K] transposed.

    Products are rounded to their dtype and added in fp32, in rank order. ``b`` is ``[K, N]`` if b_is_kn. Memory is kept
    for up to ``capacity`` rows.
    """
    rank, ranks, epoch = dh.rank(), dh.num_ranks(), dh.epoch()
    rows, N = out.shape
    partial = dh.empty(ranks * capacity, N, dtype=out.dtype, name="partial")
    inbox = dh.symm_empty(ranks * capacity, N, dtype=out.dtype, name="inbox")
    arrived = dh.symm_zeros(ranks, dtype=torch.int64, name="arrived")
    done = dh.symm_zeros(ranks, dtype=torch.int64, name="done")
    multiply = product if b_is_kn else product_with_transposed
    with dh.stream("copy"):
        for step in dh.range(1, ranks):  # what the call before sent to this rank has been added
            dh.signal_write(done[rank], epoch, (rank + step) % ranks)
    for step in dh.range(1, ranks):
        owner = (rank + step) % ranks
        of_owner = slice(owner * rows, (owner + 1) * rows)
        dh.call(multiply, reads=[a[of_owner], b], writes=[partial[of_owner]])
        multiplied = dh.record()
        with dh.stream("copy"):
            dh.signal_wait(done[owner], epoch)
            dh.await_event(multiplied)
            dh.rank_copy(partial[of_owner], inbox[rank * rows : (rank + 1) * rows], owner)
            dh.signal_write(arrived[rank], epoch, owner)
    own = slice(rank * rows, (rank + 1) * rows)
    dh.call(multiply, reads=[a[own], b], writes=[partial[own]])
    for step in dh.range(1, ranks):
        dh.signal_wait(arrived[(rank + step) % ranks], epoch)
    n = rows * N
    add_parts_kernel[(dh.cdiv(n, block),)](partial[own], inbox, out, n, rank, ranks, BLOCK=block, num_warps=num_warps)
