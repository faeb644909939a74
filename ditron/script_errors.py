"""How errors of a user's file are printed, and which exit code they become."""

from __future__ import annotations

import os
import sys
import sysconfig
import traceback
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType

from ditron_compiler.errors import DitronError

__all__ = ["reported"]


def reported(run: Callable[[], int], files: Sequence[str], *, raises: bool = False) -> int:
    """The exit code of ``run()``: its result, 1 where a kernel or script is wrong, 130 when it is interrupted.

    What ditron, Triton or MLIR raise about a kernel is printed without a traceback; what the user's code raises with
    one that begins in ``files``, the user's. Other errors are raised, and with ``raises`` all are.
    """
    try:
        return run()
    except DitronError as error:
        if raises:
            raise
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        if raises:
            raise
        print("interrupted", file=sys.stderr)
        return 130
    except Exception as error:
        if raises:
            raise
        if _is_compiler_error(error):
            print(_compiler_error(error), file=sys.stderr)
            return 1
        frames = _from_files(error, files)
        if frames is None:
            raise
        traceback.print_exception(_with_the_users_frames(error, frames))
        return 1


def _from_files(error: Exception, files: Sequence[str]) -> TracebackType | None:
    """The traceback from the first line in one of the files on: what of ours ran or imported it is of no interest."""
    paths = {os.path.abspath(file) for file in files}
    frames = error.__traceback__
    while frames is not None and os.path.abspath(frames.tb_frame.f_code.co_filename) not in paths:
        frames = frames.tb_next
    return frames


def _with_the_users_frames(error: BaseException, frames: TracebackType | None) -> BaseException:
    """The error, and what it comes from, with a traceback of ``frames`` that shows no frames of ours or of Triton's."""
    earlier = error.__cause__ or error.__context__
    if earlier is not None and earlier is not error:
        _with_the_users_frames(earlier, earlier.__traceback__)
    steps = [*_steps(frames)]
    if any(_is_below(step, _packages()) for step in steps):
        steps = [step for step in steps if not _is_below(step, (*_packages(), *_installed()))]
    shown: TracebackType | None = None
    for step in reversed(steps):
        shown = TracebackType(shown, step.tb_frame, step.tb_lasti, step.tb_lineno)
    return error.with_traceback(shown)


def _steps(frames: TracebackType | None) -> Iterator[TracebackType]:
    while frames is not None:
        yield frames
        frames = frames.tb_next


def _is_below(step: TracebackType, directories: Sequence[str]) -> bool:
    file = step.tb_frame.f_code.co_filename
    return file.startswith("<frozen") or os.path.abspath(file).startswith(tuple(directories))


def _packages() -> tuple[str, ...]:
    """Directories of ours and of Triton's."""
    names = [name for name in ("ditron", "ditron_compiler", "triton") if name in sys.modules]
    return tuple(os.path.dirname(os.path.abspath(sys.modules[name].__file__ or "")) + os.sep for name in names)


def _installed() -> tuple[str, ...]:
    """Directories of Python's own modules and of installed packages."""
    return tuple(sysconfig.get_path(name) + os.sep for name in ("stdlib", "purelib", "platlib"))


def _is_compiler_error(error: Exception) -> bool:
    """Errors of Triton's compiler and of MLIR, whose Python traceback tells a kernel's author nothing."""
    names = {kind.__module__.split(".")[0] + "." + kind.__name__ for kind in type(error).__mro__}
    return bool(names & {"triton.TritonError", "ditron_compiler.MLIRError", "ditron_compiler.UnresolvedSymbol"})


def _compiler_error(error: Exception) -> str:
    from ditron_compiler.frontend.diagnostics import explained

    explanation = explained(error)
    return str(explanation) if explanation is not None else f"error: {error}"
