"""Products of torch and collectives of NCCL in predictions: what they take on a machine of simple numbers."""

from __future__ import annotations

import pytest
import torch
from timed_programs import simple_machine

import ditron
import ditron.host as dh
from ditron import kernels, sim  # noqa: F401 (kernels declares the operators of tables)
from ditron.machines import load
from ditron.sim.library_time import collective_us, product_us
from ditron.tuning.tables import Table, shipped_path
from ditron_compiler.errors import DitronError

NCCL = ("nccl.share=0.5", "nccl.latency=20", "nccl.packet_share=0.25", "nccl.packet_latency=8")


def test_a_product_takes_rounds_of_tiles():
    machine = simple_machine("sm.dot16=4", "hbm=100000", "latency.launch=3")  # 4 SMs of 1 TFLOP/s
    one_tile = 2 * 128 * 256 * 4096 / 1e6  # us
    assert product_us(machine, 1, 512, 256, 4096, 2) == pytest.approx(3 + one_tile)
    assert product_us(machine, 1, 512, 512, 4096, 2) == pytest.approx(3 + 2 * one_tile)
    assert product_us(machine, 2, 512, 256, 4096, 2) == pytest.approx(3 + 2 * one_tile)
    divided = product_us(machine, 1, 128, 256, 4096, 2)  # each SM has a fourth of the columns
    assert divided == pytest.approx(3 + one_tile / 4)


def test_a_product_of_few_rows_takes_the_reading_of_its_weight():
    machine = simple_machine("hbm=10", "sm.fill=2")
    assert product_us(machine, 1, 1, 4096, 4096, 2) == pytest.approx(3 + 2 + (4096 * 4096 + 2 * 4096) * 2 / 10e3)


def test_sums_of_a_divided_product_are_added_by_a_second_kernel():
    """One tile of 64 x 64: four SMs have a fourth of K each, and 4 x 16 KB of sums are written and read."""
    one_tile = 2 * 64 * 64 * 16384 / 1e6
    parts, whole = (
        product_us(simple_machine("sm.dot16=4", "hbm=1000", f"latency.launch={launch}"), 1, 64, 64, 16384, 2)
        for launch in (3, 300)
    )
    assert parts == pytest.approx(3 + one_tile / 4 + 3 + 2 * 4 * 64 * 64 * 4 / 1e6)
    assert whole == pytest.approx(300 + one_tile)  # a second launch would take longer than is gained


def test_a_tile_takes_as_long_as_its_sm_takes_its_operands():
    """One row of tiles takes its columns alone; two rows share them, whatever the products take."""
    machine = simple_machine("sm.dot16=4000", "hbm=100000", "hbm.per_sm=1", "latency.launch=3000")
    operands = 64 * 2 / 1e3  # us of a row's or a column's part of a step
    assert product_us(machine, 1, 64, 256, 64, 2) == pytest.approx(3000 + 128 * operands)
    assert product_us(machine, 1, 128, 128, 64, 2) == pytest.approx(3000 + 96 * operands)


#: Of one H200 in graphs, no weight in the L2 cache: docs/results/links.md, AG+GEMM of few rows, cuBLAS alone.
FEW_ROWS = {
    (3584, 8192): {2: 19.1, 16: 19.6, 32: 20.5, 64: 21.8},
    (1792, 4096): {2: 8.8, 16: 9.0, 32: 9.1, 64: 9.2},
}


@pytest.mark.parametrize("N, K", FEW_ROWS)
def test_products_of_few_rows_take_what_was_measured(N, K):
    machine = load("h200x2").in_graph()
    for rows, us in FEW_ROWS[N, K].items():
        assert product_us(machine, 1, rows, N, K, 2) == pytest.approx(us, rel=0.15), rows


def test_later_rounds_take_longer_where_calls_follow_each_other():
    machine = simple_machine("hbm=100000", "sm.dot16=4", "sm.dot16_sustained=2", "sm.burst=100")
    us = product_us(machine, 1, 512, 512, 4096, 2) - 3
    assert product_us(machine.sustained(), 1, 512, 512, 4096, 2) - 3 == pytest.approx(100 + 2 * (us - 100))


def test_a_collective_goes_by_packets_or_at_the_large_rate():
    machine = simple_machine(*NCCL)  # a link of 100 GB/s
    assert collective_us(machine, 25_000, 4) == pytest.approx(8 + 1)
    assert collective_us(machine, 5_000_000, 4) == pytest.approx(20 + 100)
    two_nodes = load("h800x8x2")
    assert collective_us(two_nodes, 1e8, 16) > collective_us(load("h800x8"), 1e8, 8)


def test_nccl_alone_takes_what_was_measured():
    """Each collective of the shipped table of two H200s, but the all-reduce of 4 KB: the model has one latency for all
    collectives, 9.2 us, and NCCL takes 7.6 for it.
    """
    table = Table.from_text(shipped_path("h200", 2).read_text())
    alone = [(one, entry.best("nccl").us) for one, entry in table.entries.items() if not one.is_product]
    assert len(alone) == 32
    machine = load("h200x2")
    for problem, us in alone:
        if (problem.operator, problem.rows) == ("all_reduce", 2048):
            assert us < collective_us(machine, problem.sent_bytes, 2) < 1.25 * us
            continue
        assert collective_us(machine, problem.sent_bytes, 2) == pytest.approx(us, rel=0.15), problem


def gemm_rs(algorithm):
    def main():
        ditron.init()
        a, b = (torch.full(shape, 2.0, dtype=torch.bfloat16) for shape in ((512, 4096), (256, 4096)))
        ditron.kernels.gemm_rs(a, b, algorithm=algorithm)

    return main


def test_an_operator_by_cublas_and_nccl():
    machine = simple_machine(*NCCL, "hbm=100000", "latency.barrier=5")
    prediction = sim.predict(gemm_rs("nccl"), machine)
    product, collective = (max(one.us for one in call) for call in prediction.calls)
    assert product == pytest.approx(product_us(machine, 1, 512, 256, 4096, 2))
    assert collective == pytest.approx(collective_us(machine, 3 * 128 * 256 * 2, 4), abs=0.01)
    text = str(prediction)
    assert "NCCL reduce_scatter" in text and "priced at zero" not in text


def test_nccl_computes_nothing_and_so_is_for_timing_only():
    with pytest.raises(DitronError, match="algorithm='nccl' takes a group of GPUs"):
        sim.predict(gemm_rs("nccl"), simple_machine(), timing_only=False)


@ditron.program
def called_program(a, b, out):
    dh.call(lambda a, b, out: torch.mm(a, b, out=out), reads=[a, b], writes=[out])
    dh.call(lambda _, out: out.mul_(2), reads=[out], writes=[out])


@pytest.mark.parametrize("timing_only", [False, True])
def test_functions_that_a_program_calls(timing_only):
    """A product takes its time; of what is no product the output says that it takes none."""
    results = []

    def main():
        ditron.init()
        a, b, out = torch.ones(128, 64), torch.ones(64, 256), torch.zeros(128, 256)
        called_program(a, b, out)
        results.append(out)

    machine = simple_machine("hbm=100000")
    prediction = sim.predict(main, machine, 1, timing_only=timing_only)
    assert prediction.calls[0][0].us == pytest.approx(product_us(machine, 1, 128, 256, 64, 4), abs=0.01)
    assert results[0][0, 0] == (0 if timing_only else 128)
    (unpriced,) = prediction.unpriced
    assert "test_library_time.py:" in unpriced and f"priced at zero, since its time is not known: {unpriced}" in str(
        prediction
    )
