"""AllGather + GEMM and GEMM + ReduceScatter by products of a library: one for each rank's rows, beside the copies.

For sizes of which a product of one rank's rows still fills the GPU, and where a library's is faster than ours: what is
exposed is a copy's signal, and the sum behind the last copy.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

import ditron
import ditron.host as dh
from ditron.kernels.pushes import ShardPushes, tell_done
from ditron.kernels.reduce_scatter import add_parts_kernel
from ditron.kernels.scales import Scales, scaled_product

__all__ = ["ag_gemm_by_rank_program", "gemm_rs_by_rank_program", "product", "product_with_transposed"]


def product(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> None:
    torch.mm(a, b, out=out)


def product_with_transposed(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> None:
    torch.mm(a, b.t(), out=out)


def _biased_product(a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor, out: torch.Tensor) -> None:
    torch.addmm(bias, a, b, out=out)


def _biased_product_with_transposed(a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor, out: torch.Tensor) -> None:
    torch.addmm(bias, a, b.t(), out=out)


def _scaled(kinds: tuple[str, str], use_fast_accum: bool) -> Callable[..., None]:
    """A product of quantized rows, with scales of these kinds (scales.py): of A, scales, B, scales, the bias if any."""

    def product_of_scaled(a, scale_a, b, scale_b, *bias_and_out):
        *bias, out = bias_and_out
        scaled_product(a, b, Scales(scale_a, scale_b, *kinds, use_fast_accum, a.dtype, out.dtype), out.dtype, out)
        for offset in bias:
            out.add_(offset)

    return product_of_scaled


@ditron.program(
    example={
        "a": "bf16[512, 8192]",
        "b": "bf16[3584, 8192]",
        "bias": "bf16[3584]",
        "c": "bf16[2048, 3584]",
        "gathered_out": "bf16[1, 8192]",
        "scale_a": None,
        "scale_b": None,
        "capacity": 512,
    },
    sample_args=lambda ranks: {
        "a": "bf16[40, 32]",
        "b": "bf16[48, 32]",
        "bias": "bf16[48]",
        "c": f"bf16[{40 * ranks}, 48]",
        "gathered_out": f"bf16[{40 * ranks}, 32]",
        "scale_a": "f32[40, 1]",
        "scale_b": "f32[48, 1]",
        "capacity": 64,
        "has_bias": True,
        "keep": True,
        "scale_a_kind": "row",
        "scale_b_kind": "row",
    },
    max_nodes=1,
)
def ag_gemm_by_rank_program(
    a,
    b,
    bias,
    c,
    gathered_out,
    scale_a,
    scale_b,
    capacity,
    *,
    b_is_kn=False,
    has_bias=False,
    keep=False,
    scale_a_kind="none",
    scale_b_kind="none",
    use_fast_accum=False,
):
    """``c`` [ranks * rows, N] = all ranks' ``a`` [rows, K], times ``b`` [N, K] transposed, plus ``bias``.

    ``b`` is ``[K, N]`` if b_is_kn; ``bias`` [N] counts if has_bias. With ``keep``, all ranks' rows go to
    ``gathered_out``. ``scale_a`` and ``scale_b`` are scales of the given kinds (scales.py). Memory is kept for up to
    ``capacity`` rows.
    """
    rank, ranks = dh.rank(), dh.num_ranks()
    rows = a.shape[0]
    shards = ShardPushes(a, capacity, scale_a)
    with dh.stream("copy"):
        shards.push()
    offset = [bias] if has_bias else []
    if scale_a is not None:
        multiply, operands = _scaled((scale_a_kind, scale_b_kind), use_fast_accum), [b, scale_b, *offset]
    elif has_bias:
        multiply, operands = _biased_product if b_is_kn else _biased_product_with_transposed, [b, *offset]
    else:
        multiply, operands = product if b_is_kn else product_with_transposed, [b]
    own = [a] if scale_a is None else [a, scale_a]
    dh.call(multiply, reads=[*own, *operands], writes=[c[rank * rows : (rank + 1) * rows]])
    for step in dh.range(1, ranks):
        sender = (rank + step) % ranks
        shards.await_one(step)
        theirs = [shards.of(sender)] if scale_a is None else [shards.of(sender), shards.beside_of(sender)]
        dh.call(multiply, reads=[*theirs, *operands], writes=[c[sender * rows : (sender + 1) * rows]])
    if keep:
        dh.copy(a, gathered_out[rank * rows : (rank + 1) * rows])
        for step in dh.range(1, ranks):
            sender = (rank + step) % ranks
            dh.copy(shards.of(sender), gathered_out[sender * rows : (sender + 1) * rows])


@ditron.program(
    example={
        "a": "bf16[2048, 3584]",
        "b": "bf16[8192, 3584]",
        "out": "bf16[512, 8192]",
        "scale_a": None,
        "scale_b": None,
        "capacity": 512,
    },
    sample_args=lambda ranks: {
        "a": f"bf16[{40 * ranks}, 32]",
        "b": "bf16[48, 32]",
        "out": "bf16[40, 48]",
        "scale_a": f"f32[{40 * ranks}, 1]",
        "scale_b": "f32[48, 1]",
        "capacity": 64,
        "block": 256,
        "scale_a_kind": "row",
        "scale_b_kind": "row",
    },
    max_nodes=1,
)
def gemm_rs_by_rank_program(
    a,
    b,
    out,
    scale_a,
    scale_b,
    capacity,
    *,
    b_is_kn=False,
    block=4096,
    num_warps=8,
    scale_a_kind="none",
    scale_b_kind="none",
    use_fast_accum=False,
):
    """``out`` [rows, N] = own rows of the sum over ranks of ``a`` [ranks * rows, K] times ``b`` [N, K] transposed.

    Products are rounded to the result's dtype and added in fp32, in rank order. ``b`` is ``[K, N]`` if b_is_kn.
    ``scale_a`` and ``scale_b`` are scales of the given kinds (scales.py). Memory is kept for up to ``capacity`` rows.
    """
    rank, ranks, epoch = dh.rank(), dh.num_ranks(), dh.epoch()
    rows, N = out.shape
    partial = dh.empty(ranks * capacity, N, dtype=out.dtype, name="partial")
    inbox = dh.symm_empty(ranks * capacity, N, dtype=out.dtype, name="inbox")
    arrived = dh.symm_zeros(ranks, dtype=torch.int64, name="arrived")
    done = dh.symm_zeros(ranks, dtype=torch.int64, name="done")
    multiply = product if b_is_kn else product_with_transposed
    if scale_a is not None:
        multiply = _scaled((scale_a_kind, scale_b_kind), use_fast_accum)

    def multiply_rows(of: Any) -> None:
        left = [a[of]] if scale_a is None else [a[of], scale_a if scale_a_kind == "tensor" else scale_a[of]]
        dh.call(multiply, reads=[*left, b, *([] if scale_b is None else [scale_b])], writes=[partial[of]])

    with dh.stream("copy"):
        tell_done(done)
    for step in dh.range(1, ranks):
        owner = (rank + step) % ranks
        of_owner = slice(owner * rows, (owner + 1) * rows)
        multiply_rows(of_owner)
        multiplied = dh.record()
        with dh.stream("copy"):
            dh.signal_wait(done[owner], epoch)
            dh.await_event(multiplied)
            dh.rank_copy(partial[of_owner], inbox[rank * rows : (rank + 1) * rows], owner)
            dh.signal_write(arrived[rank], epoch, owner)
    own = slice(rank * rows, (rank + 1) * rows)
    multiply_rows(own)
    for step in dh.range(1, ranks):
        dh.signal_wait(arrived[(rank + step) % ranks], epoch)
    n = rows * N
    add_parts_kernel[(dh.cdiv(n, block),)](partial[own], inbox, out, n, rank, ranks, BLOCK=block, num_warps=num_warps)
