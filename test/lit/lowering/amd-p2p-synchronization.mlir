// Fences, barriers, atomics and the operations of threads in the LLVM IR of hip:gfx942 under transport p2p; the
// calls that lead there are in gpu-calls.mlir.
// RUN: %python %S/../../python/support/gpu_stages.py %S/Inputs/gpu-ops.mlir --target hip:gfx942 --transport p2p --stage llir | filecheck %s

// CHECK-LABEL: define {{.*}} @fence(
// CHECK: fence acq_rel
// CHECK: fence syncscope("workgroup") release
// CHECK: call void @llvm.amdgcn.s.barrier()
// CHECK: fence syncscope("workgroup") acquire
// CHECK-LABEL: define {{.*}} @quiet(
// CHECK: fence seq_cst
// CHECK: fence syncscope("workgroup") release
// CHECK: call void @llvm.amdgcn.s.barrier()
// CHECK: fence syncscope("workgroup") acquire
// CHECK-LABEL: define {{.*}} @barrier_all(
// CHECK: fence acq_rel
// CHECK: fence syncscope("workgroup") release
// CHECK: call void @llvm.amdgcn.s.barrier()
// CHECK: fence syncscope("workgroup") acquire
// CHECK: store atomic i64 %epoch{{.*}} monotonic
// CHECK: load atomic i64
// CHECK: fence acquire
// CHECK: store atomic i64 %epoch
// CHECK: fence syncscope("workgroup") release
// CHECK: call void @llvm.amdgcn.s.barrier()
// CHECK: fence syncscope("workgroup") acquire
// CHECK-LABEL: define {{.*}} @barrier(
// CHECK: fence acq_rel
// CHECK: fence syncscope("workgroup") release
// CHECK: call void @llvm.amdgcn.s.barrier()
// CHECK: fence syncscope("workgroup") acquire
// CHECK: store atomic i64 %epoch{{.*}} monotonic
// CHECK: load atomic i64
// CHECK: fence acquire
// CHECK: store atomic i64 %epoch
// CHECK: fence syncscope("workgroup") release
// CHECK: call void @llvm.amdgcn.s.barrier()
// CHECK: fence syncscope("workgroup") acquire
// CHECK-LABEL: define {{.*}} @sync_all(
// CHECK: fence acq_rel
// CHECK: fence syncscope("workgroup") release
// CHECK: call void @llvm.amdgcn.s.barrier()
// CHECK: fence syncscope("workgroup") acquire
// CHECK: store atomic i64 %epoch{{.*}} monotonic
// CHECK: load atomic i64
// CHECK: fence acquire
// CHECK: store atomic i64 %epoch
// CHECK: fence syncscope("workgroup") release
// CHECK: call void @llvm.amdgcn.s.barrier()
// CHECK: fence syncscope("workgroup") acquire
// CHECK-LABEL: define {{.*}} @barrier_of_node(
// CHECK-NOT: llvm.trap
// CHECK: fence acq_rel
// CHECK: fence syncscope("workgroup") release
// CHECK: call void @llvm.amdgcn.s.barrier()
// CHECK: fence syncscope("workgroup") acquire
// CHECK: store atomic i64 %epoch{{.*}} monotonic
// CHECK: load atomic i64
// CHECK: fence acquire
// CHECK: store atomic i64 %epoch
// CHECK: fence syncscope("workgroup") release
// CHECK: call void @llvm.amdgcn.s.barrier()
// CHECK: fence syncscope("workgroup") acquire
// CHECK-LABEL: define {{.*}} @ld(
// CHECK: load atomic i32, ptr addrspace(1) {{.*}} acquire
// CHECK-LABEL: define {{.*}} @st(
// CHECK: fence syncscope("workgroup") release
// CHECK: call void @llvm.amdgcn.s.barrier()
// CHECK: fence syncscope("workgroup") acquire
// CHECK: icmp eq i32 {{.*}}, 0
// CHECK: store atomic i32 1065353216, ptr addrspace(1) {{.*}} release
// CHECK-LABEL: define {{.*}} @atomic_add(
// CHECK: fence syncscope("workgroup") release
// CHECK: call void @llvm.amdgcn.s.barrier()
// CHECK: fence syncscope("workgroup") acquire
// CHECK: atomicrmw add ptr addrspace(1) {{.*}}, i64 1 acq_rel
// CHECK: fence syncscope("workgroup") release
// CHECK: call void @llvm.amdgcn.s.barrier()
// CHECK: fence syncscope("workgroup") acquire
// CHECK-LABEL: define {{.*}} @atomic_cas(
// CHECK: cmpxchg ptr addrspace(1) {{.*}} syncscope("agent") acq_rel
// CHECK: fence syncscope("workgroup") release
// CHECK: call void @llvm.amdgcn.s.barrier()
// CHECK: fence syncscope("workgroup") acquire
// CHECK-LABEL: define {{.*}} @atomic_cas_of_node(
// CHECK-NOT: syncscope("agent")
// CHECK: cmpxchg ptr addrspace(1) {{.*}} acq_rel monotonic, align 8
// CHECK: store i64 {{.*}}, ptr addrspace(3)
// CHECK-LABEL: define {{.*}} @red(
// CHECK: fence syncscope("workgroup") release
// CHECK: call void @llvm.amdgcn.s.barrier()
// CHECK: fence syncscope("workgroup") acquire
// CHECK: atomicrmw max ptr addrspace(1) {{.*}} release
// CHECK-LABEL: define {{.*}} @thread_id(
// CHECK: call i32 @llvm.amdgcn.workitem.id.x()
// CHECK-LABEL: define {{.*}} @num_threads(
// CHECK: call ptr addrspace(4) @llvm.amdgcn.dispatch.ptr()
// CHECK: load i16
// CHECK-LABEL: define {{.*}} @lane_id(
// CHECK: call i32 @llvm.amdgcn.mbcnt.lo
// CHECK: call i32 @llvm.amdgcn.mbcnt.hi
// CHECK-LABEL: define {{.*}} @warp_id(
// CHECK: call i32 @llvm.amdgcn.workitem.id.x()
// CHECK: lshr {{.*}}i32 {{.*}}, 6
// CHECK-LABEL: define {{.*}} @sync_threads(
// CHECK: fence syncscope("workgroup") release
// CHECK: call void @llvm.amdgcn.s.barrier()
// CHECK: fence syncscope("workgroup") acquire
// CHECK-LABEL: define {{.*}} @shfl(
// CHECK: call i32 @llvm.amdgcn.ds.bpermute
// CHECK-LABEL: define {{.*}} @ballot(
// CHECK: call i64 @llvm.amdgcn.ballot.i64(i1
// CHECK-LABEL: define {{.*}} @extern_call(
// CHECK: call i32 @my_function(ptr addrspace(1) {{.*}}, i32 {{.*}})
