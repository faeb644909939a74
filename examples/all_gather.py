"""All-gather: every rank pushes its shard into every rank's workspace, chunk by chunk, and waits for the others'.

ditron run --sim 4 examples/all_gather.py
torchrun --nproc-per-node 4 examples/all_gather.py
"""

import argparse

import torch
import triton
import triton.language as tl

import ditron
import ditron.language as dl

EXAMPLE = {
    "signature": {
        "shard_ptr": "*bf16",
        "workspace_ptr": "*bf16",
        "signal_ptr": "*i64",
        "n_elements": "i32",
        "epoch": "i32",
    },
    "constexprs": {"CHUNK": 4096},
}


@ditron.jit(do_not_specialize=["epoch"])
def all_gather_kernel(shard_ptr, workspace_ptr, signal_ptr, n_elements, epoch, CHUNK: tl.constexpr):
    rank = dl.rank()
    num_ranks = dl.num_ranks()
    first = tl.program_id(0) * CHUNK
    nbytes = tl.minimum(CHUNK, n_elements - first) * (shard_ptr.dtype.element_ty.primitive_bitwidth // 8)
    mine = workspace_ptr + rank.to(tl.int64) * n_elements + first
    # Each rank starts with another neighbour, so that no link gets everybody's first chunk.
    for step in range(num_ranks):
        peer = (rank + step) % num_ranks
        dl.putmem_signal(mine, shard_ptr + first, nbytes, signal_ptr + rank, 1, peer, op="add")
    # A signal of this call that lands after one of the next would be counted as its; none is under way after quiet.
    dl.quiet()
    # Every program of every rank adds one; signals only grow, so the epoch tells this call's from the last one's.
    dl.wait(signal_ptr, num_ranks, epoch.to(tl.int64) * tl.num_programs(0))


class AllGather:
    """Workspaces of an all-gather of ``n_elements`` per rank; two by parity: a result lives until the next but one."""

    def __init__(self, n_elements: int, dtype: torch.dtype = torch.bfloat16, chunk: int = 4096):
        self.n_elements, self.chunk, self.epoch = n_elements, chunk, 0
        num_ranks = ditron.num_ranks()
        self.workspaces = ditron.symm_empty(2, num_ranks, n_elements, dtype=dtype, name="workspaces")
        self.signals = ditron.symm_zeros(num_ranks, dtype=torch.int64, name="signals")

    def __call__(self, shard: torch.Tensor) -> torch.Tensor:
        """``[n_elements]`` on each rank -> ``[num_ranks, n_elements]`` on every rank."""
        self.epoch += 1
        workspace = self.workspaces[self.epoch % 2]
        all_gather_kernel[(triton.cdiv(self.n_elements, self.chunk),)](
            shard, workspace, self.signals, self.n_elements, self.epoch, CHUNK=self.chunk
        )
        return workspace


def check(n_elements: int, calls: int = 3, chunk: int = 4096) -> float:
    """Gather random bf16 data ``calls`` times and return the largest error: 0, since nothing is computed."""
    gather, error = AllGather(n_elements, chunk=chunk), 0.0
    for call in range(calls):
        shards = [
            torch.randn(n_elements, generator=torch.Generator().manual_seed(1000 * call + r)).bfloat16()
            for r in range(ditron.num_ranks())
        ]
        out = gather(shards[ditron.rank()].to(ditron.device()))
        error = max(error, (out.cpu() - torch.stack(shards)).abs().max().item())
    return error


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--elements", type=int, default=10000)
    args = parser.parse_args()
    ditron.init()
    error = check(args.elements)
    assert error == 0, f"rank {ditron.rank()}: error {error}"
    print(f"rank {ditron.rank()} of {ditron.num_ranks()}: all-gather of {args.elements} elements PASS")
    ditron.finalize()
