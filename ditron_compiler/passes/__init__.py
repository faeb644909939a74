"""Passes, one in each file; and what a pass is made of, for packages that add their own.

from ditron_compiler.passes import Pass, PassFailure, option
"""

from ditron_compiler.ir.pass_base import InvalidOption, Pass, PassFailure, option

__all__ = ["InvalidOption", "Pass", "PassFailure", "option"]
