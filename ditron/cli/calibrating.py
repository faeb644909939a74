"""``ditron calibrate``."""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ditron.cli.kernels import UsageError
from ditron.cli.progress import progress, timed

if TYPE_CHECKING:
    from ditron.calibration.probes import Probe
    from ditron.machines import Machine

__all__ = ["calibrate_command"]


def calibrate_command(args: argparse.Namespace) -> int:
    """Run the probes, find the numbers, and write the machine's file."""
    import torch

    from ditron import machines
    from ditron.tuning.tables import machine_name
    from ditron_compiler.errors import DitronError

    count = torch.cuda.device_count()
    if count == 0:
        print(
            "ditron calibrate: measures on GPUs, and there is none here: write a file by hand (docs/predicting.md), or "
            "'ditron run --machine NAME' with one of " + ", ".join(machines.names()),
            file=sys.stderr,
        )
        return 1
    ranks = args.ranks or count
    if ranks > count:
        raise UsageError(f"--ranks {ranks}: this machine has {count} GPUs")
    gpus = [torch.cuda.get_device_properties(device) for device in range(ranks)]
    kinds = sorted({f"{gpu.name}, {gpu.multi_processor_count} SMs" for gpu in gpus})
    if len(kinds) > 1:
        raise DitronError(f"the GPUs differ: {'; '.join(kinds)}: a machine has GPUs of one kind (CUDA_VISIBLE_DEVICES)")
    gpu = gpus[0]
    base = _base(args.base, machine_name(gpu.name), ranks)
    path = Path(args.output or f"{machine_name(gpu.name)}x{ranks if ranks > 1 else base.ranks}.toml")
    _check_output(path)
    with progress() as show:
        return _calibrate(args, base, ranks, gpu, path, timed(show, args.verbose))


def _base(name: str | None, gpu: str, ranks: int) -> Machine:
    """The machine whose numbers are taken where none is measured."""
    from ditron import machines
    from ditron_compiler.errors import DitronError

    try:
        found = machines.load(name) if name else machines.of_gpu(gpu, ranks)
    except DitronError as error:
        raise UsageError(f"--base: {error}") from None
    if found is None:
        raise UsageError(
            f"no file in ditron/machines describes {ranks} x {gpu}: name the closest machine with --base, of "
            + ", ".join(machines.names())
        )
    if found.nodes > 1:
        raise UsageError(f"--base {name}: it has {found.nodes} nodes, and one is calibrated: leave x{found.nodes} out")
    return found


def _check_output(path: Path) -> None:
    """Before minutes of measurements: whether the file can be written and replaces none."""
    if path.suffix != ".toml":
        raise UsageError(f"{path}: expected a file that ends in .toml, as --machine takes it")
    if path.exists():
        raise UsageError(f"{path} is there already and is not replaced: choose another file with -o")
    try:
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}") from None


def _calibrate(
    args: argparse.Namespace, base: Machine, ranks: int, gpu: Any, path: Path, say: Callable[[str], None]
) -> int:
    import torch

    from ditron import machines
    from ditron.calibration import measuring
    from ditron.calibration.fit import fit
    from ditron.calibration.machine_file import numbers_of, text_of
    from ditron.calibration.probes import HELD_OUT, PROBES, left_out, predicted_us
    from ditron.machines import Number

    begin, capability = time.monotonic(), 10 * gpu.major + gpu.minor
    why_not = {probe: left_out(probe, base, ranks, capability) for probe in (*PROBES, *HELD_OUT)}
    probes, held_out = ([probe for probe in some if not why_not[probe]] for some in (PROBES, HELD_OUT))
    measured = measuring.measured_us([*probes, *held_out], ranks, say)
    missed = [probe for probe in PROBES if ranks < probe.ranks <= base.ranks]
    kept = {probe: predicted_us(probe, base, ranks) for probe in missed if probe.keeps_time}
    start = replace(base, numbers=dict(base.numbers) | {"sm.count": Number(gpu.multi_processor_count, "", "")})
    found = fit(
        start, [*probes, *kept], measured | kept, lambda probe, machine: predicted_us(probe, machine, ranks), say
    )
    say("")
    by = f"ditron calibrate, {date.today()}, {ranks} x {gpu.name}"
    reasons = {probe.number: why for probe, why in why_not.items()}
    reasons |= {probe.number: f"{why_not[probe]}: its {probe.what} takes {us:.1f} us" for probe, us in kept.items()}
    numbers = numbers_of(base, found.machine, {p: measured[p] for p in probes}, reasons, found.unexplained, by)
    size = ranks if ranks > 1 else base.ranks
    comment = f"{by}, torch {torch.__version__}; the rest is of {base.name}."
    path.write_text(text_of(args.name or f"{size} x {gpu.name}", size, comment, base, numbers))
    machine = machines.load(path)
    for probe in probes:
        if why := found.unexplained.get(probe.number):
            print(f"{probe}: {why}")
    print("\n".join(_number_rows(base, machine)))
    for title, some in (("probe", probes), ("held out", held_out)):
        print("\n".join(_probe_rows(title, {p: (measured[p], predicted_us(p, machine, ranks)) for p in some})))
    print(f"\n{path}: {machine}; {time.monotonic() - begin:.0f} s")
    return 0


def _number_rows(base: Machine, machine: Machine) -> Iterator[str]:
    """What was measured beside the base's numbers, then what was taken from it, by reason."""
    from ditron.machines import FIELDS

    yield f"\n{'number':24} {base.name:>12} {'measured':>12}"
    taken: dict[str, list[str]] = {}
    for name, number in machine.numbers.items():
        if number.source.startswith("measured"):
            change = f"{100 * (number.value / base[name] - 1):+8.1f} %" if base[name] else ""
            yield f"{name:24} {base[name]:12g} {number.value:12g} {FIELDS[name].unit:8}{change}"
        else:
            changed = "" if number.value == base[name] else f" = {number.value:g}"
            taken.setdefault(number.source.partition("(")[2].partition(")")[0], []).append(name + changed)
    for why, those in taken.items():
        yield f"as of {base.name} ({why}): {', '.join(those)}"


def _probe_rows(title: str, us: Mapping[Probe, tuple[float, float]]) -> Iterator[str]:
    """Measured and predicted times."""
    yield f"\n{title:72} {'measured, us':>12} {'predicted':>10}"
    for probe, (measured, predicted) in us.items():
        yield f"{probe!s:72} {measured:12.1f} {predicted:10.1f} {100 * (predicted / measured - 1):+7.1f} %"
    errors = [abs(predicted / measured - 1) for measured, predicted in us.values()]
    yield f"error at most {100 * max(errors):.1f} %, median {100 * statistics.median(errors):.1f} %"
