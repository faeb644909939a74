"""Mixture of experts: the second product by stages, other ranks' tokens first, whose sums are sent meanwhile.

Rows of an expert follow each other by stage (routing.py), and tiles by groups of stages. The product takes them from
the last on, and counts them by stage; a second kernel, whose programs fit next to the product's on each SM, adds and
sends other ranks' tokens when they are counted. The own tokens' sums come behind the product, with what was sent here.
"""

from __future__ import annotations

from typing import Any

import torch
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

import ditron
import ditron.host as dh
import ditron.language as dl
from ditron.kernels.combine import CHUNK, add_sums, send_sums
from ditron.kernels.moe_rs_kernels import moe_product_kernel
from ditron.kernels.routing import tables_on_host
from ditron.kernels.tiles import shards_descriptor

__all__ = ["moe_rs_by_stage_program"]


@ditron.jit(do_not_specialize=["epoch", "splits"])
def moe_send_kernel(
    y_ptr,
    inbox_ptr,
    route_row_ptr,
    route_weight_ptr,
    counts_ptr,
    sent_ptr,
    done_ptr,
    placed_ptr,
    tokens,
    capacity,
    H,
    splits,
    epoch,
    TB: tl.constexpr,
    CB: tl.constexpr,
    TOP_K: tl.constexpr,
    RANKS: tl.constexpr,
):
    """Send every other rank its tokens' sums, those of the last stage first, each when its rows have been counted."""
    pid, workers = tl.program_id(0), tl.num_programs(0)
    dl.notify(placed_ptr, dl.rank(), 1, op="add", scope="gpu")
    dl.wait(done_ptr, RANKS - 1, epoch)
    for back in tl.static_range(1, RANKS):
        stage = RANKS - back
        counted = tl.cast(epoch, tl.int64) * CHUNK
        token = dl.wait(counts_ptr + stage, RANKS - stage, counted, scope="gpu")  # a tile has rows of several stages
        send_sums(
            dl.consume_token(y_ptr, token),
            inbox_ptr,
            route_row_ptr,
            route_weight_ptr,
            sent_ptr + pid * (RANKS - 1),
            stage,
            pid,
            workers,
            tokens,
            capacity,
            splits,
            H,
            epoch,
            TB,
            CB,
            TOP_K,
            RANKS,
        )


@ditron.jit(do_not_specialize=["epoch", "splits", "senders"])
def moe_add_kernel(
    y_ptr,
    out_ptr,
    inbox_ptr,
    token_ranks_ptr,
    route_row_ptr,
    route_weight_ptr,
    sent_ptr,
    tokens,
    capacity,
    H,
    splits,
    senders,
    epoch,
    TB: tl.constexpr,
    CB: tl.constexpr,
    TOP_K: tl.constexpr,
    RANKS: tl.constexpr,
):
    """``out`` [tokens, H] = own sums plus those that others have sent, by ``senders`` programs of each, of whose number
    that of these is a multiple, so that a program adds what one program of each rank has sent.
    """
    pid = tl.program_id(0)
    add_sums(
        y_ptr,
        out_ptr,
        inbox_ptr,
        route_row_ptr,
        route_weight_ptr,
        sent_ptr + pid % senders * (RANKS - 1),
        pid,
        tl.num_programs(0),
        tokens,
        capacity,
        0,
        H,
        splits,
        H,
        epoch,
        TB,
        CB,
        TOP_K,
        RANKS,
        False,
        token_ranks_ptr,
    )


def sample(ranks: int, generator: torch.Generator) -> dict[str, Any]:
    """Arguments for the checker: two experts, tokens with none, one or both of them on every rank.

    Of one group of stages, so that the same tables are right on every rank, whose stages are other ranks'.
    """
    tokens, experts = 12, 2
    scores = torch.rand(tokens, experts + 2, generator=generator)
    scores[:, experts:] = scores[:, :experts].mean(1, keepdim=True)
    ids = scores.topk(2).indices
    plan = tables_on_host(torch.where(ids < experts, ids, -1).expand(ranks, -1, -1), 0, 0, experts, 16)
    return {
        "rows": f"bf16[{plan.max_rows}, 32]",
        "w": f"bf16[{experts * 48}, 32]",
        "y": f"bf16[{plan.max_rows}, 48]",
        "out": f"bf16[{tokens}, 48]",
        "token_ranks": plan.token_ranks,
        "route_row": plan.route_row,
        "route_weight": f"f32[{ranks * tokens}, 2]",
        "tiles": plan.tiles,
        "num_tiles": plan.num_tiles,
        "capacity": 128,
        "num_ranks": ranks,
        "top_k": 2,
        "block": (16, 32, 32),
        "programs": 3,
        "sums": (8, 32),
        "sum_warps": 4,
        "beside": 2,
        "adders_of_sender": 2,
    }


