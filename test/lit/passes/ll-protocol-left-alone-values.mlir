// Stays a signal: its value is not an epoch that the wait compares with, or the size has no bound.
// RUN: ditron-opt %s --pass-pipeline='builtin.module(ll-protocol)' --split-input-file --verify-diagnostics | filecheck %s
// RUN: ditron-opt %s --pass-pipeline='builtin.module(ll-protocol)' --split-input-file 2>/dev/null | not grep ditron.ll_

// CHECK: tt.func public @added_up(
tt.func public @added_up(%box: !tt.ptr<f32>, %sig: !tt.ptr<i64>, %epoch: i64, %peer: i32, %ctx: !tt.ptr<i64>) attributes {ditron.kernel} {
  %bytes = arith.constant 64 : i64
  %one = arith.constant 1 : i32
  // expected-remark@+1 {{not converted to packets: it is updated by add; set it to the epoch, with one signal for each sender}}
  ditron.putmem_signal %box, %box, %bytes, %sig add %epoch on %peer : !tt.ptr<f32>, !tt.ptr<f32>, !tt.ptr<i64>
  %token = ditron.wait %sig[%one] ge %epoch : !tt.ptr<i64>
  tt.return
}

// -----

// CHECK: tt.func public @another_value(
tt.func public @another_value(%box: !tt.ptr<f32>, %sig: !tt.ptr<i64>, %epoch: i64, %other: i64, %peer: i32, %ctx: !tt.ptr<i64>) attributes {ditron.kernel} {
  %bytes = arith.constant 64 : i64
  %one = arith.constant 1 : i32
  ditron.putmem_signal %box, %box, %bytes, %sig set %epoch on %peer : !tt.ptr<f32>, !tt.ptr<f32>, !tt.ptr<i64>
  // expected-remark@+1 {{not converted to packets: it waits for a different value than the put sets}}
  %token = ditron.wait %sig[%one] ge %other : !tt.ptr<i64>
  tt.return
}

// -----

// CHECK: tt.func public @another_comparison(
tt.func public @another_comparison(%box: !tt.ptr<f32>, %sig: !tt.ptr<i64>, %epoch: i64, %peer: i32, %ctx: !tt.ptr<i64>) attributes {ditron.kernel} {
  %bytes = arith.constant 64 : i64
  %one = arith.constant 1 : i32
  ditron.putmem_signal %box, %box, %bytes, %sig set %epoch on %peer : !tt.ptr<f32>, !tt.ptr<f32>, !tt.ptr<i64>
  // expected-remark@+1 {{not converted to packets: a wait compares it by other than ge and eq}}
  %token = ditron.wait %sig[%one] gt %epoch : !tt.ptr<i64>
  tt.return
}

// -----

// CHECK: tt.func public @constant_epoch(
tt.func public @constant_epoch(%box: !tt.ptr<f32>, %sig: !tt.ptr<i64>, %peer: i32, %ctx: !tt.ptr<i64>) attributes {ditron.kernel} {
  %bytes = arith.constant 64 : i64
  %epoch = arith.constant 1 : i64
  %one = arith.constant 1 : i32
  // expected-remark@+1 {{not converted to packets: its value must be an epoch that increases with each call}}
  ditron.putmem_signal %box, %box, %bytes, %sig set %epoch on %peer : !tt.ptr<f32>, !tt.ptr<f32>, !tt.ptr<i64>
  %token = ditron.wait %sig[%one] ge %epoch : !tt.ptr<i64>
  tt.return
}

// -----

// A number that an if decides by the rank is another on each: not an epoch.
// CHECK: tt.func public @decided_by_rank(
tt.func public @decided_by_rank(%box: !tt.ptr<f32>, %sig: !tt.ptr<i64>, %epoch: i64, %other: i64, %peer: i32, %ctx: !tt.ptr<i64>) attributes {ditron.kernel} {
  %bytes = arith.constant 64 : i64
  %one = arith.constant 1 : i32
  %rank = ditron.rank
  %first = arith.cmpi slt, %rank, %one : i32
  %value = scf.if %first -> i64 {
    scf.yield %epoch : i64
  } else {
    scf.yield %other : i64
  }
  // expected-remark@+1 {{not converted to packets: its value must be an epoch that increases with each call and is the same on all ranks}}
  ditron.putmem_signal %box, %box, %bytes, %sig set %value on %peer : !tt.ptr<f32>, !tt.ptr<f32>, !tt.ptr<i64>
  %token = ditron.wait %sig[%one] ge %value : !tt.ptr<i64>
  tt.return
}

