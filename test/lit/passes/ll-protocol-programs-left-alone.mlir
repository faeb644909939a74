// Several programs of a rank may wait for one message: it stays a signal.
// RUN: ditron-opt %s --pass-pipeline='builtin.module(ll-protocol)' --split-input-file --verify-diagnostics | filecheck %s

// Programs along two axes, and nothing says that a row has no more than n.
// CHECK-LABEL: tt.func public @two_axes_of_any_size(
tt.func public @two_axes_of_any_size(%box: !tt.ptr<f32>, %sig: !tt.ptr<i64>, %epoch: i64, %peer: i32, %n: i32, %ctx: !tt.ptr<i64>) attributes {ditron.kernel} {
  %bytes = arith.constant 64 : i64
  %zero = arith.constant 0 : i32
  %one = arith.constant 1 : i32
  %two = arith.constant 2 : i32
  %rank = ditron.rank
  %ranks = ditron.num_ranks
  %pid = tt.get_program_id x : i32
  %col = tt.get_program_id y : i32
  %row = arith.muli %pid, %n : i32
  %at = arith.addi %row, %col : i32
  %place = tt.addptr %sig, %at : !tt.ptr<i64>, i32
  ditron.putmem_signal %box, %box, %bytes, %place set %epoch on %peer : !tt.ptr<f32>, !tt.ptr<f32>, !tt.ptr<i64>
  // CHECK: ditron.wait
  // expected-remark@+1 {{not converted to packets: several programs may wait for it, but a message has one consumer; give each program its own signals: sig + program_id * num_ranks + rank}}
  %token = ditron.wait %place[%one] ge %epoch : !tt.ptr<i64>
  tt.return
}

// -----

// Programs 0 and num_ranks / 2 would take one message.
// CHECK-LABEL: tt.func public @every_other(
tt.func public @every_other(%box: !tt.ptr<f32>, %sig: !tt.ptr<i64>, %epoch: i64, %peer: i32, %n: i32, %ctx: !tt.ptr<i64>) attributes {ditron.kernel} {
  %bytes = arith.constant 64 : i64
  %zero = arith.constant 0 : i32
  %one = arith.constant 1 : i32
  %two = arith.constant 2 : i32
  %rank = ditron.rank
  %ranks = ditron.num_ranks
  %pid = tt.get_program_id x : i32
  %sent = arith.addi %rank, %zero : i32
  %place = tt.addptr %sig, %sent : !tt.ptr<i64>, i32
  ditron.putmem_signal %box, %box, %bytes, %place set %epoch on %peer : !tt.ptr<f32>, !tt.ptr<f32>, !tt.ptr<i64>
  %twice = arith.muli %pid, %two : i32
  %taken = arith.remsi %twice, %ranks : i32
  %theirs = tt.addptr %sig, %taken : !tt.ptr<i64>, i32
  // CHECK: ditron.wait
  // expected-remark@+1 {{not converted to packets: several programs may wait for it, but a message has one consumer; give each program its own signals: sig + program_id * num_ranks + rank}}
  %token = ditron.wait %theirs[%one] ge %epoch : !tt.ptr<i64>
  tt.return
}

// -----

// Program 0's sender 1 is program 1's sender 0.
// CHECK-LABEL: tt.func public @side_by_side(
tt.func public @side_by_side(%box: !tt.ptr<f32>, %sig: !tt.ptr<i64>, %epoch: i64, %peer: i32, %n: i32, %ctx: !tt.ptr<i64>) attributes {ditron.kernel} {
  %bytes = arith.constant 64 : i64
  %zero = arith.constant 0 : i32
  %one = arith.constant 1 : i32
  %two = arith.constant 2 : i32
  %rank = ditron.rank
  %ranks = ditron.num_ranks
  %pid = tt.get_program_id x : i32
  %sent = arith.addi %pid, %rank : i32
  %place = tt.addptr %sig, %sent : !tt.ptr<i64>, i32
  ditron.putmem_signal %box, %box, %bytes, %place set %epoch on %peer : !tt.ptr<f32>, !tt.ptr<f32>, !tt.ptr<i64>
  scf.for %p = %zero to %ranks step %one : i32 {
  %taken = arith.addi %pid, %p : i32
  %theirs = tt.addptr %sig, %taken : !tt.ptr<i64>, i32
  // CHECK: ditron.wait
  // expected-remark@+1 {{not converted to packets: several programs may wait for it, but a message has one consumer; give each program its own signals: sig + program_id * num_ranks + rank}}
  %token = ditron.wait %theirs[%one] ge %epoch : !tt.ptr<i64>
  }
  tt.return
}

// -----

// A stride that may be 0.
// CHECK-LABEL: tt.func public @any_stride(
tt.func public @any_stride(%box: !tt.ptr<f32>, %sig: !tt.ptr<i64>, %epoch: i64, %peer: i32, %n: i32, %ctx: !tt.ptr<i64>) attributes {ditron.kernel} {
  %bytes = arith.constant 64 : i64
  %zero = arith.constant 0 : i32
  %one = arith.constant 1 : i32
  %two = arith.constant 2 : i32
  %rank = ditron.rank
  %ranks = ditron.num_ranks
  %pid = tt.get_program_id x : i32
  %at = arith.muli %pid, %n : i32
  %place = tt.addptr %sig, %at : !tt.ptr<i64>, i32
  ditron.putmem_signal %box, %box, %bytes, %place set %epoch on %peer : !tt.ptr<f32>, !tt.ptr<f32>, !tt.ptr<i64>
  // CHECK: ditron.wait
  // expected-remark@+1 {{not converted to packets: several programs may wait for it, but a message has one consumer; give each program its own signals: sig + program_id * num_ranks + rank}}
  %token = ditron.wait %place[%one] ge %epoch : !tt.ptr<i64>
  tt.return
}

// -----

// A stride of all ranks, and a sender at a distance from this rank: what is taken together with program 1 may be less
// than 0.
// CHECK-LABEL: tt.func public @by_stride_and_distance(
tt.func public @by_stride_and_distance(%box: !tt.ptr<f32>, %sig: !tt.ptr<i64>, %epoch: i64, %peer: i32, %n: i32, %ctx: !tt.ptr<i64>) attributes {ditron.kernel} {
  %bytes = arith.constant 64 : i64
  %one = arith.constant 1 : i32
  %rank = ditron.rank
  %ranks = ditron.num_ranks
  %chunk = tt.get_program_id x : i32
  %distance = tt.get_program_id y : i32
  %first = arith.muli %chunk, %ranks : i32
  %back = arith.subi %rank, %distance : i32
  %from = arith.remsi %back, %ranks : i32
  %taken = arith.addi %first, %from : i32
  %theirs = tt.addptr %sig, %taken : !tt.ptr<i64>, i32
  ditron.putmem_signal %box, %box, %bytes, %theirs set %epoch on %peer : !tt.ptr<f32>, !tt.ptr<f32>, !tt.ptr<i64>
  // CHECK: ditron.wait
  // expected-remark@+1 {{not converted to packets: several programs may wait for it}}
  %token = ditron.wait %theirs[%one] ge %epoch : !tt.ptr<i64>
  tt.return
}
