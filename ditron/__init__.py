"""DITRON: GPU kernels that compute and communicate at the same time.

    import ditron
    import ditron.language as dl

Public names are listed in ``__all__`` and loaded when first used, so that ``ditron --help`` needs neither torch nor
triton.
"""

from __future__ import annotations

import importlib
from functools import cache
from typing import TYPE_CHECKING, Any

from ditron_compiler.errors import (
    CompileError,
    DeadlockError,
    DitronError,
    NodesError,
    RaceError,
    SanitizerError,
    SimulationError,
    WaitTimeout,
)
from ditron_compiler.versions import check_versions

if TYPE_CHECKING:  # for editors and type checkers; __getattr__ below does the same when a name is first used
    from ditron import cost_model, host, kernels, language, nn, sim, tuning
    from ditron._jit.autotune import autotune
    from ditron._jit.compile import CompiledProgram, compile
    from ditron._jit.decorator import jit
    from ditron._program.program import program
    from ditron.distributed import (
        Group,
        all_gather_object,
        as_group,
        barrier,
        current_group,
        device,
        finalize,
        init,
        is_initialized,
        local_rank,
        new_group,
        num_ranks,
        rank,
        symm_empty,
        symm_free,
        symm_packets,
        symm_zeros,
        synchronize,
        world,
    )

_HOMES = {
    "cost_model": "ditron.cost_model",
    "CompiledProgram": "ditron._jit.compile",
    "compile": "ditron._jit.compile",
    "autotune": "ditron._jit.autotune",
    "jit": "ditron._jit.decorator",
    "host": "ditron.host",
    "kernels": "ditron.kernels",
    "nn": "ditron.nn",
    "program": "ditron._program.program",
    "language": "ditron.language",
    "sim": "ditron.sim",
    "tuning": "ditron.tuning",
    **dict.fromkeys(
        (
            "Group",
            "all_gather_object",
            "as_group",
            "barrier",
            "current_group",
            "device",
            "finalize",
            "init",
            "is_initialized",
            "local_rank",
            "new_group",
            "num_ranks",
            "rank",
            "symm_empty",
            "symm_free",
            "symm_packets",
            "symm_zeros",
            "synchronize",
            "world",
        ),
        "ditron.distributed",
    ),
}

__all__ = [
    "SanitizerError",
    "CompileError",
    "DeadlockError",
    "DitronError",
    "NodesError",
    "RaceError",
    "SimulationError",
    "WaitTimeout",
    *_HOMES,
]

__version__ = "0.1.0"

_check_versions = cache(check_versions)  # when a name is first used: "ditron doctor" answers where it fails


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'ditron' has no attribute {name!r}")
    _check_versions()
    module = importlib.import_module(home)
    value = module if home == f"ditron.{name}" else getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(__all__))
