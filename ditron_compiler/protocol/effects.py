"""The operations that access memory or order accesses: the method of :class:`.program.AbstractProgram` for each.

Those of atomics are in :class:`.atomics.Atomics`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ditron_compiler import ir
from ditron_compiler.analysis.call_graph import only_prefetches
from ditron_compiler.ir.dialects import ditron, tt
from ditron_compiler.protocol.inline_ptx import only_computes

__all__ = ["EFFECTS", "NO_EFFECT", "Effect", "effect_of", "is_flag_type", "may_block", "may_order"]

Operands = Callable[[ir.Operation], Sequence[ir.Value | None]]


@dataclass(frozen=True)
class Effect:
    """How an operation is executed.

    Attributes:
        method: of ``AbstractProgram``. operands: the operands that it is given; None for an optional one that is
        absent. waits: the method is a generator. blocks: a generator may block until another program does something;
        False where it only lets others run first. value_method: a generator called instead if the result is needed.
    """

    method: str
    operands: Operands
    waits: bool = False
    blocks: bool = True
    value_method: str = ""


def _named(*names: str) -> Operands:
    """Operands by their names in the ODS."""
    return lambda op: [getattr(op, name) for name in names]


def is_flag_type(kind: ir.Type) -> bool:
    """Whether values of this type, or tiles of them, may be flags, counters or indices: they are followed."""
    return str(kind).endswith(("i32", "i64", "i32>", "i64>")) and "ptr" not in str(kind)


def _load(op: tt.LoadOp) -> list[ir.Value | None]:
    """Address and mask; of integers, what is there where the mask is false, too."""
    return [op.ptr, op.mask, op.other] if is_flag_type(op.result.type) else [op.ptr, op.mask]


def _store(op: tt.StoreOp) -> list[ir.Value | None]:
    """Address and mask; of integers the values too."""
    return [op.ptr, op.mask, op.value] if is_flag_type(op.value.type) else [op.ptr, op.mask]


def _integer_atomic(op: ditron.StOp | ditron.RedOp | ditron.AtomicAddOp) -> list[ir.Value]:
    return [op.ptr, op.value] if is_flag_type(op.value.type) else [op.ptr]


def _box(op: tt.DescriptorLoadOp | tt.DescriptorStoreOp | tt.DescriptorReduceOp) -> list[ir.Value]:
    return [op.desc, *op.indices]


EFFECTS: dict[type, Effect] = {
    tt.LoadOp: Effect("read", _load, value_method="load"),
    tt.StoreOp: Effect("write", _store),
    tt.DescriptorLoadOp: Effect("read_box", _box, value_method="load_box"),
    tt.DescriptorGatherOp: Effect("not_followed", _named()),
    tt.DescriptorStoreOp: Effect("write_box", _box),
    tt.DescriptorReduceOp: Effect("write_box", _box),
    tt.DescriptorScatterOp: Effect("not_followed", _named()),
    tt.AtomicRMWOp: Effect("atomic", _named("ptr", "val", "mask"), waits=True, blocks=False),
    tt.AtomicCASOp: Effect("cas", _named("ptr", "cmp", "val"), waits=True),
    ditron.SymmAtOp: Effect("symm_at", _named("ptr", "rank")),
    ditron.MulticastPtrOp: Effect("multicast", _named("ptr")),
    ditron.WaitOp: Effect("wait", _named("signal", "count", "value"), waits=True),
    ditron.SignalWaitUntilOp: Effect("wait_until", _named("signal", "value"), waits=True),
    ditron.SignalFetchOp: Effect("fetch", _named("signal"), waits=True),
    ditron.NotifyOp: Effect("notify", _named("signal", "value", "rank")),
    ditron.SignalOpOp: Effect("notify", _named("signal", "value", "rank")),
    ditron.PutmemOp: Effect("put", _named("dst", "src", "nbytes", "rank")),
    ditron.PutmemSignalOp: Effect("put_signal", _named("dst", "src", "nbytes", "signal", "value", "rank")),
    ditron.GetmemOp: Effect("get", _named("dst", "src", "nbytes", "rank")),
    ditron.LLPutOp: Effect("ll_put", _named("packets", "src", "nbytes", "epoch", "rank")),
    ditron.LLGetOp: Effect("ll_get", _named("dst", "packets", "nbytes", "epoch"), waits=True),
    ditron.FenceOp: Effect("fence", _named()),
    ditron.QuietOp: Effect("quiet", _named()),
    ditron.BarrierAllOp: Effect("barrier", _named(), waits=True),
    ditron.BarrierOp: Effect("barrier", _named(), waits=True),
    ditron.SyncAllOp: Effect("barrier", _named(), waits=True),
    ditron.LdOp: Effect("ld", _named("ptr"), waits=True),
    ditron.StOp: Effect("st", _integer_atomic, waits=True, blocks=False),
    ditron.RedOp: Effect("atomic", _integer_atomic, waits=True, blocks=False),
    ditron.AtomicAddOp: Effect("atomic", _integer_atomic, waits=True, blocks=False),
    ditron.AtomicCasOp: Effect("cas", _named("ptr", "cmp", "value"), waits=True),
    ditron.MultimemLdReduceOp: Effect("multimem_read", _named("ptr")),
    ditron.MultimemStOp: Effect("multimem_write", _named("ptr")),
    ditron.MultimemRedOp: Effect("multimem_write", _named("ptr")),
    ditron.ExternCallOp: Effect("not_followed", _named()),
}


#: Operations with memory effects that neither access memory nor order what other programs see.
NO_EFFECT: frozenset[type] = frozenset(
    (ditron.BallotOp, ditron.ExpectOp, ditron.ShflOp, ditron.SpendOp, ditron.SyncThreadsOp)
)
_NOT_FOLLOWED = Effect("not_followed", _named())


def effect_of(op: ir.Operation) -> Effect | None:
    """The effect of ``op``; None when it only computes. A ditron operation without a row is noted as not followed."""
    effect = EFFECTS.get(type(op))
    if isinstance(op, tt.ElementwiseInlineAsmOp):
        return None if only_computes(op) or only_prefetches(op) else _NOT_FOLLOWED
    if effect is not None or not op.name.startswith("ditron."):
        return effect
    return None if type(op) in NO_EFFECT or op.is_memory_effect_free else _NOT_FOLLOWED


#: What only reads or writes data, or computes addresses: all else may order programs.
_ACCESSES = (tt.LoadOp, tt.StoreOp, tt.DescriptorLoadOp, tt.DescriptorStoreOp, ditron.SymmAtOp, ditron.MulticastPtrOp)


def may_order(op: ir.Operation) -> bool:
    """Whether an operation, or one inside it, may order programs, or is a call."""
    if isinstance(op, tt.CallOp) or (effect_of(op) is not None and not isinstance(op, _ACCESSES)):
        return True
    return any(may_order(inner) for region in op.regions for block in region.blocks for inner in block.operations)


def may_block(op_class: type) -> bool:
    """Whether an operation of this class may block until another program does something."""
    effect = EFFECTS.get(op_class)
    return effect is not None and effect.waits and effect.blocks
