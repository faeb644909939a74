#!/usr/bin/env bash
# Ranks that run at the same time on one GPU: test/gpu/mps.sh RANKS SCRIPT [ARGUMENTS]
# Starts CUDA's Multi-Process Service for the duration, which needs no setting of the GPU; share_gpu.py gives each rank its
# part of the SMs to count on. Ranks of one GPU take turns of milliseconds otherwise: a soak makes ten calls a second then,
# and some hundred with this. What passes is right. What hangs may be right too: where a rank launches more programs than
# its part of the SMs holds, as gemm_ar does, they can take the SMs of those that they wait for. In turns that cannot be.
# Times are not those of several GPUs.
set -uo pipefail
ranks=$1; shift
export NCCL_NVLS_ENABLE=0 TORCH_SYMM_MEM_DISABLE_MULTICAST=1 NVSHMEM_DISABLE_NVLS=1 OMP_NUM_THREADS=${OMP_NUM_THREADS:-2}
command -v nvidia-cuda-mps-control >/dev/null ||
  { echo "mps.sh: no nvidia-cuda-mps-control on PATH: install the driver's compute utilities, or use share_gpu.py" >&2; exit 1; }
CUDA_MPS_PIPE_DIRECTORY=$(mktemp -d) || exit 1
export CUDA_MPS_PIPE_DIRECTORY CUDA_MPS_LOG_DIRECTORY=$CUDA_MPS_PIPE_DIRECTORY
nvidia-cuda-mps-control -d || exit 1
trap 'echo quit | timeout 20 nvidia-cuda-mps-control; rm -rf "$CUDA_MPS_PIPE_DIRECTORY"' EXIT
python3 -m torch.distributed.run --nproc-per-node "$ranks" "$(dirname "$0")/share_gpu.py" --divide-sms "$@"
