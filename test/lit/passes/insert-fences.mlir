// A signal is ordered after the stores, puts and loads before it, and the kernel's end after all it sends.
// RUN: ditron-opt %s --insert-fences --verify-diagnostics | filecheck %s
// RUN: ditron-opt %s --insert-fences --mlir-pass-statistics -o %t 2>&1 | filecheck %s --check-prefix=COUNT
// RUN: ditron-opt %t --insert-fences --mlir-pass-statistics -o %t.again 2>&1 | filecheck %s --check-prefix=AGAIN

// COUNT-DAG: 12  insert-fences: fences inserted
// COUNT-DAG: 8  insert-fences: quiets inserted

// What is there is not inserted again.
// AGAIN-NOT: inserted
// AGAIN: pass statistics
// AGAIN-NOT: inserted

// CHECK-LABEL: tt.func @put_then_signal(
// CHECK: ditron.putmem
// CHECK-NEXT: ditron.fence
// CHECK-NEXT: ditron.signal_op
// CHECK-NEXT: ditron.quiet{{$}}
// CHECK-NEXT: tt.return
tt.func @put_then_signal(%dst: !tt.ptr<f32>, %src: !tt.ptr<f32>, %sig: !tt.ptr<i64>, %v: i64, %r: i32) {
  // expected-note@+2 {{a put}}
  // expected-note@+1 {{a non-blocking put}}
  ditron.putmem %dst, %src, %v on %r nbi : !tt.ptr<f32>, !tt.ptr<f32>
  // expected-remark@+1 {{inserted 'ditron.fence' before this operation: a put may still be unordered}}
  ditron.signal_op %sig set %v on %r : !tt.ptr<i64>
  // expected-remark@+1 {{inserted 'ditron.quiet' before the end of the kernel}}
  tt.return
}

// The put is what the quiet has to complete, wherever the signal is.
// CHECK-LABEL: tt.func @signal_then_put(
// CHECK: ditron.putmem
// CHECK-NEXT: ditron.quiet{{$}}
// CHECK-NEXT: tt.return
tt.func @signal_then_put(%dst: !tt.ptr<f32>, %src: !tt.ptr<f32>, %sig: !tt.ptr<i64>, %v: i64, %r: i32) {
  ditron.signal_op %sig set %v on %r : !tt.ptr<i64>
  // expected-note@+1 {{a non-blocking put}}
  ditron.putmem %dst, %src, %v on %r nbi : !tt.ptr<f32>, !tt.ptr<f32>
  // expected-remark@+1 {{inserted 'ditron.quiet' before the end of the kernel}}
  tt.return
}

// Stores of all threads, here or through symm_at, then a signal by one.
// CHECK-LABEL: tt.func @store_then_signal(
// CHECK: tt.store
// CHECK-NEXT: ditron.fence
// CHECK-NEXT: ditron.signal_op
// CHECK-NEXT: ditron.symm_at
// CHECK-NEXT: tt.store
// CHECK-NEXT: ditron.fence
// CHECK-NEXT: ditron.signal_op
// CHECK-NEXT: ditron.quiet {ditron.signals_at_end}
tt.func @store_then_signal(%p: !tt.ptr<f32>, %x: f32, %sig: !tt.ptr<i64>, %v: i64, %r: i32) {
  // expected-note@+1 {{a store}}
  tt.store %p, %x : !tt.ptr<f32>
  // expected-remark@+2 {{a store may still be unordered}}
  // expected-note@+1 {{a signal in flight}}
  ditron.signal_op %sig set %v on %r : !tt.ptr<i64>
  %q = ditron.symm_at %p on %r : !tt.ptr<f32>
  // expected-note@+1 {{a store to another rank}}
  tt.store %q, %x : !tt.ptr<f32>
  // expected-remark@+1 {{a store to another rank may still be unordered}}
  ditron.signal_op %sig set %v on %r : !tt.ptr<i64>
  // expected-remark@+1 {{inserted 'ditron.quiet' before the end of the kernel}}
  tt.return
}

