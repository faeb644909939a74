"""The calls of the CUDA driver that a host program needs, through ctypes: nothing has to be installed for them.

Each returns when the work is on the stream. Addresses and streams are integers.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from ctypes import POINTER, byref, c_int, c_size_t, c_uint, c_uint8, c_uint16, c_uint64, c_void_p
from functools import cache
from typing import Any

from ditron._cuda import declare, error_name, libcuda
from ditron_compiler.errors import DitronError

__all__ = ["WAIT_FLAGS", "Driver", "driver"]

# CUstreamWaitValue_flags by comparison; the others have none.
WAIT_FLAGS = {"ge": 0, "eq": 1}
_CARVEOUT = 9  # CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, in percent
_UNIFIED = 4  # CU_MEMORYTYPE_UNIFIED: the driver finds out where an address lies


class _Memcpy2D(ctypes.Structure):
    _fields_ = [
        field
        for side in ("src", "dst")
        for field in (
            (f"{side}XInBytes", c_size_t),
            (f"{side}Y", c_size_t),
            (f"{side}MemoryType", c_uint),
            (f"{side}Host", c_void_p),
            (f"{side}Device", c_uint64),
            (f"{side}Array", c_void_p),
            (f"{side}Pitch", c_size_t),
        )
    ] + [("WidthInBytes", c_size_t), ("Height", c_size_t)]


class _MemoryOperation(ctypes.Structure):
    """CUstreamBatchMemOpParams, for a wait or a write of 64 bits."""

    _fields_ = [
        ("operation", c_int),
        ("address", c_uint64),
        ("value", c_uint64),
        ("flags", c_uint),
        ("alias", c_uint64),
        ("reserved", c_uint64),
    ]


_WAIT64, _WRITE64 = 4, 5  # CUstreamBatchMemOpType


_SIGNATURES = {
    "cuMemcpyDtoDAsync_v2": (c_uint64, c_uint64, c_size_t, c_void_p),
    "cuMemcpy2DAsync_v2": (POINTER(_Memcpy2D), c_void_p),
    "cuMemsetD8Async": (c_uint64, c_uint8, c_size_t, c_void_p),
    "cuMemsetD16Async": (c_uint64, c_uint16, c_size_t, c_void_p),
    "cuMemsetD32Async": (c_uint64, c_uint, c_size_t, c_void_p),
    "cuMemsetD2D8Async": (c_uint64, c_size_t, c_uint8, c_size_t, c_size_t, c_void_p),
    "cuMemsetD2D16Async": (c_uint64, c_size_t, c_uint16, c_size_t, c_size_t, c_void_p),
    "cuMemsetD2D32Async": (c_uint64, c_size_t, c_uint, c_size_t, c_size_t, c_void_p),
    "cuStreamWriteValue64_v2": (c_void_p, c_uint64, c_uint64, c_uint),
    "cuStreamWaitValue64_v2": (c_void_p, c_uint64, c_uint64, c_uint),
    "cuStreamBatchMemOp_v2": (c_void_p, c_uint, POINTER(_MemoryOperation), c_uint),
    "cuStreamCreate": (POINTER(c_void_p), c_uint),
    "cuStreamDestroy_v2": (c_void_p,),
    "cuStreamBeginCapture_v2": (c_void_p, c_int),
    "cuStreamEndCapture": (c_void_p, POINTER(c_void_p)),
    "cuGraphDestroy": (c_void_p,),
    "cuEventCreate": (POINTER(c_void_p), c_uint),
    "cuEventRecord": (c_void_p, c_void_p),
    "cuStreamWaitEvent": (c_void_p, c_void_p, c_uint),
    "cuStreamGetCaptureInfo_v2": (c_void_p, POINTER(c_int), POINTER(c_uint64), c_void_p, c_void_p, c_void_p),
    "cuFuncSetAttribute": (c_void_p, c_int, c_int),
    "cuThreadExchangeStreamCaptureMode": (POINTER(c_int),),
}


class Driver:
    """``libcuda``; ``library`` is what stands in for it in tests. Raises DitronError when a call fails."""

    def __init__(self, library: Any = None):
        library = libcuda() if library is None else library
        self._library = library
        declare(library, _SIGNATURES)
        self._copy, self._copy_2d = library.cuMemcpyDtoDAsync_v2, library.cuMemcpy2DAsync_v2
        self._write, self._wait = library.cuStreamWriteValue64_v2, library.cuStreamWaitValue64_v2
        self._captures: bool | None = None
        self._record, self._await = library.cuEventRecord, library.cuStreamWaitEvent

    def _fail(self, code: int, what: str) -> None:
        raise DitronError(f"{what}: the CUDA driver answers {error_name(self._library, code)} ({code})")

    def copy(self, dst: int, src: int, nbytes: int, stream: int) -> None:
        """Bytes that lie together."""
        if code := self._copy(dst, src, nbytes, stream):
            self._fail(code, f"copy of {nbytes} bytes")

    def rows(self, width: int, height: int, src_pitch: int, dst_pitch: int) -> Any:
        """The description of a copy of rows, for :meth:`copy_rows`; in bytes."""
        what = _Memcpy2D(srcMemoryType=_UNIFIED, dstMemoryType=_UNIFIED, srcPitch=src_pitch, dstPitch=dst_pitch)
        what.WidthInBytes, what.Height = width, height
        return what

    def copy_rows(self, what: Any, dst: int, src: int, stream: int) -> None:
        """Rows of bytes, as :meth:`rows` describes them."""
        what.dstDevice, what.srcDevice = dst, src
        if code := self._copy_2d(byref(what), stream):
            self._fail(code, f"copy of {what.Height} rows of {what.WidthInBytes} bytes")

    def fill(self, dst: int, bits: int, itemsize: int, width: int, height: int, pitch: int, stream: int) -> None:
        """``height`` rows of ``width`` elements, each ``bits``; ``pitch`` in bytes."""
        parts = [(0, bits)]
        if itemsize == 8:  # two columns of halves
            if height > 1 and pitch != 8 * width:
                for row in range(height):
                    self.fill(dst + row * pitch, bits, 8, width, 1, 0, stream)
                return
            itemsize, pitch, width, height, parts = 4, 8, 1, width * height, [(0, bits & 0xFFFFFFFF), (4, bits >> 32)]
        for offset, value in parts:
            if height == 1:
                call = getattr(self._library, f"cuMemsetD{8 * itemsize}Async")
                code = call(dst + offset, value, width, stream)
            else:
                call = getattr(self._library, f"cuMemsetD2D{8 * itemsize}Async")
                code = call(dst + offset, pitch, value, width, height, stream)
            if code:
                self._fail(code, f"fill of {height} x {width} elements")

    def write_value(self, address: int, value: int, stream: int) -> None:
        """Store 64 bits, after what the stream did before."""
        if code := self._write(stream, address, value, 0):
            self._fail(code, "write of a signal")

    def wait_value(self, address: int, value: int, flags: int, stream: int) -> None:
        """Let the stream wait for 64 bits; ``flags`` of :data:`WAIT_FLAGS`."""
        if code := self._wait(stream, address, value, flags):
            self._fail(code, "wait for a signal")

    def count_wait(self, address: int, value: int, clear: bool) -> Any:
        """A wait until 64 bits are at least ``value``, after which they are 0 with ``clear``, for :meth:`batch`."""
        operations = [_MemoryOperation(_WAIT64, address, value), _MemoryOperation(_WRITE64, address, 0)]
        return (_MemoryOperation * (1 + clear))(*operations[: 1 + clear])

    def batch(self, operations: Any, stream: int) -> None:
        """Memory operations of the stream: in a graph a node that needs no SM."""
        if code := self._library.cuStreamBatchMemOp_v2(stream, len(operations), operations, 0):
            self._fail(code, "wait for a count")

    def captures_batches(self, address: int) -> bool:
        """Whether a graph can hold memory operations, such as on the 64 bits at ``address``, on this driver and GPU."""
        if self._captures is None:
            library, stream, graph = self._library, c_void_p(), c_void_p()
            if library.cuStreamCreate(byref(stream), 1):  # CU_STREAM_NON_BLOCKING
                return False
            codes = [library.cuStreamBeginCapture_v2(stream, 2)]  # CU_STREAM_CAPTURE_MODE_RELAXED
            codes.append(library.cuStreamBatchMemOp_v2(stream, 2, self.count_wait(address, 0, True), 0))
            codes.append(library.cuStreamEndCapture(stream, byref(graph)))
            if graph.value:
                library.cuGraphDestroy(graph)
            library.cuStreamDestroy_v2(stream)
            self._captures = not any(codes)
        return self._captures

    def prefer_shared_memory(self, function: int) -> None:
        """Ask for the largest shared memory carveout on SMs that run ``function``; a hint, by CUDA's documentation.

        The carveout of an SM changes only while nothing runs on it: a program that needs more than is left would wait.
        """
        if code := self._library.cuFuncSetAttribute(function, _CARVEOUT, 100):
            self._fail(code, "setting a kernel's shared memory carveout")

    def event(self) -> int:
        """A new event, without timing."""
        event = c_void_p()
        if code := self._library.cuEventCreate(byref(event), 2):
            self._fail(code, "making an event")
        return event.value or 0

    def record(self, event: int, stream: int) -> None:
        """The event is what the stream was given so far."""
        if code := self._record(event, stream):
            self._fail(code, "recording an event")

    def wait_event(self, event: int, stream: int) -> None:
        """Let the stream wait for an event."""
        if code := self._await(stream, event, 0):
            self._fail(code, "waiting for an event")

    def capture_of(self, stream: int) -> int:
        """The number of the capture that a stream is in; 0 when it is in none."""
        status, number = c_int(), c_uint64()
        if code := self._library.cuStreamGetCaptureInfo_v2(stream, byref(status), byref(number), None, None, None):
            self._fail(code, "asking for a stream's capture")
        return number.value if status.value else 0

    @contextmanager
    def unsafe_while_capturing(self) -> Iterator[None]:
        """Within it, this thread may do what captures forbid by default: load code, on other streams than theirs."""
        mode = c_int(2)  # CU_STREAM_CAPTURE_MODE_RELAXED
        self._library.cuThreadExchangeStreamCaptureMode(byref(mode))
        try:
            yield
        finally:
            self._library.cuThreadExchangeStreamCaptureMode(byref(mode))


@cache
def driver() -> Driver:
    """The machine's."""
    return Driver()
