// Puts, gets and packets in the LLVM IR of hip:gfx942 under transport p2p; the calls that lead there are in gpu-calls.mlir.
// RUN: %python %S/../../python/support/gpu_stages.py %S/Inputs/gpu-ops.mlir --target hip:gfx942 --transport p2p --stage llir | filecheck %s

// CHECK-LABEL: define {{.*}} @putmem(
// CHECK: load i64, ptr addrspace(1) {{.*}} !invariant.load
// CHECK: fence syncscope("workgroup") release
// CHECK: call void @llvm.amdgcn.s.barrier()
// CHECK: fence syncscope("workgroup") acquire
// CHECK: load <4 x i32>, ptr addrspace(1) {{.*}} align 16
// CHECK: store <4 x i32> {{.*}} align 16
// CHECK: load i8
// CHECK: store i8
// CHECK: fence syncscope("workgroup") release
// CHECK: call void @llvm.amdgcn.s.barrier()
// CHECK: fence syncscope("workgroup") acquire
// CHECK-LABEL: define {{.*}} @putmem_nbi(
// CHECK: fence syncscope("workgroup") release
// CHECK: call void @llvm.amdgcn.s.barrier()
// CHECK: fence syncscope("workgroup") acquire
// CHECK: load <4 x i32>, ptr addrspace(1) {{.*}} align 16
// CHECK: store <4 x i32> {{.*}} align 16
// CHECK: load i8
// CHECK: store i8
// CHECK-NOT: call void @llvm.{{.*}}barrier
// CHECK: ret void
// CHECK-LABEL: define {{.*}} @putmem_nbi_warp(
// CHECK: fence syncscope("workgroup") release
// CHECK: call void @llvm.amdgcn.s.barrier()
// CHECK: fence syncscope("workgroup") acquire
// CHECK: icmp{{.*}}ult i32 {{.*}}, 64
// CHECK: load <4 x i32>, ptr addrspace(1) {{.*}} align 16
// CHECK: store <4 x i32> {{.*}} align 16
// CHECK: load i8
// CHECK: store i8
// CHECK-LABEL: define {{.*}} @putmem_thread(
// CHECK: fence syncscope("workgroup") release
// CHECK: call void @llvm.amdgcn.s.barrier()
// CHECK: fence syncscope("workgroup") acquire
// CHECK: icmp eq i32 {{.*}}, 0
// CHECK: load <4 x i32>, ptr addrspace(1) {{.*}} align 16
// CHECK: store <4 x i32> {{.*}} align 16
// CHECK: load i8
// CHECK: store i8
// CHECK: fence syncscope("workgroup") release
// CHECK: call void @llvm.amdgcn.s.barrier()
// CHECK: fence syncscope("workgroup") acquire
// CHECK-LABEL: define {{.*}} @getmem(
// CHECK: load i64, ptr addrspace(1) {{.*}} !invariant.load
// CHECK: fence syncscope("workgroup") release
// CHECK: call void @llvm.amdgcn.s.barrier()
// CHECK: fence syncscope("workgroup") acquire
// CHECK: load <4 x i32>, ptr addrspace(1) {{.*}} align 16
// CHECK: store <4 x i32> {{.*}} align 16
// CHECK: load i8
// CHECK: store i8
// CHECK: fence syncscope("workgroup") release
// CHECK: call void @llvm.amdgcn.s.barrier()
// CHECK: fence syncscope("workgroup") acquire
// CHECK-LABEL: define {{.*}} @getmem_nbi(
// CHECK: fence syncscope("workgroup") release
// CHECK: call void @llvm.amdgcn.s.barrier()
// CHECK: fence syncscope("workgroup") acquire
// CHECK: load <4 x i32>, ptr addrspace(1) {{.*}} align 16
// CHECK: store <4 x i32> {{.*}} align 16
// CHECK: load i8
// CHECK: store i8
// CHECK-NOT: call void @llvm.{{.*}}barrier
// CHECK: ret void
// CHECK-LABEL: define {{.*}} @getmem_nbi_warp(
// CHECK: fence syncscope("workgroup") release
// CHECK: call void @llvm.amdgcn.s.barrier()
// CHECK: fence syncscope("workgroup") acquire
// CHECK: icmp{{.*}}ult i32 {{.*}}, 64
// CHECK: load <4 x i32>, ptr addrspace(1) {{.*}} align 16
// CHECK: store <4 x i32> {{.*}} align 16
// CHECK: load i8
// CHECK: store i8
// CHECK-LABEL: define {{.*}} @getmem_thread(
// CHECK: fence syncscope("workgroup") release
// CHECK: call void @llvm.amdgcn.s.barrier()
// CHECK: fence syncscope("workgroup") acquire
// CHECK: icmp eq i32 {{.*}}, 0
// CHECK: load <4 x i32>, ptr addrspace(1) {{.*}} align 16
// CHECK: store <4 x i32> {{.*}} align 16
// CHECK: load i8
// CHECK: store i8
// CHECK: fence syncscope("workgroup") release
// CHECK: call void @llvm.amdgcn.s.barrier()
// CHECK: fence syncscope("workgroup") acquire
// CHECK-LABEL: define {{.*}} @putmem_signal(
// CHECK: fence syncscope("workgroup") release
// CHECK: call void @llvm.amdgcn.s.barrier()
// CHECK: fence syncscope("workgroup") acquire
// CHECK: load <4 x i32>, ptr addrspace(1) {{.*}} align 16
// CHECK: store <4 x i32> {{.*}} align 16
// CHECK: load i8
// CHECK: store i8
// CHECK: fence acq_rel
// CHECK: fence syncscope("workgroup") release
// CHECK: call void @llvm.amdgcn.s.barrier()
// CHECK: fence syncscope("workgroup") acquire
// CHECK: fence acq_rel
// CHECK: store atomic i64 {{.*}} monotonic
// CHECK-LABEL: define {{.*}} @putmem_signal_nbi(
// CHECK: fence syncscope("workgroup") release
// CHECK: call void @llvm.amdgcn.s.barrier()
// CHECK: fence syncscope("workgroup") acquire
// CHECK: load <4 x i32>, ptr addrspace(1) {{.*}} align 16
// CHECK: store <4 x i32> {{.*}} align 16
// CHECK: load i8
// CHECK: store i8
// CHECK: fence acq_rel
// CHECK: fence syncscope("workgroup") release
// CHECK: call void @llvm.amdgcn.s.barrier()
// CHECK: fence syncscope("workgroup") acquire
// CHECK: fence acq_rel
// CHECK: atomicrmw add ptr addrspace(1) {{.*}}, i64 {{.*}} monotonic
// Both halves of a pair, each whole; ll128 is ll here.
// CHECK-LABEL: define {{.*}} @ll_put(
// CHECK: store atomic i64 {{.*}} monotonic
// CHECK: store atomic i64 {{.*}} monotonic
// CHECK-LABEL: define {{.*}} @ll128_put(
// CHECK: store atomic i64 {{.*}} monotonic
// CHECK-NOT: wave.barrier
// CHECK-LABEL: define {{.*}} @ll_get(
// CHECK: load atomic i64, {{.*}} monotonic
// CHECK: load atomic i64, {{.*}} monotonic
// CHECK: store i64
// CHECK-LABEL: define {{.*}} @fence(
