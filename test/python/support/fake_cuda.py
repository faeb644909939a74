"""CUDA's driver as the executor of programs calls it, carried out at once on memory of the host; and a group on it."""

import ctypes
from types import SimpleNamespace

import pytest
import torch
import triton.language as tl
from fake_gpu import fake_gpu

import ditron
import ditron.host as dh
import ditron.language as dl
from ditron._program.execute import actions, cuda
from ditron._program.execute import driver as cuda_driver
from ditron._program.execute.residency import SmLimits
from ditron.distributed.gpu_group import GpuGroup
from ditron.distributed.group import Group

RANKS = 3


class FakeLibrary:
    """``libcuda``, which keeps a log of (call, arguments) and obeys at once."""

    def __init__(self):
        self.log: list[tuple] = []
        self.attributes: list[tuple] = []  # (function, attribute, value)
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
        elif name == "cuFuncSetAttribute":
            self.library.attributes.append(args)
        return 0


class FakeHeap:
    """Symmetric memory of ``RANKS`` ranks, all of them here."""

    def __init__(self, nbytes: int = 1 << 21):
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


@ditron.program
def by_parity(x, out):
    boxes = dh.symm_empty(2, *x.shape, dtype=x.dtype, name="boxes")
    dh.rank_copy(x, boxes[dh.epoch() % 2], 0)
    dh.copy(boxes[dh.epoch() % 2], out)


def gpu_group(ranks: int, has_nvlink: bool = True) -> SimpleNamespace:
    """What schedules ask of a group of GPUs."""
    return SimpleNamespace(
        num_ranks=ranks, has_nvlink=has_nvlink, small_shapes=False, is_sim=False, sms=132, rank=0, has_tma=True
    )