// A relaxed flag orders nothing, a release no puts, which travel another way. What is no flag needs nothing.
// CHECK-LABEL: tt.func @flags(
// CHECK: tt.store
// CHECK-NEXT: ditron.fence
// CHECK-NEXT: ditron.st
// CHECK-NEXT: tt.store
// CHECK-NEXT: ditron.st %{{.*}} semantic release
// CHECK-NEXT: ditron.fence
// CHECK-NEXT: ditron.red
// CHECK-NEXT: ditron.putmem
// CHECK-NEXT: ditron.quiet
// CHECK-NEXT: ditron.atomic_add
// CHECK-NEXT: ditron.st
// CHECK-NEXT: ditron.wait
tt.func @flags(%p: !tt.ptr<f32>, %x: f32, %sig: !tt.ptr<i64>, %v: i64, %data: !tt.ptr<i32>, %r: i32) {
  %c1 = arith.constant 1 : i32
  %there = ditron.symm_at %sig on %r : !tt.ptr<i64>
  // expected-note@+1 {{a store}}
  tt.store %p, %x : !tt.ptr<f32>
  // expected-remark@+1 {{inserted 'ditron.fence'}}
  ditron.st %there, %v scope node : !tt.ptr<i64>
  // expected-note@+1 {{a store}}
  tt.store %p, %x : !tt.ptr<f32>
  ditron.st %there, %v scope node semantic release : !tt.ptr<i64>
  // expected-remark@+1 {{inserted 'ditron.fence'}}
  ditron.red %sig add %v : !tt.ptr<i64>
  // expected-note@+1 {{a put}}
  ditron.putmem %p, %p, %v on %r : !tt.ptr<f32>, !tt.ptr<f32>
  // expected-remark@+1 {{inserted 'ditron.quiet' before this operation: a put may still be incomplete}}
  %old = ditron.atomic_add %there, %v scope node semantic acq_rel : !tt.ptr<i64>
  ditron.st %data, %c1 : !tt.ptr<i32>
  %t = ditron.wait %sig[%c1] ge %v : !tt.ptr<i64>
  tt.return
}

// The signal of a put speaks for its own data: not for an earlier put, but the source may have been stored just now.
// CHECK-LABEL: tt.func @put_with_signal(
// CHECK: tt.store
// CHECK-NEXT: ditron.putmem_signal
// CHECK-NEXT: ditron.putmem
// CHECK-NEXT: ditron.fence
// CHECK-NEXT: ditron.putmem_signal
// CHECK-NEXT: ditron.quiet
tt.func @put_with_signal(%dst: !tt.ptr<f32>, %src: !tt.ptr<f32>, %x: f32, %sig: !tt.ptr<i64>, %v: i64, %r: i32) {
  tt.store %src, %x : !tt.ptr<f32>
  // expected-note@+1 {{a signal in flight}}
  ditron.putmem_signal %dst, %src, %v, %sig set %v on %r : !tt.ptr<f32>, !tt.ptr<f32>, !tt.ptr<i64>
  // expected-note@+1 {{a put}}
  ditron.putmem %dst, %src, %v on %r : !tt.ptr<f32>, !tt.ptr<f32>
  // expected-remark@+1 {{inserted 'ditron.fence'}}
  ditron.putmem_signal %dst, %src, %v, %sig set %v on %r : !tt.ptr<f32>, !tt.ptr<f32>, !tt.ptr<i64>
  // expected-remark@+1 {{inserted 'ditron.quiet'}}
  tt.return
}

// The place is free for the next only once it has been read.
// CHECK-LABEL: tt.func @load_then_credit(
// CHECK: ditron.wait
// CHECK-NEXT: tt.load
// CHECK-NEXT: ditron.fence
// CHECK-NEXT: ditron.signal_op
// CHECK-NEXT: ditron.quiet
tt.func @load_then_credit(%p: !tt.ptr<f32>, %sig: !tt.ptr<i64>, %v: i64, %r: i32) -> f32 {
  %c1 = arith.constant 1 : i32
  %y = tt.load %p : !tt.ptr<f32>
  %t = ditron.wait %sig[%c1] ge %v : !tt.ptr<i64>
  // expected-note@+1 {{a load after a wait}}
  %x = tt.load %p : !tt.ptr<f32>
  // expected-remark@+2 {{a load after a wait may still be unordered}}
  // expected-note@+1 {{a signal in flight}}
  ditron.signal_op %sig set %v on %r : !tt.ptr<i64>
  // expected-remark@+1 {{inserted 'ditron.quiet'}}
  tt.return %x : f32
}

