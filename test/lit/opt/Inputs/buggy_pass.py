"""A pass with a bug, run by ditron-opt's main."""

import sys
from dataclasses import dataclass
from typing import ClassVar

from ditron_compiler import _core
from ditron_compiler.ir.pass_base import Pass


@dataclass(frozen=True)
class Buggy(Pass):
    """Divide by zero."""

    name: ClassVar[str] = "test-buggy"

    def run(self, op):
        return 1 / 0


Buggy.register()
sys.exit(_core.opt_main(["ditron-opt", "--test-buggy", "/dev/null"]))
