// Each program of a rank waits for signals of its own: they become packets.
// RUN: ditron-opt %s --pass-pipeline='builtin.module(ll-protocol)' --split-input-file --verify-diagnostics | filecheck %s

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
