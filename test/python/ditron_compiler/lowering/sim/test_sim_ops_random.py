"""Random tile programs mean the same lowered as in numpy."""

from __future__ import annotations

import numpy as np
import pytest
from sim_random_programs import SHAPES, Program

from ditron import sim
from ditron_compiler.sim_compiler import compile_module


def check(seed: int, statements: int = 8) -> None:
    program = Program(seed, statements)
    kernel = compile_module(program.text)
    generator = np.random.default_rng(seed)
    for flag in (0, 1):
        inputs = [generator.integers(-9, 9, shape).astype(np.int32) for shape in SHAPES]
        expected = program.expected(inputs, flag)
        outputs = [np.zeros(e.shape, np.int32) for e in expected]
        scratch = np.zeros(max(m * n for m, n in SHAPES), np.int32)
        slots = [flag, *[a.ctypes.data for a in (scratch, *inputs, *outputs)]]
        sim.run(lambda slots=slots: sim.current_world().launch(kernel, (1,), slots), ranks=1)
        for name, got, want in zip(program.outputs, outputs, expected, strict=True):
            assert np.array_equal(got, want), f"seed {seed}, flag {flag}: {name} of\n{program.text}"


@pytest.mark.parametrize("seed", range(60))
def test_random_program(seed: int) -> None:
    check(seed)
