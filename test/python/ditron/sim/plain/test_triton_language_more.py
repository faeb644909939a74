"""Functions of ``triton.language`` that need more than a row of a table: shapes, control, memory."""

from __future__ import annotations

import pytest
import torch
import triton
import triton.language as tl
from test_triton_language import BF16, F16, F32, F64, check, make

import ditron

# --- shapes -----------------------------------------------------------------------------------------------------


@triton.jit
def _shapes(x, o, N: tl.constexpr):
    i = tl.arange(0, N)
    a = tl.load(x + i)
    b = a * 10
    at = 2 * N * tl.arange(0, 1) + tl.arange(0, 2 * N)
    tl.store(o + at, tl.interleave(a, b))
    tl.store(o + 2 * N + at, tl.ravel(tl.join(a, b)))
    tl.store(o + 4 * N + at, tl.reshape(tl.trans(tl.reshape(tl.join(a, b), [2, N // 2, 2]), 2, 0, 1), [2 * N]))
    tl.store(o + 6 * N + at, tl.view(tl.permute(tl.reshape(tl.join(a, b), [N, 2]), [1, 0]), [2 * N]))
    left, right = tl.split(tl.reshape(a, [N // 2, 2]))
    tl.store(o + 8 * N + tl.arange(0, N // 2), left - right)
    grid = tl.expand_dims(a, 1) + tl.broadcast_to(tl.reshape(b, [1, N]), [N, N])
    tl.store(o + 9 * N + i, tl.sum(grid, 0))
    first, second = tl.broadcast(a[:, None], b[None, :])
    tl.store(o + 10 * N + i, tl.max(first - second, 1))
    tl.store(o + 11 * N + at, tl.cat(a, b, can_reorder=True))
    tl.store(o + 13 * N + i, tl.zeros([N], tl.float32) + tl.full([N], 3, tl.float32) + tl.zeros_like(a))
    tl.store(o + 14 * N + i, tl.softmax(a))


def test_shapes():
    n = 16
    x = make(F32, n)
    y = x * 10
    o = torch.zeros(15 * n)
    with ditron.sim.triton():
        _shapes[(1,)](x, o, n)
    joined = torch.stack((x, y), 1)
    check(o[: 2 * n], joined.flatten())
    check(o[2 * n : 4 * n], joined.flatten())
    check(o[4 * n : 6 * n], joined.reshape(2, n // 2, 2).permute(2, 0, 1).flatten())
    check(o[6 * n : 8 * n], joined.T.flatten())
    check(o[8 * n : 8 * n + n // 2], x[0::2] - x[1::2])
    check(o[9 * n : 10 * n], (x[:, None] + y[None]).sum(0), 16)
    check(o[10 * n : 11 * n], (x[:, None] - y[None]).amax(1))
    check(o[11 * n : 13 * n].sort().values, torch.cat((x, y)).sort().values)
    check(o[13 * n : 14 * n], torch.full((n,), 3.0))
    check(o[14 * n :], x.softmax(0))


@triton.jit
def _gather(x, index, o, AXIS: tl.constexpr, M: tl.constexpr, N: tl.constexpr):
    at = tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
    tl.store(o + at, tl.gather(tl.load(x + at), tl.load(index + at), AXIS))


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("dtype", (F16, F32, torch.int8, torch.int64))
def test_gather(dtype, axis):
    x, index = make(dtype, 8, 16), torch.randint(8, (8, 16), dtype=torch.int32)
    o = torch.zeros_like(x)
    with ditron.sim.triton():
        _gather[(1,)](x, index, o, axis, 8, 16)
    check(o, x.gather(axis, index.long()))


@triton.jit
def _histogram(x, o, mask, N: tl.constexpr, BINS: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(o + tl.arange(0, BINS), tl.histogram(tl.load(x + i), BINS))
    tl.store(o + BINS + tl.arange(0, BINS), tl.histogram(tl.load(x + i), BINS, mask=tl.load(mask + i)))


@pytest.mark.parametrize("dtype", (torch.int32, torch.uint32))
def test_histogram(dtype):
    x, mask = torch.randint(16, (128,)).to(dtype), torch.randint(2, (128,)).bool()
    o = torch.zeros(2, 16, dtype=torch.int32)
    with ditron.sim.triton():
        _histogram[(1,)](x, o, mask, 128, 16)
    x = x.long()
    check(o, torch.stack((x.bincount(minlength=16), x[mask].bincount(minlength=16))).int())


@triton.jit
def _two_of(a, b):
    if a < b:
        return a * 2, b
    else:
        return b, a - b


@triton.jit
def _mapped(x, y, o, N: tl.constexpr):
    i = tl.arange(0, N)
    first, second = tl.map_elementwise(_two_of, tl.load(x + i), tl.load(y + i))
    tl.store(o + i, first)
    tl.store(o + N + i, second)


def test_map_elementwise():
    x, y = make(torch.int32, 64), make(torch.int32, 64, seed=1)
    o = torch.zeros(2, 64, dtype=torch.int32)
    with ditron.sim.triton():
        _mapped[(1,)](x, y, o, 64)
    check(o, torch.stack((torch.where(x < y, x * 2, y), torch.where(x < y, y, x - y))))


# --- control, hints, messages -----------------------------------------------------------------------------------


@triton.jit
def _control(x, o, n, N: tl.constexpr):
    tl.static_assert(N == 16, "N is 16")
    tl.static_print("N =", N)
    tl.assume(n > 0)
    i = tl.max_constancy(tl.max_contiguous(tl.multiple_of(tl.arange(0, N), 16), 16), 1)
    total = tl.load(x + i)
    for k in tl.range(0, n, 2, num_stages=3, loop_unroll_factor=2, disallow_acc_multi_buffer=True):
        total += k
    for k in tl.range(n, 0, -1, flatten=True, warp_specialize=False):
        total += k * 100
    for k in tl.static_range(3):
        total += 1000 * k
    left = n
    while left > 1:
        left = left // 2
        total += 10000
    tl.debug_barrier()
    row, column = tl.swizzle2d(tl.program_id(0), 0, tl.num_programs(0), 1, 1)
    tl.store(o + i + N * tl.program_id(0), total + row)


def test_control(capfd):
    x, o = torch.arange(16, dtype=torch.int32), torch.zeros(2, 16, dtype=torch.int32)
    with ditron.sim.triton():
        _control[(2,)](x, o, 9, 16)
    want = x + 20 + 4500 + 3000 + 30000
    check(o, torch.stack((want, want + 1)).int())


@triton.jit
def _says(x, N: tl.constexpr):
    value = tl.load(x + tl.arange(0, N))
    tl.device_print("value", value)
    tl.device_assert(value < 3, "too large")


def test_device_print_and_assert(capsys):
    with ditron.sim.triton():
        _says[(1,)](torch.tensor([1, 2]), 2, debug=True)
        assert capsys.readouterr().out.count("value") == 2
        with pytest.raises(ditron.SimulationError, match=r"device-side assert.*too large[\s\S]*_says") as error:
            _says[(1,)](torch.tensor([1, 3]), 2, debug=True)
        assert isinstance(error.value, RuntimeError)  # as on a GPU


@triton.jit
def _assembly(x):
    value = tl.inline_asm_elementwise("mov.b32 $0, $1;", "=r,r", [tl.load(x)], dtype=tl.int32, is_pure=True, pack=1)
    tl.store(x, value)


def test_assembly_is_an_error_at_its_line():
    with ditron.sim.triton(), pytest.raises(ditron.CompileError, match="inline assembly") as error:
        _assembly[(1,)](torch.zeros(1, dtype=torch.int32))
    assert "test_triton_language_more.py:161" in str(error.value) or "inline_asm" in str(error.value)


@triton.jit
def _after_another(x, o):
    i = tl.arange(0, 32)
    tl.extra.cuda.gdc_wait()
    value = tl.load(x + i)
    tl.inline_asm_elementwise("bar.sync 0;", "=r", [], dtype=tl.int32, is_pure=False, pack=1)
    tl.extra.cuda.gdc_launch_dependents()
    tl.store(o + i, value + 1)


def test_launches_that_depend_on_each_other():
    """Launches follow each other on the simulator: a kernel that waits for the one before, or at a barrier, goes on."""
    x, y, z = (torch.zeros(32) for _ in range(3))
    with ditron.sim.triton():
        _after_another[(1,)](x, y, launch_pdl=True)
        _after_another[(1,)](y, z, launch_pdl=True)
    assert torch.equal(z, torch.full((32,), 2.0))


# --- memory -----------------------------------------------------------------------------------------------------

ATOMICS = {
    "atomic_add": (torch.int32, torch.int64, F32, F64, F16, BF16),
    "atomic_max": (torch.int32, torch.int64, F32),
    "atomic_min": (torch.int32, torch.int64, F32),
    "atomic_and": (torch.int32, torch.int64),
    "atomic_or": (torch.int32, torch.int64),
    "atomic_xor": (torch.int32, torch.int64),
    "atomic_xchg": (torch.int32, torch.int64, F32),
}
_PLAIN = {
    "atomic_add": torch.add,
    "atomic_max": torch.maximum,
    "atomic_min": torch.minimum,
    "atomic_and": torch.bitwise_and,
    "atomic_or": torch.bitwise_or,
    "atomic_xor": torch.bitwise_xor,
    "atomic_xchg": lambda x, y: y,
}


@triton.jit
def _atomic(x, y, o, F: tl.constexpr, SEM: tl.constexpr, SCOPE: tl.constexpr, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(o + i, F(x + i, tl.load(y + i), mask=i < N - 1, sem=SEM, scope=SCOPE), mask=i < N - 1)


@pytest.mark.parametrize("sem,scope", [("relaxed", "gpu"), ("acq_rel", "sys"), ("acquire", "cta"), ("release", "gpu")])
@pytest.mark.parametrize("name,dtype", [(n, d) for n, types in ATOMICS.items() for d in types])
def test_atomic(name, dtype, sem, scope):
    x, y = make(dtype, 16), make(dtype, 16, seed=1)
    expected, before = _PLAIN[name](x, y), x.clone()
    expected[-1] = x[-1]
    o = torch.zeros_like(x)
    with ditron.sim.triton():
        _atomic[(1,)](x, y, o, getattr(tl, name), sem, scope, 16)
    check(x, expected)
    check(o[:-1], before[:-1])


@triton.jit
def _unsigned_atomics(x, y, F: tl.constexpr, N: tl.constexpr):
    i = tl.arange(0, N)
    F(x + i, tl.load(y + i))


@pytest.mark.parametrize("name", ["atomic_max", "atomic_min"])
def test_unsigned_atomics(name):
    x = torch.tensor([1, 2**32 - 1, 7, 0], dtype=torch.uint32)
    y = torch.tensor([2**32 - 2, 3, 7, 1], dtype=torch.uint32)
    expected = (torch.maximum if name == "atomic_max" else torch.minimum)(x.long(), y.long())
    with ditron.sim.triton():
        _unsigned_atomics[(1,)](x, y, getattr(tl, name), 4)
    assert torch.equal(x.long(), expected)


@triton.jit
def _locked(lock, count):
    while tl.atomic_cas(lock, 0, 1, sem="acquire", scope="gpu") == 1:
        pass
    tl.store(count, tl.load(count) + 1)
    tl.debug_barrier()
    tl.atomic_xchg(lock, 0, sem="release")


def test_compare_and_swap_as_a_lock():
    lock, count = torch.zeros(1, dtype=torch.int32), torch.zeros(1, dtype=torch.int32)
    with ditron.sim.triton():
        _locked[(50,)](lock, count)
    assert count.item() == 50 and lock.item() == 0


@triton.jit
def _accesses(x, o, n, N: tl.constexpr):
    i = tl.arange(0, N)
    value = tl.load(x + i, mask=i < n, other=7, cache_modifier=".cg", eviction_policy="evict_first", volatile=True)
    tl.store(o + i, value, mask=i < N - 1, cache_modifier=".wb", eviction_policy="evict_last")


@pytest.mark.parametrize("dtype", (F32, F16, BF16, torch.int8, torch.int64))
def test_loads_and_stores(dtype):
    x, o = make(dtype, 32), torch.zeros(32, dtype=dtype)
    with ditron.sim.triton():
        _accesses[(1,)](x, o, 25, 32)
    check(o, torch.cat((x[:25], torch.full((6,), 7).to(dtype), torch.zeros(1).to(dtype))))


@triton.jit
def _block_pointers(x, o, n, N: tl.constexpr):
    block = tl.make_block_ptr(x, shape=(n,), strides=(1,), offsets=(0,), block_shape=(N // 2,), order=(0,))
    first = tl.load(block, boundary_check=(0,), padding_option="zero")
    second = tl.load(tl.advance(block, (N // 2,)), boundary_check=(0,), padding_option="zero")
    out = tl.make_block_ptr(o, shape=(N // 2,), strides=(1,), offsets=(0,), block_shape=(N // 2,), order=(0,))
    tl.store(out, first + second, boundary_check=(0,))


@pytest.mark.skipif(triton.__version__ >= "3.9", reason="Triton 3.9 has no block pointers any more")
@pytest.mark.parametrize("dtype", (F32, F16, BF16, torch.int8, torch.int64))
def test_block_pointers(dtype):
    x, o = make(dtype, 32), torch.zeros(16, dtype=dtype)
    with ditron.sim.triton():
        _block_pointers[(1,)](x, o, 25, 32)
    padded = torch.cat((x[:25], torch.zeros(7, dtype=dtype)))
    check(o, padded[:16] + padded[16:])


@triton.jit
def _atomic_accesses(x, o, N: tl.constexpr):
    i = tl.arange(0, N)
    value = tl.atomic_load(x + i, mask=i < 3, sem="relaxed", scope="sys")
    tl.atomic_store(o + i, value + 1, mask=i < 3)
    tl.atomic_store(o + 3, tl.atomic_load(x + 3))
    tl.store(o + 4 + i, tl.atomic_poll(x + i, i // 2, timeout_ns=100).to(o.dtype.element_ty))
    tl.store(o + 8, tl.atomic_poll(x + 1, 1).to(o.dtype.element_ty) + tl.to_tensor(3))
    tl.store(o + 9 + i, tl.squeeze(tl.unsqueeze(tl.expect_zero(value, i > 100), 0), 0), mask=i < 3)


@pytest.mark.skipif(not hasattr(tl, "atomic_load"), reason="these functions came with Triton 3.9")
@pytest.mark.parametrize("dtype", (torch.int16, torch.int32, torch.int64))
def test_atomic_accesses(dtype):
    x, o = torch.arange(4).to(dtype), torch.zeros(16, dtype=dtype)
    with ditron.sim.triton():
        _atomic_accesses[(1,)](x, o, 4)
    assert o.tolist() == [1, 2, 3, 3, 1, 0, 0, 0, 4, 0, 1, 2, 0, 0, 0, 0]


@triton.jit
def _approximate(x, y, o, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(o + i, tl.fdiv(tl.load(x + i), tl.load(y + i), approx=True))


@pytest.mark.skipif(not hasattr(tl, "atomic_load"), reason="tl.fdiv(approx=True) came with Triton 3.9")
def test_approximate_division():
    x, y, o = make(F32, 32), make(F32, 32).abs() + 1, torch.zeros(32)
    with ditron.sim.triton():
        _approximate[(1,)](x, y, o, 32)
    check(o, x / y)


@triton.jit
def _turns(turn, o):
    me = tl.program_id(0)
    tl.atomic_poll(turn, me)
    tl.store(o, tl.load(o) * 3 + me)
    tl.atomic_store(turn, me + 1)


@pytest.mark.skipif(not hasattr(tl, "atomic_load"), reason="tl.atomic_poll came with Triton 3.9")
def test_programs_take_turns_by_polling():
    turn, o = torch.zeros(1, dtype=torch.int32), torch.zeros(1, dtype=torch.int32)
    with ditron.sim.triton():
        _turns[(5,)](turn, o)
    assert turn.item() == 5 and o.item() == (((1 * 3) + 2) * 3 + 3) * 3 + 4


@triton.jit
def _descriptors(x, o, m, n, B: tl.constexpr):
    source = tl.make_tensor_descriptor(x, [m, n], [n, 1], [B, B])
    target = tl.make_tensor_descriptor(o, [m, n], [n, 1], [B, B])
    row, column = tl.program_id(0) * B, tl.program_id(1) * B
    value = tl.load_tensor_descriptor(source, [row, column])
    tl.store_tensor_descriptor(target, [row, column], value)
    target.atomic_add([row, column], value)


@pytest.mark.parametrize("dtype", (F32, F16, torch.int32))
def test_descriptors_made_on_the_device(dtype):
    x, o = make(dtype, 20, 24), torch.zeros(20, 24, dtype=dtype)
    with ditron.sim.triton():
        _descriptors[(2, 2)](x, o, 20, 24, 16)
    check(o, x + x)


@triton.jit
def _rows(x, rows, o, n, B: tl.constexpr, C: tl.constexpr):
    source = tl.make_tensor_descriptor(x, [n, C], [C, 1], [1, C])
    target = tl.make_tensor_descriptor(o, [n, C], [C, 1], [1, C])
    index = tl.load(rows + tl.arange(0, B))
    target.scatter(source.gather(index, 0) * 2, index + 1, 0)


def test_gather_and_scatter_through_descriptors():
    x, rows, o = make(F32, 20, 16), torch.tensor([3, 0, 7, 12, 15, 5, 9, 18], dtype=torch.int32), torch.zeros(20, 16)
    with ditron.sim.triton():
        _rows[(1,)](x, rows, o, 20, 8, 16)
    expected = torch.zeros(20, 16)
    expected[rows.long() + 1] = x[rows.long()] * 2
    check(o, expected)