// -----

// One that another way through the kernel brings, too.
// CHECK: tt.func public @brought_by_a_branch(
tt.func public @brought_by_a_branch(%box: !tt.ptr<f32>, %sig: !tt.ptr<i64>, %epoch: i64, %other: i64, %peer: i32, %ctx: !tt.ptr<i64>) attributes {ditron.kernel} {
  %bytes = arith.constant 64 : i64
  %one = arith.constant 1 : i32
  %rank = ditron.rank
  %first = arith.cmpi slt, %rank, %one : i32
  cf.cond_br %first, ^bb1(%epoch : i64), ^bb1(%other : i64)
^bb1(%value: i64):
  // expected-remark@+1 {{not converted to packets: its value must be an epoch that increases with each call and is the same on all ranks}}
  ditron.putmem_signal %box, %box, %bytes, %sig set %value on %peer : !tt.ptr<f32>, !tt.ptr<f32>, !tt.ptr<i64>
  %token = ditron.wait %sig[%one] ge %value : !tt.ptr<i64>
  tt.return
}

// -----

// CHECK: tt.func public @no_bound(
tt.func public @no_bound(%box: !tt.ptr<f32>, %sig: !tt.ptr<i64>, %epoch: i64, %bytes: i64, %peer: i32, %ctx: !tt.ptr<i64>) attributes {ditron.kernel} {
  %one = arith.constant 1 : i32
  // expected-remark@+1 {{not converted to packets: the number of bytes has no upper bound at compile time; send tl.minimum(n, BOUND) bytes}}
  ditron.putmem_signal %box, %box, %bytes, %sig set %epoch on %peer : !tt.ptr<f32>, !tt.ptr<f32>, !tt.ptr<i64>
  %token = ditron.wait %sig[%one] ge %epoch : !tt.ptr<i64>
  tt.return
}

// -----

// Less than 0 becomes much when it is taken to have no sign.
// CHECK: tt.func public @no_bound_without_a_sign(
tt.func public @no_bound_without_a_sign(%box: !tt.ptr<f32>, %sig: !tt.ptr<i64>, %epoch: i64, %left: i32, %peer: i32, %ctx: !tt.ptr<i64>) attributes {ditron.kernel} {
  %one = arith.constant 1 : i32
  %most = arith.constant 64 : i32
  %some = arith.minsi %left, %most : i32
  %bytes = arith.extui %some : i32 to i64
  // expected-remark@+1 {{not converted to packets: the number of bytes has no upper bound at compile time}}
  ditron.putmem_signal %box, %box, %bytes, %sig set %epoch on %peer : !tt.ptr<f32>, !tt.ptr<f32>, !tt.ptr<i64>
  %token = ditron.wait %sig[%one] ge %epoch : !tt.ptr<i64>
  tt.return
}

// -----

// CHECK: tt.func public @too_large(
tt.func public @too_large(%box: !tt.ptr<f32>, %sig: !tt.ptr<i64>, %epoch: i64, %peer: i32, %ctx: !tt.ptr<i64>) attributes {ditron.kernel} {
  %bytes = arith.constant 1048576 : i64
  %one = arith.constant 1 : i32
  // expected-remark@+1 {{not converted to packets: a message may have 1048576 bytes, more than max-bytes=65536}}
  ditron.putmem_signal %box, %box, %bytes, %sig set %epoch on %peer : !tt.ptr<f32>, !tt.ptr<f32>, !tt.ptr<i64>
  %token = ditron.wait %sig[%one] ge %epoch : !tt.ptr<i64>
  tt.return
}
