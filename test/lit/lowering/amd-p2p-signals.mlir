// Ranks and signals in the LLVM IR of hip:gfx942 under transport p2p; the calls that lead there are in gpu-calls.mlir.
// RUN: %python %S/../../python/support/gpu_stages.py %S/Inputs/gpu-ops.mlir --target hip:gfx942 --transport p2p --stage llir | filecheck %s

// CHECK-LABEL: define {{.*}} @rank(
// CHECK: load i64, ptr addrspace(1) {{.*}} !invariant.load
// CHECK-LABEL: define {{.*}} @num_ranks(
// CHECK: load i64, ptr addrspace(1) {{.*}} !invariant.load
// CHECK-LABEL: define {{.*}} @local_rank(
// CHECK: load i64, ptr addrspace(1) {{.*}} !invariant.load
// CHECK-LABEL: define {{.*}} @num_local_ranks(
// CHECK: load i64, ptr addrspace(1) {{.*}} !invariant.load
// CHECK-LABEL: define {{.*}} @node(
// CHECK: load i64, ptr addrspace(1) {{.*}} !invariant.load
// CHECK-LABEL: define {{.*}} @rank_of_world(
// CHECK: load i64, ptr addrspace(1) {{.*}} !invariant.load
// CHECK-LABEL: define {{.*}} @symm_at(
// CHECK: load i64, ptr addrspace(1) {{.*}} !invariant.load
// CHECK: load i64, ptr addrspace(1) {{.*}} !invariant.load
// CHECK: select i1 {{.*}}, ptr addrspace(1) null, ptr addrspace(1)
// CHECK-LABEL: define {{.*}} @wait(
// CHECK-NOT: load <1 x float>
// CHECK: call i32 @llvm.amdgcn.workitem.id.x()
// CHECK: load atomic i64, ptr addrspace(1) {{.*}} monotonic
// CHECK: icmp slt i64
// CHECK: fence acquire
// CHECK: fence syncscope("workgroup") release
// CHECK: call void @llvm.amdgcn.s.barrier()
// CHECK: fence syncscope("workgroup") acquire
// CHECK: load <1 x float>
// CHECK-LABEL: define {{.*}} @wait_on_gpu(
// CHECK: load atomic i64, ptr addrspace(1) {{.*}} syncscope("agent") monotonic
// CHECK: icmp eq i64
// CHECK: fence syncscope("agent") acquire
// CHECK: fence syncscope("workgroup") release
// CHECK: call void @llvm.amdgcn.s.barrier()
// CHECK: fence syncscope("workgroup") acquire
// CHECK-LABEL: define {{.*}} @notify(
// CHECK: fence syncscope("workgroup") release
// CHECK: call void @llvm.amdgcn.s.barrier()
// CHECK: fence syncscope("workgroup") acquire
// CHECK: load i64, ptr addrspace(1) {{.*}} !invariant.load
// CHECK: call void @llvm.trap()
// CHECK: fence acq_rel
// CHECK: store atomic i64 {{.*}} monotonic
// CHECK-LABEL: define {{.*}} @notify_add(
// CHECK: fence syncscope("workgroup") release
// CHECK: call void @llvm.amdgcn.s.barrier()
// CHECK: fence syncscope("workgroup") acquire
// CHECK: fence acq_rel
// CHECK: atomicrmw add ptr addrspace(1) {{.*}}, i64 {{.*}} monotonic
// CHECK-LABEL: define {{.*}} @notify_on_gpu(
// CHECK: fence syncscope("workgroup") release
// CHECK: call void @llvm.amdgcn.s.barrier()
// CHECK: fence syncscope("workgroup") acquire
// CHECK: fence syncscope("agent") acq_rel
// CHECK: store atomic i64 {{.*}} syncscope("agent") monotonic
// CHECK-LABEL: define {{.*}} @signal_op(
// CHECK-NOT: call void @llvm.{{.*}}barrier
// CHECK-NOT: fence
// CHECK: atomicrmw add ptr addrspace(1) {{.*}}, i64 {{.*}} monotonic
// CHECK-LABEL: define {{.*}} @signal_wait_until(
// CHECK: load atomic i64, ptr addrspace(1) {{.*}} monotonic
// CHECK: fence acquire
// CHECK: fence syncscope("workgroup") release
// CHECK: call void @llvm.amdgcn.s.barrier()
// CHECK: fence syncscope("workgroup") acquire
// CHECK: cmpxchg ptr addrspace(1) {{.*}}, i64 -1, i64 -1 acq_rel
// CHECK-LABEL: define {{.*}} @putmem(
