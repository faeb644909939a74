"""``ditron compile`` and ``ditron dump``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ditron.cli.kernels import NamesProgram, UsageError, load_kernel, parse_assignments, parse_signature
from ditron.cli.pass_output import instrumentation_of, print_remarks_and_statistics, show_diff
from ditron_compiler.instrumentation import Instrumentation

__all__ = ["compile_command", "dump_command"]

_MLIR_SUFFIXES = (".mlir", ".ttir")
# Targets of stages that only one backend has.
_TARGET_OF_STAGE = {"sim-llvm": "sim", "amdgcn": "hip:gfx942", "hsaco": "hip:gfx942"}


def compile_command(args: argparse.Namespace) -> int:
    """Compile, save, and print a line per stage; of a program, each of its kernels."""
    instrumentation = instrumentation_of(args)
    args.target = args.target or "cuda:90"
    for program in _compiled(args, instrumentation):
        try:
            program.save(args.directory)
        except OSError as error:
            raise UsageError(f"cannot write to {args.directory}: {error}") from error
        print(program.table())
        for stage, why in program.missing.items():
            print(f"ditron: {stage} was not made: {why}", file=sys.stderr)
    print_remarks_and_statistics(args, instrumentation)
    return 0


def _compiled(args: argparse.Namespace, instrumentation: Instrumentation) -> Iterator[Any]:
    from ditron.cli.programs import kernels_of_file, save_program

    kernels = kernels_of_file(Path(args.kernel))
    if not kernels:
        try:
            yield _compile(args, args.target, None, instrumentation)
        except NamesProgram as named:
            kernels = kernels_of_file(save_program(named.program, args, instrumentation))
    for kernel in kernels:
        args.kernel = kernel
        yield _compile(args, args.target, None, instrumentation)


def dump_command(args: argparse.Namespace) -> int:
    """Print one stage."""
    if args.stage == "program" or args.graph:
        from ditron.cli.programs import dump_program

        return dump_program(args)
    from ditron._jit.compile import STAGES, known_stages

    if args.stage not in known_stages():
        raise UsageError(f"unknown stage {args.stage!r}: expected one of {', '.join(known_stages())}, or program")
    target = args.target or _TARGET_OF_STAGE.get(args.stage, "cuda:90")
    backend = target.partition(":")[0]
    if backend in STAGES and args.stage not in STAGES[backend]:
        raise UsageError(f"target {target!r} has no stage {args.stage!r}: expected one of {', '.join(STAGES[backend])}")
    diffed = args.pass_diff or args.html is not None
    program = _compile(
        args,
        target,
        "lowered" if diffed and args.stage == "ditron" else args.stage,
        instrumentation := instrumentation_of(args, snapshots=diffed),
    )
    if diffed:
        show_diff(args, f"{program.name} for {target}", instrumentation)
        print_remarks_and_statistics(args, instrumentation)
        return 0
    if args.stage not in program.asm:
        reason = program.missing.get(args.stage) or "an MLIR file begins at stage 'ditron'"
        print(f"ditron: {args.stage} was not made: {reason}", file=sys.stderr)
        return 1
    code = program.asm[args.stage]
    if args.output:
        try:
            Path(args.output).write_bytes(code if isinstance(code, bytes) else code.encode())
        except OSError as error:
            raise UsageError(f"cannot write to {args.output}: {error}") from error
    elif isinstance(code, bytes):
        sys.stdout.buffer.write(code)
    else:
        print(code, end="" if code.endswith("\n") else "\n")
    print_remarks_and_statistics(args, instrumentation)
    return 0


def _compile(args: argparse.Namespace, target: str, stop_after: str | None, instrumentation: Instrumentation) -> Any:
    from ditron._jit import compile as compiler
    from ditron_compiler.errors import CompileError, DitronError
    from ditron_compiler.frontend.targets import parse_target

    options = parse_assignments("--option", args.option)
    options |= {
        name: value for name in ("num_warps", "num_stages", "num_ctas") if (value := getattr(args, name)) is not None
    }
    constexprs = parse_assignments("--constexpr", args.constexpr)
    try:
        compiler.check_passes(parse_target(target, args.transport), args.print_after, args.pipeline or "default")
    except ValueError as error:
        raise UsageError(error) from error
    try:
        is_mlir = args.kernel.endswith(_MLIR_SUFFIXES) or args.kernel.rpartition(":")[0].endswith(_MLIR_SUFFIXES)
        kernel = args.kernel if is_mlir else load_kernel(args.kernel)
    except DitronError as error:  # the decorator found no source
        if isinstance(error, CompileError):
            raise
        raise UsageError(error) from error
    try:
        return compiler.compile(
            kernel,
            parse_signature(args.signature),
            constexprs,
            target,
            args.transport,
            options,
            pipeline=args.pipeline,
            stop_after=stop_after,
            instrumentation=instrumentation,
            locations=getattr(args, "locations", False),
            sanitize=args.sanitize or None,
        )
    except FileNotFoundError as error:
        raise UsageError(error) from error
    except ValueError as error:
        if isinstance(error, UnicodeError):
            raise
        raise UsageError(error) from error
