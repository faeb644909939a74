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
        tensors: of each root that is allocated. epoch: number of the latest call that uses them.
    """

    tensors: dict[Any, torch.Tensor] = field(default_factory=dict)
    epoch: int = 0

    @classmethod
    def allocate(cls, name: str, roots: Iterable[Any], group: Group) -> Memory:
        """Allocate the roots: collective, in order."""
        import torch

        memory = cls()
        for root in roots:
            dtype, label = from_mlir(root.dtype), f"{name}.{root.name}"
            if root.kind == "symmetric":
                tensor = symm_empty(root.shape, dtype=dtype, name=label, group=group)
            else:
                tensor = torch.empty(root.shape, dtype=dtype, device=group.device)
            if root.zeroed:
                tensor.zero_()
            if root.kind != "symmetric":
                group.record_allocation(label, tensor, root.zeroed)
            memory.tensors[root] = tensor
        group.barrier()  # no rank writes to another's memory before it is there, and zero
        return memory

    def free(self, group: Group) -> None:
        """Give it back: collective."""
        for root, tensor in self.tensors.items():
            if root.kind == "symmetric":
                symm_free(tensor, group)
