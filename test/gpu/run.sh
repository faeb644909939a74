#!/usr/bin/env bash
# Everything that only GPUs can show, in one go: test/gpu/run.sh OUT [p2p] [nvshmem] [overhead] [programs] [calls] [counting] [counts] [operators] [overlap] [descriptors] [packets] [links] [prints] [hangs] [heap] [tuning]
# Installs the wheels in .whl (ditron's and nvshmem4py's) beside the machine's torch and triton, then runs each part
# under a time limit. Writes OUT/results.md. Never enables NVLink multicast.
set -uo pipefail
cd "$(dirname "$0")/../.."
out=$1; shift
parts=${*:-p2p nvshmem overhead}  # hangs, heap, tuning: two GPUs and some minutes, when asked for
export NCCL_NVLS_ENABLE=0 TORCH_SYMM_MEM_DISABLE_MULTICAST=1 NVSHMEM_DISABLE_NVLS=1 PYTHONUNBUFFERED=1
export OMP_NUM_THREADS=8
site=/tmp/ditron-site
if [ ! -d $site ]; then
  python3 -m pip install -q --no-index --no-deps --no-compile --target $site .whl/*.whl || exit 1
fi
# The installed package is what is tested; the checkout gives examples and scripts.
export PYTHONPATH=$site
run() { timeout "$1" python3 -m torch.distributed.run --nproc-per-node "$2" "${@:3}"; }
gpus=$(nvidia-smi -L | wc -l)
status=0
cd /tmp && python3 -m ditron.cli doctor; cd - >/dev/null
for part in $parts; do
  echo "== $part on $gpus GPUs, $(date +%T)"
  case $part in
    p2p|nvshmem) run 240 "$gpus" test/gpu/check_examples.py --transport "$part" --table "$out/results.md" ;;
    smoke-p2p|smoke-nvshmem) run 100 "$gpus" test/gpu/check_examples.py --transport "${part#smoke-}" --small --limit 40 ;;
    smoke-programs) run 150 "$gpus" test/gpu/check_programs.py --small --calls 10 ;;
    programs) run 500 "$gpus" test/gpu/check_programs.py --table "$out/results.md" ;;
    calls) run 120 2 test/gpu/check_calls.py ;;
    counting) run 120 1 test/gpu/check_counting.py ;;
    counts) run 200 2 test/gpu/check_captured_counts.py ;;
    operators) run 500 2 test/gpu/check_operators.py ;;
    smoke-operators) run 200 2 test/gpu/check_operators.py --small --only gemm_rs ;;
    overlap) run 200 "$gpus" test/gpu/check_programs.py --only overlap --table "$out/results.md" ;;
    descriptors) run 150 "$gpus" test/gpu/check_descriptors.py --table "$out/results.md" ;;
    prints) timeout 120 python3 test/gpu/check_prints.py ;;
    packets)
      run 120 "$gpus" test/gpu/check_packets.py --table "$out/results.md" &&
        run 120 "$gpus" test/gpu/check_ll_collectives.py --replays 300 ;;
    links) run 150 "$gpus" benchmark/links.py --table "$out/results.md" ;;
    hangs) timeout 280 python3 test/gpu/check_hangs.py --table "$out/results.md" ;;
    tuning) timeout 120 python3 test/gpu/check_tuning.py && run 120 2 test/gpu/check_tuning.py --lazily ;;
    heap) timeout 560 python3 test/gpu/check_heap.py --table "$out/results.md" ;;
    ll) run 400 "$gpus" benchmark/ll_all_gather.py --table "$out/results.md" ;;
    swizzle) run 200 "$gpus" benchmark/swizzle_time.py --table "$out/results.md" ;;
    overhead) run 150 1 benchmark/overhead.py --table "$out/results.md" ;;
  esac
  code=$?
  [ $code = 0 ] || { status=1; echo "== $part FAILED with exit code $code"; }
done
exit $status
