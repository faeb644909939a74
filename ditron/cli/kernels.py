"""The kernel that a command line names, and its options."""

from __future__ import annotations

import ast
import re
import sys
import traceback
import warnings
from pathlib import Path
from typing import Any

__all__ = [
    "NamesProgram",
    "UsageError",
    "import_file",
    "load_kernel",
    "parse_assignments",
    "parse_signature",
    "require_python",
]


class UsageError(Exception):
    """The command line is wrong; the message says what is expected."""


class RunsWhenImported(UsageError):
    """A file that is imported for what it defines starts ranks, or ends the process."""


class NamesProgram(UsageError):
    """A host program is named where a kernel is expected."""

    def __init__(self, text: str, program: Any):
        super().__init__(f"{text} is a program, not a kernel: ditron dump {text} --stage program prints it")
        self.program = program


def load_kernel(text: str) -> Any:
    """The kernel ``FILE:KERNEL``, with the file's ``EXAMPLE`` as its example when it has none of its own."""
    file, _, name = text.rpartition(":")
    path = Path(file or text)
    if not path.is_file():
        raise UsageError(f"no such file: {path}")
    module = import_file(path)
    kernels = _kernels_of(module)
    if not file or name not in kernels:
        from ditron._program.program import Program

        if isinstance(program := vars(module).get(name), Program):
            raise NamesProgram(text, program)
        found = ", ".join(sorted(kernels)) or "none (kernels are decorated by @ditron.jit)"
        what = f"{path} has no kernel {name!r}" if file else f"expected {path}:KERNEL"
        raise UsageError(f"{what}; its kernels are: {found}")
    from ditron_compiler.frontend.signature import unwrap

    kernel = unwrap(kernels[name])
    if getattr(kernel, "example", None) is None:
        kernel.example = getattr(module, "EXAMPLE", None)
    return kernel


def import_file(path: Path, asserts: bool = True) -> Any:
    """Import a file as a module (not as ``__main__``), finding its neighbours as a script would.

    Without ``asserts`` its own assert statements are left out, as by ``python -O``.
    Raises RunsWhenImported for one that starts ranks or ends the process, UsageError for what cannot be imported.
    """
    import importlib.util

    from ditron.distributed.initialization import ImportedScriptError
    from ditron.distributed.state import importing

    sys.path.insert(0, str(path.resolve().parent))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None:
        raise UsageError(f"{path} is no Python file: expected FILE.py:KERNEL or FILE.mlir")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    try:
        with importing():
            exec(compile(path.read_bytes(), str(path), "exec", optimize=0 if asserts else 1), module.__dict__)
    except (ImportedScriptError, SystemExit) as error:
        del sys.modules[path.stem]
        why = error if isinstance(error, ImportedScriptError) else f"{path} ends the process when it is imported"
        raise RunsWhenImported(
            f"{why}; this command imports it for what it defines: put what the file runs "
            "under 'if __name__ == \"__main__\":'"
        ) from error
    except (SyntaxError, ValueError, ImportError) as error:  # ValueError: the file holds null bytes
        where = f"{error.filename}:{error.lineno}: " if isinstance(error, SyntaxError) and error.lineno else ""
        raise UsageError(f"{path} cannot be imported: {where}{error}") from error
    return module


def require_python(script: str) -> None:
    """Raise UsageError for a file that Python cannot read."""
    try:
        with warnings.catch_warnings(action="ignore"):  # they come when it is run
            compile(Path(script).read_bytes(), script, "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as error:  # ValueError: the file holds null bytes
        said = "".join(traceback.format_exception_only(error)).rstrip()
        raise UsageError(f"{script} is no Python script\n{said}") from None


def _kernels_of(module: Any) -> dict[str, Any]:
    from ditron._jit.decorator import DitronJITFunction
    from ditron_compiler.frontend.signature import unwrap

    kernels = {}
    for name, value in vars(module).items():
        try:
            if isinstance(unwrap(value), DitronJITFunction):
                kernels[name] = value
        except TypeError:
            continue
    return kernels


def parse_signature(text: str | None) -> dict[str, str] | list[str] | None:
    """``"*bf16,i32"`` -> list; ``"x=*bf16,n=i32"`` -> dict. Commas in brackets do not separate."""
    if text is None:
        return None
    items, depth, start = [], 0, 0
    for index, char in enumerate(text + ","):
        depth += (char in "[<") - (char in "]>")
        if char == "," and depth == 0:
            items.append(text[start:index].strip())
            start = index + 1
    items = [item for item in items if item]
    named = [item.partition("=") for item in items]
    if all(separator for _, separator, _ in named):
        return {name.strip(): value.strip() for name, _, value in named}
    if any(separator for _, separator, _ in named):
        raise UsageError(f"--signature {text!r}: expected all types by name or all in order, got a mixture")
    return items


def parse_assignments(option: str, items: list[str]) -> dict[str, Any]:
    """``["BLOCK=128", "DTYPE=tl.bfloat16"]`` -> values: Python literals, names of tl, else strings."""
    values = {}
    for item in items:
        name, separator, text = item.partition("=")
        if not separator or not name.isidentifier():
            raise UsageError(f"{option} {item!r}: expected NAME=VALUE")
        if re.search(r",\s*[A-Za-z_]\w*=", text):
            raise UsageError(f"{option} {item!r}: expected one NAME=VALUE; repeat {option} for each")
        values[name] = _value(text)
    return values


def _value(text: str) -> Any:
    if text.startswith("tl."):
        import triton.language as tl

        if not hasattr(tl, text[3:]):
            raise UsageError(f"triton.language has no {text[3:]!r}")
        return getattr(tl, text[3:])
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text
