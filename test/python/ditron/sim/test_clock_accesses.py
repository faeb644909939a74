"""The clock: what a program's tensors of loads and stores take, by the elements that they have."""

from __future__ import annotations

import pytest
import torch
import triton.language as tl
from timed_programs import PRODUCT, operations, predicted

import ditron
import ditron.language as dl


@ditron.jit
def chase(at_ptr, out_ptr, N: tl.constexpr, WIDTH: tl.constexpr):
    at = tl.arange(0, WIDTH).to(tl.int64)
    for _ in range(N):  # each address is what the load before gave
        at = dl.ld(at_ptr + at, scope="gpu")
    tl.store(out_ptr + tl.arange(0, WIDTH), at)


def test_a_tensor_is_loaded_at_once_and_again_each_time():
    def took(times, width):
        def main(view):
            chase[(1,)](torch.arange(width), torch.zeros(width, dtype=torch.int64), N=times, WIDTH=width)

        ((_, begin, end),) = operations(predicted(main, 1), "chase")
        return end - begin

    one, five = took(1, 64), took(5, 64)
    assert one == pytest.approx(took(1, 128), abs=0.01)
    assert five - one == pytest.approx(4 * (took(2, 64) - one)) and five > one


@ditron.jit
def compute(x, STEPS: tl.constexpr):
    acc = tl.zeros((32, 32), tl.float32)
    for _ in range(STEPS):
        acc += tl.dot(x, x)
    return acc


@ditron.jit
def words_kernel(words_ptr, x_ptr, y_ptr, WIDTH: tl.constexpr):
    """Rank 0 polls a tensor that has word 0, which is there, many times, and then word 1, which rank 1 stores between a
    product and a longer one.
    """
    if dl.rank() == 0:
        place_ptr = words_ptr + tl.arange(0, WIDTH) * 2 // WIDTH
        words = dl.ld(place_ptr, scope="node")
        while tl.max((words == 0).to(tl.int32)) != 0:
            words = dl.ld(place_ptr, scope="node")
    else:
        at = tl.arange(0, 32)[:, None] * 32 + tl.arange(0, 32)[None, :]
        x = tl.load(x_ptr + at)
        acc = compute(x, 1000)
        dl.st(dl.symm_at(words_ptr, 0) + 1, 1, scope="node")
        tl.store(y_ptr + at, (acc + compute(x, 10000)).to(tl.bfloat16))


@pytest.mark.parametrize("width", [2, 256])
def test_a_poll_of_the_same_word_again_and_again_sees_the_others_in_time(width):
    """Words that a tensor has several times are no loop that has been around: the poll waits for all of the tensor."""

    def main(view):
        words, x = view.alloc((2,), torch.int64, name="words"), torch.zeros(32, 32, dtype=torch.bfloat16)
        words[0] = 1
        words_kernel[(1,)](words, x, torch.zeros_like(x), WIDTH=width)

    (_, _, polled), (_, _, computed) = operations(predicted(main), "words_kernel")
    assert PRODUCT < polled < PRODUCT + 10 and computed > 11 * PRODUCT


@ditron.jit
def store_some_kernel(rows_ptr, x_ptr, N: tl.constexpr):
    """``N`` bf16 to each row [16, N] of a peer's that is not negative."""
    row = tl.load(rows_ptr + tl.arange(0, 16))[:, None]
    at = row * N + tl.arange(0, N)[None, :]
    tl.store(dl.symm_at(x_ptr, 1) + at, tl.zeros((16, N), tl.bfloat16), mask=row >= 0)


@pytest.mark.parametrize("timing_only", [False, True])
def test_stores_that_a_mask_of_data_leaves_out_take_no_time(timing_only):
    def took(number):
        def main(view):
            x, rows = view.alloc((16, 1024), torch.bfloat16, name="x"), torch.full((16,), -1, dtype=torch.int32)
            rows[:number] = torch.arange(number)
            if view.rank == 0:
                store_some_kernel[(1,)](rows, x, N=1024)

        ((_, begin, end),) = operations(predicted(main, timing_only=timing_only), "store_some_kernel")
        return end - begin

    none, few, all_rows = (took(number) for number in (0, 4, 16))
    assert all_rows - none == pytest.approx(4 * (few - none), rel=0.01) and few > none
