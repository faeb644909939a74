// RUN: ditron-opt %s --pass-pipeline='builtin.module(ll-protocol)' --split-input-file --verify-diagnostics | filecheck %s
// RUN: ditron-opt %s --pass-pipeline='builtin.module(ll-protocol)' --split-input-file 2>/dev/null | not grep ditron.ll_

// What stays a signal, and why.

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
