"""The command ``ditron``: compile, dump, passes, run, check, swizzle, tune, explain,
calibrate, doctor.

Exit codes: 0 it worked, 1 the kernel (or the script) is wrong, 2 the command line is, 130 it was
interrupted.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from ditron.cli.arguments import add_calibrate, add_explain, add_tune, lazy
from ditron.cli.kernels import UsageError
from ditron.script_errors import reported
from ditron_compiler.versions import VersionError, check_versions

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line ``argv`` (default: the process's) and return the exit code."""
    parser = _parser()
    args = parser.parse_args(argv)
    if args.command is None:
        parser.print_help()
        return 0

    def run() -> int:
        try:
            if args.command is not _doctor:
                check_versions()
            return args.command(args)
        except VersionError as error:
            print(f"ditron: {error}\nditron: 'ditron doctor' tells more", file=sys.stderr)
            return 1
        except UsageError as error:
            print(f"ditron: {error}", file=sys.stderr)
            return 2
        except BrokenPipeError:  # ditron dump ... | head
            sys.stderr.close()
            return 1

    return reported(run, _files(args), raises=getattr(args, "traceback", False))


class _Parser(argparse.ArgumentParser):
    """A command's parser; an intermixed one takes options between positional arguments."""

    intermixed = False

    def parse_known_args(self, args=None, namespace=None):
        if not self.intermixed:
            return super().parse_known_args(args, namespace)
        self.intermixed = False  # which calls this method
        try:
            return self.parse_known_intermixed_args(args, namespace)
        finally:
            self.intermixed = True


class _Version(argparse.Action):
    def __call__(self, parser, *rest) -> None:
        from importlib.metadata import version

        import ditron
        from ditron_compiler._core import llvm_version

        print(
            f"ditron {ditron.__version__} (MLIR {llvm_version}, triton {version('triton')}, llvmlite "
            f"{version('llvmlite')})"
        )
        parser.exit(0)


def _files(args: argparse.Namespace) -> list[str]:
    """The user's file, as the command line names it: FILE or FILE:NAME."""
    text = next((getattr(args, name) for name in ("script", "subject", "kernel") if hasattr(args, name)), "")
    return [file for file in (text, text.rpartition(":")[0]) if file]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="ditron",
        description="Compile and run GPU kernels that communicate.",
        epilog="ditron COMMAND --help tells more. Exit codes: 0 it worked, 1 the kernel "
        "or the script is wrong, 2 the command line is.",
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="print DITRON's, MLIR's and Triton's versions")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", parser_class=_Parser)
    _add_compile(commands)
    _add_dump(commands)
    _add_passes(commands)
    _add_run(commands)
    _add_check(commands)
    _add_swizzle(commands)
    add_tune(commands)
    add_explain(commands)
    add_calibrate(commands)
    _add_doctor(commands)
    parser.set_defaults(command=None)
    return parser


_KERNEL = "FILE.py:KERNEL, or FILE.mlir (or FILE.mlir:KERNEL) that holds a module of tt and ditron operations"


def _add_kernel_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("kernel", metavar="FILE:KERNEL", help=_KERNEL)
    parser.add_argument("--target", help="cuda:SM (cuda:90), hip:GFX (hip:gfx942) or sim")
    parser.add_argument("--transport", help="how ranks reach each other: p2p (default), nvshmem (cuda), rocshmem (hip)")
    parser.add_argument(
        "--signature",
        metavar="TYPES",
        help="types of the parameters that are no constants, in order "
        "or by name: '*bf16,i32', or 'x_ptr=*bf16,n=i32:16' (:16 says divisible by 16; pointers are, "
        "unless they say :1). Default: the kernel's example= or the file's EXAMPLE",
    )
    parser.add_argument(
        "--constexpr",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="value of a tl.constexpr parameter; may be repeated",
    )
    parser.add_argument("--num-warps", type=int, help="warps per program")
    parser.add_argument("--num-stages", type=int, help="stages of software pipelining")
    parser.add_argument("--num-ctas", type=int, help="programs per cluster")
    parser.add_argument(
        "--option",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="another option of Triton's backend; may be repeated",
    )
    parser.add_argument(
        "--pipeline",
        metavar="NAME",
        help="passes before lowering: default, swizzled (or "
        "swizzled-gather, -scatter), as-written, low-latency (or low-latency-ll, -ll128), pcie; "
        "or passes, as 'hoist-symm-at,my-pass{limit=3}'. "
        "Default: what the kernel is decorated with, or DITRON_PIPELINE",
    )
    parser.add_argument(
        "--print-after",
        metavar="PASS",
        action="append",
        default=[],
        help="print the module to standard error after one of our passes; may be repeated",
    )
    parser.add_argument("--remarks", action="store_true", help="print the remarks of our passes, at the kernel's lines")
    parser.add_argument("--pass-statistics", action="store_true", help="print what our passes did, and how often")
    parser.add_argument("--pass-timing", action="store_true", help="print how long each of our passes took")
    parser.add_argument(
        "--reproducer",
        metavar="FILE.mlir",
        help="when a pass fails, leave the module it was given "
        "and its pipeline there: ditron-opt --run-reproducer FILE.mlir",
    )
    parser.add_argument("--sanitize", action="store_true", help="compile with the GPU sanitizer (or DITRON_SANITIZE=1)")
    parser.add_argument("--traceback", action="store_true", help="show Python's traceback when the kernel is wrong")


