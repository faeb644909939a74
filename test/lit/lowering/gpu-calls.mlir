// RUN: ditron-opt %S/Inputs/gpu-ops.mlir --pass-pipeline='builtin.module(lower-to-nvidia{transport=p2p},canonicalize,cse)' | filecheck %s
// RUN: ditron-opt %S/Inputs/gpu-ops.mlir --pass-pipeline='builtin.module(lower-to-nvidia{transport=nvshmem},canonicalize,cse)' | filecheck %s
// RUN: ditron-opt %S/Inputs/gpu-ops.mlir --pass-pipeline='builtin.module(lower-to-amd{transport=p2p},canonicalize,cse)' | filecheck %s
// RUN: ditron-opt %S/Inputs/gpu-ops.mlir --pass-pipeline='builtin.module(lower-to-amd{transport=rocshmem},canonicalize,cse)' | filecheck %s

// The calls that carry each operation through Triton: the same on both vendors and every transport, which are the device library's
// affair. Arguments are the context (%arg6), operands, and the enumerations as numbers; what only reads the context is pure.

// CHECK-LABEL: tt.func public @rank(
// CHECK: %{{.*}} = tt.extern_elementwise %arg6, %c0_i32 {libname = "ditron", libpath = "", pure = true, symbol = "ditron_rank"
// CHECK-LABEL: tt.func public @num_ranks(
// CHECK: %{{.*}} = tt.extern_elementwise %arg6, %c0_i32 {libname = "ditron", libpath = "", pure = true, symbol = "ditron_num_ranks"
// CHECK-LABEL: tt.func public @local_rank(
// CHECK: %{{.*}} = tt.extern_elementwise %arg6, %c1_i32 {libname = "ditron", libpath = "", pure = true, symbol = "ditron_rank"
// CHECK-LABEL: tt.func public @num_local_ranks(
// CHECK: %{{.*}} = tt.extern_elementwise %arg6, %c1_i32 {libname = "ditron", libpath = "", pure = true, symbol = "ditron_num_ranks"
// CHECK-LABEL: tt.func public @node(
// CHECK: %{{.*}} = tt.extern_elementwise %arg6 {libname = "ditron", libpath = "", pure = true, symbol = "ditron_node"
// CHECK-LABEL: tt.func public @rank_of_world(
// CHECK: %{{.*}} = tt.extern_elementwise %arg6, %c2_i32 {libname = "ditron", libpath = "", pure = true, symbol = "ditron_rank"
// CHECK-LABEL: tt.func public @symm_at(
// CHECK: %{{.*}} = tt.extern_elementwise %arg6, %arg0, %arg4 {libname = "ditron", libpath = "", pure = true, symbol = "ditron_symm_at"
// CHECK-LABEL: tt.func public @wait(
// CHECK: %[[TOKEN:.*]] = tt.extern_elementwise %arg2, %arg5, %arg3, %c3_i32, %c1_i32, %c1_i32 {libname = "ditron", libpath = "", pure = false, symbol = "ditron_wait", tt.divisibility = dense<16>
// CHECK: %[[READY:.*]] = tt.addptr %arg1, %[[TOKEN]] :
// CHECK: tt.load %[[READY]] :
// CHECK-LABEL: tt.func public @wait_on_gpu(
// CHECK: %{{.*}} = tt.extern_elementwise %arg2, %arg5, %arg3, %c0_i32, %c0_i32, %c1_i32 {libname = "ditron", libpath = "", pure = false, symbol = "ditron_wait", tt.divisibility = dense<16>
// CHECK-LABEL: tt.func public @notify(
// CHECK: %{{.*}} = tt.extern_elementwise %arg6, %arg2, %arg3, %arg4, %c0_i32, %c1_i32 {libname = "ditron", libpath = "", pure = false, symbol = "ditron_notify"
// CHECK-LABEL: tt.func public @notify_add(
// CHECK: %{{.*}} = tt.extern_elementwise %arg6, %arg2, %arg3, %arg4, %c1_i32, %c2_i32 {libname = "ditron", libpath = "", pure = false, symbol = "ditron_notify"
// CHECK-LABEL: tt.func public @notify_on_gpu(
// CHECK: %{{.*}} = tt.extern_elementwise %arg6, %arg2, %arg3, %arg4, %c0_i32, %c0_i32 {libname = "ditron", libpath = "", pure = false, symbol = "ditron_notify"
// CHECK-LABEL: tt.func public @signal_op(
// CHECK: %{{.*}} = tt.extern_elementwise %arg6, %arg2, %arg3, %arg4, %c1_i32 {libname = "ditron", libpath = "", pure = false, symbol = "ditron_signal_op"
// CHECK-LABEL: tt.func public @signal_wait_until(
// CHECK: %{{.*}} = tt.extern_elementwise %arg2, %arg3, %c3_i32 {libname = "ditron", libpath = "", pure = false, symbol = "ditron_signal_wait_until"
// CHECK-LABEL: tt.func public @putmem(
// CHECK: %{{.*}} = tt.extern_elementwise %arg6, %arg0, %arg1, %arg3, %arg4, %c0_i32, %c2_i32 {libname = "ditron", libpath = "", pure = false, symbol = "ditron_putmem"
// CHECK-LABEL: tt.func public @putmem_nbi(
// CHECK: %{{.*}} = tt.extern_elementwise %arg6, %arg0, %arg1, %arg3, %arg4, %c1_i32, %c2_i32 {libname = "ditron", libpath = "", pure = false, symbol = "ditron_putmem"
// CHECK-LABEL: tt.func public @putmem_nbi_warp(
// CHECK: %{{.*}} = tt.extern_elementwise %arg6, %arg0, %arg1, %arg3, %arg4, %c1_i32, %c1_i32 {libname = "ditron", libpath = "", pure = false, symbol = "ditron_putmem"
// CHECK-LABEL: tt.func public @putmem_thread(
// CHECK: %{{.*}} = tt.extern_elementwise %arg6, %arg0, %arg1, %arg3, %arg4, %c0_i32, %c0_i32 {libname = "ditron", libpath = "", pure = false, symbol = "ditron_putmem"
// CHECK-LABEL: tt.func public @getmem(
// CHECK: %{{.*}} = tt.extern_elementwise %arg6, %arg0, %arg1, %arg3, %arg4, %c0_i32, %c2_i32 {libname = "ditron", libpath = "", pure = false, symbol = "ditron_getmem"
// CHECK-LABEL: tt.func public @getmem_nbi(
// CHECK: %{{.*}} = tt.extern_elementwise %arg6, %arg0, %arg1, %arg3, %arg4, %c1_i32, %c2_i32 {libname = "ditron", libpath = "", pure = false, symbol = "ditron_getmem"
// CHECK-LABEL: tt.func public @getmem_nbi_warp(
// CHECK: %{{.*}} = tt.extern_elementwise %arg6, %arg0, %arg1, %arg3, %arg4, %c1_i32, %c1_i32 {libname = "ditron", libpath = "", pure = false, symbol = "ditron_getmem"
// CHECK-LABEL: tt.func public @getmem_thread(
// CHECK: %{{.*}} = tt.extern_elementwise %arg6, %arg0, %arg1, %arg3, %arg4, %c0_i32, %c0_i32 {libname = "ditron", libpath = "", pure = false, symbol = "ditron_getmem"
// CHECK-LABEL: tt.func public @putmem_signal(
// CHECK: %{{.*}} = tt.extern_elementwise %arg6, %arg0, %arg1, %arg3, %arg2, %arg3, %arg4, %c0_i32, %c0_i32, %c2_i32 {libname = "ditron", libpath = "", pure = false, symbol = "ditron_putmem_signal"
// CHECK-LABEL: tt.func public @putmem_signal_nbi(
// CHECK: %{{.*}} = tt.extern_elementwise %arg6, %arg0, %arg1, %arg3, %arg2, %arg3, %arg4, %c1_i32, %c1_i32, %c2_i32 {libname = "ditron", libpath = "", pure = false, symbol = "ditron_putmem_signal"
// CHECK-LABEL: tt.func public @ll_put(
// CHECK: %{{.*}} = tt.extern_elementwise %arg6, %arg2, %arg0, %arg3, %arg3, %arg4 {libname = "ditron", libpath = "", pure = false, symbol = "ditron_ll_put"
// CHECK-LABEL: tt.func public @ll128_put(
// CHECK: %{{.*}} = tt.extern_elementwise %arg6, %arg2, %arg0, %arg3, %arg3, %arg4 {libname = "ditron", libpath = "", pure = false, symbol = "ditron_ll{{(128)?}}_put"
// CHECK-LABEL: tt.func public @ll_get(
// CHECK: %[[LL:.*]] = tt.extern_elementwise %arg0, %arg2, %arg3, %arg3 {libname = "ditron", libpath = "", pure = false, symbol = "ditron_ll_get", tt.divisibility = dense<16> : tensor<1xi32>}
// CHECK: tt.addptr %arg0, %[[LL]] :
// CHECK-LABEL: tt.func public @ll128_get(
// CHECK: %{{.*}} = tt.extern_elementwise %arg0, %arg2, %arg3, %arg3 {libname = "ditron", libpath = "", pure = false, symbol = "ditron_ll{{(128)?}}_get"
// CHECK-LABEL: tt.func public @fence(
// CHECK: %{{.*}} = tt.extern_elementwise {libname = "ditron", libpath = "", pure = false, symbol = "ditron_fence"
// CHECK-LABEL: tt.func public @quiet(
// CHECK: %{{.*}} = tt.extern_elementwise {libname = "ditron", libpath = "", pure = false, symbol = "ditron_quiet"
// CHECK-LABEL: tt.func public @barrier_all(
// CHECK: %{{.*}} = tt.extern_elementwise %arg6 {libname = "ditron", libpath = "", pure = false, symbol = "ditron_barrier_all"
// CHECK-LABEL: tt.func public @barrier(
// CHECK: %{{.*}} = tt.extern_elementwise %arg6, %c0_i32 {libname = "ditron", libpath = "", pure = false, symbol = "ditron_barrier"
// CHECK-LABEL: tt.func public @sync_all(
// CHECK: %{{.*}} = tt.extern_elementwise %arg6, %c0_i32 {libname = "ditron", libpath = "", pure = false, symbol = "ditron_sync_all"
// CHECK-LABEL: tt.func public @barrier_of_node(
// CHECK: %{{.*}} = tt.extern_elementwise %arg6, %c1_i32 {libname = "ditron", libpath = "", pure = false, symbol = "ditron_barrier"
// CHECK-LABEL: tt.func public @ld(
// CHECK: %{{.*}} = tt.extern_elementwise %arg1, %c1_i32, %c1_i32 {libname = "ditron", libpath = "", pure = false, symbol = "ditron_ld_b32"
// CHECK-LABEL: tt.func public @st(
// CHECK: %{{.*}} = tt.extern_elementwise %arg1, %{{.*}}, %c1_i32, %c2_i32 {libname = "ditron", libpath = "", pure = false, symbol = "ditron_st_once_b32"
// CHECK-LABEL: tt.func public @atomic_add(
// CHECK: %{{.*}} = tt.extern_elementwise {libname = "ditron", libpath = "", pure = false, symbol = "ditron_sync_threads"
// CHECK: %{{.*}} = tt.atomic_rmw add, acq_rel, sys, %arg2, %c1_i64, %true :
// CHECK: %{{.*}} = tt.extern_elementwise {libname = "ditron", libpath = "", pure = false, symbol = "ditron_sync_threads"
// CHECK-LABEL: tt.func public @atomic_cas(
// CHECK: %{{.*}} = tt.atomic_cas acquire, gpu, %arg2, %arg3, %arg3 :
// CHECK: %{{.*}} = tt.extern_elementwise {libname = "ditron", libpath = "", pure = false, symbol = "ditron_sync_threads"
// CHECK-LABEL: tt.func public @red(
// CHECK: %{{.*}} = tt.extern_elementwise {libname = "ditron", libpath = "", pure = false, symbol = "ditron_sync_threads"
// CHECK: %{{.*}} = tt.atomic_rmw max, release, sys, %arg2, %arg3, %true :
// CHECK-LABEL: tt.func public @thread_id(
// CHECK: %{{.*}} = tt.extern_elementwise {libname = "ditron", libpath = "", pure = true, symbol = "ditron_thread_id"
// CHECK-LABEL: tt.func public @num_threads(
// CHECK: %{{.*}} = tt.extern_elementwise {libname = "ditron", libpath = "", pure = true, symbol = "ditron_num_threads"
// CHECK-LABEL: tt.func public @lane_id(
// CHECK: %{{.*}} = tt.extern_elementwise {libname = "ditron", libpath = "", pure = true, symbol = "ditron_lane_id"
// CHECK-LABEL: tt.func public @warp_id(
// CHECK: %{{.*}} = tt.extern_elementwise {libname = "ditron", libpath = "", pure = true, symbol = "ditron_warp_id"
// CHECK-LABEL: tt.func public @spend(
// CHECK-NEXT: tt.return
// CHECK-LABEL: tt.func public @expect(
// CHECK-NEXT: %[[CONDITION:.*]] = arith.cmpi
// CHECK-NEXT: tt.store %arg2, %arg3, %[[CONDITION]]
// CHECK-NEXT: tt.return
// CHECK-LABEL: tt.func public @sync_threads(
// CHECK: %{{.*}} = tt.extern_elementwise {libname = "ditron", libpath = "", pure = false, symbol = "ditron_sync_threads"
// CHECK-LABEL: tt.func public @shfl(
// CHECK: %{{.*}} = tt.extern_elementwise {libname = "ditron", libpath = "", pure = true, symbol = "ditron_thread_id"
// CHECK: %{{.*}} = tt.extern_elementwise %{{.*}}, %arg4, %c3_i32 {libname = "ditron", libpath = "", pure = false, symbol = "ditron_shfl_i32"
// CHECK-LABEL: tt.func public @ballot(
// CHECK: %{{.*}} = tt.extern_elementwise %{{.*}} {libname = "ditron", libpath = "", pure = false, symbol = "ditron_ballot"
// CHECK-LABEL: tt.func public @extern_call(
// CHECK: %{{.*}} = tt.extern_elementwise %arg0, %arg4 {libname = "mine", libpath = "", pure = false, symbol = "my_function"
