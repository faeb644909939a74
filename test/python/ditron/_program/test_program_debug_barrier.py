"""``tl.debug_barrier`` in a kernel that a program launches."""

from __future__ import annotations

import torch
import triton.language as tl

import ditron


@ditron.jit
def bump(x, N: tl.constexpr):
    at = tl.arange(0, N)
    value = tl.load(x + at)
    tl.debug_barrier()
    tl.store(x + at, value + 1)


@ditron.program(sample_args=lambda ranks: {"x": "f32[16]"})
def bump_once(x):
    bump[(1,)](x, N=16)


def test_it_runs():
    def main():
        ditron.init()
        x = torch.zeros(16)
        bump_once(x)
        return x.unique().tolist()

    assert ditron.sim.run(main, ranks=1) == [[1.0]]


def test_it_is_a_barrier_of_the_program_on_gpus():
    example = {"signature": {"x": "*fp32"}, "constexprs": {"N": 16}}
    assert "bar.sync" in ditron.compile(bump, **example, target="cuda:90", stop_after="ptx").asm["ptx"]
    assert "s_barrier" in ditron.compile(bump, **example, target="hip:gfx942", stop_after="amdgcn").asm["amdgcn"]
