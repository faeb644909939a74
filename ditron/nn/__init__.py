"""Modules of PyTorch with weights divided among ranks, and a way to put them into a module that knows nothing of ranks.

block = ditron.nn.parallelize(block, {"mlp.up": "colwise", "mlp.down": "rowwise"})
"""

from typing import TYPE_CHECKING, Any

from ditron.nn.linear import ColumnParallelLinear, RowParallelLinear
from ditron.nn.moe import MoE
from ditron.nn.parallelize import parallelize

if TYPE_CHECKING:
    from ditron.nn.collective_fusion import fuse_collectives

__all__ = ["ColumnParallelLinear", "MoE", "RowParallelLinear", "fuse_collectives", "parallelize"]


def __getattr__(name: str) -> Any:
    if name != "fuse_collectives":
        raise AttributeError(f"module 'ditron.nn' has no attribute {name!r}")
    import importlib

    module = importlib.import_module("ditron.nn.collective_fusion")  # imports torch's compiler, which takes seconds
    return module.fuse_collectives
