"""What links a GPU to the others of its node."""

from __future__ import annotations

import ctypes
from functools import cache

from ditron import _cuda

__all__ = ["has_nvlink"]

_NATIVE_ATOMIC_SUPPORTED = 3  # CUdevice_P2PAttribute; PCIe has none


@cache
def has_nvlink(device: int) -> bool:
    """Whether NVLink reaches every other GPU that this process sees; False where it sees none.

    NVLink keeps a warp's store of a line of 128 bytes whole, as LL128 packets need.
    """
    library = _cuda.libcuda()
    integer = ctypes.c_int
    _cuda.declare(
        library,
        {
            "cuDeviceGetCount": (ctypes.POINTER(integer),),
            "cuDeviceGetP2PAttribute": (ctypes.POINTER(integer), integer, integer, integer),
        },
    )
    count, value = integer(), integer()
    if library.cuDeviceGetCount(ctypes.byref(count)) or count.value < 2:
        return False
    for other in set(range(count.value)) - {device}:
        if library.cuDeviceGetP2PAttribute(ctypes.byref(value), _NATIVE_ATOMIC_SUPPORTED, device, other):
            return False
        if not value.value:
            return False
    return True
