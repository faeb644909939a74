"""Modules of PyTorch with weights divided among ranks, and a way to put them into a module that knows nothing of ranks.

block = ditron.nn.parallelize(block, {"mlp.up": "colwise", "mlp.down": "rowwise"})
"""

from ditron.nn.linear import ColumnParallelLinear, RowParallelLinear
from ditron.nn.parallelize import parallelize

__all__ = ["ColumnParallelLinear", "RowParallelLinear", "parallelize"]
