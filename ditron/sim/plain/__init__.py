"""Plain Triton on the simulator: ``@triton.jit`` kernels of any package."""
