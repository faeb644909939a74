// RUN: %python %S/../../python/support/gpu_stages.py %S/Inputs/gpu-ops.mlir --target cuda:90 --transport p2p --stage llir | filecheck %s

// What each operation is in the LLVM IR of cuda:90 under transport p2p; the calls that lead there are in gpu-calls.mlir.

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
// CHECK-NOT: ld.global.b32
// CHECK: call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
// CHECK: load atomic i64, ptr addrspace(1) {{.*}} acquire
// CHECK: icmp slt i64
// CHECK: call void @llvm.nvvm.barrier
// CHECK: ld.global.b32
// CHECK-LABEL: define {{.*}} @wait_on_gpu(
// CHECK: load atomic i64, ptr addrspace(1) {{.*}} syncscope("device") acquire
// CHECK: icmp eq i64
// CHECK: call void @llvm.nvvm.barrier
// CHECK-LABEL: define {{.*}} @notify(
// CHECK: call void @llvm.nvvm.barrier
// CHECK: load i64, ptr addrspace(1) {{.*}} !invariant.load
// CHECK: call void @llvm.trap()
// CHECK: asm sideeffect {{.*}}@p fence.acq_rel.sys; @p st.relaxed.sys.global.b64
// CHECK-LABEL: define {{.*}} @notify_add(
// CHECK: call void @llvm.nvvm.barrier
// CHECK: asm sideeffect {{.*}}@p fence.acq_rel.sys; @p red.relaxed.sys.global.add.u64
// CHECK-LABEL: define {{.*}} @notify_on_gpu(
// CHECK: call void @llvm.nvvm.barrier
// CHECK: asm sideeffect {{.*}}@p fence.acq_rel.gpu; @p st.relaxed.gpu.global.b64
// CHECK-LABEL: define {{.*}} @signal_op(
// CHECK-NOT: call void @llvm.{{.*}}barrier
// CHECK-NOT: fence
// CHECK: red.relaxed.sys.global.add.u64
// CHECK-LABEL: define {{.*}} @signal_wait_until(
// CHECK: load atomic i64, ptr addrspace(1) {{.*}} acquire
// CHECK: call void @llvm.nvvm.barrier
// CHECK: call i64 asm sideeffect {{.*}}atom.global.relaxed.sys.cas.b64
// CHECK-LABEL: define {{.*}} @putmem(
// CHECK: load i64, ptr addrspace(1) {{.*}} !invariant.load
// CHECK: call void @llvm.nvvm.barrier
// CHECK: load <4 x i32>, ptr addrspace(1) {{.*}} align 16
// CHECK: store <4 x i32> {{.*}} align 16
// CHECK: load i8
// CHECK: store i8
// CHECK: call void @llvm.nvvm.barrier
// CHECK-LABEL: define {{.*}} @putmem_nbi(
// CHECK: call void @llvm.nvvm.barrier
// CHECK: load <4 x i32>, ptr addrspace(1) {{.*}} align 16
// CHECK: store <4 x i32> {{.*}} align 16
// CHECK: load i8
// CHECK: store i8
// CHECK-NOT: call void @llvm.{{.*}}barrier
// CHECK: ret void
// CHECK-LABEL: define {{.*}} @putmem_nbi_warp(
// CHECK: call void @llvm.nvvm.barrier
// CHECK: icmp{{.*}}ult i32 {{.*}}, 32
// CHECK: load <4 x i32>, ptr addrspace(1) {{.*}} align 16
// CHECK: store <4 x i32> {{.*}} align 16
// CHECK: load i8
// CHECK: store i8
// CHECK-LABEL: define {{.*}} @putmem_thread(
// CHECK: call void @llvm.nvvm.barrier
// CHECK: icmp eq i32 {{.*}}, 0
// CHECK: load <4 x i32>, ptr addrspace(1) {{.*}} align 16
// CHECK: store <4 x i32> {{.*}} align 16
// CHECK: load i8
// CHECK: store i8
// CHECK: call void @llvm.nvvm.barrier
// CHECK-LABEL: define {{.*}} @getmem(
// CHECK: load i64, ptr addrspace(1) {{.*}} !invariant.load
// CHECK: call void @llvm.nvvm.barrier
// CHECK: load <4 x i32>, ptr addrspace(1) {{.*}} align 16
// CHECK: store <4 x i32> {{.*}} align 16
// CHECK: load i8
// CHECK: store i8
// CHECK: call void @llvm.nvvm.barrier
// CHECK-LABEL: define {{.*}} @getmem_nbi(
// CHECK: call void @llvm.nvvm.barrier
// CHECK: load <4 x i32>, ptr addrspace(1) {{.*}} align 16
// CHECK: store <4 x i32> {{.*}} align 16
// CHECK: load i8
// CHECK: store i8
// CHECK-NOT: call void @llvm.{{.*}}barrier
// CHECK: ret void
// CHECK-LABEL: define {{.*}} @getmem_nbi_warp(
// CHECK: call void @llvm.nvvm.barrier
// CHECK: icmp{{.*}}ult i32 {{.*}}, 32
// CHECK: load <4 x i32>, ptr addrspace(1) {{.*}} align 16
// CHECK: store <4 x i32> {{.*}} align 16
// CHECK: load i8
// CHECK: store i8
// CHECK-LABEL: define {{.*}} @getmem_thread(
// CHECK: call void @llvm.nvvm.barrier
// CHECK: icmp eq i32 {{.*}}, 0
// CHECK: load <4 x i32>, ptr addrspace(1) {{.*}} align 16
// CHECK: store <4 x i32> {{.*}} align 16
// CHECK: load i8
// CHECK: store i8
// CHECK: call void @llvm.nvvm.barrier
// CHECK-LABEL: define {{.*}} @putmem_signal(
// CHECK: call void @llvm.nvvm.barrier
// CHECK: load <4 x i32>, ptr addrspace(1) {{.*}} align 16
// CHECK: store <4 x i32> {{.*}} align 16
// CHECK: load i8
// CHECK: store i8
// CHECK: fence acq_rel
// CHECK: call void @llvm.nvvm.barrier
// CHECK: fence acq_rel
// CHECK: store atomic i64 {{.*}} monotonic
// CHECK-LABEL: define {{.*}} @putmem_signal_nbi(
// CHECK: call void @llvm.nvvm.barrier
// CHECK: load <4 x i32>, ptr addrspace(1) {{.*}} align 16
// CHECK: store <4 x i32> {{.*}} align 16
// CHECK: load i8
// CHECK: store i8
// CHECK: fence acq_rel
// CHECK: call void @llvm.nvvm.barrier
// CHECK: fence acq_rel
// CHECK: red.relaxed.sys.global.add.u64
// CHECK-LABEL: define {{.*}} @ll_put(
// CHECK: call void @llvm.trap()
// CHECK: call void @llvm.nvvm.barrier
// CHECK: load i64, ptr addrspace(1) {{.*}} align 8
// CHECK: st.relaxed.sys.global.v2.b64
// CHECK-NOT: fence
// CHECK: call void @llvm.nvvm.barrier
// CHECK-LABEL: define {{.*}} @ll128_put(
// CHECK: call void @llvm.nvvm.bar.warp.sync(i32 -1)
// CHECK: st.relaxed.sys.global.v2.b64
// CHECK-NOT: fence
// CHECK: call void @llvm.nvvm.barrier
// CHECK-LABEL: define {{.*}} @ll_get(
// CHECK: call void @llvm.nvvm.barrier
// CHECK: ld.relaxed.sys.global.v2.b64
// CHECK: store i64 {{.*}} align 8
// CHECK-NOT: fence
// CHECK: call void @llvm.nvvm.barrier
// CHECK: ld.global.b32
// CHECK-LABEL: define {{.*}} @ll128_get(
// CHECK: ld.relaxed.sys.global.v2.b64
// CHECK: call i32 @llvm.nvvm.vote.ballot.sync
// CHECK: store i64 {{.*}} align 8
// CHECK-NOT: fence
// CHECK: call void @llvm.nvvm.barrier
// CHECK-LABEL: define {{.*}} @fence(
// CHECK: fence acq_rel
// CHECK: call void @llvm.nvvm.barrier
// CHECK-LABEL: define {{.*}} @quiet(
// CHECK: fence seq_cst
// CHECK: call void @llvm.nvvm.barrier
// CHECK-LABEL: define {{.*}} @barrier_all(
// CHECK: fence acq_rel
// CHECK: call void @llvm.nvvm.barrier
// CHECK: store atomic i64 %epoch{{.*}} monotonic
// CHECK: load atomic i64
// CHECK: store atomic i64 %epoch
// CHECK: call void @llvm.nvvm.barrier
// CHECK-LABEL: define {{.*}} @barrier(
// CHECK: fence acq_rel
// CHECK: call void @llvm.nvvm.barrier
// CHECK: store atomic i64 %epoch{{.*}} monotonic
// CHECK: load atomic i64
// CHECK: store atomic i64 %epoch
// CHECK: call void @llvm.nvvm.barrier
// CHECK-LABEL: define {{.*}} @sync_all(
// CHECK: fence acq_rel
// CHECK: call void @llvm.nvvm.barrier
// CHECK: store atomic i64 %epoch{{.*}} monotonic
// CHECK: load atomic i64
// CHECK: store atomic i64 %epoch
// CHECK: call void @llvm.nvvm.barrier
// CHECK-LABEL: define {{.*}} @barrier_of_node(
// CHECK-NOT: llvm.trap
// CHECK: fence acq_rel
// CHECK: call void @llvm.nvvm.barrier
// CHECK: store atomic i64 %epoch{{.*}} monotonic
// CHECK: load atomic i64
// CHECK: store atomic i64 %epoch
// CHECK: call void @llvm.nvvm.barrier
// CHECK-LABEL: define {{.*}} @ld(
// CHECK: load atomic i32, ptr addrspace(1) {{.*}} acquire
// CHECK-LABEL: define {{.*}} @st(
// CHECK: call void @llvm.nvvm.barrier
// CHECK: icmp eq i32 {{.*}}, 0
// CHECK: store atomic i32 1065353216, ptr addrspace(1) {{.*}} release
// CHECK-LABEL: define {{.*}} @atomic_add(
// CHECK: call void @llvm.nvvm.barrier
// CHECK: atom.global.sys.acq_rel.add.u64
// CHECK: call void @llvm.nvvm.barrier
// CHECK-LABEL: define {{.*}} @atomic_cas(
// CHECK: atom.global.acquire.gpu.cas.b64
// CHECK: call void @llvm.nvvm.barrier
// CHECK-LABEL: define {{.*}} @atomic_cas_of_node(
// CHECK: atom.global.relaxed.sys.cas.b64
// CHECK-LABEL: define {{.*}} @red(
// CHECK: call void @llvm.nvvm.barrier
// CHECK: atom.global.sys.release.max.s64
// CHECK-LABEL: define {{.*}} @thread_id(
// CHECK: call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
// CHECK-LABEL: define {{.*}} @num_threads(
// CHECK: call i32 @llvm.nvvm.read.ptx.sreg.ntid.x()
// CHECK-LABEL: define {{.*}} @lane_id(
// CHECK: call i32 @llvm.nvvm.read.ptx.sreg.laneid()
// CHECK-LABEL: define {{.*}} @warp_id(
// CHECK: call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
// CHECK: lshr i32 {{.*}}, 5
// CHECK-LABEL: define {{.*}} @sync_threads(
// CHECK: call void @llvm.nvvm.barrier
// CHECK-LABEL: define {{.*}} @shfl(
// CHECK: call i32 @llvm.nvvm.shfl.sync.bfly.i32(i32 -1, {{.*}}, i32 31)
// CHECK-LABEL: define {{.*}} @ballot(
// CHECK: call i32 @llvm.nvvm.vote.ballot.sync(i32 -1,
// CHECK-LABEL: define {{.*}} @extern_call(
// CHECK: call i32 @my_function(ptr addrspace(1) {{.*}}, i32 {{.*}})
