"""``ditron-opt``: MLIR's mlir-opt with our dialects and passes, the Python ones included.

Imports only what the command line names, so that it starts fast; neither torch nor triton.
"""

from __future__ import annotations

import sys
from pathlib import Path

_HELP = ("help", "help-hidden", "help-list", "h", "list-passes")
_LOAD = "--load="


def main(argv: list[str] | None = None) -> int:
    """Run the tool with ``argv`` (sys.argv); the exit status is 0 on success.

    ``--load=FILE.py`` registers the passes that a Python file defines; the rest is mlir-opt's.
    """
    argv = list(sys.argv if argv is None else argv)
    from ditron_compiler import _core, pass_registry

    for argument in argv[1:]:
        if argument.startswith(_LOAD):
            try:
                pass_registry.load_file(argument.removeprefix(_LOAD))
            except Exception as error:  # whatever the file does when it is imported
                where = f"{error.filename}:{error.lineno}: " if isinstance(error, SyntaxError) else ""
                print(f"ditron-opt: {argument}: {where}{type(error).__name__}: {error}", file=sys.stderr)
                return 2
    argv[1:] = [argument for argument in argv[1:] if not argument.startswith(_LOAD)]
    words = {argument.lstrip("-") for argument in argv[1:]}
    if "run-reproducer" in words and (why := _no_reproducer(argv[1:])):
        print(f"ditron-opt: {why}", file=sys.stderr)
        return 1
    if words.intersection(_HELP) or "run-reproducer" in words:  # any pass may be in the file
        pass_registry.register_all()
    else:
        try:
            pass_registry.register_named(" ".join(argv[1:]))
        except ImportError as error:
            print(f"ditron-opt: {error}", file=sys.stderr)
            return 2
    sys.stdout.flush()
    return _core.opt_main(["ditron-opt", *argv[1:]])


def _no_reproducer(arguments: list[str]) -> str:
    """Why there is nothing to run again in the file that is given; empty when there is."""
    files = [
        argument
        for before, argument in zip(["", *arguments], arguments, strict=False)
        if not argument.startswith("-") and before != "-o"
    ]
    try:
        if not files or b"mlir_reproducer" in Path(files[-1]).read_bytes():
            return ""
    except OSError:
        return ""  # MLIR says so
    return (
        f"{files[-1]} has no reproducer in it, an external resource 'mlir_reproducer': have one written by "
        "DITRON_REPRODUCER=FILE, ditron dump --reproducer FILE, or --mlir-pass-pipeline-crash-reproducer=FILE"
    )


if __name__ == "__main__":
    sys.exit(main())
