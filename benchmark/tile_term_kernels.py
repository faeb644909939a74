"""Kernels of one GPU whose times the terms of the simulator's tile model are fitted to: stock Triton, TMA."""

import triton
import triton.language as tl

from ditron.kernels import tiles


@triton.jit
def product(
    a_desc,
    b_desc,
    c_desc,
    M,
    N,
    K,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    GROUP: tl.constexpr,
    PROGRAMS: tl.constexpr,
):
    """C [1, M, N] = A [1, M, K] @ B [N, K].T by the persistent loop of the operators, in groups of rows of tiles."""
    tiles.multiply_tiles(a_desc, b_desc, c_desc, M, N, K, BM, BN, BK, GROUP, PROGRAMS)


@triton.jit
def swapped_product(a_desc, b_desc, out_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """The same for few rows: a program for each ``BN`` columns, the weight the left operand of the tensor cores."""
    tile = tl.program_id(0)
    acc = tl.zeros((BN, BM), tl.float32)
    for k in range(0, K, BK):
        acc = tl.dot(b_desc.load([tile * BN, k]), a_desc.load([0, k]).T, acc)
    rows = tl.arange(0, BM)[None, :]
    cols = tile * BN + tl.arange(0, BN)[:, None]
    tl.store(out_ptr + rows * N + cols, acc.to(out_ptr.dtype.element_ty), mask=(rows < M) & (cols < N))


@triton.jit
def row_product(a_ptr, b_ptr, out_ptr, N, K, BN: tl.constexpr, BK: tl.constexpr, STAGES: tl.constexpr):
    """The same for one row, without tensor cores and TMA."""
    tile = tl.program_id(0)
    cols = tile * BN + tl.arange(0, BN)
    total = tiles.row_product(a_ptr, b_ptr, tile, N, K, BN, BK, STAGES)
    tl.store(out_ptr + cols, total.to(out_ptr.dtype.element_ty), mask=cols < N)


@triton.jit
def chain(x_ptr, y_ptr, n, OP: tl.constexpr, TIMES: tl.constexpr, BLOCK: tl.constexpr):
    """y = an operation applied ``TIMES`` times to x [n], in fp32."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x_ptr + at, mask=at < n, other=0.0)
    if OP != "copy":
        value = value.to(tl.float32)
        for _ in tl.static_range(TIMES):
            if OP == "exp":
                value = tl.exp(-value)
            elif OP == "rsqrt":
                value = tl.rsqrt(value + 1.0)
            elif OP == "divide":
                value = 1.0 / (value + 1.0)
            elif OP == "fma":
                value = value * 0.75 + 0.5
            else:
                value = tl.maximum(value + 0.5, -value)
    tl.store(y_ptr + at, value.to(y_ptr.dtype.element_ty), mask=at < n)


@triton.jit
def add(x_ptr, y_ptr, z_ptr, n, BLOCK: tl.constexpr):
    """z = x + y."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    total = tl.load(x_ptr + at, mask=at < n, other=0.0).to(tl.float32)
    total += tl.load(y_ptr + at, mask=at < n, other=0.0).to(tl.float32)
    tl.store(z_ptr + at, total.to(z_ptr.dtype.element_ty), mask=at < n)


@triton.jit
def swiglu(gate_ptr, up_ptr, out_ptr, n, BLOCK: tl.constexpr):
    """out = SiLU(gate) * up."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    gate = tl.load(gate_ptr + at, mask=at < n, other=0.0).to(tl.float32)
    up = tl.load(up_ptr + at, mask=at < n, other=0.0).to(tl.float32)
    tl.store(out_ptr + at, (gate * tl.sigmoid(gate) * up).to(out_ptr.dtype.element_ty), mask=at < n)


@triton.jit
def softmax(x_ptr, y_ptr, columns, BLOCK: tl.constexpr):
    """y = softmax of a row of x."""
    at = tl.arange(0, BLOCK)
    row = tl.program_id(0).to(tl.int64) * columns
    x = tl.load(x_ptr + row + at, mask=at < columns, other=-float("inf")).to(tl.float32)
    e = tl.exp(x - tl.max(x, 0))
    tl.store(y_ptr + row + at, (e / tl.sum(e, 0)).to(y_ptr.dtype.element_ty), mask=at < columns)


@triton.jit
def rms_norm(x_ptr, weight_ptr, y_ptr, columns, BLOCK: tl.constexpr):
    """y = a row of x over its root mean square, times ``weight``."""
    at = tl.arange(0, BLOCK)
    row = tl.program_id(0).to(tl.int64) * columns
    x = tl.load(x_ptr + row + at, mask=at < columns, other=0.0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(x * x, 0) / columns + 1e-6)
    weight = tl.load(weight_ptr + at, mask=at < columns, other=0.0).to(tl.float32)
    tl.store(y_ptr + row + at, (x * scale * weight).to(y_ptr.dtype.element_ty), mask=at < columns)


@triton.jit
def attention(q_desc, k_desc, v_desc, out_desc, length, scale, BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr):
    """Of one head and ``BM`` queries, not causal; operands are [heads * length, D]."""
    head = tl.program_id(1) * length
    row = head + tl.program_id(0) * BM
    q = q_desc.load([row, 0])
    largest = tl.full((BM,), -float("inf"), tl.float32)
    total = tl.zeros((BM,), tl.float32)
    acc = tl.zeros((BM, D), tl.float32)
    for start in range(0, length, BN):
        scores = tl.dot(q, k_desc.load([head + start, 0]).T) * scale
        new = tl.maximum(largest, tl.max(scores, 1))
        weights = tl.exp2(scores - new[:, None])
        shrink = tl.exp2(largest - new)
        total = total * shrink + tl.sum(weights, 1)
        acc = tl.dot(weights.to(tl.bfloat16), v_desc.load([head + start, 0]), acc * shrink[:, None])
        largest = new
    out_desc.store([row, 0], (acc / total[:, None]).to(tl.bfloat16))
