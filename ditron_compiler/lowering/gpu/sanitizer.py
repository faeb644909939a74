"""The sanitizer's rows of the GPU lowering: no wait hangs in silence (runtime/gpu/sanitizer.ll).

A wait gets a time limit; the address of a remote access is checked before the access. Each such call carries its Python
line: as a number, which the device writes into its report, and as text in the attribute ``libpath`` of the call. Triton
does not use that attribute here, and keeps it in the kernel's ``ttir``, also in its disk cache, where the host looks
the text of a number up (:func:`places`).
"""

from __future__ import annotations

import hashlib
import re

from ditron_compiler import ir
from ditron_compiler.ir.dialects import ditron
from ditron_compiler.lowering.gpu.builder import Lowering, is_tensor
from ditron_compiler.lowering.gpu.pointers import translate_each
from ditron_compiler.lowering.gpu.table import (
    GET_ARGUMENTS,
    TABLE,
    WAIT_ARGUMENTS,
    Row,
    protocol,
    signal_wait_until,
    translate,
    wait,
)

__all__ = ["SANITIZER_TABLE", "place_number", "places"]

_PLACE = re.compile(r'libpath = "(\w+ in \S+ at [^"]*)"')


def place_number(text: str) -> int:
    """A number for the text of a place, the same wherever and whenever it is computed; fits an i64."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:7], "little")


def places(ttir: str) -> dict[int, str]:
    """Number -> ``"wait in KERNEL at FILE:LINE"`` of every sanitizer call in a kernel's ``ttir``."""
    return {place_number(text): text for text in _PLACE.findall(ttir)}


def _place(lowering: Lowering, op: ir.Operation) -> tuple[ir.Value, str]:
    """Where ``op`` stands, as the constant for the device and as text."""
    position = op.location.file_line_col
    kernel = lowering.function.sym_name.value
    where = f"{position[0]}:{position[1]}" if position else "an unknown line"
    text = f"{op.name.removeprefix('ditron.')} in {kernel} at {where}"
    return lowering.constant(place_number(text), lowering.i64), text


def _wait(lowering: Lowering, op: ir.Operation) -> None:
    place, text = _place(lowering, op)
    wait(
        lowering,
        op,
        WAIT_ARGUMENTS,
        lambda operands: lowering.call(
            "ditron_sanitizer_wait",
            [lowering.ctx, *operands, place],
            lowering.i32,
            divisibility=lowering.aligned,
            libpath=text,
        ),
    )


def _ll_get(lowering: Lowering, op: ir.Operation) -> None:
    place, text = _place(lowering, op)
    symbol = f"ditron_sanitizer_{protocol(lowering, op)}_get"
    wait(
        lowering,
        op,
        GET_ARGUMENTS,
        lambda operands: lowering.call(
            symbol, [lowering.ctx, *operands, place], lowering.i32, divisibility=lowering.aligned, libpath=text
        ),
    )


def _signal_wait_until(lowering: Lowering, op: ir.Operation) -> None:
    place, text = _place(lowering, op)
    signal_wait_until(
        lowering,
        op,
        lambda operands: lowering.call(
            "ditron_sanitizer_signal_wait_until", [lowering.ctx, *operands, place], lowering.i32, libpath=text
        ),
    )


def _barrier(lowering: Lowering, op: ir.Operation) -> None:
    """barrier_all, barrier and sync_all; each completes the puts before it, which sync_all need not."""
    team = 0 if isinstance(op, ditron.BarrierAllOp) else int(op.team)
    place, text = _place(lowering, op)
    lowering.call(
        "ditron_sanitizer_barrier",
        [lowering.ctx, lowering.constant(team, lowering.i32), _direct(lowering), place],
        lowering.i32,
        libpath=text,
    )
    lowering.acquired()
    lowering.replace()


def _direct(lowering: Lowering) -> ir.Value:
    """Whether a rank is reached through mapped memory only."""
    return lowering.constant(lowering.gpu.maps_all, lowering.i32)


def _symm_at(lowering: Lowering, op: ir.Operation) -> None:
    place, text = _place(lowering, op)

    def build(symbol: str, operands: list[ir.Value], result: ir.Type, aligned: ir.Attribute | None) -> ir.Value:
        where = lowering.splat(place, result)
        symbol = f"ditron_sanitizer_{symbol}"
        return lowering.call(symbol, [*operands, where], result, divisibility=aligned, libpath=text)

    if is_tensor(op.rank.type):
        translate_each(lowering, op, build)
        return
    translate(
        lowering,
        op,
        lambda base, divisibility: lowering.call(
            "ditron_sanitizer_symm_at",
            [lowering.ctx, base, op.rank, place],
            base.type,
            divisibility=divisibility,
            libpath=text,
        ),
    )


def _check_remote(op_class: type) -> Row:
    """The row without the sanitizer, after a check of the operation's remote addresses."""
    row = TABLE[op_class]

    def lower(lowering: Lowering, op: ditron.RemoteAccessOpInterface) -> None:
        place, text = _place(lowering, op)
        for pointer, nbytes in op.remote_accesses:
            size = lowering.constant(8, lowering.i64) if nbytes is None else nbytes  # of a signal
            lowering.call(
                "ditron_check_remote",
                [lowering.ctx, pointer, size, op.rank, _direct(lowering), place],
                lowering.i32,
                libpath=text,
            )
        row.lower(lowering, op)

    return Row(lower, row.publishes)


_BARRIERS = (ditron.BarrierAllOp, ditron.BarrierOp, ditron.SyncAllOp)

SANITIZER_TABLE: dict[type, Row] = TABLE | {
    ditron.WaitOp: Row(_wait),
    ditron.SignalWaitUntilOp: Row(_signal_wait_until),
    **{op_class: Row(_barrier, TABLE[op_class].publishes) for op_class in _BARRIERS},
    ditron.SymmAtOp: Row(_symm_at),
    ditron.LLGetOp: Row(_ll_get),
    **{op_class: _check_remote(op_class) for op_class in TABLE if issubclass(op_class, ditron.RemoteAccessOpInterface)},
}
