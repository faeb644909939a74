// Stays a signal: not every message is waited for once, by one program.
// RUN: ditron-opt %s --pass-pipeline='builtin.module(ll-protocol)' --split-input-file --verify-diagnostics | filecheck %s
// RUN: ditron-opt %s --pass-pipeline='builtin.module(ll-protocol)' --split-input-file 2>/dev/null | not grep ditron.ll_

// CHECK: tt.func public @nobody_waits(
tt.func public @nobody_waits(%box: !tt.ptr<f32>, %sig: !tt.ptr<i64>, %epoch: i64, %peer: i32, %ctx: !tt.ptr<i64>) attributes {ditron.kernel} {
  %bytes = arith.constant 64 : i64
  // expected-remark@+1 {{not converted to packets: no wait of this kernel matches it}}
  ditron.putmem_signal %box, %box, %bytes, %sig set %epoch on %peer : !tt.ptr<f32>, !tt.ptr<f32>, !tt.ptr<i64>
  // CHECK: ditron.quiet
  ditron.quiet
  tt.return
}

// -----

// Every program would take the message.
// CHECK: tt.func public @shared_by_programs(
tt.func public @shared_by_programs(%box: !tt.ptr<f32>, %sig: !tt.ptr<i64>, %epoch: i64, %peer: i32, %ctx: !tt.ptr<i64>) attributes {ditron.kernel} {
  %bytes = arith.constant 64 : i64
  %one = arith.constant 1 : i32
  %two = arith.constant 2 : i32
  %pid = tt.get_program_id x : i32
  %pair = arith.divsi %pid, %two : i32
  %place = tt.addptr %sig, %pair : !tt.ptr<i64>, i32
  ditron.putmem_signal %box, %box, %bytes, %place set %epoch on %peer : !tt.ptr<f32>, !tt.ptr<f32>, !tt.ptr<i64>
  // expected-remark@+1 {{not converted to packets: several programs may wait for it, but a message has one consumer}}
  %token = ditron.wait %place[%one] ge %epoch : !tt.ptr<i64>
  tt.return
}

// -----

// Programs that a called function tells apart: each may wait.
tt.func private @who() -> i32 {
  %pid = tt.get_program_id x : i32
  tt.return %pid : i32
}
// CHECK: tt.func public @programs_of_a_function(
tt.func public @programs_of_a_function(%box: !tt.ptr<f32>, %sig: !tt.ptr<i64>, %epoch: i64, %peer: i32, %ctx: !tt.ptr<i64>) attributes {ditron.kernel} {
  %bytes = arith.constant 64 : i64
  %one = arith.constant 1 : i32
  %pid = tt.call @who() : () -> i32
  ditron.putmem_signal %box, %box, %bytes, %sig set %epoch on %peer : !tt.ptr<f32>, !tt.ptr<f32>, !tt.ptr<i64>
  // expected-remark@+1 {{not converted to packets: several programs may wait for it}}
  %token = ditron.wait %sig[%one] ge %epoch : !tt.ptr<i64>
  tt.return
}

// -----

// What is sent to ranks that do not wait would never arrive.
// CHECK: tt.func public @one_rank_waits(
tt.func public @one_rank_waits(%box: !tt.ptr<f32>, %sig: !tt.ptr<i64>, %epoch: i64, %ctx: !tt.ptr<i64>) attributes {ditron.kernel} {
  %bytes = arith.constant 64 : i64
  %zero = arith.constant 0 : i32
  %one = arith.constant 1 : i32
  %rank = ditron.rank
  %n = ditron.num_ranks
  %next = arith.addi %rank, %one : i32
  %to = arith.remsi %next, %n : i32
  %mine = tt.addptr %box, %rank : !tt.ptr<f32>, i32
  %place = tt.addptr %sig, %rank : !tt.ptr<i64>, i32
  ditron.putmem_signal %mine, %box, %bytes, %place set %epoch on %to : !tt.ptr<f32>, !tt.ptr<f32>, !tt.ptr<i64>
  %first = arith.cmpi eq, %rank, %zero : i32
  scf.if %first {
    // expected-remark@+1 {{not converted to packets: not every rank reaches this wait}}
    %token = ditron.wait %sig[%n] ge %epoch : !tt.ptr<i64>
  }
  tt.return
}

// -----

// Of several messages, one is taken.
// CHECK: tt.func public @one_of_several(
tt.func public @one_of_several(%box: !tt.ptr<f32>, %sig: !tt.ptr<i64>, %epoch: i64, %ctx: !tt.ptr<i64>) attributes {ditron.kernel} {
  %bytes = arith.constant 64 : i64
  %zero = arith.constant 0 : i32
  %one = arith.constant 1 : i32
  %rank = ditron.rank
  %n = ditron.num_ranks
  %next = arith.addi %rank, %one : i32
  %to = arith.remsi %next, %n : i32
  %mine = tt.addptr %box, %rank : !tt.ptr<f32>, i32
  %place = tt.addptr %sig, %rank : !tt.ptr<i64>, i32
  scf.for %step = %zero to %n step %one : i32 {
    %sum = arith.addi %rank, %step : i32
    %peer = arith.remsi %sum, %n : i32
    ditron.putmem_signal %mine, %box, %bytes, %place set %epoch on %peer : !tt.ptr<f32>, !tt.ptr<f32>, !tt.ptr<i64>
  }
  %theirs = tt.addptr %sig, %to : !tt.ptr<i64>, i32
  // expected-remark@+1 {{not converted to packets: the put is in a loop, and this wait consumes one message}}
  %token = ditron.wait %theirs[%one] ge %epoch : !tt.ptr<i64>
  tt.return
}

// -----

// And one message is not taken again at every turn.
// CHECK: tt.func public @again_and_again(
tt.func public @again_and_again(%box: !tt.ptr<f32>, %sig: !tt.ptr<i64>, %epoch: i64, %peer: i32, %ctx: !tt.ptr<i64>) attributes {ditron.kernel} {
  %bytes = arith.constant 64 : i64
  %zero = arith.constant 0 : i32
  %one = arith.constant 1 : i32
  ditron.putmem_signal %box, %box, %bytes, %sig set %epoch on %peer : !tt.ptr<f32>, !tt.ptr<f32>, !tt.ptr<i64>
  scf.for %turn = %zero to %peer step %one : i32 {
    // expected-remark@+1 {{not converted to packets: it is waited for in every iteration of a loop, but consumed once}}
    %token = ditron.wait %sig[%one] ge %epoch : !tt.ptr<i64>
  }
  tt.return
}
