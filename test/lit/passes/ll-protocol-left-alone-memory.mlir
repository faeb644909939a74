// Stays a signal: it orders other accesses, or its memory or the put's destination is accessed otherwise.
// RUN: ditron-opt %s --pass-pipeline='builtin.module(ll-protocol)' --split-input-file --verify-diagnostics | filecheck %s
// RUN: ditron-opt %s --pass-pipeline='builtin.module(ll-protocol)' --split-input-file 2>/dev/null | not grep ditron.ll_

// What the signal orders besides the put.
// CHECK: tt.func public @orders_a_store(
tt.func public @orders_a_store(%box: !tt.ptr<f32>, %sig: !tt.ptr<i64>, %epoch: i64, %peer: i32, %ctx: !tt.ptr<i64>) attributes {ditron.kernel} {
  %bytes = arith.constant 64 : i64
  %one = arith.constant 1 : i32
  %x = arith.constant 1.0 : f32
  // expected-remark@+1 {{not converted to packets: 'ditron.symm_at' accesses other ranks' memory, which the signal may order and a packet does not}}
  %there = ditron.symm_at %box on %peer : !tt.ptr<f32>
  tt.store %there, %x : !tt.ptr<f32>
  ditron.putmem_signal %box, %box, %bytes, %sig set %epoch on %peer : !tt.ptr<f32>, !tt.ptr<f32>, !tt.ptr<i64>
  %token = ditron.wait %sig[%one] ge %epoch : !tt.ptr<i64>
  tt.return
}

// -----

// CHECK: tt.func public @reads_before(
tt.func public @reads_before(%x: !tt.ptr<f32>, %box: !tt.ptr<f32>, %sig: !tt.ptr<i64>, %epoch: i64, %peer: i32, %ctx: !tt.ptr<i64>) attributes {ditron.kernel} {
  %bytes = arith.constant 64 : i64
  %one = arith.constant 1 : i32
  ditron.putmem_signal %box, %x, %bytes, %sig set %epoch on %peer : !tt.ptr<f32>, !tt.ptr<f32>, !tt.ptr<i64>
  ditron.barrier_all
  // expected-remark@+1 {{not converted to packets: it may read the destination of the put before the wait}}
  %v = tt.load %box : !tt.ptr<f32>
  %token = ditron.wait %sig[%one] ge %epoch : !tt.ptr<i64>
  tt.return
}

// -----

// CHECK: tt.func public @signal_used_otherwise(
tt.func public @signal_used_otherwise(%box: !tt.ptr<f32>, %sig: !tt.ptr<i64>, %epoch: i64, %peer: i32, %ctx: !tt.ptr<i64>) attributes {ditron.kernel} {
  %bytes = arith.constant 64 : i64
  %one = arith.constant 1 : i32
  ditron.putmem_signal %box, %box, %bytes, %sig set %epoch on %peer : !tt.ptr<f32>, !tt.ptr<f32>, !tt.ptr<i64>
  %token = ditron.wait %sig[%one] ge %epoch : !tt.ptr<i64>
  // expected-remark@+1 {{not converted to packets: 'ditron.ld' uses the signal's memory in another way}}
  %seen = ditron.ld %sig : !tt.ptr<i64>
  tt.return
}

// -----

// A credit alone: nobody's data comes with it, and there is nothing to say.
// CHECK: tt.func public @credit(
tt.func public @credit(%sig: !tt.ptr<i64>, %epoch: i64, %peer: i32, %ctx: !tt.ptr<i64>) attributes {ditron.kernel} {
  %one = arith.constant 1 : i32
  %token = ditron.wait %sig[%one] ge %epoch : !tt.ptr<i64>
  ditron.notify %sig set %epoch on %peer : !tt.ptr<i64>
  tt.return
}
