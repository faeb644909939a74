"""The passes on kernels take time in proportion to the kernel: a long unrolled loop must not take minutes.

What is counted are the lines of Python that a pass executes, which are the same in every run.
"""

from __future__ import annotations

import sys

import pytest

from ditron_compiler import ir
from ditron_compiler.ir.passmanager import PassManager
from ditron_compiler.pass_registry import register_all
from ditron_compiler.pipeline import PIPELINES

# Each step translates an address of its own, stores there, signals by a signal of its own, and waits for that; then for
# more than any before it.
STEP = """
  %i{k} = arith.constant {k} : i32
  %w{k} = arith.constant {k} : i64
  %p{k} = "tt.addptr"(%sig, %i{k}) : (!tt.ptr<i64>, i32) -> !tt.ptr<i64>
  %y{k} = ditron.symm_at %box on %i{k} : !tt.ptr<f32>
  "tt.store"(%y{k}, %x) : (!tt.ptr<f32>, f32) -> ()
  ditron.putmem %box, %box, %v on %i{k} nbi : !tt.ptr<f32>, !tt.ptr<f32>
  ditron.signal_op %p{k} set %w{k} on %r : !tt.ptr<i64>
  %t{k} = ditron.wait %p{k}[%one] ge %v : !tt.ptr<i64>
  %u{k} = ditron.wait %all[%one] ge %w{k} : !tt.ptr<i64>
  %again{k} = ditron.wait %p{k}[%one] ge %v : !tt.ptr<i64>
"""
KERNEL = """
"tt.func"() <{{function_type = (!tt.ptr<i64>, !tt.ptr<i64>, !tt.ptr<f32>, f32, i32, i64) -> (), sym_name = "k"}}> ({{
^bb0(%sig: !tt.ptr<i64>, %all: !tt.ptr<i64>, %box: !tt.ptr<f32>, %x: f32, %r: i32, %v: i64):
  %one = arith.constant 1 : i32
{steps}
  "tt.return"() : () -> ()
}}) {{ditron.kernel}} : () -> ()
"""
NAMES = sorted({entry.split("{")[0] for entries in PIPELINES.values() for entry in entries} - {"canonicalize", "cse"})


def lines_executed(name: str, steps: int) -> int:
    """How many lines of Python the pass ``name`` executes on a kernel of so many steps."""
    register_all()
    lines = 0

    def trace(frame, event, argument):
        nonlocal lines
        lines += event == "line"
        return trace

    with ir.Context():
        text = KERNEL.format(steps="".join(STEP.format(k=k) for k in range(steps)))
        module = ir.Module.parse(text)
        manager = PassManager.parse(f"builtin.module({name})")
        before = sys.gettrace()
        sys.settrace(trace)
        try:
            manager.run(module)
        finally:
            sys.settrace(before)
    return lines


@pytest.mark.parametrize("name", NAMES)
def test_twice_the_kernel_is_twice_the_work(name):
    lines_executed(name, 2)  # what is imported, once
    once, twice = lines_executed(name, 60), lines_executed(name, 120)
    assert 0 < once and twice < 2.3 * once, (once, twice)
