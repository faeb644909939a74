"""Put with signal: a chunk lands in the right neighbour's memory, and the signal says that it has (OpenSHMEM style).

ditron run --sim 4 examples/put_signal.py
torchrun --nproc-per-node 4 examples/put_signal.py
"""

import argparse

import torch
import triton
import triton.language as tl

import ditron
import ditron.language as dl

EXAMPLE = {
    "signature": {
        "outbox_ptr": "*fp32",
        "inbox_ptr": "*fp32",
        "out_ptr": "*fp32",
        "signal_ptr": "*i64",
        "credit_ptr": "*i64",
        "n_elements": "i32",
        "epoch": "i32",
    },
    "constexprs": {"BLOCK": 1024},
}


@ditron.jit(do_not_specialize=["epoch"])
def shift_kernel(outbox_ptr, inbox_ptr, out_ptr, signal_ptr, credit_ptr, n_elements, epoch, BLOCK: tl.constexpr):
    block = tl.program_id(0)
    rank = dl.rank()
    num_ranks = dl.num_ranks()
    right = (rank + 1) % num_ranks
    left = (rank + num_ranks - 1) % num_ranks
    first = block * BLOCK
    count = tl.minimum(BLOCK, n_elements - first)
    # A rank hears nothing from its right neighbour but this credit; without it, it could run ahead and overwrite.
    dl.wait(credit_ptr + block, 1, epoch - 1)
    dl.putmem_signal_nbi(inbox_ptr + first, outbox_ptr + first, count * 4, signal_ptr + block, epoch, right)

    dl.signal_wait_until(signal_ptr + block, epoch)
    offsets = first + tl.arange(0, BLOCK)
    mask = offsets < n_elements
    tl.store(out_ptr + offsets, tl.load(inbox_ptr + offsets, mask=mask), mask=mask)
    dl.notify(credit_ptr + block, left, epoch)
    # The outbox may be filled anew once the put has left it.
    dl.quiet()


class Shift:
    """Buffers for shifting ``n_elements`` fp32 elements to the right neighbour."""

    def __init__(self, n_elements: int, block: int = 1024):
        self.n_elements, self.block, self.epoch = n_elements, block, 0
        self.grid = (triton.cdiv(n_elements, block),)
        self.outbox = ditron.symm_empty(n_elements, dtype=torch.float32, name="outbox")
        self.inbox = ditron.symm_empty(n_elements, dtype=torch.float32, name="inbox")
        self.signals = ditron.symm_zeros(self.grid[0], dtype=torch.int64, name="signals")
        self.credits = ditron.symm_zeros(self.grid[0], dtype=torch.int64, name="credits")

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """The left neighbour's ``x`` (fp32, ``[n_elements]``)."""
        self.epoch += 1
        self.outbox.copy_(x)
        out = torch.empty_like(x)
        shift_kernel[self.grid](
            self.outbox, self.inbox, out, self.signals, self.credits, self.n_elements, self.epoch, BLOCK=self.block
        )
        return out


def check(n_elements: int, calls: int = 3) -> float:
    """Shift random data ``calls`` times and return the largest error: 0, since nothing is computed."""
    shift, error = Shift(n_elements), 0.0
    for call in range(calls):
        inputs = [
            torch.randn(n_elements, generator=torch.Generator().manual_seed(1000 * call + r))
            for r in range(ditron.num_ranks())
        ]
        out = shift(inputs[ditron.rank()].to(ditron.device()))
        error = max(error, (out.cpu() - inputs[ditron.rank() - 1]).abs().max().item())
    return error


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--elements", type=int, default=3000)
    args = parser.parse_args()
    ditron.init()
    error = check(args.elements)
    assert error == 0, f"rank {ditron.rank()}: error {error}"
    print(f"rank {ditron.rank()} of {ditron.num_ranks()}: shift of {args.elements} elements PASS")
    ditron.finalize()
