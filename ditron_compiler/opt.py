"""``ditron-opt``: MLIR's mlir-opt with our dialects and passes, the Python ones included.

Imports only what the command line names, so that it starts fast; neither torch nor triton.
"""

from __future__ import annotations

import sys


def main(argv: list[str] | None = None) -> int:
    """Run the tool with ``argv`` (sys.argv); the exit status is 0 on success."""
    argv = list(sys.argv if argv is None else argv)
    from . import _core, passes

    if any(argument.lstrip("-") in ("help", "help-hidden", "help-list", "h", "list-passes") for argument in argv[1:]):
        passes.register_all()
    else:
        passes.register_named(" ".join(argv[1:]))
    sys.stdout.flush()
    return _core.opt_main(["ditron-opt", *argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
