"""A host program that copies a tensor to the next rank, by a copy engine, and adds it up in a kernel."""

import torch
import triton.language as tl

import ditron
import ditron.host as dh


@ditron.jit
def add(x, y, out, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(out + at, tl.load(x + at) + tl.load(y + at))


def sample(ranks):
    return {"x": "f32[64]", "out": "f32[64]"}


@ditron.program(sample_args=sample, max_nodes=1)
def shift(x, out):
    rank, ranks, epoch = dh.rank(), dh.num_ranks(), dh.epoch()
    inbox = dh.symm_empty(2, *x.shape, dtype=x.dtype, name="inbox")
    full = dh.symm_zeros(1, dtype=torch.int64, name="full")
    free = dh.symm_zeros(1, dtype=torch.int64, name="free")
    with dh.stream("copy"):
        dh.signal_wait(free[0], epoch - 1)
        dh.rank_copy(x, inbox[epoch % 2], (rank + 1) % ranks)
        dh.signal_write(full[0], epoch, (rank + 1) % ranks)
    dh.signal_wait(full[0], epoch)
    add[(1,)](x, inbox[epoch % 2], out, N=64)
    dh.signal_write(free[0], epoch, (rank + ranks - 1) % ranks)


if __name__ == "__main__":
    ditron.init()
    out = torch.empty(64)
    for _ in range(3):
        shift(torch.ones(64), out)
