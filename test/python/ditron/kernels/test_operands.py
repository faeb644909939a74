"""What operators say of operands that they cannot take, whichever operator it is."""

import pytest
import torch
from simulated import run

import ditron
from ditron import DitronError, kernels

# Of ranks 0 and 1, as many elements on each.
SHAPES = [(8, 16), (4, 32)]


@pytest.mark.parametrize(
    "what, call",
    [
        ("ag_gemm: a", lambda x: kernels.ag_gemm(x, torch.ones(8, x.shape[1]))),
        ("ag_gemm: b", lambda x: kernels.ag_gemm(torch.ones(4, 8), x.view(-1, 8)[: x.shape[0]])),
        ("gemm_rs: a", lambda x: kernels.gemm_rs(x, torch.ones(8, x.shape[1]))),
        ("gemm_ar: a", lambda x: kernels.gemm_ar(x, torch.ones(8, x.shape[1]))),
        ("all_gather: the operand", kernels.all_gather),
        ("all_reduce: the operand", kernels.all_reduce),
        ("reduce_scatter: the operand", kernels.reduce_scatter),
        ("all_to_all: the operand", kernels.all_to_all),
    ],
)
def test_other_shapes_on_another_rank(what, call):
    def main():
        call(torch.ones(SHAPES[ditron.rank()]))

    with pytest.raises(DitronError, match=rf"{what} is \[.*\] on rank . and \[.*\] on rank . of the group: it must be"):
        run(main, ranks=2)


@pytest.mark.parametrize("given", [{"capacity": (1, 6)}, {"block_m": (16, 32)}, {"num_experts": (4, 2)}])
def test_other_options_of_a_plan_on_another_rank(given):
    def main():
        ids = torch.zeros(4, 1, dtype=torch.int64)
        mine = {name: values[ditron.rank()] for name, values in given.items()}
        kernels.moe_plan(ids, on_overflow="drop", **{"num_experts": 4} | mine)

    with pytest.raises(DitronError, match=f"moe_plan: {min(given)} is . on rank|{min(given)} is .. on rank"):
        run(main, ranks=2)


def test_a_local_operator_takes_any_number_of_rows():
    def main():
        x = torch.ones(1 + ditron.rank(), 128, dtype=torch.bfloat16)
        assert kernels.quantize_1x128(x)[0].shape == x.shape

    run(main, ranks=2)


def test_sparse_tensors():
    def main():
        with pytest.raises(DitronError, match="all_reduce: the operand must be a dense tensor, .*: give its to_dense"):
            kernels.all_reduce(torch.eye(4).to_sparse())

    run(main, ranks=2)


@pytest.mark.parametrize("dropped", [torch.zeros(1), torch.zeros(0, dtype=torch.int64), torch.zeros(3).long()])
def test_where_dropped_routes_are_counted(dropped):
    def main():
        with pytest.raises(DitronError, match=r"moe_plan: dropped must be \[1\] of int64 on cpu, got"):
            kernels.moe_plan(torch.zeros(4, 1).long(), num_experts=2, capacity=2, dropped=dropped)
        with pytest.raises(DitronError, match="moe_plan: num_experts must be an integer, got 4.0"):
            kernels.moe_plan(torch.zeros(4, 1).long(), num_experts=4.0)

    run(main, ranks=2)
