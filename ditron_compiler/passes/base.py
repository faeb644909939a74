from ditron_compiler.ir.pass_base import *  # noqa
from ditron_compiler.ir.pass_base import Pass, PassFailure, option  # noqa
