// RUN: ditron-opt %s --lower-nonatomic-sync | filecheck %s
// RUN: ditron-opt %s --lower-nonatomic-sync --mlir-pass-statistics -o %t 2>&1 | filecheck %s --check-prefix=COUNT

// COUNT-DAG: 1  lower-nonatomic-sync: notify lowered
// COUNT-DAG: 1  lower-nonatomic-sync: wait lowered
// COUNT-DAG: 1  lower-nonatomic-sync: putmem_signal lowered
// COUNT-DAG: 1  lower-nonatomic-sync: signal_wait_until lowered

// A fence and a store; a loop of relaxed loads and a fence. What depended on the wait still does.
// CHECK-LABEL: tt.func @notify_and_wait(
// CHECK: ditron.fence
// CHECK-NEXT: ditron.signal_op %arg0 set %arg1 on %arg2 : !tt.ptr<i64>
// CHECK-NEXT: %[[TOKEN:.*]] = ditron.wait %arg0[%arg2] ge %arg1 scope world semantic relaxed
// CHECK-NEXT: ditron.fence
// CHECK-NEXT: ditron.consume_token %arg3, %[[TOKEN]]
tt.func @notify_and_wait(%sig: !tt.ptr<i64>, %v: i64, %r: i32, %p: !tt.ptr<f32>) -> !tt.ptr<f32> {
  ditron.notify %sig set %v on %r : !tt.ptr<i64>
  %t = ditron.wait %sig[%r] ge %v scope world : !tt.ptr<i64>
  %q = ditron.consume_token %p, %t : !tt.ptr<f32>
  tt.return %q : !tt.ptr<f32>
}

// CHECK-LABEL: tt.func @put_and_signal(
// CHECK: ditron.putmem %arg0, %arg0, %arg2 on %arg3 nbi granularity warp
// CHECK-NEXT: ditron.fence
// CHECK-NEXT: ditron.signal_op %arg1 set %arg2 on %arg3
// CHECK-NEXT: %[[ONE:.*]] = arith.constant 1 : i32
// CHECK-NEXT: ditron.wait %arg1[%[[ONE]]] gt %arg2 scope world semantic relaxed
// CHECK-NEXT: ditron.fence
// CHECK-NEXT: %[[SEEN:.*]] = ditron.signal_wait_until
tt.func @put_and_signal(%p: !tt.ptr<f32>, %sig: !tt.ptr<i64>, %v: i64, %r: i32) -> i64 {
  ditron.putmem_signal %p, %p, %v, %sig set %v on %r nbi granularity warp : !tt.ptr<f32>, !tt.ptr<f32>, !tt.ptr<i64>
  %unused = ditron.signal_wait_until %sig gt %v : !tt.ptr<i64>
  %seen = ditron.signal_wait_until %sig ge %v : !tt.ptr<i64>
  tt.return %seen : i64
}

// Within the GPU there are atomics; what is relaxed, or has its order by itself, is plain already.
// CHECK-LABEL: tt.func @as_it_is(
// CHECK-NOT: ditron.fence
// CHECK: ditron.notify %arg0 add
// CHECK-NEXT: ditron.notify %arg0 add
// CHECK-NOT: ditron.fence
// CHECK: tt.return
tt.func @as_it_is(%sig: !tt.ptr<i64>, %v: i64, %r: i32) {
  %rank = ditron.rank
  ditron.notify %sig add %v on %r scope gpu : !tt.ptr<i64>
  ditron.notify %sig add %v on %rank : !tt.ptr<i64>
  ditron.signal_op %sig add %v on %rank : !tt.ptr<i64>
  %t = ditron.wait %sig[%r] ge %v semantic relaxed : !tt.ptr<i64>
  %u = ditron.wait %sig[%r] ge %v scope gpu : !tt.ptr<i64>
  %old = ditron.atomic_add %sig, %v : !tt.ptr<i64>
  %x = ditron.ld %sig scope world semantic acquire : !tt.ptr<i64>
  ditron.st %sig, %v scope world semantic release : !tt.ptr<i64>
  ditron.barrier_all
  tt.return
}
