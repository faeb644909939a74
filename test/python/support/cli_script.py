"""A script that ``ditron run`` runs: each rank writes its number to its right neighbour."""

import sys

import torch
import triton.language as tl

import ditron
import ditron.language as dl


@ditron.jit
def kernel(x_ptr, signal_ptr):
    right = (dl.rank() + 1) % dl.num_ranks()
    tl.store(dl.symm_at(x_ptr, right), dl.rank() * 10)
    dl.notify(signal_ptr, right)
    dl.wait(signal_ptr, value=1 if 1 == 1 else 2)


ditron.init()
x = ditron.symm_zeros(1, dtype=torch.int32)
signal = ditron.symm_zeros(1, dtype=torch.int64)
if "hang" in sys.argv:
    if ditron.rank() == 0:
        kernel[(1,)](x, signal)
else:
    kernel[(1,)](x, signal)
    n = ditron.num_ranks()
    assert x.item() == (ditron.rank() + n - 1) % n * 10
    print(f"rank {ditron.rank()} {sys.argv[1:]}")
    if "fail" in sys.argv:
        sys.exit(5)
