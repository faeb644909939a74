"""Kernels: the ``@ditron.jit`` decorator, launches, and compilation without a launch."""
