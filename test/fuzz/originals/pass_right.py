"""Each rank puts a row to the right, and answers when it has read what the left one has put."""

import torch
import triton.language as tl

import ditron
import ditron.language as dl

N = 64


@ditron.jit(do_not_specialize=["epoch"])
def pass_right(x, box, full, free, out, epoch, N: tl.constexpr):
    rank, ranks = dl.rank(), dl.num_ranks()
    dl.wait(free, 1, epoch - 1)
    dl.putmem_signal(box, x, N * 4, full, epoch, (rank + 1) % ranks)
    token = dl.wait(full, 1, epoch)
    at = tl.arange(0, N)
    tl.store(out + at, tl.load(dl.consume_token(box, token) + at))
    dl.notify(free, (rank + ranks - 1) % ranks, epoch)
    dl.quiet()


def main():
    ditron.init()
    x, out = torch.ones(N), torch.empty(N)
    box = ditron.symm_empty(N, dtype=torch.float32, name="box")
    full = ditron.symm_zeros(1, dtype=torch.int64, name="full")
    free = ditron.symm_zeros(1, dtype=torch.int64, name="free")
    for epoch in range(1, 4):
        pass_right[(1,)](x, box, full, free, out, epoch, N=N)
        assert torch.equal(out, torch.ones(N))
    ditron.barrier()
    print(f"rank {ditron.rank()} of {ditron.num_ranks()}: {out.sum().item()}")


if __name__ == "__main__":
    main()
