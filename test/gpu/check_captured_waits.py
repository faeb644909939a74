"""Which memory operations of a stream a CUDA graph can hold on this driver, and whether a wait there needs an SM.

    python test/gpu/check_captured_waits.py

Needs one GPU and half a minute. A graph waits for a signal and clears it; in the second half every SM is held by
programs that spin until the graph has gone on (two seconds at most), so that a wait which were a kernel would fail.
"""

import ctypes
import faulthandler
import time

import torch
import triton
import triton.language as tl

WAIT64, WRITE64 = 4, 5  # CUstreamBatchMemOpType
LIMIT = 60  # seconds
cuda = ctypes.CDLL("libcuda.so.1")


class Operation(ctypes.Structure):
    """CUstreamBatchMemOpParams, for a wait or a write of 64 bits."""

    _fields_ = [
        ("operation", ctypes.c_int),
        ("address", ctypes.c_uint64),
        ("value", ctypes.c_uint64),
        ("flags", ctypes.c_uint),
        ("alias", ctypes.c_uint64),
        ("reserved", ctypes.c_uint64),
    ]


@triton.jit
def spin_kernel(signal_ptr, released_ptr, nanoseconds):
    """Until the signal is 1, or the time is over."""
    released = tl.inline_asm_elementwise(
        """{ .reg .pred set, late; .reg .b64 v, begin, now; mov.u64 begin, %globaltimer;
        again: mov.u64 now, %globaltimer; sub.s64 now, now, begin; setp.gt.s64 late, now, $2;
        ld.acquire.sys.global.b64 v, [$1]; setp.ge.s64 set, v, 1; selp.b32 $0, 1, 0, set;
        @set bra done; @!late bra again; done: }""",
        "=r,l,l",
        [signal_ptr, nanoseconds],
        dtype=tl.int32,
        is_pure=False,
        pack=1,
    )
    tl.store(released_ptr + tl.program_id(0), released)


def stream_operations(*operations: tuple[int, int, int]) -> None:
    """(type, address, value) on the current stream, in one call; a wait is for at least the value."""
    assert ctypes.sizeof(Operation) == 48
    array = (Operation * len(operations))(*(Operation(kind, address, value) for kind, address, value in operations))
    stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
    code = cuda.cuStreamBatchMemOp_v2(stream, len(operations), array, 0)
    assert code == 0, f"cuStreamBatchMemOp: error {code}"


def graph_of(*steps) -> torch.cuda.CUDAGraph:
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="relaxed"):
        for step in steps:
            step()
    return graph


def main() -> None:
    faulthandler.dump_traceback_later(LIMIT, exit=True)
    signals = torch.zeros(64, dtype=torch.int64, device="cuda")
    begun, ended, counter = signals[:1], signals[32:33], signals[48:49]
    side, other = torch.cuda.Stream(), torch.cuda.Stream()
    programs = 64 * torch.cuda.get_device_properties(0).multi_processor_count
    released = torch.zeros(programs, dtype=torch.int32, device="cuda")
    spin_kernel[(1,)](begun, released, 0)
    counter.add_(0)
    torch.cuda.synchronize()

    wait = lambda: stream_operations((WAIT64, begun.data_ptr(), 1), (WRITE64, begun.data_ptr(), 0))  # noqa: E731
    go_on = lambda: stream_operations((WRITE64, ended.data_ptr(), 1))  # noqa: E731

    def begin() -> None:
        with torch.cuda.stream(other):
            stream_operations((WRITE64, begun.data_ptr(), 1))

    graph = graph_of(lambda: counter.add_(1), wait, go_on)
    for turn in range(1, 4):
        ended.zero_()
        torch.cuda.synchronize()
        with torch.cuda.stream(side):
            graph.replay()
        time.sleep(0.05)
        assert not side.query(), "the graph did not wait"
        begin()
        torch.cuda.synchronize()
        assert (begun.item(), ended.item(), counter.item()) == (0, 1, turn)
    print("a captured wait for a fixed value, cleared after it: right in 3 replays", flush=True)

    size = 64 << 20
    source, target = torch.empty(size, dtype=torch.uint8).pin_memory(), torch.empty(size, dtype=torch.uint8).cuda()
    graphs = {
        "wait, write": graph_of(wait, go_on),
        "wait, copy from the host, write": graph_of(wait, lambda: target.copy_(source, non_blocking=True), go_on),
    }
    for name, captured in graphs.items():
        signals.zero_()
        torch.cuda.synchronize()
        spin_kernel[(programs,)](ended, released, 2_000_000_000, num_warps=8)
        with torch.cuda.stream(side):
            captured.replay()
        time.sleep(0.05)
        start = time.perf_counter()
        begin()
        torch.cuda.synchronize()
        assert released.all(), f"{name}: needs an SM"
        print(f"{name}: goes on while every SM is held, {1e3 * (time.perf_counter() - start):.1f} ms", flush=True)

    signals.fill_(1)
    fifty = graph_of(*[lambda: stream_operations((WAIT64, ended.data_ptr(), 1), (WRITE64, begun.data_ptr(), 1))] * 50)
    first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    for _ in range(3):
        first.record()
        fifty.replay()
        last.record()
        torch.cuda.synchronize()
    print(f"one wait and one write: {1e3 * first.elapsed_time(last) / 50:.2f} us", flush=True)


if __name__ == "__main__":
    main()
