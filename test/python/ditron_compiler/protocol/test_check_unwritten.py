"""What copies bring of memory that nobody has written: the checker and the simulator report the same readers."""

from __future__ import annotations

import numpy as np
import pytest
import test_unwritten
import torch
import triton
import triton.language as tl

import ditron
import ditron.language as dl
from ditron import sim
from ditron.protocol.api import check_function
from ditron_compiler.protocol.memory import copied_to

N = test_unwritten.N
marked = test_unwritten.marked


def check(main, *args, ranks: int = 2, per_node: int | None = None):
    return check_function(lambda: main(*args), [(ranks, per_node)])


def the_one(report, load: str, copy: str = ""):
    (finding,) = report.findings
    assert finding.kind == "unwritten" and load in finding.loc, report
    assert (copy in finding.others[0][1]) if copy else not finding.others, report


@pytest.mark.parametrize("nbi", [False, True])
def test_what_a_kernel_gets(nbi):
    assert not check(test_unwritten.gets, N // 2, nbi).findings  # as test_unwritten does on the simulator
    the_one(check(test_unwritten.gets, N // 2 + 1, nbi), marked("load"), marked("get nbi" if nbi else "get"))


def puts() -> None:
    ditron.init()
    other = ditron.symm_zeros(N, dtype=torch.float32, name="other")
    test_unwritten.put_and_load[(1,)](test_unwritten.half_written(), other, torch.ones(N), N=N)


def puts_on(writes: bool) -> None:
    ditron.init()
    other = ditron.symm_empty(N, dtype=torch.float32, name="other")
    test_unwritten.by_way_of_own_memory[(1,)](
        test_unwritten.half_written(), torch.ones(N), other, torch.ones(N), WRITES=writes, N=N
    )


def test_what_a_kernel_puts():
    """Over zeros that were there, and from copy to copy."""
    the_one(check(puts), marked("load"), marked("put"))
    the_one(check(puts_on, False), marked("load"), marked("put"))
    assert not check(puts_on, True).findings


@pytest.mark.parametrize("how", ["copy", "pull"])
def test_what_streams_copy(how):
    the_one(check(test_unwritten.on_streams, how), marked("load"), marked(how))
    for cure in ("fill", "write", "script", "mask"):
        assert not check(test_unwritten.on_streams, how, cure).findings, cure


def rows(columns: int, transposed: bool) -> None:
    """Half of the columns of each row are written, and copied row by row into a larger box."""
    ditron.init()
    view = sim.current_world()
    box = ditron.symm_empty(4, 8, dtype=torch.float32, name="box")
    box[:, :4] = 1.0
    ditron.barrier()
    own, out = torch.zeros(8, 4) if transposed else torch.zeros(4, 16), torch.empty(4, 8)
    with view.stream():
        view.stream().copy(box.t() if transposed else box, own if transposed else own[:, :8])
        read_rows[(1,)](own, out, COLUMNS=columns, STRIDE=4 if transposed else 16)
    view.synchronize()


@ditron.jit
def read_rows(own, out, COLUMNS: tl.constexpr, STRIDE: tl.constexpr):
    row, column = tl.arange(0, 4)[:, None], tl.arange(0, 8)[None, :]
    tl.store(out + row * 8 + column, tl.load(own + row * STRIDE + column, column < COLUMNS, 0.0))


def test_byte_for_byte():
    assert not check(rows, 4, False).findings
    sim.run(rows, 2, args=(4, False))
    (finding,) = check(rows, 5, False).findings
    assert "dst[4] of rank" in finding.message and "a copy of what nobody has written" in finding.message
    with pytest.raises(ditron.SimulationError, match=r"4\] of rank.*a copy of uninitialized memory"):
        sim.run(rows, 2, args=(5, False))
    assert not check(rows, 4, True).findings, "where a transposed copy brings what is not followed"


@ditron.jit
def scatter(index, box, out, N: tl.constexpr, BRANCH: tl.constexpr):
    at = tl.arange(0, N)
    if BRANCH:
        if tl.load(index) == 0:
            tl.store(box + at, 1.0)
    else:
        tl.store(box + tl.load(index + at), 1.0)
    dl.barrier_all()
    tl.store(out + at, tl.load(box + at))


@triton.jit
def plain(box, N: tl.constexpr):
    tl.store(box + tl.arange(0, N), 1.0)


@pytest.mark.parametrize("how", ["address", "branch", "plain", "nobody"])
def test_what_was_not_followed_may_have_written(how):
    def main():
        ditron.init()
        box, out = ditron.symm_empty(N, dtype=torch.float32, name="box"), torch.empty(N)
        if how in ("address", "branch"):
            scatter[(1,)](torch.empty(N, dtype=torch.int64), box, out, N=N, BRANCH=how == "branch")
            return
        if how == "plain":
            plain[(1,)](box, N=N)
        test_unwritten.load[(1,)](box, out, N, N=N)

    report = check(main)
    assert bool(report.notes) == (how in ("address", "branch")), report  # a plain kernel is followed
    assert [finding.kind for finding in report.findings] == ["unwritten"] * (how == "nobody"), report


@ditron.jit
def store_right(box, out, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(dl.symm_at(box, (dl.rank() + 1) % dl.num_ranks()) + at, 1.0)
    dl.barrier_all()
    tl.store(out + at, tl.load(box + at))


def test_a_write_that_goes_astray_is_said_once():
    def main():
        ditron.init()
        store_right[(1,)](ditron.symm_empty(N, dtype=torch.float32, name="box"), torch.empty(N), N=N)

    (finding,) = check(main, ranks=2, per_node=1).findings
    assert finding.kind == "bounds" and "max_nodes=1" in finding.hint


def test_where_bytes_go():
    source, target = np.array([[0, 4], [10, 14], [20, 28]]), np.array([[100, 106], [200, 210]])
    whole = copied_to(source, target, np.array([[0, 30]]))
    assert whole.tolist() == [[100, 106], [200, 210]]
    assert copied_to(source, target, np.array([[12, 22]])).tolist() == [[200, 204]]
    assert copied_to(source, target, np.array([[3, 11]])).tolist() == [[103, 105]]
    assert copied_to(source, target, np.array([[4, 10], [28, 40]])).tolist() == []
