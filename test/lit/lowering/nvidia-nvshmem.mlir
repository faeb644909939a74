// RUN: %python %S/../../python/support/gpu_stages.py %S/Inputs/gpu-ops.mlir --target cuda:90 --transport nvshmem --stage llir | filecheck %s

// What each operation is in the LLVM IR of cuda:90 under transport nvshmem; the calls that lead there are in gpu-calls.mlir.

// CHECK-LABEL: define {{.*}} @rank(
// CHECK: load i64, ptr addrspace(1) {{.*}} !invariant.load
// CHECK-LABEL: define {{.*}} @symm_at(
// CHECK: load i64, ptr addrspace(1) {{.*}} !invariant.load
// CHECK: call ptr @nvshmem_ptr(ptr {{.*}}, i32
// CHECK-LABEL: define {{.*}} @wait(
// CHECK: load atomic i64, ptr addrspace(1) {{.*}} acquire
// CHECK: call void @llvm.nvvm.barrier
// CHECK-LABEL: define {{.*}} @notify(
// CHECK: call void @llvm.nvvm.barrier
// CHECK: fence acq_rel
// CHECK: call void @nvshmem_fence()
// CHECK: call void @nvshmemx_signal_op(ptr {{.*}}, i64 {{.*}}, i32 9, i32
// CHECK-LABEL: define {{.*}} @notify_add(
// CHECK: call void @llvm.nvvm.barrier
// CHECK: fence acq_rel
// CHECK: call void @nvshmem_fence()
// CHECK: call void @nvshmemx_signal_op(ptr {{.*}}, i64 {{.*}}, i32 10, i32
// CHECK-LABEL: define {{.*}} @notify_on_gpu(
// CHECK: call void @llvm.nvvm.barrier
// CHECK: call ptr @nvshmem_ptr
// CHECK: fence syncscope("device") acq_rel
// CHECK: store atomic i64 {{.*}} syncscope("device") monotonic
// CHECK-LABEL: define {{.*}} @signal_op(
// CHECK-NOT: call void @llvm.{{.*}}barrier
// CHECK-NOT: fence
// CHECK: call void @nvshmemx_signal_op(ptr {{.*}}, i64 {{.*}}, i32 10, i32
// CHECK-LABEL: define {{.*}} @signal_wait_until(
// CHECK: call i64 @nvshmem_signal_wait_until(ptr {{.*}}, i32 5, i64
// CHECK: fence acq_rel
// CHECK: call void @llvm.nvvm.barrier
// CHECK-LABEL: define {{.*}} @putmem(
// CHECK: call void @llvm.nvvm.barrier
// CHECK: call void @nvshmemx_putmem_block(ptr {{.*}}, ptr {{.*}}, i64 {{.*}}, i32
// CHECK: call void @llvm.nvvm.barrier
// CHECK-LABEL: define {{.*}} @putmem_nbi(
// CHECK: call void @llvm.nvvm.barrier
// CHECK: call void @nvshmemx_putmem_nbi_block(ptr {{.*}}, ptr {{.*}}, i64 {{.*}}, i32
// CHECK-NOT: call void @llvm.{{.*}}barrier
// CHECK: ret void
// CHECK-LABEL: define {{.*}} @putmem_nbi_warp(
// CHECK: call void @llvm.nvvm.barrier
// CHECK: call void @nvshmemx_putmem_nbi_warp(ptr {{.*}}, ptr {{.*}}, i64 {{.*}}, i32
// CHECK-LABEL: define {{.*}} @putmem_thread(
// CHECK: call void @llvm.nvvm.barrier
// CHECK: call void @nvshmem_putmem(ptr {{.*}}, ptr {{.*}}, i64 {{.*}}, i32
// CHECK: call void @llvm.nvvm.barrier
// CHECK-LABEL: define {{.*}} @getmem(
// CHECK: call void @llvm.nvvm.barrier
// CHECK: call void @nvshmemx_getmem_block(ptr {{.*}}, ptr {{.*}}, i64 {{.*}}, i32
// CHECK: call void @llvm.nvvm.barrier
// CHECK-LABEL: define {{.*}} @getmem_nbi(
// CHECK: call void @llvm.nvvm.barrier
// CHECK: call void @nvshmemx_getmem_nbi_block(ptr {{.*}}, ptr {{.*}}, i64 {{.*}}, i32
// CHECK-NOT: call void @llvm.{{.*}}barrier
// CHECK: ret void
// CHECK-LABEL: define {{.*}} @getmem_nbi_warp(
// CHECK: call void @llvm.nvvm.barrier
// CHECK: call void @nvshmemx_getmem_nbi_warp(ptr {{.*}}, ptr {{.*}}, i64 {{.*}}, i32
// CHECK-LABEL: define {{.*}} @getmem_thread(
// CHECK: call void @llvm.nvvm.barrier
// CHECK: call void @nvshmem_getmem(ptr {{.*}}, ptr {{.*}}, i64 {{.*}}, i32
// CHECK: call void @llvm.nvvm.barrier
// CHECK-LABEL: define {{.*}} @putmem_signal(
// CHECK: call void @llvm.nvvm.barrier
// CHECK: call void @nvshmemx_putmem_signal_block(ptr {{.*}}, ptr {{.*}}, i64 {{.*}}, ptr {{.*}}, i64 {{.*}}, i32 9, i32
// CHECK-LABEL: define {{.*}} @putmem_signal_nbi(
// CHECK: call void @llvm.nvvm.barrier
// CHECK: call void @nvshmemx_putmem_signal_nbi_block(ptr {{.*}}, ptr {{.*}}, i64 {{.*}}, ptr {{.*}}, i64 {{.*}}, i32 10, i32
// The peer's packets are stored at its mapped address: no call of the library.
// CHECK-LABEL: define {{.*}} @ll_put(
// CHECK-NOT: call {{.*}} @nvshmem
// CHECK: st.relaxed.sys.global.v2.b64
// CHECK-LABEL: define {{.*}} @ll_get(
// CHECK-NOT: call {{.*}} @nvshmem
// CHECK: ld.relaxed.sys.global.v2.b64
// CHECK-LABEL: define {{.*}} @fence(
// CHECK: fence acq_rel
// CHECK: call void @llvm.nvvm.barrier
// CHECK: call void @nvshmem_fence()
// CHECK: call void @llvm.nvvm.barrier
// CHECK-LABEL: define {{.*}} @quiet(
// CHECK: fence acq_rel
// CHECK: call void @llvm.nvvm.barrier
// CHECK: call void @nvshmem_quiet()
// CHECK: call void @llvm.nvvm.barrier
// CHECK-LABEL: define {{.*}} @barrier_all(
// CHECK: call void @llvm.nvvm.barrier
// CHECK: call void @nvshmemx_barrier_all_block()
// CHECK-LABEL: define {{.*}} @barrier(
// CHECK: call i32 @nvshmemx_barrier_block(i32 %
// What every thread has stored is ordered before the team meets.
// CHECK-LABEL: define {{.*}} @sync_all(
// CHECK: fence acq_rel
// CHECK: call void @llvm.nvvm.barrier
// CHECK: call i32 @nvshmemx_team_sync_block(i32 %
// CHECK-LABEL: define {{.*}} @barrier_of_node(
// CHECK: call i32 @nvshmemx_barrier_block(i32 2)
// CHECK: call void @nvshmem_quiet()
// CHECK: store atomic i64 %epoch
