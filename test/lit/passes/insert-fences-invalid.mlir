// Where it is missing but cannot go, because only some threads come there.
// RUN: ditron-opt %s --insert-fences --verify-diagnostics | filecheck %s

// The store comes from before: all threads can come together there.
// CHECK-LABEL: tt.func @before_the_branch(
// CHECK: tt.store
// CHECK: ditron.fence
// CHECK-NEXT: scf.if
// CHECK-NEXT: ditron.signal_op
tt.func @before_the_branch(%p: !tt.ptr<f32>, %x: f32, %sig: !tt.ptr<i64>, %v: i64, %r: i32) {
  %c0 = arith.constant 0 : i32
  // expected-note@+1 {{a store}}
  tt.store %p, %x : !tt.ptr<f32>
  %t = ditron.thread_id
  %first = arith.cmpi eq, %t, %c0 : i32
  scf.if %first {
    // expected-remark@+2 {{inserted 'ditron.fence'}}
    // expected-note@+1 {{a signal in flight}}
    ditron.signal_op %sig set %v on %r : !tt.ptr<i64>
  }
  // expected-remark@+1 {{inserted 'ditron.quiet'}}
  tt.return
}

// CHECK-LABEL: tt.func @in_the_branch(
// CHECK-NOT: ditron.fence
tt.func @in_the_branch(%p: !tt.ptr<f32>, %x: f32, %sig: !tt.ptr<i64>, %v: i64, %r: i32) {
  %c0 = arith.constant 0 : i32
  %t = ditron.thread_id
  %first = arith.cmpi eq, %t, %c0 : i32
  scf.if %first {
    // expected-note@+1 {{a store}}
    tt.store %p, %x : !tt.ptr<f32>
    // expected-warning@+1 {{'ditron.fence' is missing before this operation: a store may still be unordered; it cannot be inserted, because not all threads of the program reach this point}}
    ditron.signal_op %sig set %v on %r : !tt.ptr<i64>
  }
  ditron.quiet
  tt.return
}
