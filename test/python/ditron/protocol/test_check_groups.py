"""Launches in groups of some of the ranks: ranks are the group's there, also on other nodes."""

from __future__ import annotations

import pytest
import torch
import triton.language as tl

import ditron
import ditron.language as dl
from ditron.protocol.api import check_function

N = 64
GROUPS = {"halves": ([0, 1], [2, 3]), "pairs across": ([2, 0], [3, 1])}


@ditron.jit
def pass_on(x, box, flags, out, HOW: tl.constexpr, N: tl.constexpr):
    at = tl.arange(0, N)
    right = (dl.rank() + 1) % dl.num_ranks()
    if HOW == "world":
        right = (dl.rank("world") + 1) % dl.num_ranks("world")
    if HOW == "put":
        dl.putmem_signal(box, x, N * 4, flags, 1, right)
    else:
        tl.store(dl.symm_at(box, right) + at, 1.0)
        if HOW != "no signal":
            dl.notify(flags, right, 1)
    if HOW != "no signal":
        token = dl.wait(flags, 1, 1)
        box = dl.consume_token(box, token)
    tl.store(out + at, tl.load(box + at))
    dl.barrier_all()


def run(how: str, groups: str, then_world: bool = False):
    def main():
        ditron.init()
        box = ditron.symm_empty(N, dtype=torch.float32, name="box")
        flags = ditron.symm_zeros(1, dtype=torch.int64, name="flags")
        mine = [group for group in map(ditron.new_group, GROUPS[groups]) if group]
        pass_on[(1,)](torch.ones(N), box, flags, torch.empty(N), HOW=how, N=N, group=mine[0])

    return main


@pytest.mark.parametrize("groups", GROUPS)
@pytest.mark.parametrize("how", ["put", "notify"])
def test_a_launch_in_a_group_is_followed(how, groups):
    report = check_function(run(how, groups), [(4, None)])
    assert not report.findings and report.is_complete, str(report)
    ditron.sim.run(run(how, groups), ranks=4)


@pytest.mark.parametrize(("how", "kind"), [("no signal", "unordered"), ("world", "rank")])
def test_mistakes_in_a_group_are_found(how, kind):
    report = check_function(run(how, "halves"), [(4, None)])
    assert kind in [finding.kind for finding in report.findings], str(report)


def test_a_group_across_nodes():
    report = check_function(run("notify", "pairs across"), [(4, 2)])
    assert "bounds" in [finding.kind for finding in report.findings], str(report)
    report = check_function(run("put", "pairs across"), [(4, 2)])
    assert not report.findings and report.is_complete, str(report)
