// The source of a put and the destination of a get are the transfer's until quiet.
// RUN: ditron-opt %s --insert-fences --verify-diagnostics | filecheck %s
// RUN: ditron-opt %s --insert-fences --mlir-pass-statistics -o %t 2>&1 | filecheck %s --check-prefix=COUNT
// RUN: ditron-opt %t --insert-fences --mlir-pass-statistics -o %t.again 2>&1 | filecheck %s --check-prefix=AGAIN

// COUNT-NOT: fences inserted
// COUNT: 12  insert-fences: quiets inserted
// COUNT-NOT: fences inserted

// What is there is not inserted again.
// AGAIN-NOT: inserted
// AGAIN: pass statistics
// AGAIN-NOT: inserted

// The source of a put and the destination of a get are the transfer's until quiet.
// CHECK-LABEL: tt.func @buffers_in_use(
// CHECK: ditron.putmem
// CHECK-NEXT: ditron.quiet
// CHECK-NEXT: tt.store
// CHECK-NEXT: ditron.getmem
// CHECK-NEXT: ditron.quiet
// CHECK-NEXT: tt.load
// CHECK-NEXT: ditron.getmem
// CHECK-NEXT: ditron.quiet
// CHECK-NEXT: ditron.putmem
// CHECK-NEXT: tt.store
// CHECK-NEXT: ditron.quiet
// CHECK-NEXT: ditron.sync_all
tt.func @buffers_in_use(%p: !tt.ptr<f32>, %q: !tt.ptr<f32>, %x: f32, %n: i64, %r: i32) -> f32 {
  // expected-note@+1 {{a non-blocking put}}
  ditron.putmem %q, %p, %n on %r nbi : !tt.ptr<f32>, !tt.ptr<f32>
  // expected-remark@+1 {{inserted 'ditron.quiet' before this operation: a non-blocking put may still be incomplete}}
  tt.store %p, %x : !tt.ptr<f32>
  // expected-note@+1 {{a non-blocking get}}
  ditron.getmem %p, %q, %n on %r nbi : !tt.ptr<f32>, !tt.ptr<f32>
  // expected-remark@+1 {{a non-blocking get may still be incomplete}}
  %y = tt.load %p : !tt.ptr<f32>
  // expected-note@+1 {{a non-blocking get}}
  ditron.getmem %p, %q, %n on %r nbi : !tt.ptr<f32>, !tt.ptr<f32>
  // expected-note@+2 {{a put}}
  // expected-remark@+1 {{a non-blocking get may still be incomplete}}
  ditron.putmem %q, %p, %n on %r : !tt.ptr<f32>, !tt.ptr<f32>
  tt.store %p, %x : !tt.ptr<f32>
  // expected-remark@+1 {{a put may still be incomplete}}
  ditron.sync_all
  tt.return %y : f32
}

// The source is all of what the pointer is computed from: a store to another part of it, at this turn or the next; not
// one to another rank, nor to another argument.
// CHECK-LABEL: tt.func @parts_in_use(
// CHECK: ditron.putmem
// CHECK-NEXT: tt.store
// CHECK: ditron.symm_at
// CHECK-NEXT: tt.store
// CHECK-NEXT: ditron.quiet
// CHECK-NEXT: tt.store
// CHECK: scf.for
// CHECK-NEXT: tt.addptr
// CHECK-NEXT: ditron.quiet
// CHECK-NEXT: tt.store
// CHECK-NEXT: ditron.putmem
// CHECK-NEXT: }
// CHECK-NEXT: ditron.quiet
tt.func @parts_in_use(%p: !tt.ptr<f32>, %q: !tt.ptr<f32>, %x: f32, %n: i64, %r: i32) {
  %c0 = arith.constant 0 : i32
  %c1 = arith.constant 1 : i32
  %part = tt.addptr %p, %r : !tt.ptr<f32>, i32
  // expected-note@+1 {{a non-blocking put}}
  ditron.putmem %q, %part, %n on %r nbi : !tt.ptr<f32>, !tt.ptr<f32>
  tt.store %q, %x : !tt.ptr<f32>
  %rank = ditron.rank
  %ranks = ditron.num_ranks
  %next = arith.addi %rank, %c1 : i32
  %right = arith.remsi %next, %ranks : i32
  %there = ditron.symm_at %p on %right : !tt.ptr<f32>
  tt.store %there, %x : !tt.ptr<f32>
  // expected-remark@+1 {{inserted 'ditron.quiet' before this operation: a non-blocking put may still be incomplete}}
  tt.store %p, %x : !tt.ptr<f32>
  scf.for %i = %c0 to %r step %c1 : i32 {
    %at = tt.addptr %p, %i : !tt.ptr<f32>, i32
    // expected-warning@+1 {{a non-blocking put may still be incomplete}}
    tt.store %at, %x : !tt.ptr<f32>
    // expected-note@+1 {{a non-blocking put}}
    ditron.putmem %q, %at, %n on %r nbi : !tt.ptr<f32>, !tt.ptr<f32>
  }
  // expected-remark@+1 {{inserted 'ditron.quiet'}}
  tt.return
}

