"""Triton's own text of a module, against what our MLIR reads and prints."""

from __future__ import annotations

from typing import Any

from ditron_compiler import ir
from ditron_compiler.frontend import handover


def _generic(module: ir.Module) -> str:
    return module.operation.get_asm(print_generic_op_form=True)


def check_text(module: Any, print_generic=handover.print_generic) -> str:
    """Returns the generic form, which it consumes the module for, after these have held of a Triton module:

    - read in Triton's own form, it is what is read in generic form;
    - printed by us, without and with locations, it is what Triton prints;
    - what we print is read again as it was.
    """
    plain, located = module.str_nodebug(), str(module)
    generic = print_generic(module)
    with ir.Context() as context:
        context.allow_unregistered_dialects = True
        read = ir.Module.parse(generic)
        for operation in read.body.operations:
            if "ditron.print_generic" in str(operation.attributes["sym_name"]):
                operation.erase()
                break
        expected = _generic(read)
        assert _generic(ir.Module.parse(plain)) == expected
        assert _generic(ir.Module.parse(located)) == expected
        assert read.operation.get_asm().strip() == plain.strip()
        # Triton names values by their locations when it prints those.
        printed = read.operation.get_asm(enable_debug_info=True, use_name_loc_as_prefix=True)
        assert printed.strip() == located.strip()
        assert _generic(ir.Module.parse(printed)) == expected
    return generic