def _add_compile(commands) -> None:
    parser = commands.add_parser(
        "compile",
        help="compile a kernel, or those of a program, to machine code and save every stage",
        description="Compile a kernel, or all kernels of a program (FILE.py:PROGRAM, or what ditron dump "
        "--stage program prints), to machine code and save every stage. Needs no GPU.",
    )
    _add_kernel_options(parser)
    parser.add_argument("-o", dest="directory", metavar="DIR", default=".", help="where the stages go (default: here)")
    parser.set_defaults(command=lazy("compiling", "compile_command"))


def _add_dump(commands) -> None:
    parser = commands.add_parser(
        "dump",
        help="print one stage of a kernel's compilation",
        description="Print one stage of a kernel's compilation. Needs no GPU.",
    )
    _add_kernel_options(parser)
    parser.add_argument(
        "--stage",
        default="ditron",
        help="ttir (after Triton's own passes), ditron (the default: a module of tt "
        "and ditron operations), lowered (primitives are calls), ttgir, llir, ptx, "
        "amdgcn, sim-llvm; program: a host program (FILE.py:PROGRAM) with its kernels, where "
        "--signature describes its tensors, 'a=bf16[64,128],...', and --constexpr gives its constants",
    )
    parser.add_argument(
        "--graph",
        metavar="FILE.png",
        help="draw a call of a host program, .png, .svg or .pdf (needs matplotlib: pip install 'ditron[plot]')",
    )
    parser.add_argument("--ranks", metavar="N", type=int, default=2, help="ranks in the picture (default 2)")
    parser.add_argument("--locations", action="store_true", help="keep source locations in the text")
    parser.add_argument("-o", dest="output", metavar="FILE", help="write to a file instead of standard output")
    parser.add_argument(
        "--pass-diff",
        action="store_true",
        help="print what each of our passes changed, down to stage 'lowered' or the one given, instead of the stage",
    )
    parser.add_argument(
        "--html", metavar="FILE.html", help="the same side by side, as one page that needs nothing else"
    )
    parser.add_argument("--color", choices=("auto", "always", "never"), default="auto", help="of --pass-diff")
    parser.set_defaults(command=lazy("compiling", "dump_command"))


def _add_passes(commands) -> None:
    parser = commands.add_parser(
        "passes",
        help="list our passes, or show one with its options",
        description="List our passes, also those of other packages, or show one.",
    )
    parser.add_argument("name", nargs="?", help="a pass")
    parser.set_defaults(command=lazy("passes", "passes_command"))


def _add_run(commands) -> None:
    # A script may have an option --n too, which must not be taken for an abbreviation of one of ours.
    parser = commands.add_parser(
        "run",
        allow_abbrev=False,
        help="run a script on simulated ranks",
        description="Run a script once per simulated rank. The script calls ditron.init(); on "
        "GPUs the same script is started by torchrun. With --machine, predict how long it takes there.",
    )
    parser.add_argument("--sim", metavar="N", type=int, help="number of ranks (with --machine: all that it has)")
    parser.add_argument(
        "--machine",
        metavar="NAME",
        help="let time pass as on that machine (h200x4, h800x8x2, a file.toml; docs/predicting.md), and print what "
        "took how long and the critical path",
    )
    parser.add_argument(
        "--set",
        metavar="NUMBER=VALUE",
        action="append",
        default=[],
        help="with --machine: what if it had another number, as link=450 or copy_engine.setup=2; may be repeated",
    )
    parser.add_argument(
        "--timing-only",
        action="store_true",
        help="with --machine: compute and move no floating-point data, for shapes of full size",
    )
    parser.add_argument(
        "--sustained", action="store_true", help="with --machine: calls without a pause, for which it lowers its clocks"
    )
    parser.add_argument("--graph", action="store_true", help="with --machine: programs are CUDA graphs")
    parser.add_argument(
        "--routing",
        metavar="ROUTES",
        help="how ditron.kernels.draw_routes, and routers in timing-only mode, choose experts: uniform (the default), "
        "zipf:1.2 or onehot",
    )
    nodes = parser.add_mutually_exclusive_group()
    nodes.add_argument("--ranks-per-node", metavar="K", type=int, help="ranks on each simulated node (default: all)")
    nodes.add_argument("--nodes", metavar="M", type=int, help="number of simulated nodes, which divides N")
    parser.add_argument(
        "--seed",
        metavar="SEED",
        type=int,
        help="determines the order of execution and of deliveries (default 0); same seed, same run",
    )
    parser.add_argument("--replay", metavar="SEED", type=int, help="run with that seed, and no other, again")
    parser.add_argument(
        "--seeds",
        metavar="COUNT",
        type=int,
        help="run with that many seeds, from --seed on, and stop "
        "at the first error; only the output of that run is shown",
    )
    parser.add_argument(
        "--jobs", metavar="N", type=int, help="run seeds in N processes (default 1); the result is the same"
    )
    parser.add_argument(
        "--races",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="detect races and reads of unwritten memory (default; costs about half the speed)",
    )
    parser.add_argument(
        "--weak",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="let unordered stores be seen late, and reads be stale, as on a GPU (default: as --races)",
    )
    parser.add_argument(
        "--trace",
        metavar="FILE.json",
        help="write what each rank and program did, in order, as a trace that ui.perfetto.dev opens",
    )
    parser.add_argument(
        "--timeline",
        metavar="FILE.png",
        help="draw it (.png, .svg, .pdf; without --machine up to 16 ranks; needs pip install 'ditron[plot]')",
    )
    parser.add_argument("--traceback", action="store_true", help="show Python's traceback when a kernel is wrong")
    parser.add_argument("script", help="Python file")
    parser.add_argument("args", nargs=argparse.REMAINDER, help="its arguments")
    parser.add_argument(
        "--as-cuda",
        action="store_true",
        help="for scripts that require CUDA: torch reports a CUDA device, which is the CPU",
    )
    parser.set_defaults(command=lazy("running", "run_command"))


