// RUN: %python %S/../../python/support/gpu_stages.py %S/Inputs/gpu-ops.mlir --target hip:gfx942 --transport rocshmem --stage llir | filecheck %s

// What each operation is in the LLVM IR of hip:gfx942 under transport rocshmem; the calls that lead there are in gpu-calls.mlir.

// CHECK-LABEL: define {{.*}} @rank(
// CHECK: load i64, ptr addrspace(1) {{.*}} !invariant.load
// CHECK-LABEL: define {{.*}} @symm_at(
// CHECK: load i64, ptr addrspace(1) {{.*}} !invariant.load
// CHECK: call ptr @rocshmem_ptr(ptr {{.*}}, i32
// CHECK-LABEL: define {{.*}} @wait(
// CHECK: load atomic i64, ptr addrspace(1) {{.*}} monotonic
// CHECK: fence acquire
// CHECK: fence syncscope("workgroup") release
// CHECK: call void @llvm.amdgcn.s.barrier()
// CHECK: fence syncscope("workgroup") acquire
// CHECK-LABEL: define {{.*}} @notify(
// CHECK: fence syncscope("workgroup") release
// CHECK: call void @llvm.amdgcn.s.barrier()
// CHECK: fence syncscope("workgroup") acquire
// CHECK: fence acq_rel
// CHECK: call void @rocshmem_fence()
// CHECK: call void @_ZN8rocshmem25rocshmem_ulong_atomic_setEPmmi(ptr
// CHECK-LABEL: define {{.*}} @notify_add(
// CHECK: fence syncscope("workgroup") release
// CHECK: call void @llvm.amdgcn.s.barrier()
// CHECK: fence syncscope("workgroup") acquire
// CHECK: fence acq_rel
// CHECK: call void @rocshmem_fence()
// CHECK: call void @_ZN8rocshmem25rocshmem_ulong_atomic_addEPmmi(ptr
// CHECK-LABEL: define {{.*}} @notify_on_gpu(
// CHECK: fence syncscope("workgroup") release
// CHECK: call void @llvm.amdgcn.s.barrier()
// CHECK: fence syncscope("workgroup") acquire
// CHECK: call ptr @rocshmem_ptr
// CHECK: fence syncscope("agent") acq_rel
// CHECK: store atomic i64 {{.*}} syncscope("agent") monotonic
// CHECK-LABEL: define {{.*}} @signal_op(
// CHECK-NOT: call void @llvm.{{.*}}barrier
// CHECK-NOT: fence
// CHECK: call void @_ZN8rocshmem25rocshmem_ulong_atomic_addEPmmi(ptr
// CHECK-LABEL: define {{.*}} @signal_op_set(
// CHECK: call void @_ZN8rocshmem25rocshmem_ulong_atomic_setEPmmi(ptr
// CHECK-LABEL: define {{.*}} @signal_wait_until(
// CHECK: call void @rocshmem_ulong_wait_until(ptr {{.*}}, i32 3, i64
// CHECK: fence acq_rel
// CHECK: fence syncscope("workgroup") release
// CHECK: call void @llvm.amdgcn.s.barrier()
// CHECK: fence syncscope("workgroup") acquire
// CHECK-LABEL: define {{.*}} @putmem(
// CHECK: fence syncscope("workgroup") release
// CHECK: call void @llvm.amdgcn.s.barrier()
// CHECK: fence syncscope("workgroup") acquire
// CHECK: call void @rocshmem_putmem_wg(ptr {{.*}}, ptr {{.*}}, i64 {{.*}}, i32
// CHECK: fence syncscope("workgroup") release
// CHECK: call void @llvm.amdgcn.s.barrier()
// CHECK: fence syncscope("workgroup") acquire
// CHECK-LABEL: define {{.*}} @putmem_nbi(
// CHECK: fence syncscope("workgroup") release
// CHECK: call void @llvm.amdgcn.s.barrier()
// CHECK: fence syncscope("workgroup") acquire
// CHECK: call void @rocshmem_putmem_nbi_wg(ptr {{.*}}, ptr {{.*}}, i64 {{.*}}, i32
// CHECK-NOT: call void @llvm.{{.*}}barrier
// CHECK: ret void
// CHECK-LABEL: define {{.*}} @putmem_nbi_warp(
// CHECK: fence syncscope("workgroup") release
// CHECK: call void @llvm.amdgcn.s.barrier()
// CHECK: fence syncscope("workgroup") acquire
// CHECK: call void @rocshmem_putmem_nbi_wave(ptr {{.*}}, ptr {{.*}}, i64 {{.*}}, i32
// CHECK-LABEL: define {{.*}} @putmem_thread(
// CHECK: fence syncscope("workgroup") release
// CHECK: call void @llvm.amdgcn.s.barrier()
// CHECK: fence syncscope("workgroup") acquire
// CHECK: call void @rocshmem_putmem(ptr {{.*}}, ptr {{.*}}, i64 {{.*}}, i32
// CHECK: fence syncscope("workgroup") release
// CHECK: call void @llvm.amdgcn.s.barrier()
// CHECK: fence syncscope("workgroup") acquire
// CHECK-LABEL: define {{.*}} @getmem(
// CHECK: fence syncscope("workgroup") release
// CHECK: call void @llvm.amdgcn.s.barrier()
// CHECK: fence syncscope("workgroup") acquire
// CHECK: call void @rocshmem_getmem_wg(ptr {{.*}}, ptr {{.*}}, i64 {{.*}}, i32
// CHECK: fence syncscope("workgroup") release
// CHECK: call void @llvm.amdgcn.s.barrier()
// CHECK: fence syncscope("workgroup") acquire
// CHECK-LABEL: define {{.*}} @getmem_nbi(
// CHECK: fence syncscope("workgroup") release
// CHECK: call void @llvm.amdgcn.s.barrier()
// CHECK: fence syncscope("workgroup") acquire
// CHECK: call void @rocshmem_getmem_nbi_wg(ptr {{.*}}, ptr {{.*}}, i64 {{.*}}, i32
// CHECK-NOT: call void @llvm.{{.*}}barrier
// CHECK: ret void
// CHECK-LABEL: define {{.*}} @getmem_nbi_warp(
// CHECK: fence syncscope("workgroup") release
// CHECK: call void @llvm.amdgcn.s.barrier()
// CHECK: fence syncscope("workgroup") acquire
// CHECK: call void @rocshmem_getmem_nbi_wave(ptr {{.*}}, ptr {{.*}}, i64 {{.*}}, i32
// CHECK-LABEL: define {{.*}} @getmem_thread(
// CHECK: fence syncscope("workgroup") release
// CHECK: call void @llvm.amdgcn.s.barrier()
// CHECK: fence syncscope("workgroup") acquire
// CHECK: call void @rocshmem_getmem(ptr {{.*}}, ptr {{.*}}, i64 {{.*}}, i32
// CHECK: fence syncscope("workgroup") release
// CHECK: call void @llvm.amdgcn.s.barrier()
// CHECK: fence syncscope("workgroup") acquire
// CHECK-LABEL: define {{.*}} @putmem_signal(
// CHECK: fence syncscope("workgroup") release
// CHECK: call void @llvm.amdgcn.s.barrier()
// CHECK: fence syncscope("workgroup") acquire
// CHECK: call void @rocshmem_putmem_signal_wg(ptr {{.*}}, ptr {{.*}}, i64 {{.*}}, ptr {{.*}}, i64 {{.*}}, i32 0, i32
// CHECK-LABEL: define {{.*}} @putmem_signal_nbi(
// CHECK: fence syncscope("workgroup") release
// CHECK: call void @llvm.amdgcn.s.barrier()
// CHECK: fence syncscope("workgroup") acquire
// CHECK: call void @rocshmem_putmem_signal_nbi_wg(ptr {{.*}}, ptr {{.*}}, i64 {{.*}}, ptr {{.*}}, i64 {{.*}}, i32 1, i32
// CHECK-LABEL: define {{.*}} @fence(
// CHECK: fence acq_rel
// CHECK: fence syncscope("workgroup") release
// CHECK: call void @llvm.amdgcn.s.barrier()
// CHECK: fence syncscope("workgroup") acquire
// CHECK: call void @rocshmem_fence()
// CHECK: fence syncscope("workgroup") release
// CHECK: call void @llvm.amdgcn.s.barrier()
// CHECK: fence syncscope("workgroup") acquire
// CHECK-LABEL: define {{.*}} @quiet(
// CHECK: fence acq_rel
// CHECK: fence syncscope("workgroup") release
// CHECK: call void @llvm.amdgcn.s.barrier()
// CHECK: fence syncscope("workgroup") acquire
// CHECK: call void @_ZN8rocshmem14rocshmem_quietEv()
// CHECK: fence syncscope("workgroup") release
// CHECK: call void @llvm.amdgcn.s.barrier()
// CHECK: fence syncscope("workgroup") acquire
// CHECK-LABEL: define {{.*}} @barrier_all(
// CHECK: fence syncscope("workgroup") release
// CHECK: call void @llvm.amdgcn.s.barrier()
// CHECK: fence syncscope("workgroup") acquire
// CHECK: call void @rocshmem_barrier_all_wg()
// CHECK-LABEL: define {{.*}} @barrier(
// CHECK: fence syncscope("workgroup") release
// CHECK: call void @llvm.amdgcn.s.barrier()
// CHECK: fence syncscope("workgroup") acquire
// CHECK: call void @rocshmem_barrier_all_wg()
// CHECK-LABEL: define {{.*}} @sync_all(
// CHECK: fence syncscope("workgroup") release
// CHECK: call void @llvm.amdgcn.s.barrier()
// CHECK: fence syncscope("workgroup") acquire
// CHECK: call void @rocshmem_barrier_all_wg()
// CHECK-LABEL: define {{.*}} @barrier_of_node(
// CHECK: call void @_ZN8rocshmem14rocshmem_quietEv()
// CHECK: store atomic i64 %epoch
