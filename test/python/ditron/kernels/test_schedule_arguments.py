"""Schedules of more than two ranks: which are candidates, what they depend on, and which arguments are refused."""

import re
import sys
from types import SimpleNamespace

import pytest
import torch
from fake_cuda import machine

from ditron import kernels
from ditron.kernels.a2a_gemm import a2a_gemm_program
from ditron.kernels.ag_gemm import ag_gemm_program
from ditron.kernels.ag_gemm_slices import slices_schedule
from ditron.kernels.gathered_product import FEWEST_SMS, few_columns_schedule
from ditron.kernels.gemm_rs import gemm_rs_program
from ditron.kernels.schedules import check_schedule, schedule_for
from ditron.tuning.lookup import GroupChoices
from ditron.tuning.problem import Problem
from ditron.tuning.registry import candidates_of
from ditron_compiler.errors import DitronError

# ruff: noqa: F811 - tests take the fixture by its name

__all__ = ["machine"]


def test_a_rule_that_names_more_hides_no_other_schedule():
    """Of more than two ranks the rule has two copy streams, or programs that push: schedules without are others."""
    of_sums = candidates_of(Problem("gemm_rs", "bf16", 4, 2048, 8192, 3584))
    assert of_sums[0]["copy_streams"] == 2
    assert {name: value for name, value in of_sums[0].items() if name != "copy_streams"} in of_sums
    of_rows = candidates_of(Problem("ag_gemm", "bf16", 4, 2048, 1792, 4096))
    assert of_rows[0]["pushers"] == 14
    assert {name: value for name, value in of_rows[0].items() if name != "pushers"} in of_rows
    of_two = candidates_of(Problem("gemm_rs", "bf16", 2, 4096, 8192, 3584))
    assert not any("copy_streams" in options or "stores" in options for options in of_two)


@pytest.mark.parametrize("rows", [300, 400, 512])
def test_schedules_of_few_columns_depend_on_the_capacity_of_rows(rows):
    assert few_columns_schedule(4, rows, 1024)["pieces"] == few_columns_schedule(2, rows, 1024)["pieces"] == 4
    assert few_columns_schedule(4, rows, 1024)["pushers"] and "pushers" not in few_columns_schedule(2, rows, 1024)
    assert few_columns_schedule(4, rows, 4096) == few_columns_schedule(4, 128, 1024) == {}
    assert few_columns_schedule(2, 8000, 1024) and not few_columns_schedule(2, 9000, 1024)


@pytest.mark.parametrize(
    "program, given, message",
    [
        (ag_gemm_program, {"push_warps": 64}, "push_warps must be from 1 to 32, got 64"),
        (ag_gemm_program, {"push_warps": 3}, "push_warps must be a power of two, got 3"),
        (ag_gemm_program, {"push_block": 1 << 21}, "push_block must be from 1 to 65536"),
        (gemm_rs_program, {"copy_streams": 64}, "copy_streams must be from 1 to 8, got 64"),
        (gemm_rs_program, {"parts": 3}, "parts must be a power of two, got 3"),
        (gemm_rs_program, {"parts": 8}, "parts must be from 2 to 4, got 8"),
        (gemm_rs_program, {"stores": 1}, "stores must be True or False, got 1"),
    ],
)
def test_limits_of_schedules(program, given, message):
    with pytest.raises(DitronError, match=re.escape(message)):
        check_schedule("op", given, program)


def test_programs_that_push_leave_an_sm():
    group = SimpleNamespace(small_shapes=False, sms=132)
    assert schedule_for("ag_gemm", group, 2048, 2, {"pushers": 14}, whole_pieces=False)["programs"] == 118
    with pytest.raises(DitronError, match="pushers must be from 1 to 131, to leave an SM to the product, got 132"):
        schedule_for("ag_gemm", group, 2048, 2, {"pushers": 132}, whole_pieces=False)


@pytest.mark.parametrize("sms, pushers", [(8, None), (FEWEST_SMS - 1, None), (FEWEST_SMS, 14), (132, 14)])
def test_programs_push_where_nobody_asked_on_a_gpu_with_many_sms(machine, monkeypatch, sms, pushers):
    machine.group.choices, machine.group.sms, chosen = GroupChoices(None), sms, []
    module = sys.modules["ditron.kernels.ag_gemm"]  # its name in the package is the operator's
    monkeypatch.setattr(module, "run_step", lambda *args, **constants: chosen.append(constants))
    kernels.ag_gemm(torch.randn(256, 64).bfloat16(), torch.randn(64, 64).bfloat16(), algorithm="overlapped")
    assert chosen[0].get("pushers") == pushers
    assert chosen[0]["programs"] == sms - (pushers or 0)


