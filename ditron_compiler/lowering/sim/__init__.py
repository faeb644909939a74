"""Lowering to the simulator: a program of a kernel as scalar loops that LLVM compiles for the host."""

from __future__ import annotations

__all__ = ["LowerToSim", "SimKernel", "compile_module"]


def __getattr__(name: str):
    """Import on use, so that a pass manager pays for nothing it does not run."""
    if name == "LowerToSim":
        from .lower_to_sim import LowerToSim

        return LowerToSim
    if name in ("SimKernel", "compile_module"):
        from . import compiler

        return getattr(compiler, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
