"""CPU tensors that report to be CUDA tensors, for code that requires CUDA.

Optional, and frozen: nothing is added to it. It installs itself as :mod:`ditron.sim.cuda_hook`, which nothing else of
the simulator needs it for.
"""

from ditron.sim import cuda_hook
from ditron.sim.fake_cuda import mode

cuda_hook.install(mode)
