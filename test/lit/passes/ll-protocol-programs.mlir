// RUN: ditron-opt %s --pass-pipeline='builtin.module(ll-protocol)' --split-input-file --verify-diagnostics | filecheck %s

// Each program of a rank takes messages of its own, or they stay signals.

// As many signals as ranks: each program takes its own only as long as there are no more programs than ranks.
// CHECK-LABEL: tt.func public @by_remainder(
// CHECK-SAME: ditron.packets = [{by_rank = array<i64: 0>, index = 1 : i64
tt.func public @by_remainder(%box: !tt.ptr<f32>, %sig: !tt.ptr<i64>, %epoch: i64, %peer: i32, %n: i32, %ctx: !tt.ptr<i64>) attributes {ditron.kernel} {
  %bytes = arith.constant 64 : i64
  %zero = arith.constant 0 : i32
  %one = arith.constant 1 : i32
  %two = arith.constant 2 : i32
  %rank = ditron.rank
  %ranks = ditron.num_ranks
  %pid = tt.get_program_id x : i32
  %sent = arith.addi %rank, %n : i32
  %place = tt.addptr %sig, %sent : !tt.ptr<i64>, i32
  // expected-remark@+1 {{ditron.symm_packets(..., nbytes=64); requires at most num_ranks programs along axis 0}}
  ditron.putmem_signal %box, %box, %bytes, %place set %epoch on %peer : !tt.ptr<f32>, !tt.ptr<f32>, !tt.ptr<i64>
  %around = arith.addi %rank, %ranks : i32
  %back = arith.subi %around, %pid : i32
  %from = arith.remsi %back, %ranks : i32
  %taken = arith.addi %from, %n : i32
  %theirs = tt.addptr %sig, %taken : !tt.ptr<i64>, i32
  // CHECK: ditron.ll_get
  %token = ditron.wait %theirs[%one] ge %epoch : !tt.ptr<i64>
  tt.return
}

// -----

// Which the kernel itself sees to here.
// CHECK-LABEL: tt.func public @under_a_condition(
// CHECK-SAME: ditron.packets = [{index = 1 : i64
tt.func public @under_a_condition(%box: !tt.ptr<f32>, %sig: !tt.ptr<i64>, %epoch: i64, %peer: i32, %n: i32, %ctx: !tt.ptr<i64>) attributes {ditron.kernel} {
  %bytes = arith.constant 64 : i64
  %zero = arith.constant 0 : i32
  %one = arith.constant 1 : i32
  %two = arith.constant 2 : i32
  %rank = ditron.rank
  %ranks = ditron.num_ranks
  %pid = tt.get_program_id x : i32
  %sent = arith.addi %rank, %zero : i32
  %place = tt.addptr %sig, %sent : !tt.ptr<i64>, i32
  // expected-remark@+1 {{sent as packets by protocol ll: 256 bytes per signal}}
  ditron.putmem_signal %box, %box, %bytes, %place set %epoch on %peer : !tt.ptr<f32>, !tt.ptr<f32>, !tt.ptr<i64>
  %around = arith.addi %rank, %ranks : i32
  %back = arith.subi %around, %pid : i32
  %few = arith.cmpi slt, %pid, %ranks : i32
  scf.if %few {
  %taken = arith.remsi %back, %ranks : i32
  %theirs = tt.addptr %sig, %taken : !tt.ptr<i64>, i32
  // CHECK: ditron.ll_get
  %token = ditron.wait %theirs[%one] ge %epoch : !tt.ptr<i64>
  }
  tt.return
}

// -----

