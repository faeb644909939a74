"""Which candidate a call runs: asked by operators at each call, with one answer for all ranks of the group.

Rank 0 of a group reads the tables and gives them to the others at the group's first operator, which is collective as
every operator is: ranks with different files, or a file that is written meanwhile, cannot choose differently.
"""

from __future__ import annotations

import base64
import logging
import time
import zlib
from typing import TYPE_CHECKING

from ditron.tuning.problem import Options, Problem, bucket_of
from ditron.tuning.registry import OPERATORS
from ditron.tuning.tables import Entry, Table, known_machines, machine_name, tables_of
from ditron_compiler import knobs
from ditron_compiler.errors import DitronError

if TYPE_CHECKING:
    import torch

    from ditron.distributed.group import Group

__all__ = ["disable", "enable", "tuned"]

_CHUNK = 1 << 16  # characters of a message between ranks
_MOST = 1 << 14  # sizes whose choice is remembered
_NAMES = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32", "float8_e4m3fn": "fp8", "int8": "int8"}

log = logging.getLogger("ditron.tuning")


class _Settings:
    """Of this process, on top of the environment's."""

    lazily: bool | None = None
    simulator: str | None = None  # the machine whose tables simulated ranks use


def enable(simulator: str | None = None) -> None:
    """Tune what no table knows at its first call, as ``DITRON_TUNE=1``; on every rank, before operators are called.

    Args:
        simulator: a machine's name such as ``"h200"``: simulated ranks use its tables (and measure nothing).

    Raises DitronError for a machine that is not known.

    As in a script that ``torchrun`` starts:

        ditron.tuning.enable()
    """
    if simulator is not None:
        if simulator not in (known := known_machines()):
            without = isinstance(simulator, str) and simulator.rpartition("x")[0]
            hint = f": {without!r} is meant, with as many ranks as are simulated" if without in known else ""
            raise DitronError(
                f"ditron.tuning.enable: simulator={simulator!r} is no machine{hint or ': expected ' + ', '.join(known)}"
            )
        _Settings.simulator = simulator
    else:
        _Settings.lazily = True


def disable() -> None:
    """Neither tune nor look at tables, as ``DITRON_TUNE=0``: in groups that have called no operator yet.

    ditron.tuning.disable()
    """
    _Settings.lazily, _Settings.simulator = False, None


class GroupChoices:
    """What the ranks of a group have agreed on: a table, and the choices that were made from it."""

    def __init__(self, table: Table | None):
        self.table = table
        self.made: dict[tuple, tuple[str | None, Options] | None] = {}

    def choose(self, group: Group, key: tuple) -> tuple[str | None, Options] | None:
        """Algorithm and schedule; None where the operator's rule decides."""
        what, dtype, rows, N, K, named, *of_experts = key
        algorithm, among, lacking = named if isinstance(named, tuple) else (named, (), ())
        name = _NAMES.get(str(dtype).removeprefix("torch."))
        if self.table is None or name is None or what not in OPERATORS:
            return None
        problem = Problem(what, name, group.num_ranks, bucket_of(rows), N, K, *of_experts)
        found = self.table.find(problem)
        if (found is None or found.is_nearest) and algorithm is None and _tunes(group):
            if not _is_capturing(group):
                _tune(problem, group, self.table)
                found = self.table.find(problem)
            else:
                log.info("%s is not tuned while a CUDA graph is captured: it runs what it does by default", problem)
        if found is None:
            return None
        without = OPERATORS[what].named_only if has_nccl(group) else (*OPERATORS[what].named_only, "nccl")
        best = found.entry.best(algorithm, without, among, lacking)
        if best is None:
            return None
        options = dict(best.options)
        return options.pop("algorithm", None), options


