"""AllGather + GEMM over several nodes: shards come to a node once, by NIC, and are sent on by copy engines."""

from __future__ import annotations

import ditron
import ditron.host as dh
from ditron.kernels.gathered_product import multiply_gathered
from ditron.kernels.node_pushes import HierarchicalPushes

__all__ = ["ag_gemm_nodes_program"]


@ditron.program(
    example={
        "a": "bf16[2048, 4096]",
        "b": "bf16[1792, 4096]",
        "bias": "bf16[1792]",
        "c": "bf16[32768, 1792]",
        "gathered_out": "bf16[1, 4096]",
        "capacity": 2048,
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
        "block": (16, 32, 32),
        "programs": 6,
    },
)
def ag_gemm_nodes_program(
    a,
    b,
    bias,
    c,
    gathered_out,
    capacity,
    *,
    b_is_kn=False,
    has_bias=False,
    keep=False,
    pieces=2,
    programs=132,
    block=(128, 256, 64),
    group_m=8,
    num_warps=8,
    stages=4,
):
    """As :func:`ag_gemm_program`, on several nodes with equally many ranks: a shard comes to a node once, by NIC."""
    pushes = HierarchicalPushes(a, capacity, block[0], pieces)
    pushes.push()
    multiply_gathered(
        a,
        pushes.gathered,
        b,
        bias,
        c,
        pushes.arrived,
        pushes.epoch,
        b_is_kn=b_is_kn,
        has_bias=has_bias,
        pieces=pieces,
        programs=max(1, programs - 1),  # one SM is left to the puts
        block=block,
        group_m=group_m,
        num_warps=num_warps,
        stages=stages,
        has_nodes=True,
    )
    if keep:
        pushes.await_all()
        dh.copy(pushes.gathered[: gathered_out.shape[0]], gathered_out)
