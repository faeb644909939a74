"""The pass `lower-loop-annotations`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ditron_compiler import ir
from ditron_compiler.ir.pass_base import Pass

_CARRIED = "llvm.loop_annotation"  # where convert-scf-to-cf and convert-cf-to-llvm leave scf.for's attribute
_READ = "loop_annotation"  # where the translation to LLVM IR looks


@dataclass(frozen=True)
class LowerLoopAnnotations(Pass):
    """Tell LLVM of every loop whether to vectorise it.

    lower-to-sim marks the loops that can be vectorised (nest.py says why LLVM does not choose for itself); all other
    loops are told not to be. Runs on the LLVM dialect, where a loop is a branch backwards.

    Before::

        llvm.br ^bb1(%next : i64) {llvm.loop_annotation = #loop_annotation}

    After::

        llvm.br ^bb1(%next : i64) {loop_annotation = #loop_annotation, ...}
    """

    name: ClassVar[str] = "lower-loop-annotations"
    anchor: ClassVar[str] = "builtin.module"

    def run(self, op: ir.Operation) -> None:
        module = op.operation
        with module.context:
            never = ir.Attribute.parse("#llvm.loop_annotation<vectorize = <disable = true>>")
        for view in module.regions[0].blocks[0].operations:
            for region in view.operation.regions:
                seen = set()
                for block in region.blocks:
                    seen.add(block)
                    last = block.operations[-1].operation
                    if any(target in seen for target in last.successors):
                        attributes = last.attributes
                        attributes[_READ] = attributes[_CARRIED] if _CARRIED in attributes else never
