"""Gives mutants of scripts and of host programs to ``ditron check``: none may crash it, nor show an error of our own.

    python test/fuzz --count 500            # make fuzz
    python test/fuzz --first 123 --count 1 --show

Each runs in a process of its own, forked from one that has imported everything. A mutant fails if the process dies or
does not end, if the exit code is not 0 to 3, if an exception comes out of our code that is not raised there for the
user to read, or if what is printed shows frames of ours.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import linecache
import os
import re
import select
import shutil
import signal
import sys
import tempfile
import time
import traceback
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(Path(__file__).resolve().parent))

from mutate import mutant  # noqa: E402

#: What is mutated, and the options of the check.
SMALL = (("test/fuzz/originals/pass_right.py", ()), ("test/fuzz/originals/shift.py", ()))
ORIGINALS = (
    *SMALL,
    ("examples/ring.py", ()),
    ("examples/put_signal.py", ()),
    ("examples/all_gather.py", ()),
    ("examples/ag_gemm.py", ()),
    ("examples/ag_gemm_ring.py", ()),
    ("examples/gemm_rs_chunks.py", ()),
    ("examples/ll_all_gather.py", ()),
    ("examples/gemm_rs.py", ("--rows-per-rank", "20", "--n", "32", "--k", "32")),
)
SECONDS = 120.0
_OURS = re.compile(rf'File "{re.escape(str(ROOT))}/(ditron|ditron_compiler)/')


def main() -> int:
    parser = argparse.ArgumentParser(prog="python test/fuzz", description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=60, help="mutants (default 60)")
    parser.add_argument("--first", type=int, default=0, help="seed of the first (default 0)")
    parser.add_argument("--small", action="store_true", help="of the small originals only")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--show", action="store_true", help="print what the check prints")
    args = parser.parse_args()
    originals = SMALL if args.small else ORIGINALS
    import_everything()
    failed, codes = [], {}
    with tempfile.TemporaryDirectory() as folder:
        seeds = range(args.first, args.first + args.count)
        for seed, verdict in run_all(originals, seeds, args.jobs, Path(folder), args.show):
            codes[verdict.split(":")[0]] = codes.get(verdict.split(":")[0], 0) + 1
            if not verdict.startswith("exit code"):
                failed.append(seed)
                print(f"mutant {seed} ({describe(originals, seed)}): {verdict}", flush=True)
    print(f"{args.count} mutants: " + ", ".join(f"{code} {number} times" for code, number in sorted(codes.items())))
    return 1 if failed else 0


def describe(originals, seed: int) -> str:
    name = originals[seed % len(originals)][0]
    return f"{name}, {mutant((ROOT / name).read_text(), seed)[1]}"


def import_everything() -> None:
    """What every check needs; it launches nothing, for a forked process could not go on from there."""
    import torch

    import ditron.cli.checking
    import ditron.host
    import ditron.protocol.api  # noqa: F401

    torch.set_num_threads(1)


def run_all(originals, seeds, jobs, folder, show):
    """``(seed, verdict)`` of each mutant, as they end."""
    todo, running = list(reversed(seeds)), {}
    while todo or running:
        while todo and len(running) < jobs:
            seed = todo.pop()
            read, write = os.pipe()
            process = os.fork()
            if process == 0:
                os.close(read)
                os.setpgid(0, 0)
                verdict = check(originals, seed, folder / str(seed), show)
                os.write(write, verdict.encode()[:60000])
                os._exit(0)
            os.close(write)
            running[read] = (seed, process, time.monotonic())
        ready, _, _ = select.select(list(running), [], [], 1.0)
        for read in list(running):
            seed, process, since = running[read]
            late = time.monotonic() - since > SECONDS
            if read not in ready and not late:
                continue
            if late:
                os.kill(process, signal.SIGKILL)
            said = b""
            while part := os.read(read, 65536):
                said += part
            os.close(read)
            _, status = os.waitpid(process, 0)
            del running[read]
            died = f"died: signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else "died"
            yield seed, f"no end within {SECONDS:g} s" if late else said.decode(errors="replace") or died


def check(originals, seed: int, folder: Path, show: bool) -> str:
    """The verdict about one mutant, in a process of its own."""
    from ditron.cli import main as command

    original, options = originals[seed % len(originals)]
    shutil.copytree((ROOT / original).parent, folder, ignore=shutil.ignore_patterns("__pycache__"))
    file = folder / Path(original).name
    file.write_text(mutant(file.read_text(), seed)[0])
    os.environ["DITRON_PROTOCOL"] = "off"
    raised = None
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
        try:
            code = command(["check", "--ranks", "2", str(file), *options])
        except BaseException as error:
            raised, code = error, -1
    printed = out.getvalue() + err.getvalue()
    if show:
        os.write(1, printed.encode())
        if raised is not None:
            os.write(1, "".join(traceback.format_exception(raised)).encode())
    if raised is not None:
        return "raised: " + "".join(traceback.format_exception(raised))
    if code not in (0, 1, 2, 3):
        return f"another exit code: {code}"
    if _OURS.search(printed):
        return f"frames of ours: {printed}"
    inner = internal_error(file, options) if "Traceback" in printed else ""
    return inner or f"exit code {code}: {printed[-300:]}"


def internal_error(file: Path, options: tuple[str, ...]) -> str:
    """An exception that our code did not raise for the user to read, but fell over; or nothing."""
    from ditron.cli import main as command

    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            command(["check", "--ranks", "2", "--traceback", str(file), *options])
    except BaseException as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        calls_torch = last.name.startswith("__torch_")  # what torch says of the user's operation
        ours = not calls_torch and _OURS.search(f'File "{last.filename}')
        if ours and not linecache.getline(last.filename, last.lineno).lstrip().startswith("raise"):
            return "internal error: " + "".join(traceback.format_exception(error))
    return ""


if __name__ == "__main__":
    sys.exit(main())
