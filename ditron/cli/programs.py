"""``ditron dump FILE:PROGRAM --stage program``: the IR of a host program, or a picture of it."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ditron.cli.kernels import UsageError, import_file, parse_assignments
from ditron.cli.pass_output import instrumentation_of, print_remarks_and_statistics, show_diff
from ditron_compiler.instrumentation import Instrumentation

__all__ = ["dump_program", "kernels_of_file", "save_program"]


def dump_program(args: argparse.Namespace) -> int:
    """Print the program and its kernels after the program's passes, or draw a call of it (``--graph``)."""
    diffed = args.pass_diff or args.html is not None
    instrumentation = instrumentation_of(args, snapshots=diffed)
    with _usage_errors():
        executable, values = _traced(_load(args.kernel), args, instrumentation)
        if args.graph:
            from ditron._program.graph import draw

            draw(executable, values, args.graph, args.ranks)
            print(args.graph)
            return 0
    if diffed:
        show_diff(args, f"program {executable.name}", instrumentation)
        print_remarks_and_statistics(args, instrumentation)
        return 0
    text = executable.module.operation.get_asm(enable_debug_info=args.locations) + "\n"
    if args.output:
        try:
            Path(args.output).write_text(text)
        except OSError as error:
            raise UsageError(f"cannot write to {args.output}: {error}") from error
    else:
        sys.stdout.write(text)
    print_remarks_and_statistics(args, instrumentation)
    return 0


def save_program(program: Any, args: argparse.Namespace, instrumentation: Instrumentation) -> Path:
    """Trace a program for the target and write it to the directory, with its kernels."""
    with _usage_errors():
        executable, _ = _traced(program, args, instrumentation)
        path = Path(args.directory) / f"{executable.name}.mlir"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(executable.module.operation.get_asm(enable_debug_info=True) + "\n")
    return path


def kernels_of_file(path: Path) -> list[str]:
    """``FILE.mlir:KERNEL`` of each kernel that the program in an MLIR file launches; none when it holds no program."""
    if path.suffix != ".mlir" or not path.is_file():
        return []
    from ditron_compiler import ir
    from ditron_compiler.frontend.diagnostics import raise_compile_errors
    from ditron_compiler.ir.kernels import take_programs

    with ir.Context() as context, raise_compile_errors():
        launched = take_programs(ir.Module.parse(path.read_text(), context, source_name=str(path)))
    if launched is not None and not launched:
        raise UsageError(f"the program in {path} launches no kernels: there is nothing to compile")
    return [f"{path}:{kernel}" for kernel in launched or ()]


@contextmanager
def _usage_errors() -> Iterator[None]:
    """What is wrong with the arguments is wrong with the command line, unless it has a line in the source."""
    from ditron_compiler.errors import CompileError, DitronError

    try:
        yield
    except CompileError:
        raise
    except (DitronError, ValueError, ImportError, OSError) as error:
        raise UsageError(str(error)) from error


def _traced(program: Any, args: argparse.Namespace, instrumentation: Instrumentation) -> tuple[Any, list]:
    """The executable of a program for the arguments that the command line gives, or its example; and those."""
    constants = parse_assignments("--constexpr", args.constexpr)
    tensors = _arguments(program, args.signature)
    ranks = getattr(args, "ranks", 2)
    example = program.example or (program.sample_args(ranks) if program.sample_args is not None else {})
    given = (dict(example) if tensors is None else tensors) | constants
    if not given:
        raise UsageError(
            f"{args.kernel} has no example: say what its tensors are, by --signature "
            f"{','.join(f'{name}=bf16[64,128]' for name in program.names)}"
        )
    return program.executable_and_arguments(given, args.target or "sim", instrumentation)


def _load(text: str) -> Any:
    from ditron._program.program import Program

    file, _, name = text.rpartition(":")
    if not Path(file or text).is_file():
        raise UsageError(f"no such file: {file or text}")
    module = import_file(Path(file or text))
    programs = {key: value for key, value in vars(module).items() if isinstance(value, Program)}
    if name not in programs:
        raise UsageError(
            f"{file or text} has no program {name!r}; its programs are: "
            f"{', '.join(sorted(programs)) or 'none (programs are decorated by @ditron.program)'}"
        )
    return programs[name]


def _arguments(program: Any, signature: str | None) -> dict[str, Any] | None:
    """``a=bf16[64,128],n=3`` by name or in order."""
    if signature is None:
        return None
    items = [item.strip() for item in re.split(r",(?![^\[]*\])", signature) if item.strip()]
    given = {}
    for position, item in enumerate(items):
        name, equals, value = item.partition("=")
        if not equals:
            name, value = (program.names[position] if position < len(program.names) else ""), item
        if name not in program.names:
            raise UsageError(
                f"--signature {signature!r}: {item!r} is none of the parameters {', '.join(program.names)}"
            )
        given[name] = int(value) if value.lstrip("-").isdigit() else value
    return given
