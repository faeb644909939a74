"""What a host-made tensor descriptor needs of its buffer: that the tensor lies in it, and TMA's alignment."""

from __future__ import annotations

import math

from ditron_compiler.host.overlap import span
from ditron_compiler.host.steps import BufferView, DescriptorView, EvaluationError

__all__ = ["check_descriptor"]

_ALIGNMENT = 16  # bytes: of the address and of all strides but the last


def check_descriptor(descriptor: DescriptorView, itemsize: int, loc: str) -> None:
    """Raises EvaluationError, which begins with ``loc``, for a descriptor that hardware or the program cannot have."""
    view, shape, strides = descriptor.buffer, descriptor.shape, descriptor.strides
    what = f"{loc}: a tensor descriptor of '{view.storage.name}', of sizes {list(shape)} and strides {list(strides)}"
    if min(shape) < 1:
        raise EvaluationError(f"{what}: sizes are at least 1")
    if strides[-1] != 1:
        raise EvaluationError(f"{what}: the last dimension must be contiguous")
    if min(strides) < 0 or any(stride * itemsize % _ALIGNMENT for stride in strides[:-1]):
        raise EvaluationError(
            f"{what} in elements of {itemsize} bytes: strides must be multiples of {_ALIGNMENT} bytes, but for the last"
        )
    if view.offset * itemsize % _ALIGNMENT:
        raise EvaluationError(
            f"{what}: it begins at element {view.offset} of {itemsize} bytes, and its address must be a multiple of "
            f"{_ALIGNMENT} bytes"
        )
    if not _is_within(descriptor):
        raise EvaluationError(
            f"{what}: it reaches beyond its buffer, which has sizes {list(view.shape)} and strides {list(view.strides)}"
        )


def _is_within(descriptor: DescriptorView) -> bool:
    """Whether the tensor has no element that its buffer has not."""
    view: BufferView = descriptor.buffer
    if 0 in view.shape:
        return False
    if len(view.shape) == len(descriptor.shape) and all(
        size <= whole and (stride == theirs or size == 1)
        for size, whole, stride, theirs in zip(
            descriptor.shape, view.shape, descriptor.strides, view.strides, strict=True
        )
    ):
        return True
    elements = span(view.shape, view.strides)
    has_no_gaps = elements == math.prod(view.shape)
    return has_no_gaps and span(descriptor.shape, descriptor.strides) <= elements
