// What a loop sets a signal to, and what the pass inserts in loops.
// RUN: ditron-opt %s --insert-fences --verify-diagnostics | filecheck %s

// Every iteration sets the signal to the same value, which is converted in the loop: no order is needed.
// CHECK-LABEL: tt.func @invariant(
// CHECK-NOT: ditron.fence
// CHECK: ditron.quiet
// CHECK-NEXT: tt.return
tt.func @invariant(%box: !tt.ptr<f32>, %x: !tt.ptr<f32>, %sig: !tt.ptr<i64>, %epoch: i32, %r: i32, %n: i32, %b: i64) {
  %c0 = arith.constant 0 : i32
  %c1 = arith.constant 1 : i32
  scf.for %i = %c0 to %n step %c1 : i32 {
    %to = tt.addptr %box, %i : !tt.ptr<f32>, i32
    %next = arith.addi %epoch, %c1 : i32
    %value = arith.extsi %next : i32 to i64
    // expected-note@+1 {{a non-blocking put}}
    ditron.putmem_signal %to, %x, %b, %sig set %value on %r nbi : !tt.ptr<f32>, !tt.ptr<f32>, !tt.ptr<i64>
  }
  // expected-remark@+1 {{inserted 'ditron.quiet'}}
  tt.return
}

// In a nest of loops the outer one's value changes with each iteration of that loop: it is ordered in front of the inner.
// CHECK-LABEL: tt.func @nested(
// CHECK: scf.for
// CHECK-NEXT: ditron.fence
// CHECK-NEXT: scf.for
// CHECK-NEXT: arith.extsi
// CHECK-NEXT: ditron.signal_op
tt.func @nested(%sig: !tt.ptr<i64>, %r: i32, %n: i32) {
  %c0 = arith.constant 0 : i32
  %c1 = arith.constant 1 : i32
  scf.for %i = %c0 to %n step %c1 : i32 {
    scf.for %j = %c0 to %n step %c1 : i32 {
      %value = arith.extsi %i : i32 to i64
      // expected-warning@+3 {{inserted 'ditron.fence' in a loop, before this operation: an earlier update of this signal may still be unordered. It takes time in every iteration: order or complete the accesses once, outside of the loop, or write dl.fence() here if it has to be}}
      // expected-note@+2 {{an earlier update of this signal}}
      // expected-note@+1 {{a signal in flight}}
      ditron.signal_op %sig set %value on %r : !tt.ptr<i64>
    }
  }
  // expected-remark@+1 {{inserted 'ditron.quiet'}}
  tt.return
}

// What changes with the iterations, or may be another value at each read, still needs its order.
// CHECK-LABEL: tt.func @loaded(
// CHECK: tt.load
// CHECK-NEXT: ditron.fence
// CHECK-NEXT: ditron.signal_op
tt.func @loaded(%sig: !tt.ptr<i64>, %epoch: !tt.ptr<i64>, %r: i32, %n: i32) {
  %c0 = arith.constant 0 : i32
  %c1 = arith.constant 1 : i32
  scf.for %i = %c0 to %n step %c1 : i32 {
    %value = tt.load %epoch {isVolatile = true} : !tt.ptr<i64>
    // expected-warning@+3 {{inserted 'ditron.fence' in a loop}}
    // expected-note@+2 {{an earlier update of this signal}}
    // expected-note@+1 {{a signal in flight}}
    ditron.signal_op %sig set %value on %r : !tt.ptr<i64>
  }
  // expected-remark@+1 {{inserted 'ditron.quiet'}}
  tt.return
}

// Nothing is said of what the author wrote.
// CHECK-LABEL: tt.func @written(
// CHECK: scf.for
// CHECK-COUNT-1: ditron.fence
// CHECK-NEXT: ditron.signal_op
tt.func @written(%sig: !tt.ptr<i64>, %r: i32, %n: i32) {
  %c0 = arith.constant 0 : i32
  %c1 = arith.constant 1 : i32
  scf.for %i = %c0 to %n step %c1 : i32 {
    %value = arith.extsi %i : i32 to i64
    ditron.fence
    // expected-note@+1 {{a signal in flight}}
    ditron.signal_op %sig set %value on %r : !tt.ptr<i64>
  }
  // expected-remark@+1 {{inserted 'ditron.quiet'}}
  tt.return
}
