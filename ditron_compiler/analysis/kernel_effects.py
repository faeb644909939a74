"""What a kernel does with the memory that its arguments point to."""

from __future__ import annotations

from dataclasses import dataclass

from ditron_compiler import ir
from ditron_compiler.analysis.alias import underlying_objects

__all__ = ["ArgumentUse", "argument_uses"]


@dataclass(frozen=True)
class ArgumentUse:
    """Whether memory is read or written here, and whether memory of that name is touched on other ranks."""

    reads: bool = False
    writes: bool = False
    remote: bool = False

    def __or__(self, other: ArgumentUse) -> ArgumentUse:
        return ArgumentUse(self.reads | other.reads, self.writes | other.writes, self.remote | other.remote)


_READ, _WRITE, _REMOTE = ArgumentUse(reads=True), ArgumentUse(writes=True), ArgumentUse(remote=True)
_ALL = ArgumentUse(True, True, True)

# Operation -> what it does with each of its first operands; those after are not followed.
_USES: dict[str, tuple[ArgumentUse | None, ...]] = {
    "tt.load": (_READ,),
    "tt.descriptor_load": (_READ,),
    "tt.store": (_WRITE, None),
    "tt.descriptor_store": (_WRITE, None),
    "ditron.ld": (_READ,),
    "ditron.st": (_WRITE, None),
    "ditron.wait": (_READ,),
    "ditron.signal_wait_until": (_READ,),
    "ditron.notify": (_REMOTE | _WRITE,),
    "ditron.signal_op": (_REMOTE | _WRITE,),
    "ditron.putmem": (_REMOTE | _WRITE, _READ),
    "ditron.getmem": (_WRITE, _REMOTE | _READ),
    "ditron.putmem_signal": (_REMOTE | _WRITE, _READ, None, _REMOTE | _WRITE),
}


def argument_uses(function: ir.Operation) -> tuple[ArgumentUse, ...]:
    """What a ``tt.func`` does with each of its arguments; everything that is not known counts as done."""
    arguments = list(function.regions[0].blocks[0].arguments)
    uses = dict.fromkeys(arguments, ArgumentUse())
    lost = ArgumentUse()  # by pointers of which the origin is not known

    def add(op: ir.Operation) -> None:
        nonlocal lost
        if _only_places(op):
            return
        known = _USES.get(op.name)
        for index, operand in enumerate(op.operands):
            use = known[index] if known and index < len(known) else None if known else _ALL
            if use is None or not _points(operand.type):
                continue
            for origin in underlying_objects(operand):
                there = use if origin.rank is None else use | _REMOTE
                if origin.root in uses:
                    uses[origin.root] |= there
                else:
                    lost |= there

    function.walk(add)
    return tuple(uses[argument] | lost for argument in arguments)


def _points(kind: ir.Type) -> bool:
    return "!tt.ptr" in (text := str(kind)) or "tensordesc" in text


def _only_places(op: ir.Operation) -> bool:
    """Whether an operation makes pointers of pointers, or only hands them on, and touches no memory itself."""
    return op.name in ("scf.yield", "scf.for", "scf.if", "scf.while", "scf.condition", "tt.func", "tt.return") or (
        op.is_memory_effect_free and any(_points(result.type) for result in op.results)
    )
