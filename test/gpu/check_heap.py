"""Symmetric memory that grows, on real GPUs: addresses, contents, groups, memory that is returned, errors, ends.

    python test/gpu/check_heap.py --table table.md                 # jobs of two ranks, each under a time limit
    DITRON_HEAP=vmm torchrun --nproc-per-node 2 test/gpu/check_heap.py grow      # one of them

Each case is a job of its own. A rank writes what is wrong to DIR/rankR.txt; a rank that hangs is ended by the limit.
"""

from __future__ import annotations

import argparse
import datetime
import faulthandler
import gc
import os
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import torch
import triton.language as tl

import ditron
import ditron.host as dh
import ditron.language as dl

RANKS = 2
GIB, MIB = 1 << 30, 1 << 20
LIMIT = 150  # seconds a job may take


@ditron.jit
def load_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    """Every rank reads its right neighbour's tensor."""
    right = (dl.rank() + 1) % dl.num_ranks()
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    values = tl.load(dl.symm_at(x_ptr, right) + offsets, mask=offsets < n)
    tl.store(out_ptr + offsets, values, mask=offsets < n)


@ditron.jit
def store_kernel(x_ptr, index, value):
    """Every rank stores into its right neighbour's tensor."""
    right = (dl.rank() + 1) % dl.num_ranks()
    tl.store(dl.symm_at(x_ptr, right) + index, value)
    dl.barrier_all()


@ditron.program
def push(x):
    """x becomes the left neighbour's, by the copy engine."""
    rank, ranks, epoch = dh.rank(), dh.num_ranks(), dh.epoch()
    left, right = (rank - 1) % ranks, (rank + 1) % ranks
    buffer = dh.symm_empty(x.shape, dtype=x.dtype, name="buffer")
    full = dh.symm_zeros(1, dtype=torch.int64, name="full")
    done = dh.symm_zeros(1, dtype=torch.int64, name="done")
    dh.signal_wait(done[0], epoch - 1)  # the right neighbour has read what the call before sent
    dh.rank_copy(x, buffer, right)
    dh.signal_write(full[0], epoch, right)
    dh.signal_wait(full[0], epoch)
    dh.copy(buffer, x)
    dh.signal_write(done[0], epoch, left)


@ditron.program
def through(x, out):
    """out = x, by way of memory that the program keeps."""
    kept = dh.empty(x.shape, dtype=x.dtype, name="kept")
    dh.copy(x, kept)
    dh.copy(kept, out)


def expect(right: bool, what: str) -> None:
    if not right:
        raise AssertionError(what)


def free_bytes() -> int:
    gc.collect()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    return torch.cuda.mem_get_info()[0]


