// Functions that are called, not inlined: what they do with the pointers they get counts as done where they are called.
// RUN: ditron-opt %s --insert-fences --verify-diagnostics | filecheck %s

tt.func private @stores(%p: !tt.ptr<f32>, %x: f32) {
  tt.store %p, %x : !tt.ptr<f32>
  tt.return
}
tt.func private @stores_in_another(%p: !tt.ptr<f32>, %x: f32) {
  tt.call @stores(%p, %x) : (!tt.ptr<f32>, f32) -> ()
  tt.return
}
tt.func private @loads(%p: !tt.ptr<f32>) -> f32 {
  %x = tt.load %p : !tt.ptr<f32>
  tt.return %x : f32
}
tt.func private @computes(%x: f32) -> f32 {
  %y = arith.addf %x, %x : f32
  tt.return %y : f32
}
tt.func private @sends(%p: !tt.ptr<f32>, %n: i64, %r: i32) {
  ditron.putmem %p, %p, %n on %r nbi : !tt.ptr<f32>, !tt.ptr<f32>
  tt.return
}

// CHECK-LABEL: tt.func @published(
// CHECK: tt.call{{.*}}stores_in_another
// CHECK-NEXT: ditron.fence
// CHECK-NEXT: ditron.signal_op
// CHECK-NEXT: tt.call{{.*}}stores
// CHECK-NEXT: ditron.fence
// CHECK-NEXT: ditron.putmem_signal
// CHECK-NEXT: ditron.quiet
tt.func @published(%p: !tt.ptr<f32>, %q: !tt.ptr<f32>, %x: f32, %sig: !tt.ptr<i64>, %v: i64, %r: i32) {
  %there = ditron.symm_at %p on %r : !tt.ptr<f32>
  // expected-note@+1 {{an operation of the called function}}
  tt.call @stores_in_another(%p, %x) : (!tt.ptr<f32>, f32) -> ()
  // expected-remark@+2 {{an operation of the called function may still be unordered}}
  // expected-note@+1 {{a signal in flight}}
  ditron.signal_op %sig set %v on %r : !tt.ptr<i64>
  // expected-note@+1 {{an operation of the called function}}
  tt.call @stores(%there, %x) : (!tt.ptr<f32>, f32) -> ()
  // expected-remark@+1 {{an operation of the called function may still be unordered}}
  ditron.putmem_signal %p, %q, %v, %sig set %v on %r : !tt.ptr<f32>, !tt.ptr<f32>, !tt.ptr<i64>
  // expected-remark@+1 {{inserted 'ditron.quiet'}}
  tt.return
}

// What is in use is waited for before a function that may touch it: a put's source by one that stores, a get's
// destination by one that loads.
// CHECK-LABEL: tt.func @in_use(
// CHECK: ditron.putmem
// CHECK-NEXT: tt.call{{.*}}loads
// CHECK-NEXT: ditron.quiet
// CHECK-NEXT: tt.call{{.*}}stores
// CHECK-NEXT: ditron.getmem
// CHECK-NEXT: tt.call{{.*}}loads{{.*}}
// CHECK-NEXT: ditron.quiet
// CHECK-NEXT: tt.call{{.*}}loads
// CHECK-NEXT: tt.return
tt.func @in_use(%p: !tt.ptr<f32>, %q: !tt.ptr<f32>, %x: f32, %n: i64, %r: i32) {
  // expected-note@+1 {{a non-blocking put}}
  ditron.putmem %q, %p, %n on %r nbi : !tt.ptr<f32>, !tt.ptr<f32>
  %a = tt.call @loads(%p) : (!tt.ptr<f32>) -> f32
  // expected-remark@+1 {{a non-blocking put may still be incomplete}}
  tt.call @stores(%p, %x) : (!tt.ptr<f32>, f32) -> ()
  // expected-note@+1 {{a non-blocking get}}
  ditron.getmem %p, %q, %n on %r nbi : !tt.ptr<f32>, !tt.ptr<f32>
  %b = tt.call @loads(%q) : (!tt.ptr<f32>) -> f32
  // expected-remark@+1 {{a non-blocking get may still be incomplete}}
  %c = tt.call @loads(%p) : (!tt.ptr<f32>) -> f32
  tt.return
}

