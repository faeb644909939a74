"""What a program keeps between calls."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ditron._program.trace.dtypes import from_mlir
from ditron.distributed.group import Group
from ditron.distributed.memory import symm_empty, symm_free

if TYPE_CHECKING:
    import torch

__all__ = ["Memory"]


@dataclass
class Memory:
    """What a program keeps between calls, for one set of shapes.

    Attributes:
        tensors: of each storage that is allocated. epoch: number of the latest call that uses them.
    """

    tensors: dict[Any, torch.Tensor] = field(default_factory=dict)
    epoch: int = 0

    @classmethod
    def allocate(cls, name: str, storages: Iterable[Any], group: Group) -> Memory:
        """Allocate the storages: collective, in order."""
        import torch

        memory = cls()
        for storage in storages:
            dtype, label = from_mlir(storage.dtype), f"{name}.{storage.name}"
            if storage.kind == "symmetric":
                tensor = symm_empty(storage.shape, dtype=dtype, name=label, group=group)
            else:
                tensor = torch.empty(storage.shape, dtype=dtype, device=group.device)
            if storage.zeroed:
                tensor.zero_()
            if storage.kind != "symmetric":
                group.record_allocation(label, tensor, storage.zeroed)
            memory.tensors[storage] = tensor
        if memory.tensors:
            group.barrier()  # no rank writes to another's memory before it is there, and zero
        return memory

    def free(self, group: Group) -> None:
        """Give it back: collective."""
        for storage, tensor in self.tensors.items():
            if storage.kind == "symmetric":
                symm_free(tensor, group)
