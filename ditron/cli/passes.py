"""``ditron passes``."""

from __future__ import annotations

import argparse

from ditron.cli.kernels import UsageError

__all__ = ["passes_command"]


def passes_command(args: argparse.Namespace) -> int:
    """List the passes, or show one."""
    from ditron_compiler.tools import pass_docs as passdocs

    try:
        print(passdocs.describe(args.name) if args.name else passdocs.overview())
    except (LookupError, ImportError) as error:  # none of that name, or one of another package that does not load
        raise UsageError(error.args[0]) from error
    return 0
