"""The smallest overlapping kernel: a value goes round a ring of ranks, each adding its own (notify / wait).

    ditron run --sim 4 examples/ring.py
    torchrun --nproc-per-node 4 examples/ring.py

Every program owns a block of elements and its own signals, so blocks travel independently of each other.
"""

import argparse

import torch
import triton
import triton.language as tl

import ditron
import ditron.language as dl

EXAMPLE = {
    "signature": {
        "x_ptr": "*fp32",
        "inbox_ptr": "*fp32",
        "outbox_ptr": "*fp32",
        "out_ptr": "*fp32",
        "signal_ptr": "*i64",
        "n_elements": "i32",
        "epoch": "i32",
    },
    "constexprs": {"BLOCK": 256},
}


@ditron.jit(do_not_specialize=["epoch"])
def ring_kernel(x_ptr, inbox_ptr, outbox_ptr, out_ptr, signal_ptr, n_elements, epoch, BLOCK: tl.constexpr):
    rank = dl.rank()
    num_ranks = dl.num_ranks()
    right = (rank + 1) % num_ranks
    block = tl.program_id(0)
    offsets = block * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n_elements
    padded = tl.num_programs(0) * BLOCK
    # Two boxes by parity: a neighbour may be one call ahead, never two.
    half = (epoch % 2) * num_ranks * padded

    value = tl.load(x_ptr + offsets, mask=mask, other=0.0)
    total = value
    for step in range(1, num_ranks):
        box = half + step * padded + block * BLOCK
        signal = signal_ptr + block * num_ranks + step
        tl.store(outbox_ptr + box + tl.arange(0, BLOCK), value)
        dl.putmem(inbox_ptr + box, outbox_ptr + box, BLOCK * 4, right)
        dl.notify(signal, right, epoch)
        token = dl.wait(signal, 1, epoch)
        arrived = dl.consume_token(inbox_ptr + box, token)
        value = tl.load(arrived + tl.arange(0, BLOCK))
        total += value
    tl.store(out_ptr + offsets, total, mask=mask)
    # No signal of this call may land after one of the next: it would set the counter back.
    dl.quiet()


class Ring:
    """Buffers of a ring over ``n_elements`` fp32 elements per rank; each call is one trip round."""

    def __init__(self, n_elements: int, block: int = 256):
        self.n_elements, self.block, self.epoch = n_elements, block, 0
        self.grid = (triton.cdiv(n_elements, block),)
        num_ranks, padded = ditron.num_ranks(), self.grid[0] * block
        self.inbox = ditron.symm_empty(2, num_ranks, padded, dtype=torch.float32, name="inbox")
        self.outbox = ditron.symm_empty(2, num_ranks, padded, dtype=torch.float32, name="outbox")
        self.signals = ditron.symm_zeros(self.grid[0], num_ranks, dtype=torch.int64, name="signals")

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Sum of every rank's ``x`` (fp32, ``[n_elements]``), on every rank."""
        self.epoch += 1
        out = torch.empty_like(x)
        ring_kernel[self.grid](
            x, self.inbox, self.outbox, out, self.signals, self.n_elements, self.epoch, BLOCK=self.block
        )
        return out


def check(n_elements: int, calls: int = 3) -> float:
    """Run ``calls`` trips on random data and return the largest error against a float64 sum."""
    ring, error = Ring(n_elements), 0.0
    for call in range(calls):
        inputs = [
            torch.randn(n_elements, generator=torch.Generator().manual_seed(1000 * call + r))
            for r in range(ditron.num_ranks())
        ]
        out = ring(inputs[ditron.rank()].to(ditron.device()))
        expected = torch.stack(inputs).double().sum(0)
        error = max(error, (out.cpu().double() - expected).abs().max().item())
    return error


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--elements", type=int, default=1000)
    args = parser.parse_args()
    ditron.init()
    error = check(args.elements)
    assert error < 1e-5, f"rank {ditron.rank()}: error {error}"
    print(f"rank {ditron.rank()} of {ditron.num_ranks()}: ring of {args.elements} elements PASS, error {error:.1e}")
    ditron.finalize()
