"""``libcuda`` through ctypes: nothing has to be installed for it. Who calls a function declares it."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from ctypes import POINTER, byref, c_char_p, c_int
from functools import cache
from typing import Any

from ditron_compiler.errors import DitronError

__all__ = ["declare", "error_name", "libcuda"]


@cache
def libcuda() -> Any:
    """The machine's driver library. Raises DitronError where there is none."""
    try:
        return ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        raise DitronError(f"CUDA's driver library cannot be loaded: {error}") from error


def declare(library: Any, signatures: Mapping[str, tuple]) -> None:
    """Set the argument types of functions that return a CUresult."""
    for name, types in {**signatures, "cuGetErrorName": (c_int, POINTER(c_char_p))}.items():
        function = getattr(library, name)
        function.argtypes, function.restype = types, c_int


def error_name(library: Any, code: int) -> str:
    """``CUDA_ERROR_OUT_OF_MEMORY`` for 2."""
    name = c_char_p()
    library.cuGetErrorName(code, byref(name))
    return (name.value or b"an unknown error").decode()
