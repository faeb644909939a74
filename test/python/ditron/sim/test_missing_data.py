"""Timing-only mode: host code that decides by data that was not computed is wrong, at its line."""

from __future__ import annotations

import inspect
import re

import pytest
import torch
import triton.language as tl
from timed_programs import simple_machine

import ditron
import ditron.host as dh
from ditron import sim
from ditron_compiler.errors import SimulationError


@ditron.jit
def double_kernel(x_ptr, ids_ptr, out_ptr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out_ptr + tl.load(ids_ptr + at), 2 * tl.load(x_ptr + at))


@ditron.program
def copied(x, out):
    dh.copy(x, out)


def doubled() -> torch.Tensor:
    """The result of a kernel."""
    x, out = torch.ones(16), torch.zeros(16)
    double_kernel[(1,)](x, torch.arange(16, dtype=torch.int32), out, BLOCK=16)
    return out


def branches():
    if doubled()[0] > 1:  # here
        return


def reads_a_number():
    return 1 if doubled().sum().item() > 2 else 0  # here


def compares():
    assert torch.equal(doubled(), torch.full((16,), 2.0))  # here


def is_close():
    torch.testing.assert_close(doubled(), torch.full((16,), 2.0))  # here


def has_an_unknown_length():
    (doubled() > 1).nonzero()  # here


def selects():
    out = doubled()
    return out[out > 1]  # here


def decides_by_a_product():
    if (torch.ones(8, 8) @ torch.ones(8, 8)).max() > 3:  # here
        return


def decides_by_what_follows():
    ids = (torch.ones(8, 8) @ torch.ones(8, 8)).softmax(-1).topk(2).indices
    counts = torch.zeros(8, dtype=torch.int64).scatter_add_(0, ids.view(-1), torch.ones(16, dtype=torch.int64))
    range(int(counts[0]))  # here


def routes_of_a_product():
    ids = (torch.ones(16, 8) @ torch.ones(8, 8)).argmax(-1).to(torch.int32)
    double_kernel[(1,)](torch.ones(16), ids, torch.zeros(16), BLOCK=16)  # here


def plan_of_a_product():
    ids = (torch.ones(256, 8) @ torch.ones(8, 8)).topk(2).indices
    ditron.kernels.moe_plan(ids, num_experts=8)  # here


def decides_by_a_copy():
    out = torch.zeros(16)
    copied(torch.ones(16), out)
    bool(out.sum() > 3)  # here


def decides_by_an_operator():
    bool(ditron.kernels.all_reduce(torch.ones(1024, dtype=torch.bfloat16)).sum() > 3)  # here


def lengths_of_an_operator():
    counts = doubled()[:4].int()
    ditron.kernels.all_to_all_v(torch.zeros(16, 8, dtype=torch.bfloat16), counts, max_rows=64)  # here


def decides_by_nccl():
    bool(ditron.kernels.all_gather(torch.ones(1024, dtype=torch.bfloat16), algorithm="nccl").sum() > 3)  # here


WRONG = [
    branches, reads_a_number, compares, is_close, has_an_unknown_length, selects, decides_by_a_product,
    decides_by_what_follows, routes_of_a_product, plan_of_a_product, decides_by_a_copy, decides_by_an_operator, decides_by_nccl,
    lengths_of_an_operator,
]  # fmt: skip


def knows_its_own_data():
    """Random inputs, the routes that follow from them, integers, and what was written anew."""
    x = torch.randn(16, 8)
    ids = x.topk(2).indices[:, 0].to(torch.int32) * 0 + torch.arange(16, dtype=torch.int32)
    assert (x.max() > -100).item() and ids.max().item() == 15
    out = torch.zeros(16)
    double_kernel[(1,)](torch.ones(16), ids, out, BLOCK=16)
    assert ids.sum().item() == 120
    out.copy_(torch.ones(16))
    assert out.sum() == 16
    out.zero_()
    assert not out.any()


def uses_data_without_looking():
    """Data flows on: through elementwise work, masks, products, indices and quantization."""
    out = doubled()
    y = torch.where(out > 0, out, 0) + torch.zeros_like(out)
    y = torch.cat((y, torch.ones(16)))[torch.arange(4)]
    codes = (doubled() * 4).round().to(torch.int8)
    double_kernel[(1,)](codes, torch.arange(16, dtype=torch.int32), torch.zeros(16, dtype=torch.int8), BLOCK=16)
    assert torch.zeros_like(y).sum() == 0 and y.new_ones(3).sum() == 3 and y.shape == (4,)
    return f"{type(y)} {out}"


def predict(body, **mode):
    def main():
        ditron.init()
        torch.manual_seed(0)
        body()

    sim.predict(main, simple_machine("nccl.share=0.5", "nccl.latency=20", "nccl.packet_share=0.25",
                                     "nccl.packet_latency=8"), **mode)  # fmt: skip


@pytest.mark.parametrize("body", WRONG, ids=lambda body: body.__name__)
def test_deciding_by_missing_data_is_an_error_at_its_line(body):
    lines, first = inspect.getsourcelines(body)
    line = first + next(number for number, text in enumerate(lines) if text.rstrip().endswith("# here"))
    with pytest.raises(SimulationError) as caught:
        predict(body)
    error = caught.value
    assert re.match(rf".*test_missing_data\.py:{line}: ", str(error)), str(error)
    assert "floating-point result of a kernel or a product; timing-only mode computes no" in str(error)


@pytest.mark.parametrize("body", [knows_its_own_data, uses_data_without_looking])
def test_data_of_the_hosts_own_is_there(body):
    predict(body)


@pytest.mark.parametrize("body", [one for one in WRONG if one is not decides_by_nccl], ids=lambda body: body.__name__)
def test_with_data_nothing_is_missing(body):
    predict(body, timing_only=False)
