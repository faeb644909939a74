// RUN: %python %S/../../python/support/gpu_stages.py %S/Inputs/gpu-ops.mlir --target hip:gfx942 --transport p2p --stage llir | filecheck %s

// What each operation is in the LLVM IR of hip:gfx942 under transport p2p; the calls that lead there are in gpu-calls.mlir.

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