// A rank that may be this one; a pointer that may lead anywhere; what takes what a put still reads.
// CHECK-LABEL: tt.func @perhaps_in_use(
// CHECK: ditron.putmem
// CHECK-NEXT: ditron.symm_at
// CHECK-NEXT: ditron.quiet
// CHECK-NEXT: tt.store
// CHECK-NEXT: ditron.putmem
// CHECK-NEXT: tt.int_to_ptr
// CHECK-NEXT: ditron.quiet
// CHECK-NEXT: tt.store
// CHECK-NEXT: ditron.putmem
// CHECK-NEXT: ditron.quiet
// CHECK-NEXT: ditron.getmem
// CHECK-NEXT: tt.return
tt.func @perhaps_in_use(%p: !tt.ptr<f32>, %q: !tt.ptr<f32>, %x: f32, %n: i64, %r: i32) {
  // expected-note@+1 {{a non-blocking put}}
  ditron.putmem %q, %p, %n on %r nbi : !tt.ptr<f32>, !tt.ptr<f32>
  %there = ditron.symm_at %p on %r : !tt.ptr<f32>
  // expected-remark@+1 {{inserted 'ditron.quiet' before this operation: a non-blocking put may still be incomplete}}
  tt.store %there, %x : !tt.ptr<f32>
  // expected-note@+1 {{a non-blocking put}}
  ditron.putmem %q, %p, %n on %r nbi : !tt.ptr<f32>, !tt.ptr<f32>
  %any = tt.int_to_ptr %n : i64 -> !tt.ptr<f32>
  // expected-remark@+1 {{a non-blocking put may still be incomplete}}
  tt.store %any, %x : !tt.ptr<f32>
  // expected-note@+1 {{a non-blocking put}}
  ditron.putmem %q, %p, %n on %r nbi : !tt.ptr<f32>, !tt.ptr<f32>
  // expected-remark@+1 {{a non-blocking put may still be incomplete}}
  ditron.getmem %p, %q, %n on %r : !tt.ptr<f32>, !tt.ptr<f32>
  tt.return
}

// A pointer that each turn finds anew may be that of the turn before.
// CHECK-LABEL: tt.func @found_in_each_turn(
// CHECK: tt.int_to_ptr
// CHECK-NEXT: ditron.quiet
// CHECK-NEXT: tt.store
// CHECK-NEXT: ditron.putmem
tt.func @found_in_each_turn(%q: !tt.ptr<f32>, %x: f32, %n: i64, %r: i32) {
  %c0 = arith.constant 0 : i32
  %c1 = arith.constant 1 : i32
  scf.for %i = %c0 to %r step %c1 : i32 {
    %p = tt.int_to_ptr %n : i64 -> !tt.ptr<f32>
    // expected-warning@+1 {{a non-blocking put may still be incomplete}}
    tt.store %p, %x : !tt.ptr<f32>
    // expected-note@+1 {{a non-blocking put}}
    ditron.putmem %q, %p, %n on %i nbi : !tt.ptr<f32>, !tt.ptr<f32>
  }
  // expected-remark@+1 {{inserted 'ditron.quiet'}}
  tt.return
}
