"""Pushes by TMA: a descriptor made over a peer's memory, its store and its add, then a notify."""

from __future__ import annotations

import re

import pytest
import torch
import triton.language as tl

import ditron
import ditron.language as dl
import ditron.sim
from ditron.protocol.api import check_function

ROWS, COLS, BLOCK = 24, 32, 16  # the last block of rows is clipped


@ditron.jit(do_not_specialize=["epoch"])
def push(
    x_ptr, box_ptr, out_ptr, arrived_ptr, epoch, ROWS: tl.constexpr, COLS: tl.constexpr, BLOCK: tl.constexpr,
    ADD: tl.constexpr, NOTIFY: tl.constexpr,
):  # fmt: skip
    """``x`` to the right neighbour's box, stored or added; what the left one has pushed to ``out``."""
    ranks = dl.num_ranks()
    right = (dl.rank() + 1) % ranks
    source = tl.make_tensor_descriptor(x_ptr, [ROWS, COLS], [COLS, 1], [BLOCK, COLS])
    target = tl.make_tensor_descriptor(dl.symm_at(box_ptr, right), [ROWS, COLS], [COLS, 1], [BLOCK, COLS])
    for row in range(0, ROWS, BLOCK):
        tile = source.load([row, 0])
        if ADD:
            target.atomic_add([row, 0], tile)
        else:
            target.store([row, 0], tile)
    if NOTIFY:
        dl.notify(arrived_ptr, right, epoch)
    token = dl.wait(arrived_ptr, 1 if NOTIFY else 0, epoch)
    box = tl.make_tensor_descriptor(dl.consume_token(box_ptr, token), [ROWS, COLS], [COLS, 1], [BLOCK, COLS])
    result = tl.make_tensor_descriptor(out_ptr, [ROWS, COLS], [COLS, 1], [BLOCK, COLS])
    for row in range(0, ROWS, BLOCK):
        result.store([row, 0], box.load([row, 0]))


def on_rank(add: bool, notify: bool, compares: bool = True) -> None:
    ditron.init()
    rank, ranks = ditron.rank(), ditron.num_ranks()
    box = ditron.symm_zeros(2, ROWS, COLS, dtype=torch.float32, name="box")
    arrived = ditron.symm_zeros(1, dtype=torch.int64, name="arrived")
    out = torch.zeros(ROWS, COLS)
    for epoch in range(1, 4):
        x = torch.arange(ROWS * COLS).view(ROWS, COLS) + 1000.0 * rank + epoch
        half = box[epoch % 2]
        push[(1,)](x, half, out, arrived, epoch, ROWS=ROWS, COLS=COLS, BLOCK=BLOCK, ADD=add, NOTIFY=notify)
        left = x + 1000.0 * ((rank - 1) % ranks - rank)
        earlier = left - 2 if add and epoch == 3 else 0  # the same half in the call before the last
        assert not compares or torch.equal(out, left + earlier)
        ditron.barrier()


@pytest.mark.parametrize("add", [False, True], ids=["store", "add"])
@pytest.mark.parametrize("weak", [False, True], ids=["races", "weak"])
def test_pushes_arrive(add, weak):
    for seed in range(5):
        ditron.sim.run(on_rank, ranks=3, seed=seed, races=not weak, weak=weak, args=(add, True))


@pytest.mark.parametrize("add", [False, True], ids=["store", "add"])
def test_a_push_without_notify_is_a_race(add):
    with pytest.raises(ditron.SimulationError) as found:
        for seed in range(20):
            ditron.sim.run(on_rank, ranks=2, seed=seed, races=True, args=(add, False, False))
    assert found.value.kind == "race"


@pytest.mark.parametrize("notify", [False, True])
def test_the_checker_follows_descriptors_of_peers(notify):
    report = check_function(lambda: on_rank(False, notify, compares=False), [(2, None)])
    assert bool(report.findings) != notify, report


SIGNATURE = {"x_ptr": "*bf16", "box_ptr": "*bf16", "out_ptr": "*bf16", "arrived_ptr": "*i64", "epoch": "i32"}
# From the end of the pushes to the signal's store.
PUBLISHED = r"cp\.async\.bulk\.wait_group\s+0.*?fence\.proxy\.async;.*?bar\.sync.*?fence\.acq_rel\.sys; .*?st\.relaxed"


@pytest.mark.parametrize("add", [False, True], ids=["store", "add"])
def test_writes_have_completed_before_the_signal(add):
    constants = {"ROWS": ROWS, "COLS": COLS, "BLOCK": BLOCK, "ADD": add, "NOTIFY": True}
    ptx = ditron.compile(push, SIGNATURE, constants, stop_after="ptx").asm["ptx"]
    issued = [match.end() for match in re.finditer(r"cp\.(reduce\.)?async\.bulk\.tensor\.2d\.global", ptx)]
    published = re.search(PUBLISHED, ptx, re.DOTALL)
    assert published and issued and issued[0] < published.start()
    assert "cp.reduce" in ptx[: published.start()] if add else "cp.reduce" not in ptx