@pytest.mark.parametrize(
    "rows, N, K, sms, has_nvlink, algorithm",
    [
        (512, 1792, 4096, 132, True, "k_slices"),
        (2048, 1792, 4096, 132, True, "k_slices"),
        (256, 3584, 8192, 132, True, "k_slices"),
        (4096, 1792, 4096, 132, True, "overlapped"),  # four tiles for each program
        (512, 3584, 8192, 132, True, "by_rank"),  # whose products hide the copies
        (512, 1792, 4096, FEWEST_SMS - 1, True, "by_rank"),
        (512, 1792, 4096, 132, False, "by_rank"),
    ],
)
def test_two_ranks_take_slices_of_k_where_tiles_are_few(machine, monkeypatch, rows, N, K, sms, has_nvlink, algorithm):
    """As the rule says of GPUs with NVLink and many SMs."""
    group, ran = machine.group, []
    group.choices, group.sms, group.has_nvlink, group.num_ranks = GroupChoices(None), sms, has_nvlink, 2
    module = sys.modules["ditron.kernels.ag_gemm"]
    monkeypatch.setattr(module, "run_step", lambda program, *args, **constants: ran.append(program))
    kernels.ag_gemm(torch.empty(rows, K).bfloat16(), torch.empty(N, K).bfloat16())
    assert ran == [module._program_of(algorithm)]
    if has_nvlink and sms == 132:
        assert candidates_of(Problem("ag_gemm", "bf16", 2, rows, N, K))[0]["algorithm"] == algorithm


def test_schedules_of_slices_depend_on_the_capacity_of_rows_and_on_what_is_given():
    group = SimpleNamespace(small_shapes=False, sms=132, num_ranks=2)
    chosen = slices_schedule(group, 1024, 1792, {})
    assert chosen == slices_schedule(group, 600, 1792, {})
    assert (chosen["block"], chosen["num_warps"], chosen["programs"], chosen["pushers"]) == ((128, 256, 64), 8, 112, 10)
    given = slices_schedule(group, 1024, 1792, {"block": (128, 128, 64), "programs": 124})
    assert (given["num_warps"], given["stages"], given["pushers"]) == (4, 4, 4)


@pytest.mark.parametrize("block, warps", [((128, 256, 64), 8), ((128, 128, 64), 4), ((64, 256, 64), 4)])
def test_small_tiles_have_four_warps_where_nobody_names_them(block, warps):
    group = SimpleNamespace(small_shapes=False, sms=132)
    assert schedule_for("gemm_rs", group, 2048, 2, {"block": block}, whole_pieces=False)["num_warps"] == warps
    assert (
        schedule_for("gemm_rs", group, 2048, 2, {"block": block, "num_warps": 16}, whole_pieces=False)["num_warps"]
        == 16
    )


class Recorder:
    """In the place of ``a2a_gemm``'s program: what it is called with."""

    constants = a2a_gemm_program.constants

    def __init__(self, ran):
        self.ran = ran

    def __call__(self, *args, **constants):
        self.ran.append(constants)


@pytest.mark.parametrize(
    "ranks, heads, sms, has_nvlink, pushers",
    [
        (2, 8, 132, True, 12),
        (4, 16, 132, True, 12),
        (4, 16, FEWEST_SMS - 1, True, None),
        (4, 16, 132, False, None),
        (2, 16, 132, True, None),  # twice the bytes for each rank, and twice the columns
    ],
)
def test_rows_behind_an_exchange_are_stored_where_they_take_as_long_as_the_product(
    machine, monkeypatch, ranks, heads, sms, has_nvlink, pushers
):
    group, ran = machine.group, []
    group.choices, group.sms, group.has_nvlink, group.num_ranks = GroupChoices(None), sms, has_nvlink, ranks

    monkeypatch.setattr(sys.modules["ditron.kernels.a2a_gemm"], "a2a_gemm_program", Recorder(ran))
    size = heads * 128
    kernels.a2a_gemm(torch.empty(ranks * 8192, size // ranks).bfloat16(), torch.empty(size, size).bfloat16())
    assert ran[0].get("pushers") == pushers and ran[0]["programs"] == sms - (pushers or 0)
    assert ran[0].get("copy_streams") == (2 if ranks > 2 and pushers is None else None)


@pytest.mark.parametrize("ranks, given, pushers", [(2, 5, 5), (4, 5, 3), (4, 12, 12), (8, 1, 7), (8, 12, 7)])
def test_programs_that_store_are_equally_many_for_each_rank(machine, monkeypatch, ranks, given, pushers):
    """And SMs are left to all of them."""
    group, ran = machine.group, []
    group.choices, group.sms, group.num_ranks = GroupChoices(None), 132, ranks
    monkeypatch.setattr(sys.modules["ditron.kernels.a2a_gemm"], "a2a_gemm_program", Recorder(ran))
    a, b = torch.empty(ranks * 256, 64).bfloat16(), torch.empty(64, ranks * 64).bfloat16()
    kernels.a2a_gemm(a, b, algorithm="overlapped", pushers=given)
    assert ran[0]["pushers"] == pushers and ran[0]["programs"] == 132 - pushers


def test_rows_that_no_tile_reaches_are_exchanged_and_multiplied_one_by_one():
    """K of a rank is no multiple of 16 bytes, though that of all is."""
    problem = Problem("a2a_gemm", "bf16", 2, 4096, 1024, 2056)
    assert candidates_of(problem)[0] == {"algorithm": "sequential"}
