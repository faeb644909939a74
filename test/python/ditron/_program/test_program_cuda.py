"""Programs on GPUs, as far as there is none: what the executor asks of the driver, carried out on memory of the host.

The library that stands in for CUDA's does what it is told at once, so a program of one rank, or of a rank whose peers
are only memory, has its copies and signals done; kernels are compiled for real and do nothing.
"""

import ctypes
import gc
import weakref
from types import SimpleNamespace

import pytest
import torch
import triton.language as tl
from fake_gpu import fake_gpu

import ditron
import ditron.host as dh
import ditron.language as dl
from ditron import DitronError
from ditron._program.execute import actions, cuda, epochs
from ditron._program.execute import driver as cuda_driver
from ditron._program.execute.residency import SmLimits
from ditron.distributed.gpu_group import GpuGroup
from ditron.distributed.group import Group
from ditron.distributed.packets import PacketMemory
from ditron_compiler.analysis.linear import Polynomial

RANKS = 3


class FakeLibrary:
    """``libcuda``, which keeps a log of (call, arguments) and obeys at once."""

    def __init__(self):
        self.log: list[tuple] = []
        self.events = 0
        self.capture = 0  # number of the one under way
        self.batches = True  # whether the driver has memory operations
        self.in_capture = lambda stream: True  # which streams are in it

    def __getattr__(self, name: str):
        if not name.startswith("cu"):
            raise AttributeError(name)
        function = _Call(self, name)
        setattr(self, name, function)
        return function


class _Call:
    def __init__(self, library: FakeLibrary, name: str):
        self.library, self.name = library, name

    def __call__(self, *args):
        log = self.library.log
        name = self.name.removesuffix("_v2").removesuffix("Async")
        if name == "cuEventCreate":
            self.library.events += 1
            args[0]._obj.value = self.library.events
        elif name == "cuMemcpyDtoD":
            dst, src, nbytes, stream = args
            ctypes.memmove(dst, src, nbytes)
            log.append(("copy", dst, src, nbytes, stream))
        elif name == "cuMemcpy2D":
            what, stream = args[0]._obj, args[1]
            for row in range(what.Height):
                ctypes.memmove(
                    what.dstDevice + row * what.dstPitch, what.srcDevice + row * what.srcPitch, what.WidthInBytes
                )
            log.append(("rows", what.dstDevice, what.srcDevice, what.WidthInBytes, what.Height, stream))
        elif name.startswith("cuMemsetD2D"):
            dst, pitch, value, width, height, stream = args
            size = int(name[11:]) // 8
            for row in range(height):
                ctypes.memmove(dst + row * pitch, value.to_bytes(size, "little") * width, size * width)
            log.append(("fill", dst, width * height, stream))
        elif name.startswith("cuMemsetD"):
            dst, value, count, stream = args
            size = int(name[9:]) // 8
            ctypes.memmove(dst, value.to_bytes(size, "little") * count, size * count)
            log.append(("fill", dst, count, stream))
        elif name == "cuStreamWriteValue64":
            stream, address, value, _ = args
            ctypes.memmove(address, value.to_bytes(8, "little"), 8)
            log.append(("write", address, value, stream))
        elif name == "cuStreamBatchMemOp":
            stream, count, operations, _ = args
            if not self.library.batches:
                return 801  # CUDA_ERROR_NOT_SUPPORTED
            for operation in operations[:count]:
                kind, address, value = operation.operation, operation.address, operation.value
                if kind == 5:
                    ctypes.memmove(address, value.to_bytes(8, "little"), 8)
                log.append(("batch", {4: "wait", 5: "write"}[kind], address, value, stream))
        elif name == "cuStreamWaitValue64":
            log.append(("wait", *args[1:], args[0]))
        elif name == "cuStreamGetCaptureInfo":
            args[1]._obj.value = 1
            args[2]._obj.value = self.library.capture if self.library.in_capture(args[0]) else 0
        elif name in ("cuEventRecord", "cuStreamWaitEvent"):
            log.append((name, args[0], args[1]))
        return 0


class FakeHeap:
    """Symmetric memory of ``RANKS`` ranks, all of them here."""

    def __init__(self, nbytes: int = 1 << 20):
        self.buffers = [torch.zeros(nbytes, dtype=torch.uint8) for _ in range(RANKS)]
        self.buffer = self.buffers[0]
        self.base = self.buffer.data_ptr()
        self.peer_bases = [buffer.data_ptr() for buffer in self.buffers]
        self.used = 0


