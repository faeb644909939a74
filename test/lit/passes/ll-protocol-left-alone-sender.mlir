// Stays a signal: the receiver cannot tell who sends, or where the sender puts the message.
// RUN: ditron-opt %s --pass-pipeline='builtin.module(ll-protocol)' --split-input-file --verify-diagnostics | filecheck %s
// RUN: ditron-opt %s --pass-pipeline='builtin.module(ll-protocol)' --split-input-file 2>/dev/null | not grep ditron.ll_

// CHECK: tt.func public @sender_without_a_name(
tt.func public @sender_without_a_name(%box: !tt.ptr<f32>, %sig: !tt.ptr<i64>, %epoch: i64, %peer: i32, %ctx: !tt.ptr<i64>) attributes {ditron.kernel} {
  %bytes = arith.constant 64 : i64
  %one = arith.constant 1 : i32
  %rank = ditron.rank
  %mine = tt.addptr %box, %rank : !tt.ptr<f32>, i32
  ditron.putmem_signal %mine, %box, %bytes, %sig set %epoch on %peer : !tt.ptr<f32>, !tt.ptr<f32>, !tt.ptr<i64>
  // expected-remark@+1 {{not converted to packets: the destination or the size depends on the sender, which the signal does not identify; index signals by the sender's rank}}
  %token = ditron.wait %sig[%one] ge %epoch : !tt.ptr<i64>
  tt.return
}

// -----

// CHECK: tt.func public @known_to_the_sender_only(
tt.func public @known_to_the_sender_only(%box: !tt.ptr<f32>, %sig: !tt.ptr<i64>, %epoch: i64, %peer: i32, %table: !tt.ptr<i32>, %ctx: !tt.ptr<i64>) attributes {ditron.kernel} {
  %bytes = arith.constant 64 : i64
  %one = arith.constant 1 : i32
  %row = tt.load %table : !tt.ptr<i32>
  %mine = tt.addptr %box, %row : !tt.ptr<f32>, i32
  ditron.putmem_signal %mine, %box, %bytes, %sig set %epoch on %peer : !tt.ptr<f32>, !tt.ptr<f32>, !tt.ptr<i64>
  // expected-remark@+1 {{not converted to packets: the destination or the size depends on 'tt.load', which the receiver cannot rematerialize}}
  %token = ditron.wait %sig[%one] ge %epoch : !tt.ptr<i64>
  tt.return
}

// -----

// Two ranks share a signal: it does not name the one that sends.
// CHECK: tt.func public @pairs(
tt.func public @pairs(%box: !tt.ptr<f32>, %sig: !tt.ptr<i64>, %epoch: i64, %peer: i32, %stride: i32, %ctx: !tt.ptr<i64>) attributes {ditron.kernel} {
  %bytes = arith.constant 64 : i64
  %one = arith.constant 1 : i32
  %two = arith.constant 2 : i32
  %rank = ditron.rank
  %sent = arith.remsi %rank, %two : i32
  %awaited = arith.remsi %rank, %two : i32
  %mine = tt.addptr %box, %rank : !tt.ptr<f32>, i32
  %place = tt.addptr %sig, %sent : !tt.ptr<i64>, i32
  ditron.putmem_signal %mine, %box, %bytes, %place set %epoch on %peer : !tt.ptr<f32>, !tt.ptr<f32>, !tt.ptr<i64>
  %theirs = tt.addptr %sig, %awaited : !tt.ptr<i64>, i32
  // expected-remark@+1 {{not converted to packets: the signal does not identify its sender; index signals by the sender's rank}}
  %token = ditron.wait %theirs[%one] ge %epoch : !tt.ptr<i64>
  tt.return
}

// -----

// So do a rank and its neighbor here.
// CHECK: tt.func public @halves(
tt.func public @halves(%box: !tt.ptr<f32>, %sig: !tt.ptr<i64>, %epoch: i64, %peer: i32, %stride: i32, %ctx: !tt.ptr<i64>) attributes {ditron.kernel} {
  %bytes = arith.constant 64 : i64
  %one = arith.constant 1 : i32
  %two = arith.constant 2 : i32
  %rank = ditron.rank
  %sent = arith.divsi %rank, %two : i32
  %awaited = arith.divsi %rank, %two : i32
  %mine = tt.addptr %box, %rank : !tt.ptr<f32>, i32
  %place = tt.addptr %sig, %sent : !tt.ptr<i64>, i32
  ditron.putmem_signal %mine, %box, %bytes, %place set %epoch on %peer : !tt.ptr<f32>, !tt.ptr<f32>, !tt.ptr<i64>
  %theirs = tt.addptr %sig, %awaited : !tt.ptr<i64>, i32
  // expected-remark@+1 {{not converted to packets: the signal does not identify its sender; index signals by the sender's rank}}
  %token = ditron.wait %theirs[%one] ge %epoch : !tt.ptr<i64>
  tt.return
}

// -----

// CHECK: tt.func public @bits(
tt.func public @bits(%box: !tt.ptr<f32>, %sig: !tt.ptr<i64>, %epoch: i64, %peer: i32, %stride: i32, %ctx: !tt.ptr<i64>) attributes {ditron.kernel} {
  %bytes = arith.constant 64 : i64
  %one = arith.constant 1 : i32
  %two = arith.constant 2 : i32
  %rank = ditron.rank
  %sent = arith.andi %rank, %two : i32
  %awaited = arith.andi %peer, %two : i32
  %mine = tt.addptr %box, %rank : !tt.ptr<f32>, i32
  %place = tt.addptr %sig, %sent : !tt.ptr<i64>, i32
  ditron.putmem_signal %mine, %box, %bytes, %place set %epoch on %peer : !tt.ptr<f32>, !tt.ptr<f32>, !tt.ptr<i64>
  %theirs = tt.addptr %sig, %awaited : !tt.ptr<i64>, i32
  // expected-remark@+1 {{not converted to packets: the signal does not identify its sender; index signals by the sender's rank}}
  %token = ditron.wait %theirs[%one] ge %epoch : !tt.ptr<i64>
  tt.return
}

