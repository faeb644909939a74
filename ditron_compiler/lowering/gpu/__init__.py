"""Lowering to NVIDIA and AMD GPUs."""