class FakeGroup(GpuGroup):
    """Rank 0 of ``RANKS``."""

    def __init__(self):
        Group.__init__(self, range(RANKS), 0, "p2p", torch.device("cpu"), RANKS)
        self.context = torch.zeros(32, dtype=torch.int64)
        self.heap = FakeHeap()
        self.tensors: dict[str, torch.Tensor] = {}
        self.loaded: list = []
        self.monitor = SimpleNamespace(reported=False)

    def allocate(self, shape, dtype, name):
        count = 1
        for extent in shape:
            count *= extent
        start = self.heap.used
        self.heap.used += -(-count * dtype.itemsize // 256) * 256
        self.tensors[name] = self.heap.buffer[start : start + count * dtype.itemsize].view(dtype).view(shape)
        return self.tensors[name]

    def at(self, name: str, rank: int) -> torch.Tensor:
        """A tensor's instance on a rank."""
        mine = self.tensors[name]
        start = mine.data_ptr() - self.heap.base
        return self.heap.buffers[rank][start : start + mine.nbytes].view(mine.dtype).view(mine.shape)

    def barrier(self):
        pass

    def on_module_loaded(self, kernel):
        self.loaded.append(kernel)


H200 = SmLimits(132, 65536, 233472)


@pytest.fixture
def machine(monkeypatch):
    """A GPU that is not there: ``library``, ``group``, Triton's driver as ``triton``, and switches."""
    library, group = FakeLibrary(), FakeGroup()
    state = SimpleNamespace(library=library, group=group, capturing=False, stream=0)
    fake = cuda_driver.Driver(library)
    monkeypatch.setattr(cuda, "driver", lambda: fake)
    monkeypatch.setattr(actions, "sm_limits", lambda device: H200)
    monkeypatch.setattr(cuda, "_current_stream", lambda device: state.stream)
    monkeypatch.setattr(cuda, "_is_capturing", lambda: state.capturing)
    monkeypatch.setattr(cuda, "_side_stream", lambda device, group, name, index: 1000 + sum(map(ord, name)) + index)
    monkeypatch.setattr("ditron.distributed.state._process_world", group)
    with fake_gpu() as triton_driver:
        state.triton = triton_driver
        yield state
        for kernel in group.loaded:
            kernel.module = None


@ditron.jit(do_not_specialize=["epoch"])
def use(x_ptr, signal_ptr, out_ptr, n, epoch, scale, BLOCK: tl.constexpr):
    token = dl.wait(signal_ptr, 1, epoch)
    offsets = tl.arange(0, BLOCK)
    x = tl.load(dl.consume_token(x_ptr, token) + offsets, mask=offsets < n)
    tl.store(out_ptr + offsets, x * scale, mask=offsets < n)


@ditron.program
def send(x, out):
    """Push rows to every rank, wait for those of all, use them."""
    rank, ranks, epoch = dh.rank(), dh.num_ranks(), dh.epoch()
    rows, cols = x.shape
    boxes = dh.symm_empty(ranks, rows, cols, dtype=x.dtype, name="boxes")
    full = dh.symm_zeros(ranks, dtype=torch.int64, name="full")
    done = dh.symm_zeros(ranks, dtype=torch.int64, name="done")
    for step in dh.range(1, ranks):
        dh.signal_wait(done[step], epoch - 1)
    with dh.stream("copy"):
        for peer in dh.range(ranks):
            dh.rank_copy(x, boxes[rank], peer)
            dh.signal_write(full[rank], epoch, peer)
    use[(1,)](boxes, full, out, rows * cols, epoch, 2.0, BLOCK=64, num_warps=2)
    for step in dh.range(1, ranks):
        dh.signal_write(done[rank], epoch, step)


def test_copies_and_signals_arrive(machine):
    for call in range(1, 4):
        x = torch.randn(4, 8)
        send(x, torch.empty(4, 8))
        for rank in range(RANKS):
            assert torch.equal(machine.group.at("send.boxes", rank)[0], x)
            assert machine.group.at("send.full", rank).tolist() == [call, 0, 0]
            assert machine.group.at("send.done", rank).tolist() == [call if rank else 0, 0, 0]
    waits = [entry[2] for entry in machine.library.log if entry[0] == "wait"]
    assert waits == [0, 0, 1, 1, 2, 2]
    boxes, full = machine.group.tensors["send.boxes"].data_ptr(), machine.group.tensors["send.full"].data_ptr()
    [first, *_, last] = [arguments for _, _, arguments in machine.triton.launches]
    assert first[:2] == (boxes, full) and first[3:] == (32, 1, 2.0, machine.group.context.data_ptr())
    assert last[4] == 3


@ditron.jit(pipeline="low-latency", do_not_specialize=["epoch"])
def shift(x_ptr, box_ptr, signal_ptr, epoch):
    dl.putmem_signal(box_ptr, x_ptr, 64, signal_ptr, epoch, (dl.rank() + 1) % dl.num_ranks())
    dl.wait(signal_ptr, 1, epoch)


@ditron.program
def send_packets(x, signals):
    boxes = dh.symm_empty(64, dtype=x.dtype, name="boxes")
    shift[(1,)](x, boxes, signals, dh.epoch())


def test_packets_need_memory_for_packets(machine):
    x, signals = torch.zeros(16), torch.zeros(32, dtype=torch.int64)
    with pytest.raises(ditron.DitronError, match="kernel 'shift': argument 'signal_ptr' was not allocated by"):
        send_packets(x, signals)
    assert not machine.triton.launches
    machine.group.packets[signals.data_ptr()] = PacketMemory(signals.nbytes, 256)
    send_packets(x, signals)
    assert len(machine.triton.launches) == 1


def test_work_is_on_its_stream_between_fork_and_join(machine):
    send(torch.randn(4, 8), torch.empty(4, 8))
    main, copy = 0, 1000 + sum(map(ord, "copy"))
    machine.library.log.clear()
    send(torch.randn(4, 8), torch.empty(4, 8))
    log = machine.library.log
    assert {entry[-1] for entry in log if entry[0] == "copy"} == {copy}
    assert {entry[-1] for entry in log if entry[0] == "wait"} == {main}
    fork, join = (
        next(i for i, entry in enumerate(log) if entry[0] == "cuStreamWaitEvent" and entry[1] == stream)
        for stream in (copy, main)
    )
    pushes = [i for i, entry in enumerate(log) if entry[0] == "copy"]
    assert fork < pushes[0] and pushes[-1] < join


def test_plans_are_made_once(machine, monkeypatch):
    made = []
    plan = cuda.CudaRunner._plan
    monkeypatch.setattr(cuda.CudaRunner, "_plan", lambda *args: made.append(args[-1]) or plan(*args))
    for rows in (4, 4, 4, 8, 4, 8):
        send(torch.randn(rows, 8), torch.empty(rows, 8))
    assert len(made) == 2
    machine.stream = 7  # another current stream
    send(torch.randn(4, 8), torch.empty(4, 8))
    assert len(made) == 3


def test_kernels_are_loaded_before_anything_waits(machine):
    """The first use of code may wait for kernels that wait for this rank."""
    send(torch.randn(4, 8), torch.empty(4, 8))
    assert machine.triton.loaded == ["use"] and machine.group.loaded
    assert machine.library.log[0][0] != "wait" or machine.triton.loaded


def test_captured(machine):
    x, out = torch.randn(4, 8), torch.empty(4, 8)
    send(x, out)
    send(x, out)
    machine.library.log.clear()
    machine.triton.launches.clear()
    machine.capturing, machine.stream = True, 5
    send(x, out)
    launches = [(source.name, arguments) for source, _, arguments in machine.triton.launches]
    assert [name for name, _ in launches] == ["send_advance", "send_wait_loaded", "send_wait_loaded", "use"]
    count, cells, before = launches[0][1][:3]
    assert before == 2 and cells > count + 8  # this call's own
    assert launches[3][1][4] in (cells, cells + 8)  # the epoch, by its address
    assert "wait" not in {entry[0] for entry in machine.library.log}
    signals = [entry for entry in machine.library.log if entry[0] == "copy" and entry[3] == 8]
    assert len(signals) == RANKS + RANKS - 1 and {entry[2] for entry in signals} == {launches[3][1][4]}
    machine.capturing = False
    machine.triton.launches.clear()
    send(x, out)  # replays count on the device, and so do calls from now on
    assert machine.triton.launches[0][0].name == "send_advance"


def test_captured_calls_are_counted_ahead(machine):
    """On a stream of its own, into values of each call's own, so that a kernel follows the call before it at once."""
    x, out, library = torch.randn(4, 8), torch.empty(4, 8), machine.library
    send(x, out)
    machine.capturing, machine.stream, library.capture = True, 5, 7
    library.in_capture = lambda stream: stream == 5 or joined
    values = []
    for joined in (False, True):
        library.log.clear()
        machine.triton.launches.clear()
        send(x, out)
        values.append(machine.triton.launches[0][2][1])
        events = [entry for entry in library.log if entry[0] in ("cuEventRecord", "cuStreamWaitEvent")]
        if not joined:  # the stream joins the capture once
            (_, begun, main), (_, side, awaited), *events = events
            assert main == 5 != side and awaited == begun
        assert events[0][0] == "cuEventRecord" and events[0][2] == side
        assert events[1] == ("cuStreamWaitEvent", 5, events[0][1])
    assert values[0] != values[1]


def order_of(log: list[tuple], call) -> list[tuple]:
    """What the call logs, but for the program's own streams: where it begins, and where it ends."""
    start = len(log)
    call()
    return [log[start], log[-1]]


def test_calls_on_several_streams_follow_each_other(machine):
    """A call on another stream begins by waiting for the event that the one before it ended with."""
    x, out, log = torch.randn(4, 8), torch.empty(4, 8), machine.library.log
    begins, ends = [], []
    for machine.stream in (5, 5, 6, 6, 5):
        first, last = order_of(log, lambda: send(x, out))
        begins.append(first if first[0] == "cuStreamWaitEvent" and first[1] == machine.stream else None)
        ends.append(last)
    event = ends[0][1]
    assert ends == [("cuEventRecord", event, stream) for stream in (5, 5, 6, 6, 5)]
    assert begins == [None, None, ("cuStreamWaitEvent", 6, event), None, ("cuStreamWaitEvent", 5, event)]


def test_programs_on_several_streams_do_not_wait_for_each_other(machine):
    x, out, log = torch.randn(4, 8), torch.empty(4, 8), machine.library.log
    send(x, out)
    machine.stream = 6
    by_parity(x, out)
    start = len(log)
    by_parity(x, out)
    assert log[start][0] != "cuStreamWaitEvent"


def test_a_program_does_not_keep_a_group(machine):
    group = FakeGroup()
    with group:
        send(torch.randn(4, 8), torch.empty(4, 8))
    assert group.tensors
    for kernel in group.loaded:
        kernel.module = None
    dead = weakref.ref(group)
    del group, kernel
    gc.collect()
    assert dead() is None


def test_captured_calls_on_several_streams(machine):
    """The calls of one capture follow each other; what was enqueued outside, or in another capture, is not awaited."""
    x, out, log = torch.randn(4, 8), torch.empty(4, 8), machine.library.log
    send(x, out)
    machine.capturing, begins = True, []
    for machine.library.capture, machine.stream in ((7, 5), (7, 6), (8, 5), (8, 5), (9, 6)):
        first, last = order_of(log, lambda: send(x, out))
        begins.append(first if first[0] == "cuStreamWaitEvent" else None)
        assert last[0] == "cuEventRecord"
    captured = last[1]
    assert begins == [None, ("cuStreamWaitEvent", 6, captured), None, None, None]
    machine.capturing = False
    first, last = order_of(log, lambda: send(x, out))
    assert first == ("cuStreamWaitEvent", 6, last[1]) and last[1] != captured  # the eager call on stream 0


def test_captured_before_it_was_called(machine):
    machine.capturing = True
    with pytest.raises(DitronError, match="call it once on every rank first"):
        send(torch.randn(4, 8), torch.empty(4, 8))


@ditron.program
def by_parity(x, out):
    boxes = dh.symm_empty(2, *x.shape, dtype=x.dtype, name="boxes")
    dh.rank_copy(x, boxes[dh.epoch() % 2], 0)
    dh.copy(boxes[dh.epoch() % 2], out)


def test_parity_is_planned_twice_and_not_captured(machine, monkeypatch):
    made = []
    plan = cuda.CudaRunner._plan
    monkeypatch.setattr(cuda.CudaRunner, "_plan", lambda *args: made.append(args[-1]) or plan(*args))
    for call in range(5):
        x, out = torch.randn(4, 8), torch.zeros(4, 8)
        by_parity(x, out)
        assert torch.equal(out, x)
        assert torch.equal(machine.group.at("by_parity.boxes", 0)[(call + 1) % 2], x)
    assert len(made) == 2
    machine.capturing = True
    with pytest.raises(DitronError, match="cannot be captured in a graph"):
        by_parity(torch.randn(4, 8), torch.zeros(4, 8))


@ditron.program
def irregular(x, out):
    """What depends on the epoch in no simple way is computed anew in each call."""
    part = dh.epoch() * dh.epoch() % 3
    dh.copy(x[part], out)
    with dh.when(dh.epoch() == 2):
        dh.fill(out, 7.0)


def test_irregular_epochs(machine):
    x = torch.arange(12.0).view(3, 4)
    for epoch in range(1, 6):
        out = torch.zeros(4)
        irregular(x, out)
        assert torch.equal(out, torch.full((4,), 7.0) if epoch == 2 else x[epoch * epoch % 3])


@pytest.mark.parametrize(
    "source,target,rows",
    [
        ((slice(None), slice(None)), (slice(None), slice(None)), 1),
        ((slice(1, 3), slice(2, 5)), (slice(0, 2), slice(0, 3)), 2),
        ((slice(0, 4), slice(0, 1)), (slice(1, 5), slice(3, 4)), 4),
        ((2, slice(1, 7)), (3, slice(2, 8)), 1),
    ],
)
def test_copies_of_parts(machine, source, target, rows):
    def parts(x, out):
        dh.copy(x[source], out[target])

    x, out = torch.randn(6, 8), torch.zeros(6, 8)
    expected = out.clone()
    expected[target] = x[source]
    ditron.program(parts)(x, out)
    assert torch.equal(out, expected)
    [entry, end] = machine.library.log
    assert end[0] == "cuEventRecord"
    assert entry[0] == ("copy" if rows == 1 else "rows")


@pytest.mark.parametrize(
    "dtype,value",
    [
        (torch.float32, 1.5),
        (torch.bfloat16, -2.0),
        (torch.int64, -3),
        (torch.uint8, 200),
        (torch.float64, 0.1),
        (torch.int64, 1 << 40),
        (torch.bool, 1),
    ],
)
@pytest.mark.parametrize("part", [(slice(None), slice(None)), (slice(1, 4), slice(2, 5))])
def test_fills(machine, dtype, value, part):
    def fills(out):
        dh.fill(out[part], value)

    out = torch.zeros(6, 8).to(dtype)
    expected = out.clone()
    expected[part] = value
    ditron.program(fills)(out)
    assert torch.equal(out, expected)


def test_what_the_driver_refuses_is_told(machine):
    machine.library.cuMemcpyDtoDAsync_v2 = lambda *args: 700
    machine.library.cuGetErrorName = lambda code, name: setattr(name._obj, "value", b"CUDA_ERROR_ILLEGAL_ADDRESS")
    broken = cuda_driver.Driver.__new__(cuda_driver.Driver)
    broken._library, broken._copy = machine.library, machine.library.cuMemcpyDtoDAsync_v2
    with pytest.raises(DitronError, match="copy of 32 bytes: the CUDA driver answers CUDA_ERROR_ILLEGAL_ADDRESS .700"):
        broken.copy(1, 2, 32, 0)


def test_another_devices_tensor(machine):
    with pytest.raises(DitronError, match="argument 'out' is on meta"):
        send(torch.randn(4, 8), torch.empty(4, 8, device="meta"))


class OnAnotherGpu(torch.Tensor):
    device = torch.device("cuda", 3)

    def get_device(self):
        return 3


def test_another_devices_tensor_in_a_later_call(machine):
    x, out = torch.randn(4, 8), torch.empty(4, 8)
    send(x, out)
    with pytest.raises(DitronError, match="argument 'out' is on cuda:3"):
        send(x, out.as_subclass(OnAnotherGpu))


@pytest.mark.parametrize(
    "body,period",
    [
        (lambda x: dh.signal_wait(dh.symm_zeros(3, dtype=torch.int64)[0], dh.epoch() * 3 + 1), 1),
        (lambda x: dh.signal_wait(dh.symm_zeros(2, dtype=torch.int64)[dh.epoch() % 2], 1), 2),
        (lambda x: dh.copy(x[dh.epoch() % 2], x[dh.epoch() % 3]), 6),
        (lambda x: dh.copy(x[dh.epoch()], x[0]), None),
        (lambda x: dh.signal_wait(dh.symm_zeros(2, dtype=torch.int64)[0], dh.epoch() * dh.epoch()), None),
        (lambda x: dh.signal_wait(dh.symm_zeros(2, dtype=torch.int64)[0], dh.epoch() // 2), None),
        (lambda x: dh.copy(x[dh.epoch() % 17], x[0]), None),
        (lambda x: _when(dh.epoch() % 2 == 0, lambda: dh.copy(x[0], x[1])), 2),
        (lambda x: _when(dh.epoch() > 3, lambda: dh.copy(x[0], x[1])), None),
        (lambda x: _loop(dh.epoch() % 4, lambda i: dh.copy(x[i], x[0])), 4),
        (lambda x: _loop(dh.epoch(), lambda i: dh.copy(x[0], x[1])), None),
    ],
)
def test_period(body, period):
    def periodic(x):
        body(x)

    module = ditron.program(periodic).module("f32[32, 8]")
    [op] = [op.operation for op in module.body.operations if op.operation.name == "ditron.program"]
    assert epochs.period_of(op) == period


def _when(condition, body):
    with dh.when(condition):
        body()


def _loop(bound, body):
    for i in dh.range(bound):
        body(i)


def test_linear_numbers():
    value = Polynomial.through(epochs.EPOCH, (3, 7), (5, 11))
    assert (value.coefficient(epochs.EPOCH), value.constant_term) == (2, 1)
    with pytest.raises(ValueError, match="no linear form with integer coefficients"):
        Polynomial.through(epochs.EPOCH, (3, 7), (5, 10))


@ditron.program
def unusual(x):
    """What the driver has no call for becomes a kernel of one program."""
    signals = dh.symm_zeros(4, dtype=torch.int64, name="signals")
    dh.signal_wait(signals[0], dh.epoch(), cmp="ne")  # a kernel waits here
    dh.signal_wait(signals[1], dh.epoch() - 1, cmp="ge")
    dh.signal_write(signals[2], 5, 1, op="add")
    dh.signal_write(signals[3], 7, 1)
    dh.barrier()


def launched(machine) -> list[tuple]:
    return [(source.name, arguments) for source, _, arguments in machine.triton.launches]


def test_kernels_for_what_the_driver_has_not(machine):
    unusual(torch.zeros(4))
    signals = machine.group.tensors["unusual.signals"].data_ptr()
    context = machine.group.context.data_ptr()
    assert launched(machine) == [
        ("unusual_wait_value", (signals, 1, context)),
        ("unusual_add_value", (signals + 16, 5, 1, context)),
        ("unusual_barrier", (context,)),
    ]
    assert ("wait", signals + 8, 0, 0, 0) in machine.library.log
    assert machine.group.at("unusual.signals", 1)[3] == 7
    machine.capturing = True
    machine.triton.launches.clear()
    unusual(torch.zeros(4))
    names = [name for name, _ in launched(machine)]
    assert names == [
        "unusual_advance",
        "unusual_wait_loaded",
        "unusual_wait_loaded",
        "unusual_add_loaded",
        "unusual_barrier",
    ]


def test_sanitizer_waits_are_kernels_at_the_programs_line(machine):
    machine.group.sanitize = 1
    unusual(torch.zeros(4))
    assert [name for name, _ in launched(machine)].count("unusual_wait_value") == 2
    assert not any(entry[0] == "wait" for entry in machine.library.log)
    lines = open(__file__).read().splitlines()
    line = next(i for i, text in enumerate(lines, 1) if text.endswith("# a kernel waits here"))
    [first, *_] = [kernel for kernel in machine.group.loaded if kernel.name == "unusual_wait_value"]
    assert f'test_program_cuda.py":{line}:' in first.asm["ttir"]


def test_simulated_ranks_beside_a_gpu_group(machine, monkeypatch):
    """The checker records a program on simulated ranks, in threads of a process that has a GPU group."""
    monkeypatch.undo()
    monkeypatch.setattr("ditron.distributed.state._process_world", machine.group)
    assert ditron.current_group() is machine.group
    seen = []

    def main():
        ditron.init()
        x, out = torch.randn(4, 8), torch.zeros(4, 8)
        pushed(x, out)
        seen.append((ditron.current_group().is_sim, torch.equal(x, out)))

    ditron.sim.run(main, ranks=2)
    assert seen == [(True, True)] * 2
    report = ditron.protocol.api.check_program(pushed)
    assert len(report.checked) > 1 and not report.findings
    assert ditron.current_group() is machine.group


@ditron.program(sample_args=lambda ranks: {"x": "f32[4, 8]", "out": "f32[4, 8]"})
def pushed(x, out):
    box = dh.symm_empty(*x.shape, dtype=x.dtype, name="box")
    dh.copy(x, box)
    dh.copy(box, out)
