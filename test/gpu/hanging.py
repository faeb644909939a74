"""Programs that hang, or go where they must not: what the sanitizer has to end and explain (see check_hangs.py).

    DITRON_SANITIZE=1 torchrun --nproc-per-node 2 test/gpu/hanging.py missing_notify --out DIR

Each rank writes what it raised to DIR/rankR.txt and exits with an error. A line that must be reported ends in ``# <-``.
"""

import argparse
import sys
from pathlib import Path

import torch
import triton.language as tl

import ditron
import ditron.host as dh
import ditron.language as dl


@ditron.jit
def missing_notify_kernel(x_ptr, signal_ptr):
    """Only rank 0 tells its neighbour."""
    right = (dl.rank() + 1) % dl.num_ranks()
    tl.store(dl.symm_at(x_ptr, right) + tl.arange(0, 64), 1.0)
    if dl.rank() == 0:
        dl.notify(signal_ptr + 1, right, 1)
    dl.wait(signal_ptr + 1, 1, 1)  # <-


@ditron.jit
def wrong_rank_kernel(signal_ptr):
    """Every program of a rank tells its own rank in place of the neighbour."""
    me, block = dl.rank(), tl.program_id(0)
    left = (me + dl.num_ranks() - 1) % dl.num_ranks()
    dl.notify(signal_ptr + block * dl.num_ranks() + me, me, 1)
    dl.wait(signal_ptr + block * dl.num_ranks() + left, 1, 1)  # <-


@ditron.jit
def cyclic_wait_kernel(signal_ptr):
    """Each rank waits for the other before it tells it."""
    right = (dl.rank() + 1) % dl.num_ranks()
    dl.signal_wait_until(signal_ptr, 1)  # <-
    dl.notify(signal_ptr, right, 1)


@ditron.jit
def off_by_one_kernel(signal_ptr):
    """Each rank adds one per rank, and waits for one more."""
    for peer in range(dl.num_ranks()):
        dl.notify(signal_ptr + 3, peer, 1, op="add")
    dl.wait(signal_ptr + 3, 1, dl.num_ranks() + 1)  # <-


@ditron.jit
def consumer_kernel(signal_ptr):
    """More programs than the GPU holds; all spin until the producer, on another stream, has an SM."""
    dl.wait(signal_ptr, 1, 1, scope="gpu")  # <-


@ditron.jit
def producer_kernel(signal_ptr, go):
    if go:
        dl.notify(signal_ptr, dl.rank(), 1, scope="gpu")


@ditron.jit
def absent_from_barrier_kernel():
    """Rank 1 does not come to the barrier."""
    if dl.rank() == 0:
        dl.barrier_all()  # <-


@ditron.jit
def rank_out_of_range_kernel(signal_ptr):
    """Forgets the modulo."""
    dl.notify(signal_ptr, dl.rank() + 1, 1)  # <-


@ditron.jit
def not_symmetric_kernel(x_ptr, local_ptr):
    """Puts into memory that only this rank has."""
    dl.putmem(local_ptr, x_ptr, 256, (dl.rank() + 1) % dl.num_ranks())  # <-


@ditron.program
def stream_wait_kernel(x):
    """Rank 1's stream waits for a signal that only rank 0 gets."""
    signals = dh.symm_zeros(4, dtype=torch.int64, name="signals")
    dh.signal_write(signals[1], dh.epoch(), 0)
    dh.signal_wait(signals[1], dh.epoch())  # <-


def starved_producer(signals: torch.Tensor) -> None:
    other = torch.cuda.Stream()
    with torch.cuda.stream(other):
        producer_kernel[(1,)](signals, False)  # loaded before the SMs are taken
    torch.cuda.synchronize()
    sms = torch.cuda.get_device_properties(signals.device).multi_processor_count
    consumer_kernel[(4 * sms,)](signals, num_warps=32)
    with torch.cuda.stream(other):
        producer_kernel[(1,)](signals, True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--transport", default="p2p")
    args = parser.parse_args()
    ditron.init(transport=args.transport, heap_bytes=64 << 20)
    signals = ditron.symm_zeros(64, dtype=torch.int64, name="signals")
    x = ditron.symm_zeros(1024, dtype=torch.float32, name="x")
    run = {
        "missing_notify": lambda: missing_notify_kernel[(1,)](x, signals),
        "wrong_rank": lambda: wrong_rank_kernel[(3,)](signals),
        "cyclic_wait": lambda: cyclic_wait_kernel[(1,)](signals),
        "off_by_one": lambda: off_by_one_kernel[(1,)](signals),
        "starved_producer": lambda: starved_producer(signals),
        "absent_from_barrier": lambda: absent_from_barrier_kernel[(1,)](),
        "rank_out_of_range": lambda: rank_out_of_range_kernel[(1,)](signals),
        "stream_wait": lambda: stream_wait_kernel(x),
        "not_symmetric": lambda: not_symmetric_kernel[(1,)](x, torch.zeros(1024, device=ditron.device())),
    }[args.program]
    try:
        run()
        ditron.barrier()
    except ditron.SanitizerError as error:
        (args.out / f"rank{ditron.rank()}.txt").write_text(f"{type(error).__name__}: {error}\n")
        # The process itself can go on: its GPU still computes.
        assert torch.ones(1000, device=ditron.device()).sum().item() == 1000
        raise
    sys.exit("expected a report, and the program came to its end")


if __name__ == "__main__":
    main()