// A notify orders what goes to its rank, not what goes to another, nor what an earlier turn sent.
// CHECK-LABEL: tt.func @notifies(
// CHECK: ditron.putmem
// CHECK-NEXT: ditron.notify
// CHECK-NEXT: ditron.signal_op
// CHECK-NEXT: ditron.putmem
// CHECK-NEXT: ditron.notify
// CHECK-NEXT: ditron.fence
// CHECK-NEXT: ditron.signal_op
// CHECK-NEXT: scf.for
// CHECK-NEXT: ditron.notify
// CHECK-NEXT: ditron.putmem
// CHECK-NEXT: }
// CHECK-NEXT: ditron.fence
// CHECK-NEXT: ditron.signal_op
// CHECK-NEXT: ditron.quiet
tt.func @notifies(%p: !tt.ptr<f32>, %sig: !tt.ptr<i64>, %other: !tt.ptr<i64>, %v: i64, %a: i32, %b: i32) {
  %c0 = arith.constant 0 : i32
  %c1 = arith.constant 1 : i32
  ditron.putmem %p, %p, %v on %a : !tt.ptr<f32>, !tt.ptr<f32>
  // expected-note@+1 {{a signal in flight}}
  ditron.notify %sig set %v on %a : !tt.ptr<i64>
  ditron.signal_op %other set %v on %a : !tt.ptr<i64>
  // expected-note@+1 {{a put}}
  ditron.putmem %p, %p, %v on %b : !tt.ptr<f32>, !tt.ptr<f32>
  ditron.notify %sig set %v on %a : !tt.ptr<i64>
  // expected-remark@+1 {{inserted 'ditron.fence'}}
  ditron.signal_op %sig set %v on %b : !tt.ptr<i64>
  scf.for %r = %c0 to %a step %c1 : i32 {
    ditron.notify %sig set %v on %r : !tt.ptr<i64>
    // expected-note@+1 {{a put}}
    ditron.putmem %p, %p, %v on %r : !tt.ptr<f32>, !tt.ptr<f32>
  }
  // expected-remark@+1 {{inserted 'ditron.fence'}}
  ditron.signal_op %sig set %v on %b : !tt.ptr<i64>
  // expected-remark@+1 {{inserted 'ditron.quiet'}}
  tt.return
}

// A notify to this rank may be of scope gpu: it orders nothing for others. An acquiring load gives data as a wait does,
// and so does a barrier.
// CHECK-LABEL: tt.func @acquired(
// CHECK: tt.store
// CHECK-NEXT: ditron.notify
// CHECK-NEXT: ditron.fence
// CHECK-NEXT: ditron.signal_op
// CHECK-NEXT: ditron.ld
// CHECK-NEXT: tt.load
// CHECK-NEXT: ditron.fence
// CHECK-NEXT: ditron.signal_op
// CHECK-NEXT: ditron.barrier_all
// CHECK-NEXT: tt.load
// CHECK-NEXT: ditron.fence
// CHECK-NEXT: ditron.signal_op
// CHECK-NEXT: ditron.quiet
tt.func @acquired(%p: !tt.ptr<f32>, %x: f32, %sig: !tt.ptr<i64>, %flag: !tt.ptr<i64>, %v: i64, %r: i32) {
  %rank = ditron.rank
  // expected-note@+1 {{a store}}
  tt.store %p, %x : !tt.ptr<f32>
  ditron.notify %flag set %v on %rank : !tt.ptr<i64>
  // expected-remark@+1 {{a store may still be unordered}}
  ditron.signal_op %sig set %v on %r : !tt.ptr<i64>
  %seen = ditron.ld %flag scope node semantic acquire : !tt.ptr<i64>
  // expected-note@+1 {{a load after a wait}}
  %y = tt.load %p {isVolatile = true} : !tt.ptr<f32>
  // expected-remark@+1 {{a load after a wait may still be unordered}}
  ditron.signal_op %sig set %v on %r : !tt.ptr<i64>
  ditron.barrier_all
  // expected-note@+1 {{a load after a wait}}
  %z = tt.load %p {isVolatile = true} : !tt.ptr<f32>
  // expected-remark@+2 {{a load after a wait may still be unordered}}
  // expected-note@+1 {{a signal in flight}}
  ditron.signal_op %sig set %v on %r : !tt.ptr<i64>
  // expected-remark@+1 {{inserted 'ditron.quiet'}}
  tt.return
}

// Nothing is missing: a fence, a quiet, a barrier between; puts to come; a kernel that does not communicate.
// CHECK-LABEL: tt.func @complete(
// CHECK-COUNT-1: ditron.fence
// CHECK-NOT: ditron.fence
// CHECK: ditron.quiet
// CHECK-NOT: ditron.fence
// CHECK: ditron.barrier_all
// CHECK-NOT: ditron.{{fence|quiet}}
// CHECK: tt.return
tt.func @complete(%p: !tt.ptr<f32>, %x: f32, %sig: !tt.ptr<i64>, %v: i64, %r: i32) {
  ditron.signal_op %sig set %v on %r : !tt.ptr<i64>
  tt.store %p, %x : !tt.ptr<f32>
  ditron.fence
  ditron.signal_op %sig set %v on %r : !tt.ptr<i64>
  ditron.putmem %p, %p, %v on %r nbi : !tt.ptr<f32>, !tt.ptr<f32>
  ditron.quiet
  ditron.signal_op %sig set %v on %r : !tt.ptr<i64>
  ditron.putmem %p, %p, %v on %r nbi : !tt.ptr<f32>, !tt.ptr<f32>
  ditron.barrier_all
  tt.store %p, %x : !tt.ptr<f32>
  tt.return
}
