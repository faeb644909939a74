// RUN: ditron-opt --pass-pipeline='builtin.module(lower-to-sim{checks=none})' %s | filecheck %s

// One row per ditron operation: which call of the machine it becomes. Enumerations are their numbers, and the last argument
// of most calls is the line, as an index into the table.

// CHECK: module attributes {ditron.locs = [
// CHECK-SAME: "{{[^"]*}}sim-calls.mlir:{{[0-9]+}}:{{[0-9]+}}"

// CHECK-LABEL: func.func @who
tt.func public @who(%out: !tt.ptr<i32>) {
  // CHECK-DAG: %[[GROUP:.*]] = arith.constant 0 : i32
  // CHECK-DAG: %[[TWO:.*]] = arith.constant 2 : i32
  // CHECK: call @ditron_sim_rank(%[[GROUP]]) : (i32) -> i32
  %0 = ditron.rank
  // CHECK: call @ditron_sim_num_ranks(%[[TWO]]) : (i32) -> i32
  %1 = ditron.num_ranks team world
  // CHECK: call @ditron_sim_local_rank() : () -> i32
  %2 = ditron.local_rank
  // CHECK: call @ditron_sim_num_local_ranks() : () -> i32
  %3 = ditron.num_local_ranks
  // CHECK: call @ditron_sim_node() : () -> i32
  %4 = ditron.node
  // A program is one thread.
  // CHECK: return
  %5 = ditron.thread_id
  %6 = ditron.num_threads
  %7 = ditron.shfl idx %5, %6 : i32
  ditron.sync_threads
  tt.return
}

// CHECK-LABEL: func.func @signals
// CHECK-SAME: (%[[ARGS:.*]]: !llvm.ptr, %{{.*}}: i32
tt.func public @signals(%sig: !tt.ptr<i64>, %p: !tt.ptr<f32>, %n: i32, %v: i64) {
  // CHECK-DAG: %[[C0:.*]] = arith.constant 0 : i32
  // CHECK-DAG: %[[C1:.*]] = arith.constant 1 : i32
  // CHECK-DAG: %[[C2:.*]] = arith.constant 2 : i32
  // CHECK-DAG: %[[C3:.*]] = arith.constant 3 : i32
  // CHECK-DAG: %[[SIG:.*]] = llvm.load %{{.*}} : !llvm.ptr -> !llvm.ptr
  // CHECK: call @ditron_sim_wait(%[[SIG]], %[[N:.*]], %[[V:.*]], %[[C3]], %[[C1]], %[[C1]], %{{.*}}) : (!llvm.ptr, i32, i64, i32, i32, i32, i32) -> ()
  %token = ditron.wait %sig[%n] ge %v : !tt.ptr<i64>
  // CHECK: call @ditron_sim_wait(%[[SIG]], %[[N]], %[[V]], %[[C0]], %[[C2]], %[[C0]], %{{.*}})
  %far = ditron.wait %sig[%n] eq %v scope world semantic relaxed : !tt.ptr<i64>
  // CHECK-NOT: consume_token
  %q = ditron.consume_token %p, %token : !tt.ptr<f32>
  // CHECK: call @ditron_sim_notify(%[[SIG]], %[[V]], %[[N]], %[[C0]], %[[C1]], %{{.*}}) : (!llvm.ptr, i64, i32, i32, i32, i32) -> ()
  ditron.notify %sig set %v on %n : !tt.ptr<i64>
  // CHECK: call @ditron_sim_notify(%[[SIG]], %[[V]], %[[N]], %[[C1]], %[[C2]], %{{.*}})
  ditron.notify %sig add %v on %n scope world : !tt.ptr<i64>
  // CHECK: call @ditron_sim_signal_op(%[[SIG]], %[[V]], %[[N]], %[[C1]], %{{.*}})
  ditron.signal_op %sig add %v on %n : !tt.ptr<i64>
  // CHECK: call @ditron_sim_signal_wait_until(%[[SIG]], %[[V]], %[[C3]], %{{.*}}) : (!llvm.ptr, i64, i32, i32) -> i64
  %seen = ditron.signal_wait_until %sig ge %v : !tt.ptr<i64>
  tt.return
}