// -----

// CHECK: tt.func public @saturated(
tt.func public @saturated(%box: !tt.ptr<f32>, %sig: !tt.ptr<i64>, %epoch: i64, %peer: i32, %stride: i32, %ctx: !tt.ptr<i64>) attributes {ditron.kernel} {
  %bytes = arith.constant 64 : i64
  %one = arith.constant 1 : i32
  %two = arith.constant 2 : i32
  %rank = ditron.rank
  %sent = arith.minsi %rank, %two : i32
  %awaited = arith.minsi %peer, %two : i32
  %mine = tt.addptr %box, %rank : !tt.ptr<f32>, i32
  %place = tt.addptr %sig, %sent : !tt.ptr<i64>, i32
  ditron.putmem_signal %mine, %box, %bytes, %place set %epoch on %peer : !tt.ptr<f32>, !tt.ptr<f32>, !tt.ptr<i64>
  %theirs = tt.addptr %sig, %awaited : !tt.ptr<i64>, i32
  // expected-remark@+1 {{not converted to packets: the signal does not identify its sender; index signals by the sender's rank}}
  %token = ditron.wait %theirs[%one] ge %epoch : !tt.ptr<i64>
  tt.return
}

// -----

// The stride may be 0.
// CHECK: tt.func public @any_stride(
tt.func public @any_stride(%box: !tt.ptr<f32>, %sig: !tt.ptr<i64>, %epoch: i64, %peer: i32, %stride: i32, %ctx: !tt.ptr<i64>) attributes {ditron.kernel} {
  %bytes = arith.constant 64 : i64
  %one = arith.constant 1 : i32
  %two = arith.constant 2 : i32
  %rank = ditron.rank
  %sent = arith.muli %rank, %stride : i32
  %awaited = arith.muli %peer, %stride : i32
  %mine = tt.addptr %box, %rank : !tt.ptr<f32>, i32
  %place = tt.addptr %sig, %sent : !tt.ptr<i64>, i32
  ditron.putmem_signal %mine, %box, %bytes, %place set %epoch on %peer : !tt.ptr<f32>, !tt.ptr<f32>, !tt.ptr<i64>
  %theirs = tt.addptr %sig, %awaited : !tt.ptr<i64>, i32
  // expected-remark@+1 {{not converted to packets: the signal does not identify its sender; index signals by the sender's rank}}
  %token = ditron.wait %theirs[%one] ge %epoch : !tt.ptr<i64>
  tt.return
}

// -----

// Eight bits of a rank are not the rank.
// CHECK: tt.func public @narrow(
tt.func public @narrow(%box: !tt.ptr<f32>, %sig: !tt.ptr<i64>, %epoch: i64, %peer: i32, %stride: i32, %ctx: !tt.ptr<i64>) attributes {ditron.kernel} {
  %bytes = arith.constant 64 : i64
  %one = arith.constant 1 : i32
  %two = arith.constant 2 : i32
  %rank = ditron.rank
  %r8 = arith.trunci %rank : i32 to i8
  %p8 = arith.trunci %peer : i32 to i8
  %sent = arith.extsi %r8 : i8 to i32
  %awaited = arith.extsi %p8 : i8 to i32
  %mine = tt.addptr %box, %rank : !tt.ptr<f32>, i32
  %place = tt.addptr %sig, %sent : !tt.ptr<i64>, i32
  ditron.putmem_signal %mine, %box, %bytes, %place set %epoch on %peer : !tt.ptr<f32>, !tt.ptr<f32>, !tt.ptr<i64>
  %theirs = tt.addptr %sig, %awaited : !tt.ptr<i64>, i32
  // expected-remark@+1 {{not converted to packets: the signal does not identify its sender; index signals by the sender's rank}}
  %token = ditron.wait %theirs[%one] ge %epoch : !tt.ptr<i64>
  tt.return
}

// -----

// The peer may be a number of ranks too high, and so would be its data.
// CHECK: tt.func public @not_in_range(
tt.func public @not_in_range(%box: !tt.ptr<f32>, %sig: !tt.ptr<i64>, %epoch: i64, %peer: i32, %stride: i32, %ctx: !tt.ptr<i64>) attributes {ditron.kernel} {
  %bytes = arith.constant 64 : i64
  %one = arith.constant 1 : i32
  %two = arith.constant 2 : i32
  %rank = ditron.rank
  %n = ditron.num_ranks
  %r1 = arith.addi %rank, %one : i32
  %p1 = arith.addi %peer, %one : i32
  %sent = arith.remsi %r1, %n : i32
  %awaited = arith.remsi %p1, %n : i32
  %mine = tt.addptr %box, %rank : !tt.ptr<f32>, i32
  %place = tt.addptr %sig, %sent : !tt.ptr<i64>, i32
  ditron.putmem_signal %mine, %box, %bytes, %place set %epoch on %peer : !tt.ptr<f32>, !tt.ptr<f32>, !tt.ptr<i64>
  %theirs = tt.addptr %sig, %awaited : !tt.ptr<i64>, i32
  // expected-remark@+1 {{not converted to packets: the signal does not identify its sender; index signals by the sender's rank}}
  %token = ditron.wait %theirs[%one] ge %epoch : !tt.ptr<i64>
  tt.return
}
