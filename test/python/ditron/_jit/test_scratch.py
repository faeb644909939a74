"""Kernels that make tensor descriptors: the memory that Triton's launcher asks for."""

import contextvars
from types import SimpleNamespace

import pytest
import torch
import triton
import triton.language as tl
from fake_gpu import FakeGroup, fake_gpu
from triton.runtime import _allocation

import ditron
from ditron._jit import scratch


@ditron.jit
def double(x_ptr, m, n, BM: tl.constexpr, BN: tl.constexpr):
    x = tl.make_tensor_descriptor(x_ptr, [m, n], [n, 1], [BM, BN])
    i, j = tl.program_id(0) * BM, tl.program_id(1) * BN
    x.store([i, j], 2 * x.load([i, j]))


@pytest.fixture
def gpu():
    """A GPU that is not there, whose launcher asks for memory as Triton's does; no allocator is set."""
    assert isinstance(_allocation._allocator.get(), _allocation.NullAllocator)
    with fake_gpu() as driver:
        yield SimpleNamespace(group=FakeGroup(), driver=driver)


def launch_plainly(gpu):
    double[(3, 2)](torch.zeros(48, 32), 48, 32, BM=16, BN=16, group=gpu.group)


def test_memory_is_there_without_an_allocator(gpu):
    launch_plainly(gpu)
    [memory] = gpu.driver.scratch
    assert memory.dtype == torch.int8 and memory.numel() >= 6 * 128  # a descriptor for each program
    assert isinstance(_allocation._allocator.get(), _allocation.NullAllocator)  # launches of plain Triton have none


def test_the_users_allocator_is_asked(gpu):
    asked = []

    def allocate(size, alignment, stream):
        asked.append(size)
        return torch.empty(size, dtype=torch.uint8)

    def with_allocator():
        triton.set_allocator(allocate)
        launch_plainly(gpu)
        assert _allocation._allocator.get() is allocate

    contextvars.copy_context().run(with_allocator)
    assert len(asked) == 1 and gpu.driver.scratch[0].dtype == torch.uint8
    launch_plainly(gpu)
    assert len(asked) == 1 and gpu.driver.scratch[1].dtype == torch.int8


def test_a_launch_that_fails_leaves_no_allocator(gpu):
    def fail(*args):
        raise RuntimeError("no launch")

    with pytest.raises(RuntimeError, match="no launch"):
        scratch.with_scratch(fail, lambda: gpu.group)(1, 1, 1, 0)
    assert isinstance(_allocation._allocator.get(), _allocation.NullAllocator)


def test_memory_is_of_the_launchs_stream(monkeypatch):
    """The block goes back to that stream's pool, which does not give it to another one before the kernel is done."""
    current = [7]
    device = torch.device("cuda", 0)

    class Stream:
        def __init__(self, number):
            self.number = number

        def __enter__(self):
            current.append(self.number)

        def __exit__(self, *_):
            current.pop()

    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda index: current[-1], raising=False)
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: stream)
    monkeypatch.setattr(torch.cuda, "ExternalStream", lambda handle, device: Stream(handle))
    monkeypatch.setattr(torch.cuda, "default_stream", lambda device: Stream(0))
    monkeypatch.setattr(torch, "empty", lambda size, dtype, device: (size, current[-1]))
    scratch._torch_stream.cache_clear()
    given = [scratch._allocate(device, 128, stream) for stream in (7, 9, 0, None)]
    scratch._torch_stream.cache_clear()
    assert given == [(128, 7), (128, 9), (128, 0), (128, 0)] and current == [7]