// CHECK-LABEL: func.func @data
tt.func public @data(%dst: !tt.ptr<f32>, %src: !tt.ptr<f32>, %sig: !tt.ptr<i64>, %r: i32, %n: i64) {
  // CHECK-DAG: %[[C0:.*]] = arith.constant 0 : i32
  // CHECK-DAG: %[[C1:.*]] = arith.constant 1 : i32
  // CHECK: call @ditron_sim_check_bytes(%{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}) : (i64, i32, !llvm.ptr, i32) -> ()
  // CHECK: call @ditron_sim_putmem(%[[DST:.*]], %[[SRC:.*]], %[[N:.*]], %[[R:.*]], %[[C0]], %{{.*}}) : (!llvm.ptr, !llvm.ptr, i64, i32, i32, i32) -> ()
  ditron.putmem %dst, %src, %n on %r : !tt.ptr<f32>, !tt.ptr<f32>
  // CHECK: call @ditron_sim_getmem(%[[DST]], %[[SRC]], %[[N]], %[[R]], %[[C1]], %{{.*}})
  ditron.getmem %dst, %src, %n on %r nbi : !tt.ptr<f32>, !tt.ptr<f32>
  // CHECK: call @ditron_sim_putmem_signal(%[[DST]], %[[SRC]], %[[N]], %[[SIG:.*]], %[[N]], %[[R]], %[[C1]], %[[C1]], %{{.*}}) : (!llvm.ptr, !llvm.ptr, i64, !llvm.ptr, i64, i32, i32, i32, i32) -> ()
  ditron.putmem_signal %dst, %src, %n, %sig add %n on %r nbi : !tt.ptr<f32>, !tt.ptr<f32>, !tt.ptr<i64>
  // CHECK: call @ditron_sim_ll_put(%[[SIG]], %[[SRC]], %[[N]], %[[N]], %[[R]], %[[C1]], %{{.*}}) : (!llvm.ptr, !llvm.ptr, i64, i64, i32, i32, i32) -> ()
  ditron.ll_put %sig, %src, %n, %n on %r : !tt.ptr<i64>, !tt.ptr<f32>
  // CHECK: call @ditron_sim_ll_get(%[[DST]], %[[SIG]], %[[N]], %[[N]], %{{.*}}, %{{.*}}) : (!llvm.ptr, !llvm.ptr, i64, i64, i32, i32) -> ()
  %taken = ditron.ll_get %dst, %sig, %n, %n protocol ll128 : !tt.ptr<f32>, !tt.ptr<i64>
  // CHECK: call @ditron_sim_fence(
  ditron.fence
  // CHECK: call @ditron_sim_quiet(
  ditron.quiet
  // CHECK: call @ditron_sim_barrier_all(
  ditron.barrier_all
  // CHECK: call @ditron_sim_barrier(%[[C1]], %{{.*}})
  ditron.barrier team node
  // CHECK: call @ditron_sim_sync_all(%[[C0]], %{{.*}})
  ditron.sync_all
  tt.return
}

// A tensor of pointers is translated at its base: one call, not one per element.
// CHECK-LABEL: func.func @pointers
tt.func public @pointers(%p: !tt.ptr<f32>, %r: i32) {
  // CHECK: %[[BASE:.*]] = call @ditron_sim_symm_at(
  // CHECK: scf.for
  // CHECK: llvm.getelementptr %[[BASE]]
  // CHECK-NOT: call
  // CHECK: return
  %i = tt.make_range {end = 32 : i32, start = 0 : i32} : tensor<32xi32>
  %s = tt.splat %p : !tt.ptr<f32> -> tensor<32x!tt.ptr<f32>>
  %a = tt.addptr %s, %i : tensor<32x!tt.ptr<f32>>, tensor<32xi32>
  %q = ditron.symm_at %a on %r : tensor<32x!tt.ptr<f32>>
  %v = tt.load %q : tensor<32x!tt.ptr<f32>>
  tt.store %a, %v : tensor<32x!tt.ptr<f32>>
  tt.return
}

// CHECK-LABEL: func.func @atomics
tt.func public @atomics(%p: !tt.ptr<i32>, %f: !tt.ptr<f32>, %v: i32, %x: f32) {
  // CHECK-DAG: %[[C0:.*]] = arith.constant 0 : i32
  // CHECK-DAG: %[[C1:.*]] = arith.constant 1 : i32
  // CHECK-DAG: %[[C2:.*]] = arith.constant 2 : i32
  // CHECK-DAG: %[[C4:.*]] = arith.constant 4 : i32
  // CHECK-DAG: %[[C5:.*]] = arith.constant 5 : i32
  // CHECK-DAG: %[[C6:.*]] = arith.constant 6 : i32
  // CHECK: call @ditron_sim_ld(%[[P:.*]], %[[C4]], %[[C1]], %[[C1]], %{{.*}}) : (!llvm.ptr, i32, i32, i32, i32) -> i64
  %a = ditron.ld %p scope node semantic acquire : !tt.ptr<i32>
  // CHECK: call @ditron_sim_st(%[[P]], %{{.*}}, %[[C4]], %[[C0]], %[[C2]], %{{.*}}) : (!llvm.ptr, i64, i32, i32, i32, i32) -> ()
  ditron.st %p, %v semantic release : !tt.ptr<i32>
  // CHECK: call @ditron_sim_atomic_rmw(%[[P]], %{{.*}}, %[[C4]], %[[C0]], %[[C0]], %[[C0]], %{{.*}}) : (!llvm.ptr, i64, i32, i32, i32, i32, i32) -> i64
  %b = ditron.atomic_add %p, %v : !tt.ptr<i32>
  // CHECK: call @ditron_sim_atomic_rmw(%[[F:.*]], %{{.*}}, %[[C5]], %[[C2]], %[[C0]], %[[C0]], %{{.*}})
  %c = ditron.atomic_add %f, %x : !tt.ptr<f32>
  // CHECK: call @ditron_sim_atomic_cas(%[[P]], %{{.*}}, %{{.*}}, %[[C4]], %[[C2]], %[[C0]], %{{.*}}) : (!llvm.ptr, i64, i64, i32, i32, i32, i32) -> i64
  %d = ditron.atomic_cas %p, %v, %v scope world : !tt.ptr<i32>
  // CHECK: call @ditron_sim_atomic_rmw(%[[P]], %{{.*}}, %[[C6]], %[[C0]], %[[C0]], %[[C0]], %{{.*}})
  ditron.red %p max %v : !tt.ptr<i32>
  // CHECK: call @ditron_sim_multicast_ptr(%[[F]], %[[C0]], %{{.*}}) : (!llvm.ptr, i32, i32) -> !llvm.ptr
  %m = ditron.multicast_ptr %f : !tt.ptr<f32>
  // CHECK: call @ditron_sim_multimem_ld_reduce(%{{.*}}, %[[C0]], %[[C2]], %{{.*}}) : (!llvm.ptr, i32, i32, i32) -> i64
  %e = ditron.multimem_ld_reduce add %m : !tt.ptr<f32>
  // CHECK: call @ditron_sim_multimem_st(%{{.*}}, %{{.*}}, %[[C2]], %{{.*}}) : (!llvm.ptr, i64, i32, i32) -> ()
  ditron.multimem_st %m, %e : !tt.ptr<f32>
  // CHECK: call @ditron_sim_multimem_red(%{{.*}}, %{{.*}}, %[[C0]], %[[C2]], %{{.*}}) : (!llvm.ptr, i64, i32, i32, i32) -> ()
  ditron.multimem_red %m add %e : !tt.ptr<f32>
  tt.return
}

