"""Checked mode: the rows of the GPU lowering that differ, so that no wait hangs in silence (runtime/gpu/checked.ll).

A wait becomes the wait with a time limit; an access to another rank is looked at before it happens. Each such call says
which Python line it stands for: by a number, which the device writes into its report, and by a text in the attribute
``libpath`` of the call. Triton has no use for that attribute here, and keeps it in the kernel's ``ttir``, also in its
disk cache: that is how the host finds the text of a number again (:func:`places`).
"""

from __future__ import annotations

import hashlib
import re

from ditron_compiler import ir
from ditron_compiler.ir.dialects.enums import number
from ditron_compiler.lowering.gpu.lowering import Lowering
from ditron_compiler.lowering.gpu.table import TABLE, WAIT_ENUMS, Row, protocol, signal_wait_until, translate, wait

__all__ = ["CHECKED_TABLE", "place_number", "places"]

_PLACE = re.compile(r'libpath = "(\w+ in \S+ at [^"]*)"')


def place_number(text: str) -> int:
    """A number for the text of a place, the same wherever and whenever it is computed; fits an i64."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:7], "little")


def places(ttir: str) -> dict[int, str]:
    """Number -> ``"wait in KERNEL at FILE:LINE"`` of every checked call in a kernel's ``ttir``."""
    return {place_number(text): text for text in _PLACE.findall(ttir)}


def _place(lowering: Lowering, op: ir.Operation) -> tuple[ir.Value, str]:
    """Where ``op`` stands, as the constant for the device and as text."""
    position = op.location.file_line_col
    kernel = ir.StringAttr(lowering.function.attributes["sym_name"]).value
    where = f"{position[0]}:{position[1]}" if position else "an unknown line"
    text = f"{op.name.removeprefix('ditron.')} in {kernel} at {where}"
    return lowering.constant(place_number(text), lowering.i64), text


def _wait(lowering: Lowering, op: ir.Operation) -> None:
    place, text = _place(lowering, op)
    wait(
        lowering,
        op,
        WAIT_ENUMS,
        lambda operands: lowering.call(
            "ditron_checked_wait",
            [lowering.ctx, *operands, place],
            lowering.i32,
            divisibility=lowering.aligned,
            libpath=text,
        ),
    )


def _ll_get(lowering: Lowering, op: ir.Operation) -> None:
    place, text = _place(lowering, op)
    symbol = f"ditron_checked_{protocol(lowering, op)}_get"
    wait(
        lowering,
        op,
        (),
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
            "ditron_checked_signal_wait_until", [lowering.ctx, *operands, place], lowering.i32, libpath=text
        ),
    )


def _barrier(lowering: Lowering, op: ir.Operation) -> None:
    """All three of OpenSHMEM's: each waits until the puts before it have arrived, which sync_all need not."""
    team = number(op.attributes["team"]) if "team" in op.attributes else 0
    place, text = _place(lowering, op)
    lowering.call(
        "ditron_checked_barrier",
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
    translate(
        lowering,
        op,
        lambda base, divisibility: lowering.call(
            "ditron_checked_symm_at",
            [lowering.ctx, base, op.operands[1], place],
            base.type,
            divisibility=divisibility,
            libpath=text,
        ),
    )


def _remote(rank: int, *accesses: tuple[int, int | None]):
    """The unchecked row, after a look at its remote addresses.

    ``rank`` is the operand that names the peer; an access is (operand of the address, operand of its bytes or None
    for one signal).
    """

    def row(mnemonic: str) -> Row:
        unchecked = TABLE[mnemonic]

        def lower(lowering: Lowering, op: ir.Operation) -> None:
            place, text = _place(lowering, op)
            for pointer, size in accesses:
                nbytes = lowering.constant(8, lowering.i64) if size is None else op.operands[size]
                lowering.call(
                    "ditron_check_remote",
                    [lowering.ctx, op.operands[pointer], nbytes, op.operands[rank], _direct(lowering), place],
                    lowering.i32,
                    libpath=text,
                )
            unchecked.lower(lowering, op)

        return Row(lower, unchecked.publishes)

    return row


CHECKED_TABLE: dict[str, Row] = TABLE | {
    "wait": Row(_wait),
    "signal_wait_until": Row(_signal_wait_until),
    **{name: Row(_barrier, TABLE[name].publishes) for name in ("barrier_all", "barrier", "sync_all")},
    "symm_at": Row(_symm_at),
    "notify": _remote(2, (0, None))("notify"),
    "signal_op": _remote(2, (0, None))("signal_op"),
    "putmem": _remote(3, (0, 2))("putmem"),
    "getmem": _remote(3, (1, 2))("getmem"),
    "ll_put": _remote(4, (0, 2))("ll_put"),
    "ll_get": Row(_ll_get),
    "putmem_signal": _remote(5, (0, 2), (3, None))("putmem_signal"),
}
