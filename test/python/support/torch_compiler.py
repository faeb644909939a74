"""Whether torch can compile in simulated ranks, which are threads of one process."""

import pytest
import torch

needs_compiler_in_threads = pytest.mark.skipif(
    torch.__version__ < (2, 13), reason="torch 2.11 crashes when a second thread enters FakeTensorMode"
)
