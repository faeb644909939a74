"""Scripts as ``__main__`` in processes of their own that need not import torch and ditron: a server that has, forks them."""

from __future__ import annotations

import atexit
import functools
import multiprocessing
import os
import runpy
import sys
import tempfile
import traceback
from pathlib import Path


@functools.cache
def _context():
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch", "ditron", "ditron.kernels", "ditron.cli"])
    return context


def run_script(path: Path, *arguments: str, cwd: Path, timeout: float = 120) -> tuple[int, str]:
    """Exit status of ``python path arguments...`` and what it printed. TimeoutError, if it takes longer (in seconds)."""
    with tempfile.NamedTemporaryFile() as printed:
        process = _context().Process(target=_run, args=(str(path), arguments, str(cwd), printed.name))
        process.start()
        process.join(timeout)
        if process.is_alive():
            process.kill()
            process.join()
            raise TimeoutError(f"{path} takes longer than {timeout} s:\n{Path(printed.name).read_text()}")
        return process.exitcode, Path(printed.name).read_text()


def _run(path: str, arguments: tuple[str, ...], cwd: str, printed: str) -> None:
    to = os.open(printed, os.O_WRONLY)
    os.dup2(to, 1)
    os.dup2(to, 2)
    os.chdir(cwd)
    sys.argv = [path, *arguments]
    sys.path.insert(0, str(Path(path).parent))
    status = 0
    try:
        runpy.run_path(path, run_name="__main__")
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
        status = 1
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
