"""The simulator machine's C ABI as the lowering sees it (its home is runtime/sim/abi/abi.h)."""

from __future__ import annotations

from ditron_compiler import ir
from ditron_compiler.ir.dialects import enums

# Triton's enumerations: scope gpu, cta, system and the memory orders, as the dialect's numbers.
TRITON_SCOPE = {1: 0, 2: 0, 3: 2}
TRITON_SEMANTIC = {1: 0, 2: 1, 3: 2, 4: 3}
RMW_AND, RMW_OR, RMW_XOR, RMW_ADD, RMW_FADD, RMW_MAX, RMW_MIN, RMW_UMAX, RMW_UMIN, RMW_XCHG = range(1, 11)
UNSIGNED_DTYPE = {0: 6, 1: 7}
VARIADIC = frozenset(("ditron_sim_print", "ditron_sim_assert_fail"))
STORE, VOLATILE = 1, 2  # flags of an ordinary access
ARGUMENT_SHIFT = 8  # above them: 1 + the number of the kernel's argument that the address is made from
MAY_REPEAT = 1 << 30  # in a location: the call is in a loop that need not end by itself


def enum_value(op: ir.Operation, name: str, enum: str, default: str) -> int:
    """ABI number of the enumeration attribute `name` of `op`; `default` when it is absent."""
    if name not in op.attributes:
        return enums.CASES[enum].index(default)
    return enums.number(op.attributes[name])
