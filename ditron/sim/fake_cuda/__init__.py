"""CPU tensors that report to be CUDA tensors, for code that insists on CUDA. Optional, and frozen."""