def reach(tensor: torch.Tensor, group: ditron.Group, what: str) -> None:
    """Kernels and the sampled ends of a tensor: what a neighbour wrote is read, and where this rank stores it arrives."""
    n, index = min(tensor.numel(), 1 << 20), group.rank
    left, right = (index - 1) % group.num_ranks, (index + 1) % group.num_ranks
    for start in (0, tensor.numel() - n):
        part = tensor[start:]
        part[:n] = torch.arange(n, dtype=torch.int32, device=tensor.device) * (index + 1)
        group.barrier()
        out = torch.empty(n, dtype=torch.int32, device=tensor.device)
        load_kernel[(-(-n // 1024),)](part, out, n, BLOCK=1024, group=group)
        expected = torch.arange(n, dtype=torch.int32, device=tensor.device) * (right + 1)
        expect(torch.equal(out, expected), f"{what}: read of rank {right}'s memory from {start} on")
        group.barrier()
        store_kernel[(1,)](part, n - 1, 7000 + index, group=group)
        torch.cuda.synchronize()
        expect(part[n - 1].item() == 7000 + left, f"{what}: store of rank {left} into this rank's memory")
        group.barrier()


def grow(steps: tuple[int, ...] = (1, 2, 16, 63, 64, 65, 500, 1024, 4096, 8192, 26624)) -> None:
    """1 MiB to 40 GiB in steps of MiB; everything that was there stays, and is reached."""
    world = ditron.world()
    context = world.context.tolist()
    held = []
    for step in steps:
        before = time.perf_counter()
        tensor = ditron.symm_empty(step * MIB // 4, dtype=torch.int32, name=f"step{step}")
        seconds = time.perf_counter() - before
        held.append((step, tensor, tensor.data_ptr()))
        if ditron.rank() == 0:
            print(f"{step} MiB more in {1e3 * seconds:.1f} ms", flush=True)
        reach(tensor, world, f"{step} MiB")
    now = world.context.tolist()
    expect(now[:9] == context[:9] and now[10:] == context[10:], f"the context changed: {context} {now}")
    expect(now[9] >= sum(steps) * MIB, f"HEAP_BYTES is {now[9]}")
    for step, tensor, address in held:
        left = (world.rank - 1) % world.num_ranks
        expect(tensor.data_ptr() == address, f"{step} MiB moved")
        n = min(tensor.numel(), 1 << 20)
        expect(tensor[-1].item() == 7000 + left and tensor[1 - n].item() == world.rank + 1, f"{step} MiB: contents")
        reach(tensor, world, f"{step} MiB again")
    whole = torch.cat([tensor[:1000] for _, tensor, _ in held]).view(len(held), 1000)
    expect(whole.shape == (len(held), 1000) and whole.device == ditron.device(), "views")
    free, asked = free_bytes(), sum(steps) * MIB
    for _, tensor, _ in held:
        ditron.symm_free(tensor)
    ditron.barrier()
    returned = free_bytes() - free
    expect(returned >= asked - 256 * MIB, f"{returned >> 20} of {asked >> 20} MiB were returned")


def programs() -> None:
    """Copies by copy engines between buffers of programs in many segments; ``free`` returns them."""
    free = free_bytes()
    for count in (1 << 18, 20 << 20, 300 << 20):
        for call in range(3):
            x = torch.full((count,), 10 * call + ditron.rank(), dtype=torch.int32, device=ditron.device())
            push(x)
            left = (ditron.rank() - 1) % ditron.num_ranks()
            expect(bool((x == 10 * call + left).all()), f"{count} elements, call {call}")
    del x
    taken = free - free_bytes()
    expect(taken >= 320 * 4 * MIB, f"the programs took {taken >> 20} MiB")
    push.free()
    ditron.barrier()
    left_over = free - free_bytes()
    expect(left_over <= 256 * MIB, f"{left_over >> 20} MiB are left over")


def groups() -> None:
    """[0], [1], [0, 1] and the world allocate in turns of their own; then a hundred groups come and go."""
    rank, world = ditron.rank(), ditron.world()
    made = [ditron.new_group([0]), ditron.new_group([1]), ditron.new_group([0, 1]), world]
    held = []
    for turn in range(4):
        for number, group in enumerate(made):
            # Rank 0 asks for more than rank 1 in the groups that they have for themselves.
            for part in range(1 + (rank + 1) * turn * (number < 2)):
                if group:
                    tensor = ditron.symm_empty((turn + 1) * 3 * MIB, dtype=torch.int32, group=group)
                    tensor.fill_(1000 * number + 100 * turn + 10 * part + rank)
                    held.append((tensor, 1000 * number + 100 * turn + 10 * part + rank))
    for number, group in enumerate(made):
        if group:
            tensor = ditron.symm_empty(40 * MIB, dtype=torch.int32, group=group)
            reach(tensor, group, f"group {number}")
            ditron.symm_free(tensor, group=group)
    ditron.barrier()
    for tensor, value in held:
        expect(bool((tensor == value).all()), f"a tensor of {value} has other contents")
    del held, tensor, made, group
    free = 0
    for turn in range(100):
        group = ditron.new_group([0, 1])
        tensor = ditron.symm_zeros(MIB, dtype=torch.int32, group=group)
        if turn % 20 == 0:
            reach(tensor, group, f"group of turn {turn}")
        del tensor, group
        if turn == 20:
            free = free_bytes()
    lost = free - free_bytes()
    expect(lost <= 300 * MIB, f"80 groups that were dropped keep {lost >> 20} MiB")


def memory() -> None:
    """Rank 1 has little memory left: both ranks get the error, and go on."""
    kept = ditron.symm_zeros(GIB // 4, dtype=torch.int32, name="gather.workspace")
    taken = None
    if ditron.rank() == 1:
        taken = torch.empty(torch.cuda.mem_get_info()[0] - 2 * GIB, dtype=torch.uint8, device=ditron.device())
    try:
        ditron.symm_empty(GIB, dtype=torch.int32, name="scatter.buffer")
        expect(False, "4 GiB were had where 2 are free")
    except MemoryError as error:
        text = str(error)
        print(f"rank {ditron.rank()}: {text}", flush=True)
        for part in (
            "scatter.buffer (4.0 GiB)",
            "rank 1",
            "OUT_OF_MEMORY",
            "gather.workspace 1.0 GiB",
            "program.free()",
        ):
            expect(part in text, f"{part!r} is not in {text!r}")
    del taken
    torch.cuda.empty_cache()  # what torch has cached, symm_empty itself gives back
    tensor = ditron.symm_empty(GIB, dtype=torch.int32)
    reach(tensor, ditron.world(), "after the error")
    expect(bool((kept == 0).all()), "what was there before")


def cached() -> None:
    """Memory that torch keeps cached is given back before there is an error."""
    size = torch.cuda.mem_get_info()[0] - 2 * GIB
    taken = torch.empty(size, dtype=torch.uint8, device=ditron.device())
    del taken
    expect(torch.cuda.mem_get_info()[0] < 3 * GIB, "torch did not cache")
    reach(ditron.symm_empty(2 * GIB, dtype=torch.int32), ditron.world(), "8 GiB")


def sanitized() -> None:
    """Memory that came later is inside of the heap for the sanitizer, and what is behind its end is not."""
    tensor = ditron.symm_zeros(100 * MIB, dtype=torch.int32, name="later")
    reach(tensor, ditron.world(), "with the sanitizer")
    expect(ditron.world().monitor.name(tensor[5:].data_ptr()) == "later[5]", "the name of an address")


def streams() -> None:
    """Programs on two streams in turn: a call waits for the end of the one before it, whose memory it uses."""
    both = torch.cuda.Stream(), torch.cuda.Stream()
    left = (ditron.rank() - 1) % ditron.num_ranks()
    given = [torch.zeros(64 * MIB, dtype=torch.int32, device=ditron.device()) for _ in range(4)]
    outs = [torch.empty_like(x) for x in given]
    push(given[0])
    through(given[0], outs[0])
    for turn in range(20):
        for call, x in enumerate(given):
            x.fill_(1000 * turn + 10 * call + ditron.rank())
        torch.cuda.synchronize()
        for call, x in enumerate(given):
            with torch.cuda.stream(both[call % 2]):
                through(x, outs[call])
                if call == turn % 4:
                    torch.cuda._sleep(1_000_000 * (1 + ditron.rank()))
                push(x)
        torch.cuda.synchronize()
        for call, (x, out) in enumerate(zip(given, outs, strict=True)):
            expect(bool((out == 1000 * turn + 10 * call + ditron.rank()).all()), f"through: turn {turn}, call {call}")
            expect(bool((x == 1000 * turn + 10 * call + left).all()), f"push: turn {turn}, call {call}")
        ditron.barrier()


def error() -> None:
    """Rank 1 raises; rank 0, which allocates, is told at once."""
    if ditron.rank() == 1:
        time.sleep(1)
        raise RuntimeError("the user's error")
    start = time.perf_counter()
    try:
        ditron.symm_empty(GIB, dtype=torch.int32)
        expect(False, "an allocation without rank 1")
    except ditron.DitronError as failure:
        expect("rank 1 has ended" in str(failure), str(failure))
        expect(time.perf_counter() - start < 30, "it took too long")
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            ditron.finalize()
        expect(any("rank 1 has ended" in str(item.message) for item in caught), "finalize warns")


@ditron.jit
def wait_kernel(signal_ptr):
    dl.wait(signal_ptr, 1, 1)


def stuck() -> None:
    """Rank 1 raises while rank 0's GPU waits for a signal of it: rank 0 is told, and its process ends."""
    signals = ditron.symm_zeros(1, dtype=torch.int64, name="signals")
    if ditron.rank() == 1:
        time.sleep(1)
        raise RuntimeError("the user's error")
    wait_kernel[(1,)](signals)
    start = time.perf_counter()
    try:
        ditron.synchronize()
        expect(False, "a signal that nobody sent")
    except ditron.DitronError as failure:
        expect("rank 1 ended" in str(failure), str(failure))
        expect(time.perf_counter() - start < 30, "it took too long")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ditron.finalize()


def unfinished() -> None:
    """The process ends with tensors and groups alive, and no finalize."""
    globals()["kept"] = ditron.symm_zeros(MIB, dtype=torch.int32), ditron.new_group([0, 1])
    ditron.barrier()


def finalized() -> None:
    """Everything is given back by finalize, in whatever order things die."""
    free = free_bytes()
    tensor, group = ditron.symm_zeros(GIB, dtype=torch.int32), ditron.new_group([0, 1])
    ditron.symm_zeros(GIB // 4, dtype=torch.int32, group=group)
    ditron.finalize()
    lost = free - free_bytes()
    expect(lost <= 300 * MIB, f"{lost >> 20} MiB are lost")
    del tensor, group
    ditron.finalize()


# Case -> exit codes that are right, by rank (None: any).
CASES: dict[Callable[[], None], tuple[int | None, int | None]] = {
    case: (0, 0) for case in (grow, programs, groups, memory, cached, sanitized, streams, unfinished, finalized)
}
CASES |= {error: (0, 1), stuck: (0, 1)}


def rank_main(name: str) -> None:
    faulthandler.dump_traceback_later(LIMIT - 15, exit=True)
    os.environ.setdefault("DITRON_PROTOCOL", "off")
    warnings.filterwarnings("error", message="symmetric memory does not grow")
    case = {case.__name__: case for case in CASES}[name]
    ditron.init(transport="p2p", sanitize=name == "sanitized")
    case()
    if ditron.is_initialized() and case is not unfinished:
        ditron.finalize()
    print(f"rank {os.environ['RANK']}: {name} is right", flush=True)


def run(name: str) -> tuple[list[int | None], str, float]:
    """Exit code (None: ended at the limit) of each rank, their output, and seconds."""
    start = time.perf_counter()
    port = 20000 + os.getpid() % 20000 + list(CASES).index({c.__name__: c for c in CASES}[name])
    with tempfile.TemporaryFile("w+") as log:
        # Not by torchrun, which ends the other ranks when one fails: how they end by themselves is what is checked.
        ranks = [
            subprocess.Popen(
                [sys.executable, __file__, name],
                env=os.environ
                | {
                    "DITRON_HEAP": "vmm",
                    "NCCL_NVLS_ENABLE": "0",  # NVLink multicast is never enabled
                    "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1",
                    "TORCHELASTIC_RUN_ID": "check_heap",
                    "MASTER_ADDR": "127.0.0.1",
                    "MASTER_PORT": str(port),
                    "RANK": str(rank),
                    "LOCAL_RANK": str(rank),
                    "WORLD_SIZE": str(RANKS),
                    "LOCAL_WORLD_SIZE": str(RANKS),
                },
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            for rank in range(RANKS)
        ]
        codes: list[int | None] = []
        for process in ranks:
            try:
                codes.append(process.wait(max(LIMIT - (time.perf_counter() - start), 1)))
            except subprocess.TimeoutExpired:
                codes.append(None)
        for process in ranks:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        log.seek(0)
        return codes, log.read(), time.perf_counter() - start


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("case", nargs="?", help="be one rank of this case")
    parser.add_argument("--table", type=Path, help="append the table to this file")
    parser.add_argument("--only", default="", help="cases whose name contains this word")
    args = parser.parse_args()
    if args.case:
        rank_main(args.case)
        return 0
    rows, failed = ["| case | exit codes | s | |", "|---|---|---|---|"], 0
    for case, expected in CASES.items():
        if args.only not in case.__name__:
            continue
        codes, output, seconds = run(case.__name__)
        good = codes == list(expected)
        failed += not good
        rows.append(f"| {case.__name__} | {codes} | {seconds:.1f} | {'right' if good else 'FAILED'} |")
        print(rows[-1], flush=True)
        print(output if good and len(output) < 4000 else output[-6000:], flush=True)
    if args.table:
        with args.table.open("a") as file:
            file.write(
                f"\nSymmetric memory that grows: {RANKS} x {torch.cuda.get_device_name()}, torch {torch.__version__}, "
                f"{datetime.date.today()}\n\n" + "\n".join(rows) + "\n"
            )
    print(f"{len(rows) - 2 - failed} of {len(rows) - 2} cases are right")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
