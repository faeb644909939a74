"""CUDA's virtual memory management: address ranges, physical memory, and file descriptors that share it.

Through ctypes on ``libcuda`` (:mod:`ditron._cuda`). Physical memory lies on this process's GPU; other processes of the
node import it by a file descriptor. Multicast objects are no part of it.
"""

from __future__ import annotations

import ctypes
from ctypes import POINTER, byref, c_int, c_size_t, c_ubyte, c_uint64, c_ulonglong, c_ushort, c_void_p
from typing import TYPE_CHECKING, Any

from ditron._cuda import declare, error_name, libcuda

if TYPE_CHECKING:
    import torch

__all__ = ["OUT_OF_MEMORY", "CudaError", "VirtualMemory"]

OUT_OF_MEMORY = 2  # CUDA_ERROR_OUT_OF_MEMORY
_PINNED = 1  # CU_MEM_ALLOCATION_TYPE_PINNED
_POSIX_FD = 1  # CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
_DEVICE = 1  # CU_MEM_LOCATION_TYPE_DEVICE
_READ_WRITE = 3  # CU_MEM_ACCESS_FLAGS_PROT_READWRITE
_RECOMMENDED = 1  # CU_MEM_ALLOC_GRANULARITY_RECOMMENDED
# CUdevice_attribute, and what its absence means.
_REQUIRED = {102: "virtual memory management", 103: "memory handles that are file descriptors"}


class _Location(ctypes.Structure):
    _fields_ = [("type", c_int), ("id", c_int)]


class _AllocationFlags(ctypes.Structure):
    _fields_ = [
        ("compressionType", c_ubyte),
        ("gpuDirectRDMACapable", c_ubyte),
        ("usage", c_ushort),
        ("reserved", c_ubyte * 4),
    ]


class _AllocationProp(ctypes.Structure):
    """CUmemAllocationProp."""

    _fields_ = [
        ("type", c_int),
        ("requestedHandleTypes", c_int),
        ("location", _Location),
        ("win32HandleMetaData", c_void_p),
        ("allocFlags", _AllocationFlags),
    ]


class _AccessDesc(ctypes.Structure):
    """CUmemAccessDesc."""

    _fields_ = [("location", _Location), ("flags", c_int)]


_SIGNATURES = {
    "cuDeviceGet": (POINTER(c_int), c_int),
    "cuDeviceGetAttribute": (POINTER(c_int), c_int, c_int),
    "cuCtxSynchronize": (),
    "cuMemGetInfo_v2": (POINTER(c_size_t), POINTER(c_size_t)),
    "cuMemGetAllocationGranularity": (POINTER(c_size_t), POINTER(_AllocationProp), c_int),
    "cuMemAddressReserve": (POINTER(c_uint64), c_size_t, c_size_t, c_uint64, c_ulonglong),
    "cuMemAddressFree": (c_uint64, c_size_t),
    "cuMemCreate": (POINTER(c_ulonglong), c_size_t, POINTER(_AllocationProp), c_ulonglong),
    "cuMemRelease": (c_ulonglong,),
    "cuMemExportToShareableHandle": (POINTER(c_int), c_ulonglong, c_int, c_ulonglong),
    "cuMemImportFromShareableHandle": (POINTER(c_ulonglong), c_void_p, c_int),
    "cuMemMap": (c_uint64, c_size_t, c_size_t, c_ulonglong, c_ulonglong),
    "cuMemUnmap": (c_uint64, c_size_t),
    "cuMemSetAccess": (c_uint64, c_size_t, POINTER(_AccessDesc), c_size_t),
}


class CudaError(RuntimeError):
    """A call of the driver failed; ``code`` is its CUresult."""

    def __init__(self, call: str, code: int, name: str):
        super().__init__(f"{call}: {name} ({code})")
        self.code = code


