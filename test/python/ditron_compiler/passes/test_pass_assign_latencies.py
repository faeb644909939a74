"""assign-latencies lets Triton's pipeliner issue a load before a wait that another one is behind."""

from __future__ import annotations

import pytest
import torch
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

import ditron
import ditron.language as dl
from ditron_compiler.errors import DitronError

BLOCK = 64
SIGNATURE = {"a_desc": "tensordesc<fp16[64,64]>", "b_desc": "tensordesc<fp16[64,64]>", "out_ptr": "*fp16", "K": "i32"}


@ditron.jit
def product(a_desc, b_desc, out_ptr, K, BLOCK: tl.constexpr, A_AHEAD: tl.constexpr, B_AHEAD: tl.constexpr):
    acc = tl.zeros((BLOCK, BLOCK), tl.float32)
    for k in range(0, K, BLOCK):
        a = dl.load_ahead(a_desc.load([0, k]), A_AHEAD)
        b = dl.load_ahead(b_desc.load([0, k]), B_AHEAD)
        acc = tl.dot(a, b.T, acc)
    at = tl.arange(0, BLOCK)
    tl.store(out_ptr + at[:, None] * BLOCK + at[None, :], acc.to(tl.float16))


@pytest.mark.parametrize("a_ahead, b_ahead", [(2, 5), (4, 1)])
def test_tiles_that_are_loaded_before_the_first_product(a_ahead, b_ahead):
    constants = {"BLOCK": BLOCK, "A_AHEAD": a_ahead, "B_AHEAD": b_ahead}
    compiled = ditron.compile(product, signature=SIGNATURE, constexprs=constants, target="cuda:90")
    before = compiled.asm["ptx"].partition("mbarrier.try_wait")[0]
    assert before.count("cp.async.bulk.tensor") == a_ahead + b_ahead


def test_the_simulator_computes_the_same():
    def main():
        ditron.init()
        a, b = (torch.randn(BLOCK, 3 * BLOCK, generator=torch.Generator().manual_seed(i)).half() for i in range(2))
        out = torch.empty(BLOCK, BLOCK, dtype=torch.float16)
        of = [TensorDescriptor.from_tensor(x, [BLOCK, BLOCK]) for x in (a, b)]
        product[(1,)](*of, out, 3 * BLOCK, BLOCK=BLOCK, A_AHEAD=2, B_AHEAD=5)
        torch.testing.assert_close(out.float(), a.float() @ b.float().T, rtol=2e-3, atol=2e-3)

    ditron.sim.run(main, ranks=1)


@ditron.jit
def of_one_load(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for k in range(0, n, BLOCK):
        total += dl.load_ahead(tl.load(x_ptr + k + i), 2)
        total += tl.load(out_ptr + k + i)  # without
    tl.store(out_ptr + i, total)


@ditron.jit
def of_a_sum(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for k in range(0, n, BLOCK):
        total += dl.load_ahead(tl.load(x_ptr + k + i) + 1.0, 2)  # of a sum
    tl.store(out_ptr + i, total)


@ditron.jit
def of_no_loop(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out_ptr + i, dl.load_ahead(tl.load(x_ptr + i), 2))  # in no loop


@pytest.mark.parametrize(
    "kernel, says, line",
    [
        (of_one_load, "this load would not be pipelined", "# without"),
        (of_a_sum, "is not a load: dl.load_ahead takes what tl.load", "# of a sum"),
        (of_no_loop, "of a load in the body of a for loop", "# in no loop"),
    ],
)
def test_what_cannot_be_issued_ahead_is_an_error_at_its_line(kernel, says, line):
    signature = {"x_ptr": "*fp32", "out_ptr": "*fp32", "n": "i32"}
    with pytest.raises(DitronError, match=says) as caught:
        ditron.compile(kernel, signature=signature, constexprs={"BLOCK": 64}, target="cuda:90")
    lines = open(__file__).read().splitlines()
    assert f"{__file__}:{next(i for i, text in enumerate(lines, 1) if text.endswith(line))}" in str(caught.value)


@ditron.jit
def behind_a_wait(x_ptr, ready_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for k in range(0, n, BLOCK):
        dl.wait(ready_ptr + k // BLOCK, 1, 1)
        total += dl.load_ahead(tl.load(x_ptr + k + i), 2)
    tl.store(out_ptr + i, total)


def test_loads_that_would_be_in_front_of_a_wait():
    """Primitives are lowered behind the pass, or it would not see them."""
    signature = {"x_ptr": "*fp32", "ready_ptr": "*i64", "out_ptr": "*fp32", "n": "i32"}
    with pytest.raises(DitronError, match="dl.load_ahead: the loop contains 'ditron.wait'"):
        ditron.compile(behind_a_wait, signature=signature, constexprs={"BLOCK": 64}, target="cuda:90")
