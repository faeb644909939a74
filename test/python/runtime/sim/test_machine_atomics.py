"""Loads, stores, atomics, multimem and matrix products of the simulated machine, against torch."""

from __future__ import annotations

import pytest
import torch
from machine_kernels import kernel

import ditron
from ditron import sim

# ditron's numbers (runtime/sim/abi/abi.h): element types, and Triton's RMWOp.
I32, I64, F32, F16, BF16, F64, U32, U64 = range(8)
AND, OR, XOR, ADD, FADD, MAX, MIN, UMAX, UMIN, XCHG = range(1, 11)
INTEGERS = {
    "and": AND,
    "or": OR,
    "xor": XOR,
    "add": ADD,
    "max": MAX,
    "min": MIN,
    "umax": UMAX,
    "umin": UMIN,
    "xchg": XCHG,
}

RMW = kernel(
    "rmw",
    "p: ptr, operand: ptr, old: ptr, kind: i32, dtype: i32, bytes: i64",
    """
  %wide = zext i32 %pid to i64
  %offset = mul i64 %wide, %bytes
  %element = getelementptr i8, ptr %p, i64 %offset
  %slot = getelementptr i64, ptr %operand, i64 %wide
  %bits = load i64, ptr %slot
  %was = call i64 @ditron_sim_atomic_rmw(ptr %element, i64 %bits, i32 %kind, i32 %dtype, i32 0, i32 3, i32 0)
  %result = getelementptr i64, ptr %old, i64 %wide
  store i64 %was, ptr %result
  ret void
""",
)


def bits_of(tensor: torch.Tensor) -> torch.Tensor:
    """An element's bits, zero-extended to int64."""
    unsigned = {2: torch.uint16, 4: torch.uint32, 8: torch.int64}[tensor.element_size()]
    return tensor.contiguous().view(unsigned).to(torch.int64)


def rmw(tensor: torch.Tensor, operand: torch.Tensor, kind: int, dtype: int) -> torch.Tensor:
    """Apply one atomic per element; return the result, having checked the old values."""

    def main():
        p, operands, old = tensor.clone(), bits_of(operand), torch.zeros(len(tensor), dtype=torch.int64)
        sim.current_world().launch(
            RMW, (len(p),), [p.data_ptr(), operands.data_ptr(), old.data_ptr(), kind, dtype, p.element_size()]
        )
        assert torch.equal(old, bits_of(tensor))
        return p

    return sim.run(main, 1)[0]


@pytest.mark.parametrize("name", INTEGERS)
@pytest.mark.parametrize("dtype", [I32, U32, I64, U64])
def test_integer_atomics(name, dtype):
    bits, signed = (32, torch.int32) if dtype in (I32, U32) else (64, torch.int64)
    low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    corners = [low, low + 1, -1, 0, 1, 5, high - 1, high]
    pairs = [(a, b) for a in corners for b in corners]
    # On unsigned elements Triton says UMAX; its MAX on them must not look at a sign either.
    unsigned = name in ("umax", "umin") or dtype in (U32, U64)
    order = (lambda v: v % 2**bits) if unsigned else (lambda v: v)
    expected = [
        {
            "and": a & b,
            "or": a | b,
            "xor": a ^ b,
            "add": (a + b - low) % 2**bits + low,
            "xchg": b,
            "max": max(a, b, key=order),
            "umax": max(a, b, key=order),
            "min": min(a, b, key=order),
            "umin": min(a, b, key=order),
        }[name]
        for a, b in pairs
    ]
    a, b = (torch.tensor(column, dtype=signed) for column in zip(*pairs, strict=True))
    assert rmw(a, b, INTEGERS[name], dtype).tolist() == expected


@pytest.mark.parametrize(
    "dtype, torch_dtype", [(F32, torch.float32), (F16, torch.float16), (BF16, torch.bfloat16), (F64, torch.float64)]
)
@pytest.mark.parametrize("kind, reference", [(FADD, torch.add), (MAX, torch.maximum), (MIN, torch.minimum)])
def test_float_atomics(dtype, torch_dtype, kind, reference):
    a, b = (torch.randn(2, 500, generator=torch.Generator().manual_seed(1), dtype=torch.float64) * 50).to(torch_dtype)
    assert torch.equal(rmw(a, b, kind, dtype), reference(a, b))


