"""Kernels that the tests of the command line name."""

import triton.language as tl

import ditron
import ditron.language as dl

EXAMPLE = {
    "signature": {"x_ptr": "*fp32", "signal_ptr": "*i64", "n": "i32"},
    "constexprs": {"BLOCK": 64},
    "options": {"num_warps": 2},
}


@ditron.jit
def good(x_ptr, signal_ptr, n, BLOCK: tl.constexpr):
    token = dl.wait(signal_ptr, n)
    offsets = tl.arange(0, BLOCK)
    x = tl.load(dl.consume_token(x_ptr, token) + offsets)
    tl.store(dl.symm_at(x_ptr, 1) + offsets, x + BLOCK)
    dl.putmem_nbi(x_ptr, x_ptr, 64, 1)
    dl.notify(signal_ptr, 1)


@ditron.jit
def bad_scope(x_ptr, signal_ptr, n, BLOCK: tl.constexpr):
    dl.wait(signal_ptr, scope="system")


@ditron.jit
def bad_pointer(x_ptr, signal_ptr, n, BLOCK: tl.constexpr):
    dl.putmem(dl.symm_at(x_ptr, n), x_ptr, 4, n)


def not_a_kernel():
    pass
