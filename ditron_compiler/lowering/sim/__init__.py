"""Lowering to the simulator: a program of a kernel as scalar loops that LLVM compiles for the host."""
