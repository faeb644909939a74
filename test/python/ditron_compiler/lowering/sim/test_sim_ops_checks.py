"""What goes wrong in a kernel on the simulator is an error at the kernel's line."""

from __future__ import annotations

import inspect

import pytest
import torch
import triton
import triton.language as tl
from sim_programs import compile_kernel, run

from ditron import sim
from ditron_compiler import ir
from ditron_compiler.errors import SimulationError
from ditron_compiler.ir.locations import user_line


def _line(fn: triton.JITFunction, text: str) -> int:
    lines, first = inspect.getsourcelines(fn.fn)
    return first + next(k for k, line in enumerate(lines) if text in line)


@triton.jit
def _copy(x, o, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    v = tl.load(x + i, mask=i < n)
    tl.store(o + i, v, mask=i < n)


def _copy_on_heap(n: int) -> None:
    """Copy `n` elements between symmetric tensors of 100."""
    kernel = compile_kernel(_copy, {"x": "*fp32", "o": "*fp32", "n": "i32", "B": "constexpr"}, {"B": 128})

    def main() -> None:
        world = sim.current_world()
        x, o = world.alloc((100,), torch.float32, name="x"), world.alloc((100,), torch.float32, name="o")
        world.launch(kernel, (1,), [x.data_ptr(), o.data_ptr(), n])

    sim.run(main, ranks=1)


def test_masked_lanes_may_point_anywhere() -> None:
    _copy_on_heap(100)


def test_load_past_the_end_of_a_symmetric_tensor() -> None:
    with pytest.raises(SimulationError) as raised:
        _copy_on_heap(101)
    assert f":{_line(_copy, 'tl.load')}" in str(raised.value)
    assert "x" in str(raised.value)


@triton.jit
def _store_at(x, at):
    tl.store(x + at, 1.0)


@pytest.mark.parametrize(
    "at, where",
    [
        (-1, r"4 bytes before second\[0, 0\]"),
        (-32, r"before the beginning of `second`, to 128 bytes before second\[0, 0\]"),
        (35, r"past the end of `second`, to second\[8, 3\]: it has 128 bytes"),
    ],
)
def test_stores_beside_a_symmetric_tensor(at: int, where: str) -> None:
    kernel = compile_kernel(_store_at, {"x": "*fp32", "at": "i32"}, {})

    def main() -> None:
        world = sim.current_world()
        _, second = (world.alloc((8, 4), torch.float32, name=name) for name in ("first", "second"))
        world.launch(kernel, (1,), [second.data_ptr(), at])

    with pytest.raises(SimulationError, match=where):
        sim.run(main, ranks=1)


@triton.jit
def _null(o, p, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(o + i, tl.load(p + i))


def test_null_pointer() -> None:
    with pytest.raises(SimulationError) as raised:
        run(_null, (1,), torch.zeros(16), 0, types={"p": "*fp32"}, B=16)
    assert f":{_line(_null, 'tl.load')}" in str(raised.value)


@triton.jit
def _asserts(x, n):
    tl.device_assert(tl.load(x) < n, "x must be small")


def test_device_assert() -> None:
    run(_asserts, (1,), torch.tensor([1.0]), 5, debug=True)
    with pytest.raises(SimulationError, match="x must be small") as raised:
        run(_asserts, (1,), torch.tensor([7.0]), 5, debug=True)
    assert f":{_line(_asserts, 'device_assert')}" in str(raised.value)


@triton.jit
def _divides(o, n, d):
    tl.store(o, n // d)


@triton.jit
def _remains(o, n, d):
    tl.store(o, n % d)


@pytest.mark.parametrize("kernel", [_divides, _remains])
def test_scalar_division_by_zero(kernel) -> None:
    o = torch.zeros(1, dtype=torch.int32)
    run(kernel, (1,), o, 7, 2)
    assert o[0] == (3 if kernel is _divides else 1)
    with pytest.raises(SimulationError, match="an integer is divided by zero") as raised:
        run(kernel, (1,), o, 7, 0)
    assert f":{_line(kernel, 'tl.store')}" in str(raised.value)


@triton.jit
def _quotients(x, y):
    return x // y


@triton.jit
def _divides_lanes(o, d, B: tl.constexpr):
    i = tl.arange(0, B)
    divisors = tl.load(d + i)
    tl.store(o + i, 8 // divisors, mask=divisors != 0)
    tl.store(o + B + i, tl.map_elementwise(_quotients, i * 0 + 8, divisors), mask=divisors != 0)
    tl.store(o + 2 * B, tl.reduce(divisors, 0, _quotients))


@triton.jit
def _divides_where_it_may(o, n, d):
    if d != 0:
        tl.store(o, n // d)


def test_lanes_and_branches_may_divide_by_zero() -> None:
    o, d = torch.full((17,), -1, dtype=torch.int32), torch.tensor([0, 1, 2, 0, 4, 0, 8, 3], dtype=torch.int32)
    run(_divides_lanes, (1,), o, d, B=8)
    assert o[:16].tolist() == 2 * [-1, 8, 4, -1, 2, -1, 1, 2]
    run(_divides_where_it_may, (1,), o, 7, 0)
    assert o[0] == -1


@triton.jit
def _assembly(x):
    tl.store(x, tl.inline_asm_elementwise("mov $0, 1;", "=r", [], dtype=tl.int32, is_pure=True, pack=1))


def test_what_is_not_covered_is_an_error_at_the_line() -> None:
    with pytest.raises(ir.MLIRError, match="no inline assembly") as raised:
        run(_assembly, (1,), torch.zeros(1, dtype=torch.int32))
    assert f"{_line(_assembly, 'inline_asm')}" in str(raised.value)


@pytest.mark.parametrize("text, line", [
    ('loc("k.py":3:4)', "k.py:3:4"),
    ('loc("acc"("k.py":3:4))', "k.py:3:4"),
    ('loc(callsite("/x/triton/language/standard.py":9:1 at "k.py":3:4))', "k.py:3:4"),
    ('loc(callsite("helper.py":7:2 at "k.py":3:4))', "helper.py:7:2"),
    ('loc(callsite(callsite("/triton/language/a.py":1:1 at "/ditron/language/b.py":2:2) at "k.py":3:4))', "k.py:3:4"),
    ('loc(fused["/x/triton/language/a.py":1:1, "k.py":3:4])', "k.py:3:4"),
    ("loc(unknown)", "<unknown>:0:0"),
])  # fmt: skip
def test_line_of_a_location(text: str, line: str) -> None:
    with ir.Context():
        module = ir.Module.parse(f'"builtin.module"() ({{^bb0:}}) : () -> () {text}')
        assert user_line(module.operation.location) == line
