"""Runs with different seeds until one fails: ``ditron run --seeds``."""

from __future__ import annotations

import gc
import io
import multiprocessing
import os
import sys
import threading
import traceback
import types
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, redirect_stderr, redirect_stdout

from ditron.cli.progress import progress
from ditron_compiler.errors import SimulationError

__all__ = ["explore", "explore_in_parallel"]

_AT_ONCE = 25  # seeds that a process runs in a row, at most


def explore(seeds: range, run: Callable[[int], int], replay: Callable[[int], str]) -> int:
    """Call ``run(seed)`` until one does not return 0, and return that; 0 when none does.

    Only what the wrong run printed is shown. What ``run`` raises is passed on.

    Args:
        replay: the command that runs one seed again.
    """
    try:
        for done, seed in enumerate(seeds):
            with progress() as say, _shown_if_wrong() as printed:
                say(f"seed {seed}, {done + 1} of {len(seeds)}")
                code = run(seed)
            if code:
                sys.stdout.write(printed.getvalue())
                print(f"the script ended with exit code {code}; again: {replay(seed)}", file=sys.stderr)
                return code
            if not done:
                gc.freeze()  # modules and kernels stay: scanning them after each run takes a tenth of the time
        return 0
    finally:
        gc.unfreeze()  # Triton 3.9 complains at the end of the process of what is not collected


@contextmanager
def _shown_if_wrong() -> Iterator[io.StringIO]:
    """Within it output is captured, and shown only when an exception ends it."""
    printed = io.StringIO()
    try:
        with redirect_stdout(printed):
            yield printed
    except BaseException:
        sys.stdout.write(printed.getvalue())
        sys.stdout.flush()
        raise


def explore_in_parallel(seeds: range, jobs: int, command: Callable[[range], Sequence[str]]) -> int:
    """The same in ``jobs`` processes; the reported error is the one that a single process would report.

    Args:
        command: the arguments of ``ditron`` that explore a part of the seeds.
    """
    size = max(1, min(_AT_ONCE, len(seeds) // (4 * jobs)))
    parts = [seeds[at : at + size] for at in range(0, len(seeds), size)]
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // jobs)))  # else each takes all cores
    pool = ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn"), initializer=_end_with_parent)
    try:
        with progress() as say:
            say(f"{len(seeds)} seeds, {jobs} at a time")
            with _another_main():
                results = [pool.submit(_main, command(part)) for part in parts]
            for part, result in zip(parts, results, strict=True):
                code, out, err = result.result()
                if code:
                    break
                if err:  # warnings
                    say("")
                    sys.stderr.write(err)
                say(f"seed {part[-1]}, {part[-1] - seeds[0] + 1} of {len(seeds)}")
    except BrokenProcessPool:
        raise SimulationError(
            f"a process that ran seeds has died, at seed {part[0]} or soon after: --replay shows at which"
        ) from None
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        for process in multiprocessing.active_children():
            process.terminate()
    sys.stdout.write(out if code else "")
    sys.stderr.write(err if code else "")
    return code


@contextmanager
def _another_main() -> Iterator[None]:
    """Within it, new processes do not run our main module, a command, again."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = types.ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


def _end_with_parent() -> None:
    """In a process of the pool: do not outlive the command, however that ends."""

    def wait() -> None:
        multiprocessing.parent_process().join()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def _main(words: Sequence[str]) -> tuple[int, str, str]:
    """Exit code and output of a command, in a process of its own."""
    from ditron.cli import main

    with redirect_stdout(io.StringIO()) as out, redirect_stderr(io.StringIO()) as err:
        try:
            code = main(words)
        except Exception:
            traceback.print_exc()
            code = 1
    return code, out.getvalue(), err.getvalue()
