"""``ditron-opt``: MLIR's mlir-opt with our dialects and passes, the Python ones included.

Imports only what the command line names, so that it starts fast; neither torch nor triton.
"""

from __future__ import annotations

import sys


_HELP = ("help", "help-hidden", "help-list", "h", "list-passes")
_LOAD = "--load="


def main(argv: list[str] | None = None) -> int:
    """Run the tool with ``argv`` (sys.argv); the exit status is 0 on success.

    ``--load=FILE.py`` registers the passes that a Python file defines; the rest is mlir-opt's.
    """
    argv = list(sys.argv if argv is None else argv)
    from . import _core, passes

    for argument in argv[1:]:
        if argument.startswith(_LOAD):
            try:
                passes.load_file(argument.removeprefix(_LOAD))
            except Exception as error:  # whatever the file does when it is imported
                where = f"{error.filename}:{error.lineno}: " if isinstance(error, SyntaxError) else ""
                print(f"ditron-opt: {argument}: {where}{type(error).__name__}: {error}", file=sys.stderr)
                return 2
    argv[1:] = [argument for argument in argv[1:] if not argument.startswith(_LOAD)]
    words = {argument.lstrip("-") for argument in argv[1:]}
    if words.intersection(_HELP) or "run-reproducer" in words:  # any pass may be in the file
        passes.register_all()
    else:
        passes.register_named(" ".join(argv[1:]))
    sys.stdout.flush()
    return _core.opt_main(["ditron-opt", *argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