// What is spent, by the dialect's number, and where; null is this rank's memory.
// CHECK-LABEL: func.func @spend
tt.func public @spend(%p: !tt.ptr<bf16>, %n: i64) {
  // CHECK-DAG: %[[DOT16:.*]] = arith.constant 1 : i32
  // CHECK-DAG: %[[STORE:.*]] = arith.constant 4 : i32
  // CHECK-DAG: %[[NULL:.*]] = llvm.mlir.zero : !llvm.ptr
  // CHECK: call @ditron_sim_spend(%[[DOT16]], %[[AMOUNT:.*]], %[[NULL]]) : (i32, i64, !llvm.ptr) -> ()
  ditron.spend dot16 %n
  // CHECK: call @ditron_sim_spend(%[[STORE]], %[[AMOUNT]], %{{.*}})
  ditron.spend store %n at %p : !tt.ptr<bf16>
  tt.return
}

// Of an operand it is the first byte: of the block of a descriptor, or of the first of a tensor of pointers.
// CHECK-LABEL: func.func @spend_operand
tt.func public @spend_operand(%p: !tt.ptr<bf16>, %n: i64, %r: i32, %stride: i64) {
  %one = arith.constant 1 : i64
  %desc = tt.make_tensor_descriptor %p, [%r, %r], [%stride, %one] : <bf16>, <tensor<16x64xbf16>>
  // CHECK: arith.muli
  // CHECK: %[[BLOCK:.*]] = llvm.getelementptr
  // CHECK: call @ditron_sim_spend(%[[OPERAND:.*]], %[[AMOUNT:.*]], %[[BLOCK]])
  ditron.spend operand %n at %desc, %r, %r : !tt.tensordesc<tensor<16x64xbf16>>, i32, i32
  %s = tt.splat %p : !tt.ptr<bf16> -> tensor<64x!tt.ptr<bf16>>
  // CHECK: call @ditron_sim_spend(%[[OPERAND]], %[[AMOUNT]], %{{.*}})
  ditron.spend operand %n at %s : tensor<64x!tt.ptr<bf16>>
  tt.return
}

// A condition is itself; without one it is drawn.
// CHECK-LABEL: func.func @expect
tt.func public @expect(%p: !tt.ptr<i32>, %n: i32, %c: i1) {
  // CHECK-DAG: %[[C0:.*]] = arith.constant 0 : i32
  // CHECK-DAG: %[[C1:.*]] = arith.constant 1 : i32
  // CHECK-DAG: %[[QUARTER:.*]] = arith.constant 2.500000e-01 : f64
  // CHECK: call @ditron_sim_draw(%[[QUARTER]], %[[C0]], %{{.*}}) : (f64, i32, i32) -> i32
  %drawn = ditron.expect 0.25
  tt.store %p, %n, %drawn : !tt.ptr<i32>
  // CHECK: call @ditron_sim_draw(%[[QUARTER]], %[[C1]], %{{.*}})
  %everywhere = ditron.expect 0.25 uniform
  tt.store %p, %n, %everywhere : !tt.ptr<i32>
  // CHECK-NOT: @ditron_sim_draw
  %known = ditron.expect %c, 0.25
  // CHECK: scf.if
  tt.store %p, %n, %known : !tt.ptr<i32>
  tt.return
}
