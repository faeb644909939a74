"""The calls of CUDA's virtual memory management, on a library that stands in for the driver."""

import ctypes
import os

import pytest
from fake_vmm import GRANULARITY, FakeCuda, FakeMemory, host_tensor

from ditron.distributed import virtual_memory
from ditron.distributed.virtual_memory import OUT_OF_MEMORY, CudaError


def test_structures_are_those_of_cuda_h():
    prop, access = virtual_memory._AllocationProp, virtual_memory._AccessDesc
    assert (ctypes.sizeof(prop), ctypes.sizeof(access)) == (32, 12)
    offsets = [prop.location.offset, prop.win32HandleMetaData.offset, prop.allocFlags.offset, access.flags.offset]
    assert offsets == [8, 16, 24, 8]


def test_what_is_missing():
    cuda = FakeCuda()
    memory = FakeMemory(cuda)
    assert memory.missing == ""
    cuda.attributes[103] = 0
    assert memory.missing == "the GPU or its driver has no memory handles that are file descriptors"


def test_memory_is_shared_by_a_descriptor():
    """Two address ranges, one physical memory; it is used until the last of handle and mappings is gone."""
    cuda = FakeCuda()
    memory = FakeMemory(cuda)
    first, second = memory.reserve(1 << 20), memory.reserve(1 << 20)
    handle = memory.create(2 * GRANULARITY)
    descriptor = memory.export(handle)
    imported = memory.import_(descriptor)
    os.close(descriptor)
    memory.map(first, 2 * GRANULARITY, handle)
    memory.map(second + GRANULARITY, 2 * GRANULARITY, imported)
    for each in (handle, imported):
        memory.release(each)
    host_tensor(first, 2 * GRANULARITY).fill_(7)
    assert host_tensor(second + GRANULARITY, 2 * GRANULARITY).unique().tolist() == [7]
    assert memory.info() == (cuda.total - 2 * GRANULARITY, cuda.total)
    memory.unmap(first, 2 * GRANULARITY)
    memory.unmap(second + GRANULARITY, 2 * GRANULARITY)
    assert cuda.used == 0
    memory.unreserve(first, 1 << 20)
    memory.unreserve(second, 1 << 20)
    assert not cuda.reserved


def test_errors_have_the_drivers_name():
    cuda = FakeCuda(total=GRANULARITY)
    memory = FakeMemory(cuda)
    with pytest.raises(CudaError, match=r"cuMemCreate: CUDA_ERROR_OUT_OF_MEMORY \(2\)") as caught:
        memory.create(2 * GRANULARITY)
    assert caught.value.code == OUT_OF_MEMORY


def test_memory_without_access_is_not_left_mapped():
    cuda = FakeCuda()
    memory = FakeMemory(cuda)
    address, handle = memory.reserve(1 << 20), memory.create(GRANULARITY)
    cuda.fail = {"cuMemSetAccess": 1}
    with pytest.raises(CudaError, match="cuMemSetAccess"):
        memory.map(address, GRANULARITY, handle)
    assert not cuda.mapped
