"""All-gather of small messages: the put and its signal become packets that carry their own flag (LL, LL128).

    ditron run --sim 4 examples/ll_all_gather.py
    torchrun --nproc-per-node 4 examples/ll_all_gather.py --protocol ll128
    ditron dump examples/ll_all_gather.py:all_gather_kernel --target sim --stage ditron

The kernel says put, signal, wait. Compiled by the pipeline ``low-latency`` there is no signal left in it: the pass
ll-protocol has made them one.
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
        "gathered_ptr": "*bf16",
        "signal_ptr": "*i64",
        "n_elements": "i32",
        "epoch": "i32",
    },
    "constexprs": {"CHUNK": 512},
}

# By size, or what the message is sent by whatever its size.
PIPELINES = {"auto": "low-latency", "ll": "low-latency-ll", "ll128": "low-latency-ll128", "simple": "default"}


def all_gather(shard_ptr, gathered_ptr, signal_ptr, n_elements, epoch, CHUNK: tl.constexpr):
    """A program for each chunk and distance: sends the chunk so far to the right, takes one from so far to the left."""
    rank = dl.rank()
    num_ranks = dl.num_ranks()
    chunk = tl.program_id(0)
    distance = tl.program_id(1)
    to = (rank + distance) % num_ranks
    sender = (rank + num_ranks - distance) % num_ranks
    first = chunk * CHUNK
    nbytes = tl.minimum(CHUNK, n_elements - first) * (shard_ptr.dtype.element_ty.primitive_bitwidth // 8)
    mine = gathered_ptr + rank.to(tl.int64) * n_elements + first
    dl.putmem_signal(mine, shard_ptr + first, nbytes, signal_ptr + chunk * num_ranks + rank, epoch, to)
    dl.wait(signal_ptr + chunk * num_ranks + sender, 1, epoch)
    dl.quiet()


# Every size and every epoch is one kernel.
KERNELS = {
    protocol: ditron.jit(all_gather, pipeline=pipeline, do_not_specialize=["n_elements", "epoch"])
    for protocol, pipeline in PIPELINES.items()
}
all_gather_kernel = KERNELS["auto"]


class AllGather:
    """Memory of an all-gather of up to ``n_elements`` per rank.

    Results and packets lie in two places by the epoch's parity. When a rank sends in epoch e + 2, it has what all
    others sent in e + 1, so all of them had ended e: nobody still reads, or has yet to take, what lies there.
    """

    def __init__(self, n_elements: int, dtype: torch.dtype = torch.bfloat16, protocol: str = "auto", chunk: int = 512):
        self.n_elements, self.chunk, self.epoch, self.kernel = n_elements, chunk, 0, KERNELS[protocol]
        num_ranks = ditron.num_ranks()
        self.grid = (triton.cdiv(n_elements, chunk), num_ranks)
        self.gathered = ditron.symm_empty(2, num_ranks * n_elements, dtype=dtype, name="gathered")
        self.signals = ditron.symm_packets(self.grid[0] * num_ranks, nbytes=chunk * dtype.itemsize, name="signals")

    def __call__(self, shard: torch.Tensor) -> torch.Tensor:
        """``[n]`` on each rank, n at most ``n_elements`` -> ``[num_ranks, n]`` everywhere, until the next but one."""
        self.epoch += 1
        n = shard.numel()
        gathered = self.gathered[self.epoch % 2, : ditron.num_ranks() * n]
        self.kernel[triton.cdiv(n, self.chunk), ditron.num_ranks()](
            shard, gathered, self.signals, n, self.epoch, CHUNK=self.chunk, num_warps=4
        )
        return gathered.view(-1, n)


def check(n_elements: int, calls: int = 3, protocol: str = "auto", chunk: int = 512) -> float:
    """Gather random bf16 data ``calls`` times and return the largest error: 0, since nothing is computed."""
    gather, error = AllGather(n_elements, protocol=protocol, chunk=chunk), 0.0
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
    parser.add_argument("--elements", type=int, default=3000)
    parser.add_argument("--protocol", choices=PIPELINES, default="auto")
    args = parser.parse_args()
    ditron.init()
    error = check(args.elements, protocol=args.protocol)
    assert error == 0, f"rank {ditron.rank()}: error {error}"
    print(f"rank {ditron.rank()} of {ditron.num_ranks()}: all-gather of {args.elements} by {args.protocol} PASS")
    ditron.finalize()
