"""Names that are local to a kernel and global in its script: the kernel means its own."""

from __future__ import annotations

import pytest
import torch
import triton.language as tl

import ditron

out = torch.zeros(16)
scale = tl.constexpr(3)


@ditron.jit
def assigned_further_down(x, dst, N: tl.constexpr):
    for turn in tl.static_range(2):
        if turn == 1:
            out.store([0], tl.load(x + tl.arange(0, N)))  # noqa: F823
        out = tl.make_tensor_descriptor(dst, [N], [1], [N])  # noqa: F841


@ditron.jit
def truly_global(x, dst, N: tl.constexpr):
    at = tl.arange(0, N)
    out = tl.load(x + at)
    tl.store(dst + at, out * scale)


@pytest.mark.parametrize("kernel, factor", [(assigned_further_down, 1), (truly_global, 3)], ids=["local", "global"])
def test_a_local_name_hides_a_global_tensor(kernel, factor):
    def main():
        ditron.init()
        x, dst = torch.arange(16.0), torch.zeros(16)
        kernel[(1,)](x, dst, N=16)
        return torch.equal(dst, factor * x)

    assert ditron.sim.run(main, ranks=1) == [True]


def test_a_global_that_changes_is_still_noticed(monkeypatch):
    def main():
        ditron.init()
        truly_global[(1,)](torch.ones(16), torch.zeros(16), N=16)

    ditron.sim.run(main, ranks=1)
    monkeypatch.setitem(globals(), "scale", tl.constexpr(4))
    with pytest.raises(RuntimeError, match="scale has changed"):
        ditron.sim.run(main, ranks=1)
