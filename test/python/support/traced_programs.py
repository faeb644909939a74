"""Kernels for programs that are only traced, and their module."""

from __future__ import annotations

import triton.language as tl

import ditron
import ditron.language as dl


@ditron.jit
def scale(x_ptr, out_ptr, n, factor, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets, mask=mask) * factor, mask=mask)


@ditron.jit(do_not_specialize=["epoch"])
def wait_for(signal_ptr, epoch):
    dl.wait(signal_ptr, 1, epoch)


def trace(fn, *arguments, **constants):
    """The module of a program of ``fn``."""
    return ditron.program(fn).module(*(arguments or ("f32[64, 128]", "f32[64, 128]")), **constants)
