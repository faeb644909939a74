"""What a tile's time is made of beside its products: operands from memory, the L2 cache, stages, elements."""

from __future__ import annotations

import pytest
import torch
import triton.language as tl
from timed_programs import simple_machine
from triton.tools.tensor_descriptor import TensorDescriptor

import ditron
from ditron import sim

STEPS = 100  # of 32 along K: 65.536 ns of products each, and 2048 bytes of an operand
PRODUCTS = STEPS * 0.065536
PANEL = 32 * 32 * STEPS * 2 * 1e-5  # us of 32 rows of an operand at 100 GB/s
LAUNCH = 3
STORES = 2 * 1024 * 1e-5  # of a tile


@ditron.jit
def product_kernel(a_desc, b_desc, out_ptr, rows, columns, steps, PROGRAMS: tl.constexpr):
    """Tiles of 32 x 32, row by row."""
    at = tl.arange(0, 32)[:, None] * 32 + tl.arange(0, 32)[None, :]
    for tile in range(tl.program_id(0), rows * columns, PROGRAMS):
        acc = tl.zeros((32, 32), tl.float32)
        for k in range(steps):
            a = a_desc.load([tile // columns * 32, k * 32])
            acc = tl.dot(a, b_desc.load([tile % columns * 32, k * 32]).T, acc)
        tl.store(out_ptr + tile * 1024 + at, acc.to(tl.bfloat16))


@ditron.jit
def element_kernel(x_ptr, y_ptr, OP: tl.constexpr):
    at = tl.program_id(0) * 1024 + tl.arange(0, 1024)
    x = tl.load(x_ptr + at)
    if OP == "exp2":
        y = tl.exp2(x)
    else:
        y = tl.maximum(x * 2.0 + 1.0, 0.0)
    tl.store(y_ptr + at, y)


@ditron.jit
def weighted_kernel(x_ptr, weight_ptr, y_ptr, N: tl.constexpr):
    at = tl.arange(0, N)
    row = tl.program_id(0) * N
    tl.store(y_ptr + row + at, tl.load(x_ptr + row + at) + tl.load(weight_ptr + at))


def took(main, *changes, timing_only=True):
    """us of the only launch of one rank on the machine of simple numbers."""

    def on_rank():
        ditron.init()
        main()

    (launch,) = sim.predict(on_rank, simple_machine(*changes), 1, timing_only=timing_only).launches
    return (launch.ended - launch.queued) / 1e3


def product(rows=1, columns=4, num_stages=3, programs=4):
    def main():
        K = 32 * STEPS
        a, b = (torch.zeros(32 * count, K, dtype=torch.bfloat16) for count in (rows, columns))
        out = torch.zeros(rows * columns * 1024, dtype=torch.bfloat16)
        descriptors = (TensorDescriptor.from_tensor(one, [32, 32]) for one in (a, b))
        product_kernel[(programs,)](*descriptors, out, rows, columns, STEPS, programs, num_stages=num_stages)

    return main


@pytest.mark.parametrize("timing_only", [False, True])
def test_a_product_of_few_rows_takes_what_its_weight_does(timing_only):
    """Four programs read four panels of the weight, and one of the rows together."""
    us = took(product(), timing_only=timing_only)
    assert us == pytest.approx(LAUNCH + 5 * PANEL + 4 * STORES, rel=1e-3)
    assert 5 * PANEL > PRODUCTS
    assert took(product(), "hbm=1000", "hbm.per_sm=1000") == pytest.approx(LAUNCH + PRODUCTS, rel=1e-2)


def test_what_the_cache_holds_is_not_read_again():
    """The second row of tiles reads the weight, 0.82 MB, again."""
    held = took(product(rows=2))
    assert held == pytest.approx(LAUNCH + 2 * PRODUCTS, rel=2e-2)
    assert took(product(rows=2), "l2.size=0.1") == pytest.approx(LAUNCH + 10 * PANEL, rel=2e-2)


def test_an_order_of_tiles_decides_what_is_shared():
    """Two rows and two columns of tiles at one time need less than four columns of one row."""
    assert took(product(rows=2, columns=2)) == pytest.approx(LAUNCH + max(4 * PANEL, PRODUCTS), rel=2e-2)


@pytest.mark.parametrize("num_stages, ahead", [(2, 1), (3, 2), (5, 4)])
def test_stages_hide_the_latency_of_loads(num_stages, ahead):
    """1 us, and 4 KB at 100 GB/s: about 10 ns a KB."""
    us = took(product(num_stages=num_stages), "latency.load=1")
    assert us == pytest.approx(LAUNCH + STEPS * (1 + 0.040) / ahead, rel=1e-2)


@pytest.mark.parametrize(
    "op, change, ns", [("exp2", "sm.special=0.01", 1024 / 2.5), ("max", "sm.vector=0.03", 3072 / 7.5)]
)
def test_operations_on_elements_take_their_time(op, change, ns):
    """A product that is added is one operation, a maximum two."""

    def main():
        x = torch.zeros(4096)
        element_kernel[(4,)](x, torch.empty_like(x), op)

    assert took(main) == pytest.approx(LAUNCH + 2 * 4096 * 4 * 1e-5)
    assert took(main, change) == pytest.approx(LAUNCH + ns / 1e3, rel=1e-3)


def test_what_all_programs_load_is_read_once():
    def main():
        x = torch.zeros(8 * 1024)
        weighted_kernel[(8,)](x, torch.zeros(1024), torch.empty_like(x), 1024)

    assert took(main) == pytest.approx(LAUNCH + 2 * 8 * 4096 * 1e-5)