// A function that touches no memory needs nothing; what one loads after a wait, a signal may not overtake.
// CHECK-LABEL: tt.func @loaded(
// CHECK: tt.call{{.*}}computes
// CHECK-NEXT: ditron.signal_op
// CHECK-NEXT: ditron.wait
// CHECK-NEXT: tt.call{{.*}}computes
// CHECK-NEXT: ditron.signal_op
// CHECK-NEXT: tt.call{{.*}}loads
// CHECK-NEXT: ditron.fence
// CHECK-NEXT: ditron.signal_op
// CHECK-NEXT: ditron.quiet
tt.func @loaded(%p: !tt.ptr<f32>, %x: f32, %sig: !tt.ptr<i64>, %v: i64, %r: i32) {
  %c1 = arith.constant 1 : i32
  %a = tt.call @computes(%x) : (f32) -> f32
  // expected-note@+1 {{a signal in flight}}
  ditron.signal_op %sig set %v on %r : !tt.ptr<i64>
  %t = ditron.wait %sig[%c1] ge %v : !tt.ptr<i64>
  %b = tt.call @computes(%x) : (f32) -> f32
  ditron.signal_op %sig set %v on %r : !tt.ptr<i64>
  // expected-note@+1 {{an operation of the called function}}
  %c = tt.call @loads(%p) : (!tt.ptr<f32>) -> f32
  // expected-remark@+1 {{an operation of the called function may still be unordered}}
  ditron.signal_op %sig set %v on %r : !tt.ptr<i64>
  // expected-remark@+1 {{inserted 'ditron.quiet'}}
  tt.return
}

// Signals are complete before one that communicates: that is not the end of the kernel, whatever they are alone.
// CHECK-LABEL: tt.func @signal_then_call(
// CHECK-NEXT: ditron.signal_op
// CHECK-NEXT: ditron.fence
// CHECK-NEXT: ditron.quiet{{$}}
// CHECK-NEXT: tt.call
tt.func @signal_then_call(%p: !tt.ptr<f32>, %sig: !tt.ptr<i64>, %v: i64, %r: i32) {
  // expected-note@+1 {{a signal in flight}}
  ditron.signal_op %sig set %v on %r : !tt.ptr<i64>
  ditron.fence
  // expected-remark@+2 {{inserted 'ditron.quiet' before this operation: a signal in flight may still be incomplete}}
  // expected-note@+1 {{an operation of the called function}}
  tt.call @sends(%p, %v, %r) : (!tt.ptr<f32>, i64, i32) -> ()
  // expected-remark@+1 {{inserted 'ditron.quiet'}}
  tt.return
}

// One that communicates, or of which nothing is known, may rely on all that came before, and leaves anything behind.
// CHECK-LABEL: tt.func @anything(
// CHECK: tt.store
// CHECK-NEXT: ditron.quiet{{$}}
// CHECK-NEXT: tt.call{{.*}}sends
// CHECK-NEXT: ditron.quiet{{$}}
// CHECK-NEXT: tt.call{{.*}}elsewhere
// CHECK-NEXT: ditron.fence
// CHECK-NEXT: ditron.signal_op
// CHECK-NEXT: ditron.quiet{{$}}
tt.func @anything(%p: !tt.ptr<f32>, %x: f32, %sig: !tt.ptr<i64>, %v: i64, %r: i32) {
  // expected-note@+1 {{a store}}
  tt.store %p, %x : !tt.ptr<f32>
  // expected-remark@+2 {{inserted 'ditron.quiet' before this operation: a store may still be incomplete}}
  // expected-note@+1 {{an operation of the called function}}
  tt.call @sends(%p, %v, %r) : (!tt.ptr<f32>, i64, i32) -> ()
  // expected-remark@+2 {{an operation of the called function may still be incomplete}}
  // expected-note@+1 {{an operation of the called function}}
  tt.call @elsewhere(%p) : (!tt.ptr<f32>) -> ()
  // expected-remark@+1 {{an operation of the called function may still be unordered}}
  ditron.signal_op %sig set %v on %r : !tt.ptr<i64>
  // expected-remark@+1 {{inserted 'ditron.quiet'}}
  tt.return
}

// So may code in another language with the pointers that it gets, unless it is pure.
// CHECK-LABEL: tt.func @other_code(
// CHECK: tt.elementwise_inline_asm
// CHECK-NEXT: ditron.signal_op
// CHECK-NEXT: tt.elementwise_inline_asm
// CHECK-NEXT: ditron.fence
// CHECK-NEXT: ditron.signal_op
// CHECK-NEXT: ditron.quiet
tt.func @other_code(%p: !tt.ptr<f32>, %sig: !tt.ptr<i64>, %v: i64, %r: i32) {
  %a = tt.elementwise_inline_asm "a" {constraints = "", packed_element = 1 : i32, pure = true} %p : !tt.ptr<f32> -> f32
  // expected-note@+1 {{a signal in flight}}
  ditron.signal_op %sig set %v on %r : !tt.ptr<i64>
  // expected-note@+1 {{a store}}
  %b = tt.elementwise_inline_asm "b" {constraints = "", packed_element = 1 : i32, pure = false} %p : !tt.ptr<f32> -> f32
  // expected-remark@+1 {{a store may still be unordered}}
  ditron.signal_op %sig set %v on %r : !tt.ptr<i64>
  // expected-remark@+1 {{inserted 'ditron.quiet'}}
  tt.return
}