def _add_check(commands) -> None:
    parser = commands.add_parser(
        "check",
        allow_abbrev=False,
        help="check the protocol between ranks without running anything",
        description="Check the protocol of programs, kernels or a script, for every schedule, "
        "on groups of 1 to 4 ranks. Runs nothing and needs no GPU.",
    )
    parser.add_argument("--ranks", metavar="N", type=int, help="check one group of N ranks")
    parser.add_argument("--ranks-per-node", metavar="K", type=int, help="ranks on each node (default: all)")
    parser.add_argument(
        "--resident",
        metavar="SMS",
        type=int,
        default=132,
        help="programs that are resident on a GPU at a time (default 132)",
    )
    parser.add_argument(
        "--value",
        metavar="LINE=VALUE",
        action="append",
        default=[],
        help="what the script reads at that line of what a kernel computes, for kernels do not run; may be repeated",
    )
    parser.add_argument(
        "--samples",
        metavar="N",
        type=int,
        default=3,
        help="where integers that kernels see are drawn at random, look at so many samples (default 3)",
    )
    parser.add_argument(
        "--time-limit",
        metavar="SECONDS",
        type=float,
        default=60.0,
        help="stop after so long and say what was found until then (default 60)",
    )
    parser.add_argument(
        "--memory-limit",
        metavar="GB",
        type=float,
        default=2.0,
        help="the same for the memory that it takes (default 2)",
    )
    parser.add_argument("--traceback", action="store_true", help="show Python's traceback when a kernel is wrong")
    parser.add_argument(
        "subject",
        metavar="FILE[:NAME]",
        help="a program, a kernel (with EXAMPLE['check']), or a "
        "file: all its programs, or what it launches as a script",
    )
    parser.add_argument("args", nargs=argparse.REMAINDER, help="the script's arguments")
    parser.set_defaults(command=lazy("checking", "check_command"))


def _add_swizzle(commands) -> None:
    parser = commands.add_parser(
        "swizzle",
        help="draw the order in which ranks process the tiles of a sharded dimension",
        description="Show the order of dl.swizzle: a row per rank, its tiles from left to "
        "right as they are processed (docs/swizzle.md).",
    )
    parser.add_argument("--ranks", type=int, default=8, help="number of ranks (default 8)")
    parser.add_argument("--nodes", type=int, default=1, help="number of nodes, which divides it (default 1)")
    parser.add_argument("-M", dest="size", metavar="ROWS", type=int, required=True, help="rows of all ranks together")
    parser.add_argument("--block", metavar="ROWS", type=int, default=128, help="rows of a tile (default 128)")
    parser.add_argument(
        "--mode",
        choices=("gather", "scatter", "none"),
        default="gather",
        help="gather (the default), scatter, or none: every rank starts with tile 0",
    )
    parser.add_argument(
        "-o",
        dest="output",
        metavar="FILE",
        help="write to FILE.png, .svg, .pdf (these need "
        "matplotlib: pip install 'ditron[plot]') or .txt instead of standard output",
    )
    parser.set_defaults(command=lazy("swizzling", "swizzle_command"))


def _add_doctor(commands) -> None:
    parser = commands.add_parser(
        "doctor", help="report what is installed, what works, what is missing and how to install it"
    )
    parser.set_defaults(command=_doctor)


def _doctor(args: argparse.Namespace) -> int:
    from ditron_compiler.tools import doctor

    return doctor.main()