@pytest.mark.parametrize("dtype, torch_dtype", [(F16, torch.float16), (BF16, torch.bfloat16)])
def test_every_small_float(dtype, torch_dtype):
    """All 65536 patterns, with addends that make them round, overflow and become subnormal."""
    patterns = torch.arange(65536, dtype=torch.int32).to(torch.uint16).view(torch_dtype)
    for addend in (0.0, 3e-5, 0.3337, -65504.0, 3e38):
        operand = torch.full((65536,), addend).to(torch_dtype)
        expected = (patterns.float() + operand.float()).to(torch_dtype)
        torch.testing.assert_close(rmw(patterns, operand, FADD, dtype), expected, rtol=0, atol=0, equal_nan=True)


ADD_AT = kernel(
    "add_at",
    "counter: ptr, tickets: ptr",
    """
  %p = call ptr @ditron_sim_symm_at(ptr %counter, i32 0, i32 0)
  %ticket = call i64 @ditron_sim_atomic_rmw(ptr %p, i64 1, i32 4, i32 1, i32 1, i32 3, i32 1)
  %slot = getelementptr i64, ptr %tickets, i32 %pid
  store i64 %ticket, ptr %slot
  ret void
""",
)


def test_counter_of_all_ranks():
    def main():
        world = sim.current_world()
        counter = world.alloc((1,), torch.int64, name="counter")
        tickets = torch.zeros(50, dtype=torch.int64)
        world.launch(ADD_AT, (50,), [counter.data_ptr(), tickets.data_ptr()])
        world.barrier()
        return counter.item(), tickets.tolist()

    orders = set()
    for seed in range(20):
        results = sim.run(main, 4, seed=seed)
        tickets = [ticket for _, mine in results for ticket in mine]
        assert results[0][0] == 200 and sorted(tickets) == list(range(200))
        orders.add(tuple(tickets))
    assert len(orders) == 20, "each seed has an order of its own"


# A lock by compare-and-swap around an increment that is not atomic: a load, a switch to others, a store.
LOCKED = kernel(
    "locked",
    "lock: ptr, count: ptr",
    """
  br label %take
take:
  %was = call i64 @ditron_sim_atomic_cas(ptr %lock, i64 0, i64 1, i32 4, i32 0, i32 3, i32 0)
  %free = icmp eq i64 %was, 0
  br i1 %free, label %inside, label %take
inside:
  %n = call i64 @ditron_sim_ld(ptr %count, i32 4, i32 0, i32 0, i32 1)
  call void @ditron_sim_quiet(i32 2)
  %more = add i64 %n, 1
  call void @ditron_sim_st(ptr %count, i64 %more, i32 4, i32 0, i32 2, i32 3)
  call void @ditron_sim_st(ptr %lock, i64 0, i32 4, i32 0, i32 2, i32 4)
  ret void
""",
)


def test_lock():
    def main():
        words = torch.zeros(2, dtype=torch.int32)
        sim.current_world().launch(LOCKED, (40,), [words.data_ptr(), words.data_ptr() + 4])
        return words.tolist()

    for seed in range(20):
        assert sim.run(main, 1, seed=seed) == [[0, 40]]


WIDTHS = kernel(
    "widths",
    "p: ptr, out: ptr, bytes: i32, bits: i64",
    """
  %old = call i64 @ditron_sim_ld(ptr %p, i32 %bytes, i32 0, i32 1, i32 0)
  store i64 %old, ptr %out
  call void @ditron_sim_st(ptr %p, i64 %bits, i32 %bytes, i32 0, i32 2, i32 1)
  ret void
""",
)


@pytest.mark.parametrize("bytes_", [1, 2, 4, 8])
def test_widths(bytes_):
    def main():
        memory, out = torch.full((16,), 0xEE, dtype=torch.uint8), torch.zeros(1, dtype=torch.int64)
        sim.current_world().launch(WIDTHS, (1,), [memory.data_ptr(), out.data_ptr(), bytes_, 0x1122334455667788])
        return memory.tolist(), out.item() % 2**64

    memory, old = sim.run(main, 1)[0]
    assert memory == [0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11][:bytes_] + [0xEE] * (16 - bytes_)
    assert old == int("ee" * bytes_, 16)


