"""A rank that is no member of a group cannot use it: not by mistake, as the current group, either."""

from __future__ import annotations

import pytest
import torch
import triton.language as tl

import ditron
import ditron.language as dl
from ditron import DitronError, kernels


@ditron.jit
def store_rank(x):
    tl.store(x, dl.rank())


USES = {
    "an operator": lambda group: kernels.all_reduce(torch.ones(4), group=group),
    "allocation": lambda group: ditron.symm_zeros(4, dtype=torch.int64, group=group),
    "with": lambda group: group.__enter__(),
    "a launch": lambda group: store_rank[(1,)](torch.zeros(1), group=group),
    "barrier": lambda group: ditron.barrier(group),
    "rank": lambda group: ditron.rank(group),
    "synchronize": lambda group: ditron.synchronize(group),
    "as_group": lambda group: ditron.as_group(group),
    "a layer": lambda group: ditron.nn.ColumnParallelLinear(4, 4, group=group),
    "an attribute": lambda group: group.num_ranks,
}


@pytest.mark.parametrize("use", USES)
def test_a_non_member_gets_an_error(use):
    def main():
        ditron.init()
        group = ditron.new_group([2, 0])
        assert bool(group) == (ditron.rank() != 1)
        if ditron.rank() == 1:
            assert group is not None and "no member" in repr(group)
            with pytest.raises(
                DitronError, match=r"rank 1 of the world is no member of the group of world ranks \[2, 0\]"
            ):
                USES[use](group)

    ditron.sim.run(main, ranks=3)


def test_members_use_it():
    def main():
        ditron.init()
        if group := ditron.new_group([2, 0]):
            assert ditron.num_ranks(group) == 2
            x = torch.zeros(1)
            store_rank[(1,)](x, group=group)
            assert x.item() == group.rank

    ditron.sim.run(main, ranks=3)
