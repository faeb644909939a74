"""CUDA's virtual memory management on memory of the host: physical memory is a memfd, an address range is mmap's.

So ranks reach each other's memory as GPUs do, in threads of one process and in processes, without a GPU.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from typing import Any

import torch

from ditron.distributed.virtual_memory import VirtualMemory

GRANULARITY = 64 << 10
OUT_OF_MEMORY, INVALID_VALUE = 2, 1

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long)
_libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
_MAP_FIXED, _MAP_NORESERVE, _PROT_NONE = 0x10, 0x4000, 0


def _mmap(address: int | None, nbytes: int, protection: int, flags: int, descriptor: int = -1) -> int:
    found = _libc.mmap(address, nbytes, protection, flags, descriptor, 0)
    assert found != ctypes.c_void_p(-1).value, os.strerror(ctypes.get_errno())
    return found


class FakeCuda:
    """``libcuda`` of one rank, with ``total`` bytes of GPU memory; refuses what the driver refuses.

    ``fail`` maps a call to the error that it answers from now on, ``calls`` counts. ``attributes`` are the device's.
    """

    def __init__(self, total: int = 64 << 20):
        self.total, self.used = total, 0
        self.fail: dict[str, int] = {}
        self.calls: dict[str, int] = {}
        self.attributes = {102: 1, 103: 1}
        self.reserved: dict[int, int] = {}
        self.mapped: dict[int, int] = {}  # bytes by address
        self.accessible: set[int] = set()
        self.handles: dict[int, tuple[int, int]] = {}  # memfd and bytes, by handle; 0 bytes of this GPU where imported
        self._own: dict[
            int, int
        ] = {}  # bytes of this GPU by inode: they are used while a handle or a mapping holds them
        self._holds: dict[int, int] = {}  # how many do, by inode
        self._inode: dict[int, int] = {}  # by address

    def cuGetErrorName(self, code: int, name: Any) -> int:
        name._obj.value = {2: b"CUDA_ERROR_OUT_OF_MEMORY", 1: b"CUDA_ERROR_INVALID_VALUE"}.get(code, b"CUDA_ERROR")
        return 0

    def cuDeviceGet(self, device: Any, ordinal: int) -> int:
        device._obj.value = ordinal
        return 0

    def cuDeviceGetAttribute(self, value: Any, attribute: int, device: int) -> int:
        value._obj.value = self.attributes[attribute]
        return 0

    def cuCtxSynchronize(self) -> int:
        return 0

    def cuMemGetInfo_v2(self, free: Any, total: Any) -> int:
        free._obj.value, total._obj.value = self.total - self.used, self.total
        return 0

    def cuMemGetAllocationGranularity(self, nbytes: Any, prop: Any, option: int) -> int:
        nbytes._obj.value = GRANULARITY
        return 0

    def cuMemAddressReserve(self, address: Any, nbytes: int, alignment: int, hint: int, flags: int) -> int:
        found = _mmap(None, nbytes, _PROT_NONE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE)
        self.reserved[found] = nbytes
        address._obj.value = found
        return 0

    def cuMemAddressFree(self, address: int, nbytes: int) -> int:
        if self.reserved.get(address) != nbytes or any(address <= at < address + nbytes for at in self.mapped):
            return INVALID_VALUE
        del self.reserved[address]
        return _libc.munmap(address, nbytes)

    def cuMemCreate(self, handle: Any, nbytes: int, prop: Any, flags: int) -> int:
        given = prop._obj
        assert (given.type, given.requestedHandleTypes, given.location.type, flags) == (1, 1, 1, 0)
        assert nbytes % GRANULARITY == 0
        if self.used + nbytes > self.total:
            return OUT_OF_MEMORY
        memory = os.memfd_create("gpu")
        os.ftruncate(memory, nbytes)
        self._own[os.fstat(memory).st_ino] = nbytes
        self.used += nbytes
        handle._obj.value = self._new_handle(memory)
        return 0

    def _new_handle(self, memory: int) -> int:
        number = max(self.handles, default=1000) + 1
        inode = os.fstat(memory).st_ino
        self.handles[number] = memory, inode
        self._hold(inode)
        return number

    def _hold(self, inode: int) -> None:
        self._holds[inode] = self._holds.get(inode, 0) + 1

    def _let_go(self, inode: int) -> None:
        self._holds[inode] -= 1
        if not self._holds[inode]:
            self.used -= self._own.pop(inode, 0)

    def cuMemRelease(self, handle: int) -> int:
        memory, inode = self.handles.pop(handle)
        os.close(memory)
        self._let_go(inode)
        return 0

    def cuMemExportToShareableHandle(self, descriptor: Any, handle: int, kind: int, flags: int) -> int:
        assert kind == 1
        descriptor._obj.value = os.dup(self.handles[handle][0])
        return 0

    def cuMemImportFromShareableHandle(self, handle: Any, descriptor: Any, kind: int) -> int:
        assert kind == 1
        handle._obj.value = self._new_handle(os.dup(descriptor.value))
        return 0

    def cuMemMap(self, address: int, nbytes: int, offset: int, handle: int, flags: int) -> int:
        inside = any(at <= address and address + nbytes <= at + size for at, size in self.reserved.items())
        clear = all(address + nbytes <= at or at + size <= address for at, size in self.mapped.items())
        memory, inode = self.handles[handle]
        if not inside or not clear or offset or os.fstat(memory).st_size != nbytes:
            return INVALID_VALUE
        _mmap(address, nbytes, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_SHARED | _MAP_FIXED, memory)
        self.mapped[address], self._inode[address] = nbytes, inode
        self._hold(inode)
        return 0

    def cuMemUnmap(self, address: int, nbytes: int) -> int:
        if self.mapped.get(address) != nbytes:
            return INVALID_VALUE
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE | _MAP_FIXED
        _mmap(address, nbytes, _PROT_NONE, flags)
        del self.mapped[address]
        self.accessible.discard(address)
        self._let_go(self._inode.pop(address))
        return 0

    def cuMemSetAccess(self, address: int, nbytes: int, access: Any, count: int) -> int:
        given = access._obj
        assert (given.location.type, given.flags, count) == (1, 3, 1)
        if self.mapped.get(address) != nbytes:
            return INVALID_VALUE
        self.accessible.add(address)
        return 0


class _Call:
    """A function of the library, on which ctypes' attributes can be set."""

    def __init__(self, library: FakeCuda, name: str):
        self.library, self.name = library, name
        self.obey = getattr(type(library), name, None)

    def __call__(self, *arguments: Any) -> int:
        calls = self.library.calls
        calls[self.name] = calls.get(self.name, 0) + 1
        if self.name in self.library.fail:
            return self.library.fail[self.name]
        return self.obey(self.library, *arguments)


class FakeMemory(VirtualMemory):
    """Its calls, carried out by the fake."""

    def __init__(self, library: FakeCuda, device: int = 0):
        super().__init__(device, _Callable(library))

    def tensor(self, address: int, nbytes: int, device: torch.device, owner: Any) -> torch.Tensor:
        return host_tensor(address, nbytes, owner)


class _Callable:
    """The fake's functions as :class:`_Call`."""

    def __init__(self, library: FakeCuda):
        self._library = library

    def __getattr__(self, name: str) -> _Call:
        call = _Call(self._library, name)
        setattr(self, name, call)
        return call


def host_tensor(address: int, nbytes: int, owner: Any = None) -> torch.Tensor:
    """Memory of this process as a uint8 tensor; the owner lives as long as the tensor."""
    array = (ctypes.c_ubyte * nbytes).from_address(address)
    array.owner = owner
    return torch.frombuffer(array, dtype=torch.uint8)
