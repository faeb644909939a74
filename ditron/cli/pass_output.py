"""What the command line shows of passes: their IR, remarks, statistics and times."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from ditron.cli.kernels import UsageError
from ditron_compiler import knobs
from ditron_compiler.instrumentation import Instrumentation

__all__ = ["instrumentation_of", "print_remarks_and_statistics", "show_diff"]


def instrumentation_of(args: argparse.Namespace, snapshots: bool = False) -> Instrumentation:
    """What the command line asks to see of our passes."""
    instrumentation = Instrumentation(
        tuple(args.print_after), snapshots, measure=args.pass_statistics or args.pass_timing
    )
    if args.reproducer:
        instrumentation.reproducer = args.reproducer
    return instrumentation


def print_remarks_and_statistics(args: argparse.Namespace, instrumentation: Instrumentation) -> None:
    """Remarks, statistics and times of our passes, after what was asked for, on standard error."""
    from ditron_compiler.ir.passmanager import statistics_table, timing_table

    if args.remarks:
        for remark in instrumentation.remarks:
            if remark.severity == "remark":
                print(remark, file=sys.stderr)
    if args.pass_statistics:
        print(
            statistics_table([(entry.name, entry.what, entry.count) for entry in instrumentation.statistics]),
            file=sys.stderr,
        )
    if args.pass_timing:
        print(timing_table(instrumentation.timings), file=sys.stderr)


def show_diff(args: argparse.Namespace, title: str, instrumentation: Instrumentation) -> None:
    """What each pass changed: to the terminal, or as a page to a file."""
    from ditron_compiler.tools import pass_diff as passdiff

    if args.html is None:
        color = args.color == "always" or args.color == "auto" and sys.stdout.isatty() and not knobs.no_color.get()
        for line in passdiff.terminal(instrumentation.pairs(), color):
            print(line)
        return
    try:
        Path(args.html).write_text(passdiff.page(title, instrumentation.pairs()))
    except OSError as error:
        raise UsageError(f"cannot write to {args.html}: {error}") from error
    print(args.html)
