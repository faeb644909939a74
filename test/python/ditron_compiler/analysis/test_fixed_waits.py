"""Which signals streams wait for at constants only, by memory operations in CUDA graphs."""

import torch

import ditron
import ditron.host as dh
from ditron.kernels.ag_gemm import ag_gemm_program
from ditron_compiler.analysis.fixed_waits import fixed_waits
from ditron_compiler.ir.dialects import ditron as dialect


def of(program, *args, **kwargs):
    module = program.module(*args, **kwargs)
    (op,) = (op for op in module.body.operations if isinstance(op, dialect.ProgramOp))
    return fixed_waits(op)


@ditron.program
def waits(x):
    signals = {
        name: dh.symm_zeros(4, dtype=torch.int64, name=name) for name in ("fixed", "equal", "epoch", "both", "ne")
    }
    for index in dh.range(0, 4):
        dh.signal_wait(signals["fixed"][index], 1)
        dh.signal_write(signals["fixed"][index], 0, dh.rank())
    dh.signal_wait(signals["equal"][0], 0, cmp="eq")
    dh.signal_wait(signals["epoch"][0], dh.epoch())
    dh.signal_wait(signals["both"][0], 1)
    dh.signal_wait(signals["both"][1], dh.epoch())
    dh.signal_wait(signals["ne"][0], 1, cmp="ne")
    dh.symm_zeros(4, dtype=torch.int64, name="never")
    dh.copy(x, x)


def test_waits_for_constants():
    assert of(waits, "f32[4]") == {"fixed", "equal"}


def test_a_handshake():
    assert of(ag_gemm_program) == {"done"}
