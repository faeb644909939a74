"""All-gather: copy engines push this rank's elements to every rank."""

from __future__ import annotations

import torch

import ditron
import ditron.host as dh
from ditron.distributed.torch_groups import AnyGroup
from ditron.kernels.dispatch import torch_operator
from ditron.kernels.operands import aligned, capacity_for, in_group, result, vector_operand
from ditron_compiler.errors import DitronError

__all__ = ["all_gather", "all_gather_program", "own_part"]


@ditron.program(
    example={"x": "bf16[1048576]", "out": "bf16[4, 1048576]", "capacity": 1048576},
    sample_args=lambda ranks: {"x": "bf16[80]", "out": f"bf16[{ranks}, 80]", "capacity": 128},
    max_nodes=1,
)
def all_gather_program(x, out, capacity):
    """``out`` [ranks, n] = all ranks' ``x`` [n]. Memory is kept for up to ``capacity`` elements of a rank."""
    rank, ranks, epoch = dh.rank(), dh.num_ranks(), dh.epoch()
    n = x.shape[0]
    gathered = dh.symm_empty(ranks * capacity, dtype=x.dtype, name="gathered")
    arrived = dh.symm_zeros(ranks, dtype=torch.int64, name="arrived")
    done = dh.symm_zeros(ranks, dtype=torch.int64, name="done")
    with dh.stream("copy"):
        for step in dh.range(1, ranks):  # all that this rank was sent in the call before has been read
            dh.signal_write(done[rank], epoch, (rank + step) % ranks)
        for step in dh.range(1, ranks):
            peer = (rank - step) % ranks
            dh.signal_wait(done[peer], epoch)
            dh.rank_copy(x, gathered[rank * n : (rank + 1) * n], peer)
            dh.signal_write(arrived[rank], epoch, peer)
    dh.copy(x, out[rank])
    for step in dh.range(1, ranks):
        sender = (rank + step) % ranks
        dh.signal_wait(arrived[sender], epoch)
        dh.copy(gathered[sender * n : (sender + 1) * n], out[sender])


@torch_operator("x", "gradient")
def all_gather(
    x: torch.Tensor, *, out: torch.Tensor | None = None, gradient: str = "partial", group: AnyGroup = None
) -> torch.Tensor:
    """All ranks' ``x``, concatenated along the first dimension in rank order.

    Args:
        x: ``[rows, ...]``, the same shape on every rank. out: ``[num_ranks * rows, ...]``, written if given.
        gradient: of the result. ``"partial"``: each rank has a part of it, and they are added. ``"replicate"``: every
            rank computes the same from it and has the same gradient.
        group: the ranks; default the current group. One node.

    Returns ``[num_ranks * rows, ...]``. Collective over the group. Raises DitronError for tensors that do not fit.

        everything = ditron.kernels.all_gather(mine)
    """
    with in_group(group, "all_gather") as group:
        vector_operand("all_gather", group, x)
        out = result("all_gather", (group.num_ranks * x.shape[0], *x.shape[1:]), x, out)
        all_gather_program(aligned(x).view(-1), out.view(group.num_ranks, -1), capacity_for(x.numel()))
        return out


@torch_operator("x")
def own_part(x: torch.Tensor, *, group: AnyGroup = None) -> torch.Tensor:
    """This rank's rows of ``x``, which is the same on every rank: what :func:`all_gather` makes whole again.

    Args:
        x: ``[rows, ...]``, rows a multiple of the number of ranks. group: the ranks; default the current group.

    Returns a new tensor, ``[rows / num_ranks, ...]``; its gradient is gathered.

        mine = ditron.kernels.own_part(everything)
    """
    with in_group(group, "own_part") as group:
        if x.ndim == 0 or x.shape[0] % group.num_ranks:
            raise DitronError(f"own_part: a tensor of shape {tuple(x.shape)} has no {group.num_ranks} equal parts")
        return x.view(group.num_ranks, -1, *x.shape[1:])[group.rank].clone(memory_format=torch.contiguous_format)
