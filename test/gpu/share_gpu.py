"""Runs a check with all ranks on one GPU, which serves their processes in turns: right or wrong, but no times.

    torchrun --nproc-per-node 4 test/gpu/share_gpu.py test/gpu/check_moe.py --replays 40

Programs of one rank that wait hold all SMs until their time slice ends, some milliseconds; then the next rank's run. So
waits, puts, graphs and memory of more ranks than there are GPUs can be tried, but nothing runs beside another rank's
kernels; mps.sh has them run at the same time, for which ``--divide-sms`` is. NCCL refuses two ranks of one GPU: torch's
collectives are gloo's here.
"""

from __future__ import annotations

import os
import runpy
import sys

os.environ["LOCAL_RANK"] = "0"  # whose meaning is the GPU's index; ditron counts ranks by their processes
for name in ("NCCL_NVLS_ENABLE=0", "TORCH_SYMM_MEM_DISABLE_MULTICAST=1", "NVSHMEM_DISABLE_NVLS=1"):
    os.environ.setdefault(*name.split("="))

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402

_init_process_group = dist.init_process_group


def _by_gloo(_backend: str | None = None, *_, device_id: object = None, **options) -> None:
    _init_process_group("cpu:gloo,cuda:gloo", **options)


class _Part:
    """A GPU's properties, with this rank's part of its SMs."""

    def __init__(self, whole: object):
        self._whole = whole
        self.multi_processor_count = whole.multi_processor_count // int(os.environ["WORLD_SIZE"])

    def __getattr__(self, name: str) -> object:
        return getattr(self._whole, name)


if __name__ == "__main__":
    dist.init_process_group = _by_gloo
    if sys.argv[1] == "--divide-sms":
        del sys.argv[1]
        _get_device_properties = torch.cuda.get_device_properties
        torch.cuda.get_device_properties = lambda device=None: _Part(_get_device_properties(device))
    script, sys.argv = sys.argv[1], sys.argv[1:]
    sys.path[0] = os.path.dirname(os.path.abspath(script))
    runpy.run_path(script, run_name="__main__")
