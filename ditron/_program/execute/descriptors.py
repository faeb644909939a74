"""Host-made tensor descriptors as arguments of compiled kernels: encoded once per address, by Triton."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from ditron_compiler.host import DescriptorView

__all__ = ["DescriptorEncoder"]

# Descriptors that an encoder keeps: addresses of arguments differ from call to call, and come back.
_MAX_ENCODED = 512


@dataclass
class _Base:
    """What Triton asks a descriptor's tensor for."""

    address: int

    def data_ptr(self) -> int:
        return self.address


@dataclass
class _Descriptor:
    """What Triton's launcher asks a ``TensorDescriptor`` for."""

    base: _Base
    shape: list[int]
    strides: list[int]
    padding: str
    round_f32_to_tf32: bool = False


@dataclass
class DescriptorEncoder:
    """Makes a kernel's argument of a descriptor, for the address that its tensor has in a call.

    Attributes:
        view: the descriptor. metadata: what the compiled kernel needs to know of it: swizzle, box ...
    """

    view: DescriptorView
    metadata: Mapping[str, Any]
    _encoded: dict[int, Any] = field(default_factory=dict)

    def __call__(self, address: int) -> Any:
        found = self._encoded.get(address)
        if found is None:
            if len(self._encoded) >= _MAX_ENCODED:
                del self._encoded[next(iter(self._encoded))]
            found = self._encoded[address] = self._encode(address)
        return found

    def _encode(self, address: int) -> Any:
        view = self.view
        padding = "nan" if view.nan_padding else "zero"
        descriptor = _Descriptor(_Base(address), list(view.shape), list(view.strides), padding)
        encode, arguments = _triton_encoder()
        return encode(*(descriptor, self.metadata, None)[:arguments])[0]


@cache
def _triton_encoder() -> tuple[Any, int]:
    """Triton's function that encodes a descriptor with the active driver, and how many arguments it takes."""
    from triton.backends.nvidia.driver import make_tensordesc_arg

    return make_tensordesc_arg, len(inspect.signature(make_tensordesc_arg).parameters)
