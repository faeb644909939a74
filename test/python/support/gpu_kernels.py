"""Kernels whose machine code the tests of the GPU lowering look at."""

import triton
import triton.language as tl

import ditron
import ditron.language as dl


@ditron.jit
def exchange(x, out, sig, n, BLOCK: tl.constexpr):
    """Wait, load, store at the next rank, notify it."""
    peer = (dl.rank() + 1) % dl.num_ranks()
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    token = dl.wait(sig, 1, 1)
    v = tl.load(dl.consume_token(x, token) + offs, mask=offs < n)
    tl.store(dl.symm_at(out, peer) + offs, v, mask=offs < n)
    dl.notify(sig, peer, 1)


@ditron.jit
def pull(x, out, peer, BLOCK: tl.constexpr):
    """Load a tensor of pointers that was translated as a whole."""
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + offs, tl.load(dl.symm_at(x + offs, peer)))


@ditron.jit
def gemm_after_wait(a, b, c, sig, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """Wait once, then a K loop that Triton pipelines."""
    pm, pn = tl.program_id(0), tl.program_id(1)
    token = dl.wait(sig + pm, 1, 1)
    rm, rn, rk = pm * BM + tl.arange(0, BM), pn * BN + tl.arange(0, BN), tl.arange(0, BK)
    ap = dl.consume_token(a, token) + rm[:, None] * K + rk[None, :]
    bp = b + rk[:, None] * N + rn[None, :]
    acc = tl.zeros((BM, BN), tl.float32)
    for _ in range(0, K, BK):
        acc = tl.dot(tl.load(ap), tl.load(bp), acc)
        ap += BK
        bp += BK * N
    tl.store(c + rm[:, None] * N + rn[None, :], acc.to(c.dtype.element_ty))


@ditron.jit
def gemm_waiting_in_loop(a, b, c, sig, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """Wait for each step of the K loop: not to be run ahead."""
    pm, pn = tl.program_id(0), tl.program_id(1)
    rm, rn, rk = pm * BM + tl.arange(0, BM), pn * BN + tl.arange(0, BN), tl.arange(0, BK)
    ap = a + rm[:, None] * K + rk[None, :]
    bp = b + rk[:, None] * N + rn[None, :]
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(0, tl.cdiv(K, BK)):
        token = dl.wait(sig + k, 1, 1)
        acc = tl.dot(tl.load(dl.consume_token(ap, token)), tl.load(bp), acc)
        ap += BK
        bp += BK * N
    tl.store(c + rm[:, None] * N + rn[None, :], acc.to(c.dtype.element_ty))


@ditron.jit
def tma_exchange(x, out, sig, M, N, peer, BM: tl.constexpr, BN: tl.constexpr):
    """TMA load after a wait; TMA store at a peer before a notify."""
    source = tl.make_tensor_descriptor(x, [M, N], [N, 1], [BM, BN])
    target = tl.make_tensor_descriptor(dl.symm_at(out, peer), [M, N], [N, 1], [BM, BN])
    token = dl.wait(sig, 1, 1)
    source = dl.consume_token(source, token)
    row, column = tl.program_id(0) * BM, tl.program_id(1) * BN
    target.store([row, column], source.load([row, column]))
    dl.notify(sig, peer, 1, op="add")


@ditron.jit
def own_values(out, sig, peer):
    """Thread-level operations and what waits returned."""
    seen = dl.signal_wait_until(sig, 1)
    tl.store(out, seen)
    lane = dl.shfl(dl.lane_id(), 0)
    dl.st(out + 1 + dl.thread_id(), lane.to(tl.int64))
    dl.st(out, seen, scope="node", semantic="release")


@triton.jit
def plain_gemm(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """``gemm_after_wait`` in plain Triton: what its loop must look like."""
    pm, pn = tl.program_id(0), tl.program_id(1)
    rm, rn, rk = pm * BM + tl.arange(0, BM), pn * BN + tl.arange(0, BN), tl.arange(0, BK)
    ap = a + rm[:, None] * K + rk[None, :]
    bp = b + rk[:, None] * N + rn[None, :]
    acc = tl.zeros((BM, BN), tl.float32)
    for _ in range(0, K, BK):
        acc = tl.dot(tl.load(ap), tl.load(bp), acc)
        ap += BK
        bp += BK * N
    tl.store(c + rm[:, None] * N + rn[None, :], acc.to(c.dtype.element_ty))