// A stride of all ranks: program and sender are both known.
// CHECK-LABEL: tt.func public @by_stride(
// CHECK-SAME: ditron.packets = [{index = 1 : i64
tt.func public @by_stride(%box: !tt.ptr<f32>, %sig: !tt.ptr<i64>, %epoch: i64, %peer: i32, %n: i32, %ctx: !tt.ptr<i64>) attributes {ditron.kernel} {
  %bytes = arith.constant 64 : i64
  %zero = arith.constant 0 : i32
  %one = arith.constant 1 : i32
  %two = arith.constant 2 : i32
  %rank = ditron.rank
  %ranks = ditron.num_ranks
  %pid = tt.get_program_id x : i32
  %first = arith.muli %pid, %ranks : i32
  %sent = arith.addi %first, %rank : i32
  %place = tt.addptr %sig, %sent : !tt.ptr<i64>, i32
  // expected-remark@+1 {{sent as packets by protocol ll: 256 bytes per signal}}
  ditron.putmem_signal %box, %box, %bytes, %place set %epoch on %peer : !tt.ptr<f32>, !tt.ptr<f32>, !tt.ptr<i64>
  scf.for %p = %zero to %ranks step %one : i32 {
  %taken = arith.addi %first, %p : i32
  %theirs = tt.addptr %sig, %taken : !tt.ptr<i64>, i32
  // CHECK: ditron.ll_get
  %token = ditron.wait %theirs[%one] ge %epoch : !tt.ptr<i64>
  }
  tt.return
}

// -----

// Programs along two axes, in one number.
// CHECK-LABEL: tt.func public @two_axes(
// CHECK-SAME: ditron.packets = [{index = 1 : i64
tt.func public @two_axes(%box: !tt.ptr<f32>, %sig: !tt.ptr<i64>, %epoch: i64, %peer: i32, %n: i32, %ctx: !tt.ptr<i64>) attributes {ditron.kernel} {
  %bytes = arith.constant 64 : i64
  %zero = arith.constant 0 : i32
  %one = arith.constant 1 : i32
  %two = arith.constant 2 : i32
  %rank = ditron.rank
  %ranks = ditron.num_ranks
  %pid = tt.get_program_id x : i32
  %cols = tt.get_num_programs y : i32
  %col = tt.get_program_id y : i32
  %row = arith.muli %pid, %cols : i32
  %number = arith.addi %row, %col : i32
  %first = arith.muli %number, %ranks : i32
  %sent = arith.addi %first, %rank : i32
  %place = tt.addptr %sig, %sent : !tt.ptr<i64>, i32
  // expected-remark@+1 {{sent as packets by protocol ll: 256 bytes per signal}}
  ditron.putmem_signal %box, %box, %bytes, %place set %epoch on %peer : !tt.ptr<f32>, !tt.ptr<f32>, !tt.ptr<i64>
  %taken = arith.addi %first, %peer : i32
  %theirs = tt.addptr %sig, %taken : !tt.ptr<i64>, i32
  // CHECK: ditron.ll_get
  %token = ditron.wait %theirs[%one] ge %epoch : !tt.ptr<i64>
  tt.return
}

// -----

// The same programs, and nothing says that a row has no more than n.
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

// A stride of all ranks, and a sender that is a rank if there are no more programs than ranks along the other axis.
// CHECK-LABEL: tt.func public @by_stride_and_remainder(
// CHECK-SAME: ditron.packets = [{by_rank = array<i64: 1>, index = 1 : i64
tt.func public @by_stride_and_remainder(%box: !tt.ptr<f32>, %sig: !tt.ptr<i64>, %epoch: i64, %peer: i32, %n: i32, %ctx: !tt.ptr<i64>) attributes {ditron.kernel} {
  %bytes = arith.constant 64 : i64
  %one = arith.constant 1 : i32
  %rank = ditron.rank
  %ranks = ditron.num_ranks
  %chunk = tt.get_program_id x : i32
  %distance = tt.get_program_id y : i32
  %first = arith.muli %chunk, %ranks : i32
  %sent = arith.addi %first, %rank : i32
  %place = tt.addptr %sig, %sent : !tt.ptr<i64>, i32
  // expected-remark@+1 {{; requires at most num_ranks programs along axis 1}}
  ditron.putmem_signal %box, %box, %bytes, %place set %epoch on %peer : !tt.ptr<f32>, !tt.ptr<f32>, !tt.ptr<i64>
  %around = arith.addi %rank, %ranks : i32
  %back = arith.subi %around, %distance : i32
  %from = arith.remsi %back, %ranks : i32
  %taken = arith.addi %first, %from : i32
  %theirs = tt.addptr %sig, %taken : !tt.ptr<i64>, i32
  // CHECK: ditron.ll_get
  %token = ditron.wait %theirs[%one] ge %epoch : !tt.ptr<i64>
  tt.return
}

// -----

// With a stride of as many programs it is neither: what is taken together with program 1 may be less than 0.
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
