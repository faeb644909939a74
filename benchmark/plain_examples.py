"""Examples with their order of tiles taken away: what a pass that puts tiles in order starts from."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"

#: Example -> (its order, tiles in plain order).
ORDERS = {
    "ag_gemm_in_kernel": ('dl.swizzle(tile // tiles_n, M, BLOCK_M, mode="gather")', "tile // tiles_n"),
    "gemm_rs": ("(rank + 1 + tile // tiles_per_rank) % num_ranks", "tile // tiles_per_rank"),
}


def plain(example: str, folder: Path) -> ModuleType:
    """The example as a module of its own, its source in ``folder``; ValueError if it has another order by now."""
    order, unordered = ORDERS[example]
    source = (EXAMPLES / f"{example}.py").read_text()
    if source.count(order) != 1:
        raise ValueError(f"examples/{example}.py no longer has {order!r}")
    path = folder / f"plain_{example}.py"
    path.write_text(source.replace(order, unordered))
    return load(path)


def load(path: Path) -> ModuleType:
    """Import a file."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = sys.modules[path.stem] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