MULTIMEM = kernel(
    "multimem",
    "buf: ptr, out: ptr, dtype: i32, op: i32, bits: i64",
    """
  %all = call ptr @ditron_sim_multicast_ptr(ptr %buf, i32 0, i32 0)
  %sum = call i64 @ditron_sim_multimem_ld_reduce(ptr %all, i32 %op, i32 %dtype, i32 1)
  store i64 %sum, ptr %out
  call void @ditron_sim_barrier(i32 0, i32 2)
  %me = call i32 @ditron_sim_rank(i32 0)
  %writes = icmp eq i32 %me, 1
  br i1 %writes, label %write, label %end
write:
  call void @ditron_sim_multimem_red(ptr %all, i64 %bits, i32 %op, i32 %dtype, i32 3)
  %second = getelementptr i8, ptr %all, i64 8
  call void @ditron_sim_multimem_st(ptr %second, i64 %bits, i32 %dtype, i32 4)
  br label %end
end:
  ret void
""",
)


@pytest.mark.parametrize(
    "dtype, torch_dtype",
    [(F32, torch.float32), (F16, torch.float16), (BF16, torch.bfloat16), (I32, torch.int32), (U64, torch.int64)],
)
@pytest.mark.parametrize("op", [0, 1, 2], ids=["add", "min", "max"])
def test_multimem(dtype, torch_dtype, op):
    """Over the four ranks of a group, which are not all of the world."""
    values = torch.tensor([2048.0, 1.0, 1.0, 1.0]).to(torch_dtype)
    reduced = [values.float().sum(), values.float().min(), values.float().max()][op].to(torch_dtype)
    operand = torch.tensor([3]).to(torch_dtype)

    def main():
        world = sim.current_world()
        group = world.new_group([4, 1, 2, 3])
        if world.rank not in group.ranks:
            return None
        buf = world.alloc((16,), torch_dtype, name="buf", group=group)
        buf[0] = values[group.ranks.index(world.rank)]
        world.barrier(group)
        out = torch.zeros(8, dtype=torch_dtype)
        world.launch(MULTIMEM, (1,), [buf.data_ptr(), out.data_ptr(), dtype, op, bits_of(operand).item()], group=group)
        world.barrier(group)
        return out[0], buf[0].clone(), buf[8 // buf.element_size()].clone()

    results = sim.run(main, 5)
    for rank, value in zip([4, 1, 2, 3], values, strict=True):
        total, after_red, after_st = results[rank]
        assert total == reduced, "summed up in f32 and rounded once"
        assert after_red == [value + operand[0], min(value, operand[0]), max(value, operand[0])][op]
        assert after_st == operand[0]


@pytest.mark.parametrize("suffix, dtype", [("f32", torch.float32), ("f64", torch.float64), ("i32", torch.int32)])
def test_dot(suffix, dtype):
    dot = kernel(
        f"dot_{suffix}",
        "a: ptr, b: ptr, c: ptr, m: i64, n: i64, k: i64, lda: i64, ldb: i64, ldc: i64",
        f"""
  call void @ditron_sim_dot_{suffix}(ptr %a, ptr %b, ptr %c, i64 %m, i64 %n, i64 %k, i64 %lda, i64 %ldb, i64 %ldc)
  ret void
""",
    )
    generator = torch.Generator().manual_seed(0)

    def main(m: int, n: int, k: int):
        a, b, c = (
            torch.randint(-9, 9, shape, generator=generator).to(dtype) for shape in ((m, k + 3), (k, n + 5), (m, n + 1))
        )
        before = c.clone()
        sim.current_world().launch(dot, (1,), [a.data_ptr(), b.data_ptr(), c.data_ptr(), m, n, k, k + 3, n + 5, n + 1])
        before[:, :n] += a[:, :k] @ b[:, :n]
        assert torch.equal(c, before)

    for m in (1, 5, 6, 16, 64):
        for n in (1, 16, 31, 33, 64):
            for k in (1, 7, 32):
                sim.run(main, 1, args=(m, n, k))


def test_unknown_operation_is_an_error():
    with pytest.raises(ditron.SimulationError, match="atomic 11 on integers"):
        rmw(torch.tensor([1]), torch.tensor([1]), 11, I64)
