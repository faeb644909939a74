#!/usr/bin/env bash
# Ranks that run at the same time on one GPU, each on its share of the SMs: test/gpu/mps.sh RANKS SCRIPT [ARGUMENTS]
# Starts CUDA's Multi-Process Service for the duration, which needs no other setting of the GPU. Without it, ranks of one
# GPU take turns of milliseconds (share_gpu.py alone): a soak makes ten calls a second then, and some hundred with it.
# A rank that faults ends the others. Times are not those of several GPUs: what is sent goes through one GPU's memory.
set -uo pipefail
ranks=$1; shift
export NCCL_NVLS_ENABLE=0 TORCH_SYMM_MEM_DISABLE_MULTICAST=1 NVSHMEM_DISABLE_NVLS=1
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-2}
command -v nvidia-cuda-mps-control >/dev/null ||
  { echo "mps.sh: nvidia-cuda-mps-control is not on PATH: install the driver's compute utilities, or use share_gpu.py alone" >&2; exit 1; }
CUDA_MPS_PIPE_DIRECTORY=$(mktemp -d) || exit 1
export CUDA_MPS_PIPE_DIRECTORY CUDA_MPS_LOG_DIRECTORY=$CUDA_MPS_PIPE_DIRECTORY
export CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=$((100 / ranks))
nvidia-cuda-mps-control -d || exit 1
trap 'echo quit | timeout 20 nvidia-cuda-mps-control; rm -rf "$CUDA_MPS_PIPE_DIRECTORY"' EXIT
python3 -m torch.distributed.run --nproc-per-node "$ranks" "$(dirname "$0")/share_gpu.py" "$@"