class VirtualMemory:
    """The calls for one GPU; ``library`` stands in for ``libcuda`` in tests.

    Raises DitronError where there is no driver; each method raises CudaError when its call fails.
    """

    def __init__(self, device: int, library: Any = None):
        self._library = libcuda() if library is None else library
        declare(self._library, _SIGNATURES)
        number = c_int()
        self._call("cuDeviceGet", byref(number), device)
        self._device, here = number.value, _Location(_DEVICE, number.value)
        self._prop = _AllocationProp(type=_PINNED, requestedHandleTypes=_POSIX_FD, location=here)
        self._access = _AccessDesc(here, _READ_WRITE)

    def _call(self, name: str, *arguments: Any) -> None:
        if code := getattr(self._library, name)(*arguments):
            raise CudaError(name, code, error_name(self._library, code))

    @property
    def missing(self) -> str:
        """What the GPU or its driver lacks; empty when it lacks nothing."""
        value, lacking = c_int(), []
        for attribute, what in _REQUIRED.items():
            self._call("cuDeviceGetAttribute", byref(value), attribute, self._device)
            if not value.value:
                lacking.append(what)
        return f"the GPU or its driver has no {' and no '.join(lacking)}" if lacking else ""

    @property
    def granularity(self) -> int:
        """Sizes and offsets of physical memory are multiples of it."""
        nbytes = c_size_t()
        self._call("cuMemGetAllocationGranularity", byref(nbytes), byref(self._prop), _RECOMMENDED)
        return nbytes.value

    def info(self) -> tuple[int, int]:
        """Free and total bytes of the GPU's memory."""
        free, total = c_size_t(), c_size_t()
        self._call("cuMemGetInfo_v2", byref(free), byref(total))
        return free.value, total.value

    def synchronize(self) -> None:
        """Wait for what the GPU was given."""
        self._call("cuCtxSynchronize")

    def reserve(self, nbytes: int) -> int:
        """Address of ``nbytes`` that nothing is mapped to."""
        address = c_uint64()
        self._call("cuMemAddressReserve", byref(address), nbytes, 0, 0, 0)
        return address.value

    def unreserve(self, address: int, nbytes: int) -> None:
        """Give back what :meth:`reserve` gave; everything in it is unmapped."""
        self._call("cuMemAddressFree", address, nbytes)

    def create(self, nbytes: int) -> int:
        """A handle of physical memory, which lives until it is released and unmapped in all processes."""
        handle = c_ulonglong()
        self._call("cuMemCreate", byref(handle), nbytes, byref(self._prop), 0)
        return handle.value

    def release(self, handle: int) -> None:
        """Give up a handle."""
        self._call("cuMemRelease", handle)

    def export(self, handle: int) -> int:
        """A file descriptor, owned by the caller, by which another process imports the memory."""
        descriptor = c_int(-1)
        self._call("cuMemExportToShareableHandle", byref(descriptor), handle, _POSIX_FD, 0)
        return descriptor.value

    def import_(self, descriptor: int) -> int:
        """A handle of another process's memory. The descriptor stays the caller's."""
        handle = c_ulonglong()
        self._call("cuMemImportFromShareableHandle", byref(handle), c_void_p(descriptor), _POSIX_FD)
        return handle.value

    def map(self, address: int, nbytes: int, handle: int) -> None:
        """Map memory, to be read and written by this process's GPU."""
        self._call("cuMemMap", address, nbytes, 0, handle, 0)
        try:
            self._call("cuMemSetAccess", address, nbytes, byref(self._access), 1)
        except CudaError:
            self._call("cuMemUnmap", address, nbytes)
            raise

    def unmap(self, address: int, nbytes: int) -> None:
        """Undo :meth:`map`. The GPU must have finished what uses the memory."""
        self._call("cuMemUnmap", address, nbytes)

    def tensor(self, address: int, nbytes: int, device: torch.device, owner: Any) -> torch.Tensor:
        """Mapped bytes as a uint8 tensor, which keeps ``owner`` alive."""
        import torch

        tensor = torch.as_tensor(_DeviceBytes(address, nbytes, owner), device=device)
        if tensor.data_ptr() != address or tensor.device != device:
            raise RuntimeError(
                f"torch made a tensor at {tensor.data_ptr():#x} on {tensor.device} of one at {address:#x}"
            )
        return tensor


class _DeviceBytes:
    """An array of bytes on a GPU, in the form that torch takes without a copy; ``owner`` lives as long as it."""

    def __init__(self, address: int, nbytes: int, owner: Any):
        self.owner = owner
        self.__cuda_array_interface__ = {
            "shape": (nbytes,),
            "typestr": "|u1",
            "data": (address, False),
            "strides": None,
            "version": 2,
        }
