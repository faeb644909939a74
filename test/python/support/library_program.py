"""A program with a library step: all-gather and matrix product, by ``torch.mm`` on each shard as it arrives."""

from __future__ import annotations

import torch

import ditron
import ditron.host as dh


def product(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> None:
    torch.mm(a, b, out=c)


def samples(ranks: int) -> dict[str, str]:
    return {"a": "f32[4, 8]", "b": "f32[8, 6]", "c": f"f32[{4 * ranks}, 6]"}


@ditron.program(sample_args=samples, max_nodes=1)
def gather_and_multiply(a, b, c):
    """c = the ranks' a, one below the other, times b."""
    rank, ranks, epoch = dh.rank(), dh.num_ranks(), dh.epoch()
    rows, k = a.shape
    shards = dh.symm_empty(ranks, rows, k, dtype=a.dtype, name="shards")
    arrived = dh.symm_zeros(ranks, dtype=torch.int64, name="arrived")
    used = dh.symm_zeros(ranks, dtype=torch.int64, name="used")
    with dh.stream("copy"):
        for distance in dh.range(1, ranks):
            peer = (rank + distance) % ranks
            dh.signal_wait(used[peer], epoch - 1)  # the peer has used what the call before sent
            dh.rank_copy(a, shards[rank], peer)
            dh.signal_write(arrived[rank], epoch, peer)
    dh.call(product, reads=[a, b], writes=[c[rank * rows : (rank + 1) * rows]])
    for distance in dh.range(1, ranks):
        source = (rank - distance) % ranks
        dh.signal_wait(arrived[source], epoch)
        dh.call(product, reads=[shards[source], b], writes=[c[source * rows : (source + 1) * rows]])
        dh.signal_write(used[rank], epoch, source)


def check() -> float:
    """The largest error of three calls in a row, on each rank."""
    rank, ranks, worst = ditron.rank(), ditron.num_ranks(), 0.0
    for call in range(3):
        generator = torch.Generator().manual_seed(call)
        whole, b = torch.randn(4 * ranks, 8, generator=generator), torch.randn(8, 6, generator=generator)
        c = torch.zeros(4 * ranks, 6)
        gather_and_multiply(whole.chunk(ranks)[rank].clone(), b, c)
        exact = whole.double() @ b.double()
        worst = max(worst, ((c - exact).abs().max() / exact.abs().max()).item())
    return worst