@ditron.program(
    example={
        "rows": "bf16[33792, 768]",
        "w": "bf16[65536, 768]",
        "y": "bf16[33792, 2048]",
        "out": "bf16[4096, 2048]",
        "token_ranks": "i32[4096, 2]",
        "route_row": "i32[16384, 8]",
        "route_weight": "f32[16384, 8]",
        "tiles": "i32[264, 6]",
        "num_tiles": "i32[1]",
        "capacity": 4096,
        "num_ranks": 4,
        "top_k": 8,
    },
    sample_args=sample,
    max_nodes=1,
    do_not_specialize=("token_ranks", "route_row", "route_weight", "tiles"),
)
def moe_rs_by_stage_program(
    rows,
    w,
    y,
    out,
    token_ranks,
    route_row,
    route_weight,
    tiles,
    num_tiles,
    capacity,
    *,
    num_ranks,
    top_k,
    block=(128, 256, 64),
    programs=132,
    sums=(8, 256),
    sum_warps=8,
    sum_registers=64,
    beside=132,
    adders_of_sender=4,
    splits=4,
    swap_ab=False,
    group_m=8,
    num_warps=8,
    stages=4,
    maxnreg=None,
):
    """As :func:`~ditron.kernels.moe_rs.moe_rs_program`, of ``rows`` that are not quantized.

    ``beside`` programs, which fit next to those of the product, add and send other ranks' tokens, ``adders_of_sender``
    times as many the own ones: ``sums`` tokens and columns at a time, the columns of a token divided into ``splits``.
    A plan whose tiles are divided into groups by stage (``stage_groups=``) leaves the product something to hide.
    """
    (tokens, H), K = out.shape, rows.shape[1]
    BM, BN, BK = block
    inbox = dh.symm_empty(num_ranks * capacity, H, dtype=out.dtype, name="inbox")
    counts = dh.symm_zeros(num_ranks, dtype=torch.int64, name="counts")
    sent = dh.symm_zeros(beside * num_ranks, dtype=torch.int64, name="sent")
    started = dh.symm_zeros(1, dtype=torch.int64, name="started")
    done = dh.symm_zeros(num_ranks, dtype=torch.int64, name="done")
    placed = dh.symm_zeros(1, dtype=torch.int64, name="placed")
    moe_product_kernel[(programs,)](
        TensorDescriptor.from_tensor(rows, [BM, BK]),
        TensorDescriptor.from_tensor(w, [BN, BK]),
        None,
        None,
        shards_descriptor(y, 1, y.shape[0], H, (BM, BN // 2)),
        y,
        tiles,
        num_tiles,
        counts,
        started,
        done,
        H,
        K,
        dh.cdiv(H, BN),
        dh.epoch(),
        BM=BM,
        BN=BN,
        BK=BK,
        GROUP=group_m,
        PROGRAMS=programs,
        SWAP_AB=swap_ab,
        SCALED=False,
        COUNT=True,
        BY_STAGE=True,
        RANKS=num_ranks,
        num_warps=num_warps,
        num_stages=stages,
        **({} if maxnreg is None else {"maxnreg": maxnreg}),
    )
    of_routes, options = (route_row, route_weight), {"TB": sums[0], "CB": sums[1], "TOP_K": top_k, "RANKS": num_ranks}
    options |= {"num_warps": sum_warps, "maxnreg": sum_registers}
    with dh.stream("sums"):  # when all of the product's programs have their place
        dh.signal_wait(started[0], dh.epoch() * programs)
        moe_send_kernel[(beside,)](
            y, inbox, *of_routes, counts, sent, done, placed, tokens, capacity, H, splits, dh.epoch(), **options
        )
    dh.signal_wait(placed[0], dh.epoch() * beside)  # else programs that wait for other ranks' could take their place
    moe_add_kernel[(beside * adders_of_sender,)](
        y, out, inbox, token_ranks, *of_routes, sent, tokens, capacity, H, splits, beside, dh.epoch(), **options
    )