def tuned(
    what: str,
    group: Group,
    algorithm: str | None,
    given: Options,
    dtype: torch.dtype,
    rows: int,
    N: int = 0,
    K: int = 0,
    experts: int = 0,
    top_k: int = 0,
    parallel: str = "",
    among: tuple[str, ...] = (),
    lacking: tuple[str, ...] = (),
) -> tuple[str | None, Options]:
    """``algorithm`` and ``given`` of a caller; for one that gives no schedule, those that were measured to be fastest.

    ``rows`` and what follows are of the :class:`~ditron.tuning.problem.Problem`. What the caller names is taken as it
    is: a schedule turns the table off, an algorithm limits it to the schedules of that algorithm. Where ``what`` is
    another operator than the caller: ``among`` the algorithms that the caller has, and arguments of schedules that it
    is ``lacking``. Collective over the group in its first call.
    """
    choices = group.choices
    if choices is None:
        choices = group.choices = _agree(group)
    if choices.table is None or given:
        return algorithm, given
    named = (algorithm, among, lacking) if among or lacking else algorithm
    key = (what, dtype, rows, N, K, named, *((experts, top_k, parallel) if experts else ()))
    try:
        choice = choices.made[key]
    except KeyError:
        choice = choices.choose(group, key)
        if choice is not None or not (_tunes(group) and _is_capturing(group)):  # which may be tuned later
            if len(choices.made) >= _MOST:
                choices.made.clear()
            choices.made[key] = choice
    return (algorithm, given) if choice is None else choice


def has_nccl(group: Group) -> bool:
    """Whether the group has a process group of torch with NCCL, in which its ranks have the same numbers."""
    process_group = getattr(group, "process_group", None)
    if process_group is None or group.device.type != "cuda":
        return False
    import torch.distributed as dist

    return "nccl" in str(dist.get_backend_config(process_group)) and (
        dist.get_process_group_ranks(process_group) == group.ranks
    )


def _agree(group: Group) -> GroupChoices:
    lazily = knobs.tune.get() if _Settings.lazily is None else _Settings.lazily
    if group.is_sim:
        machine = None if group.is_captured else _Settings.simulator
    elif lazily is False or len(group.nodes) > 1:  # tables are of GPUs that are connected in pairs
        machine = None
    else:
        import torch

        machine = machine_name(torch.cuda.get_device_name(group.device))
    if machine is None:
        return GroupChoices(None)
    text = tables_of(machine, group.num_ranks).to_text() if group.rank == 0 else ""
    return GroupChoices(Table.from_text(_from_rank_0(group, text)))


def _from_rank_0(group: Group, text: str) -> str:
    """Rank 0's text, on every rank. Collective."""
    what = "the tables of ditron.tuning"
    packed = base64.b64encode(zlib.compress(text.encode())).decode()
    size = group.small_values(what, len(packed))[0]
    return zlib.decompress(
        base64.b64decode(
            "".join(group.small_values(what, packed[at : at + _CHUNK])[0] for at in range(0, size, _CHUNK))
        )
    ).decode()


def _tunes(group: Group) -> bool:
    lazily = knobs.tune.get() if _Settings.lazily is None else _Settings.lazily
    return bool(lazily) and not group.is_sim and len(group.nodes) == 1


def _is_capturing(group: Group) -> bool:
    import torch

    return group.device.type == "cuda" and torch.cuda.is_current_stream_capturing()


def _tune(problem: Problem, group: Group, table: Table) -> None:
    """Measure a problem in processes of their own, on rank 0's behalf, and give all ranks the result. Collective."""
    from ditron.tuning import processes  # needed by those that tune alone

    devices = group.small_values("the tuning of an operator", group.device.index or 0)
    group.barrier()
    text = ""
    if group.rank == 0:
        begin = time.monotonic()
        log.info("%s is tuned", problem)
        new = Table(table.machine, table.ranks, table.versions)
        try:
            entry = processes.tune_one(problem, devices, knobs.tune_seconds.get(), table.machine, knobs.tune_top.get())
            new.add(entry)  # without a time, too: this group does not tune it again
        except Exception as error:  # what cannot be tuned runs what it does by default
            log.warning("%s cannot be tuned: %s: %s", problem, type(error).__name__, error)
        else:
            _keep(new, entry, time.monotonic() - begin)
        text = new.to_text()
    table.entries |= Table.from_text(_from_rank_0(group, text)).entries


def _keep(new: Table, entry: Entry, seconds: float) -> None:
    """In the user's table, for other processes, if anything was measured."""
    from ditron.tuning import processes

    if entry.best() is None:
        why = next((candidate.failure for candidate in entry.candidates if candidate.failure), "there is no candidate")
        log.warning("%s cannot be tuned: nothing was measured, and nothing is kept: %s", entry.problem, why)
        return
    log.info("%s was tuned in %.0f s: %s", entry.problem, seconds, entry.best())
    try:
        processes.keep(new)
    except Exception as error:
        what = f"{type(error).__name__}: {error}"
        log.warning("%s was tuned and runs what was found, which cannot be kept: %s", entry.problem, what)
