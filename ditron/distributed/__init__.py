"""Ranks, groups and symmetric memory, on GPUs and on the simulator alike.

A script calls :func:`init` and is then one rank of a world:

* under ``torchrun`` on a machine with GPUs, rank ``i`` is a process with a GPU of its own;
* under ``ditron run --sim N`` (or after ``ditron.init(sim=N)``), rank ``i`` is a simulated one, on the CPU.

The same script does both, unchanged: it makes its tensors on :func:`device`, its symmetric ones by :func:`symm_empty`,
and launches kernels, which run in a :class:`Group` and number their ranks in it.
"""

from ditron.distributed.group import Group
from ditron.distributed.initialization import finalize, init
from ditron.distributed.memory import symm_empty, symm_free, symm_packets, symm_zeros
from ditron.distributed.ranks import (
    all_gather_object,
    barrier,
    device,
    is_initialized,
    local_rank,
    new_group,
    num_ranks,
    rank,
    synchronize,
    world,
)
from ditron.distributed.state import current_group
from ditron.distributed.torch_groups import as_group

__all__ = [
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
]
