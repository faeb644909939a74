"""GEMM + AllReduce: every rank gets the sum over ranks of A times the transpose of B."""

from __future__ import annotations

import torch

from ditron.distributed.torch_groups import AnyGroup
from ditron.kernels.all_gather import all_gather
from ditron.kernels.all_reduce import all_reduce
from ditron.kernels.dispatch import torch_operator
from ditron.kernels.gemm_rs import gemm_rs
from ditron.kernels.operands import in_group, matrices, result
from ditron.kernels.schedules import overlaps, sent_bytes
from ditron_compiler.errors import DitronError

__all__ = ["gemm_ar"]


@torch_operator("a", "b", "gradient")
def gemm_ar(
    a: torch.Tensor,
    b: torch.Tensor,
    *,
    out: torch.Tensor | None = None,
    gradient: str = "replicate",
    group: AnyGroup = None,
) -> torch.Tensor:
    """The sum over ranks of A times the transpose of B: a row-parallel linear layer without sequence parallelism.

    Args:
        a: ``[M, K]``, row-major, the same shape on every rank. b: ``[N, K]``, row-major or the transpose of a row-major
            ``[K, N]``. bfloat16, float16 or float32; sums over ranks are in fp32.
        out: ``[M, N]``, written if given. group: the ranks; default the current group. One node.
        gradient: of the result. ``"replicate"``: every rank computes the same from it and has the same gradient, which
            is taken as it is (Megatron's g). ``"partial"``: each rank has a part of it, and they are added.

    Returns ``[M, N]``, bitwise the same on every rank. Collective over the group. Raises DitronError for tensors that
    do not fit.

        y = ditron.kernels.gemm_ar(x, weight)
    """
    with in_group(group, "gemm_ar") as group:
        matrices("gemm_ar", group, a=a, b=b)
        (M, K), N = a.shape, b.shape[0]
        if b.shape[1] != K:
            raise DitronError(f"gemm_ar: a is [{M}, {K}] and b is [{N}, {b.shape[1]}]: expected b to be [N, {K}]")
        out = result("gemm_ar", (M, N), a, out, a=a, b=b)
        # The sum is scattered under the product, and gathered, where hiding it pays.
        part = out[: M // group.num_ranks]
        if M % group.num_ranks == 0 and overlaps("gemm_ar", group, None, sent_bytes(group, part), a, part):
            return all_gather(gemm_rs(a, b), out=out)
        return all_reduce(torch.matmul(a, b.t()), out=out)
