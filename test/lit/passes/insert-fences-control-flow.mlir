// Loops, branches and blocks: a fence where each way comes to need it.
// RUN: ditron-opt %s --insert-fences --verify-diagnostics | filecheck %s
// RUN: ditron-opt %s --insert-fences --mlir-pass-statistics -o %t 2>&1 | filecheck %s --check-prefix=COUNT
// RUN: ditron-opt %t --insert-fences --mlir-pass-statistics -o %t.again 2>&1 | filecheck %s --check-prefix=AGAIN

// COUNT-DAG: 3  insert-fences: fences inserted
// COUNT-DAG: 3  insert-fences: quiets inserted

// What is there is not inserted again.
// AGAIN-NOT: inserted
// AGAIN: pass statistics
// AGAIN-NOT: inserted

// What comes from before a loop is ordered before it; what the loop does, in it.
// CHECK-LABEL: tt.func @loops(
// CHECK: tt.store
// CHECK-NEXT: ditron.fence
// CHECK-NEXT: scf.for
// CHECK-NEXT: ditron.signal_op
// CHECK-NEXT: }
// CHECK-NEXT: scf.for
// CHECK-NEXT: ditron.fence
// CHECK-NEXT: ditron.signal_op
// CHECK-NEXT: ditron.putmem
// CHECK-NEXT: }
// CHECK-NEXT: ditron.quiet
tt.func @loops(%p: !tt.ptr<f32>, %x: f32, %sig: !tt.ptr<i64>, %v: i64, %n: i32) {
  %c0 = arith.constant 0 : i32
  %c1 = arith.constant 1 : i32
  // expected-note@+1 {{a store}}
  tt.store %p, %x : !tt.ptr<f32>
  scf.for %r = %c0 to %n step %c1 : i32 {
    // expected-remark@+2 {{inserted 'ditron.fence'}}
    // expected-note@+1 {{a signal in flight}}
    ditron.signal_op %sig set %v on %r : !tt.ptr<i64>
  }
  scf.for %r = %c0 to %n step %c1 : i32 {
    // expected-warning@+1 {{inserted 'ditron.fence' in a loop}}
    ditron.signal_op %sig set %v on %r : !tt.ptr<i64>
    // expected-note@+1 {{a put}}
    ditron.putmem %p, %p, %v on %r : !tt.ptr<f32>, !tt.ptr<f32>
  }
  // expected-remark@+1 {{inserted 'ditron.quiet'}}
  tt.return
}

// Only the branch that sends waits until it is done.
// CHECK-LABEL: tt.func @one_branch(
// CHECK: scf.if
// CHECK: ditron.notify
// CHECK-NEXT: ditron.quiet {ditron.signals_at_end}
// CHECK-NEXT: } else {
// CHECK-NEXT: ditron.wait
// CHECK-NEXT: }
// CHECK-NEXT: tt.return
tt.func @one_branch(%sig: !tt.ptr<i64>, %v: i64, %yes: i1, %r: i32) {
  // expected-remark@+1 {{before the end of this branch, and so of the kernel}}
  scf.if %yes {
    // expected-note@+1 {{a signal in flight}}
    ditron.notify %sig set %v on %r : !tt.ptr<i64>
  } else {
    %t = ditron.wait %sig[%r] ge %v : !tt.ptr<i64>
  }
  tt.return
}

// A branch of blocks, one of which has a fence of its own.
// CHECK-LABEL: tt.func @blocks(
// CHECK: ditron.putmem
// CHECK: ditron.fence
// CHECK: ^bb2: {{.*}}
// CHECK-NEXT: ditron.fence
// CHECK-NEXT: ditron.signal_op
// CHECK-NEXT: ditron.quiet
tt.func @blocks(%p: !tt.ptr<f32>, %sig: !tt.ptr<i64>, %v: i64, %yes: i1, %r: i32) {
  // expected-note@+1 {{a put}}
  ditron.putmem %p, %p, %v on %r : !tt.ptr<f32>, !tt.ptr<f32>
  cf.cond_br %yes, ^bb1, ^bb2
^bb1:
  ditron.fence
  cf.br ^bb2
^bb2:
  // expected-remark@+2 {{inserted 'ditron.fence'}}
  // expected-note@+1 {{a signal in flight}}
  ditron.signal_op %sig set %v on %r : !tt.ptr<i64>
  // expected-remark@+1 {{inserted 'ditron.quiet'}}
  tt.return
}
