// Waits that an earlier wait implies are removed.
// RUN: ditron-opt %s --merge-waits --verify-diagnostics | filecheck %s
// RUN: ditron-opt %s --merge-waits --mlir-pass-statistics -o %t 2>&1 | filecheck %s --check-prefix=COUNT

// COUNT: 13  merge-waits: waits removed

// The same wait twice; the token of the second becomes the first's.
// CHECK-LABEL: tt.func @the_same_again(
// CHECK: %[[TOKEN:.*]] = ditron.wait
// CHECK-NOT: ditron.wait
// CHECK: ditron.consume_token %arg1, %[[TOKEN]]
tt.func @the_same_again(%sig: !tt.ptr<i64>, %p: !tt.ptr<f32>, %n: i32, %v: i64) {
  // expected-note@+1 {{the earlier wait}}
  %a = ditron.wait %sig[%n] ge %v : !tt.ptr<i64>
  // expected-remark@+1 {{removed: an earlier wait implies it}}
  %b = ditron.wait %sig[%n] ge %v : !tt.ptr<i64>
  %q = ditron.consume_token %p, %b : !tt.ptr<f32>
  %x = tt.load %q : !tt.ptr<f32>
  tt.return
}

// A smaller value, fewer signals, less order: 5 >= 4, [2, 3) of [0, 4), relaxed after acquire; eq reached the value.
// CHECK-LABEL: tt.func @weaker_ones(
// CHECK-COUNT-2: ditron.wait
// CHECK-NOT: ditron.{{.*}}wait
// CHECK: tt.return
tt.func @weaker_ones(%sig: !tt.ptr<i64>, %other: !tt.ptr<i64>, %v: i64) {
  %c1 = arith.constant 1 : i32
  %c2 = arith.constant 2 : i32
  %c4 = arith.constant 4 : i32
  %one = arith.constant 1 : i64
  %four = arith.constant 4 : i64
  %five = arith.constant 5 : i64
  // expected-note@+1 {{the earlier wait}}
  %a = ditron.wait %sig[%c4] ge %five scope world : !tt.ptr<i64>
  %two = tt.addptr %sig, %c2 : !tt.ptr<i64>, i32
  // expected-remark@+1 {{removed: an earlier wait implies it}}
  %b = ditron.wait %two[%c1] gt %four scope gpu semantic relaxed : !tt.ptr<i64>
  // expected-remark@+1 {{removed: an earlier wait implies it}}
  %c = ditron.wait %two[%c2] ge %four : !tt.ptr<i64>
  // expected-remark@+1 {{removed: an earlier wait implies it}}
  %seen = ditron.signal_wait_until %two ge %five : !tt.ptr<i64>
  // expected-note@+1 {{the earlier wait}}
  %d = ditron.wait %other[%c1] eq %v : !tt.ptr<i64>
  %less = arith.subi %v, %one : i64
  // expected-remark@+1 {{removed: an earlier wait implies it}}
  %e = ditron.wait %other[%c1] ge %less : !tt.ptr<i64>
  // expected-remark@+1 {{removed: an earlier wait implies it}}
  %f = ditron.wait %other[%c1] gt %less : !tt.ptr<i64>
  tt.return
}

// All ranks' signals hold this rank's, and that of a rank modulo their number.
// CHECK-LABEL: tt.func @one_of_all(
// CHECK: %[[TOKEN:.*]] = ditron.wait
// CHECK-NOT: ditron.wait
// CHECK: ditron.consume_token %arg1, %[[TOKEN]]
tt.func @one_of_all(%sig: !tt.ptr<i64>, %p: !tt.ptr<f32>, %v: i64) {
  %c0 = arith.constant 0 : i32
  %c1 = arith.constant 1 : i32
  %rank = ditron.rank
  %n = ditron.num_ranks
  // expected-note@+1 {{the earlier wait}}
  %a = ditron.wait %sig[%n] ge %v : !tt.ptr<i64>
  %mine = tt.addptr %sig, %rank : !tt.ptr<i64>, i32
  // expected-remark@+1 {{removed: an earlier wait implies it}}
  %b = ditron.wait %mine[%c1] ge %v : !tt.ptr<i64>
  scf.for %step = %c0 to %n step %c1 : i32 {
    %sum = arith.addi %rank, %n : i32
    %before = arith.subi %sum, %step : i32
    %peer = arith.remsi %before, %n : i32
    %its = tt.addptr %sig, %peer : !tt.ptr<i64>, i32
    // expected-remark@+1 {{removed: an earlier wait implies it}}
    %c = ditron.wait %its[%c1] ge %v : !tt.ptr<i64>
    %at = tt.addptr %sig, %step : !tt.ptr<i64>, i32
    // expected-remark@+1 {{removed: an earlier wait implies it}}
    %d = ditron.wait %at[%c1] ge %v : !tt.ptr<i64>
    %q = ditron.consume_token %p, %d : !tt.ptr<f32>
    %x = tt.load %q : !tt.ptr<f32>
  }
  tt.return
}

// A wait before a loop or a branch holds inside.
// CHECK-LABEL: tt.func @before_a_loop(
// CHECK: ditron.wait
// CHECK: scf.for
// CHECK-NOT: ditron.wait
// CHECK: tt.return
tt.func @before_a_loop(%sig: !tt.ptr<i64>, %n: i32, %v: i64) {
  %c0 = arith.constant 0 : i32
  %c1 = arith.constant 1 : i32
  // expected-note@+1 {{the earlier wait}}
  %a = ditron.wait %sig[%c1] ge %v : !tt.ptr<i64>
  scf.for %i = %c0 to %n step %c1 : i32 {
    // expected-remark@+1 {{removed: an earlier wait implies it}}
    %b = ditron.wait %sig[%c1] ge %v : !tt.ptr<i64>
  }
  tt.return
}

// A branch of blocks: what the first block has waited for holds in all, no more.
// CHECK-LABEL: tt.func @blocks(
// CHECK-COUNT-3: ditron.wait
// CHECK-NOT: ditron.wait
// CHECK: tt.return
tt.func @blocks(%sig: !tt.ptr<i64>, %other: !tt.ptr<i64>, %yes: i1, %n: i32, %v: i64) {
  // expected-note@+1 {{the earlier wait}}
  %a = ditron.wait %sig[%n] ge %v : !tt.ptr<i64>
  cf.cond_br %yes, ^bb1, ^bb2
^bb1:
  %b = ditron.wait %other[%n] ge %v : !tt.ptr<i64>
  cf.br ^bb2
^bb2:
  // expected-remark@+1 {{removed: an earlier wait implies it}}
  %c = ditron.wait %sig[%n] ge %v : !tt.ptr<i64>
  %d = ditron.wait %other[%n] ge %v : !tt.ptr<i64>
  tt.return
}

// A set of less than what is waited for sets back, and so may one of another number; one of as much does not.
// CHECK-LABEL: tt.func @set_to_less(
// CHECK-COUNT-5: ditron.{{wait|notify}}
// CHECK: ditron.wait %arg1
// CHECK: ditron.notify
// CHECK: ditron.notify
// CHECK-NEXT: tt.return
tt.func @set_to_less(%sig: !tt.ptr<i64>, %other: !tt.ptr<i64>, %n: i32, %v: i64, %w: i64) {
  %rank = ditron.rank
  %one = arith.constant 1 : i64
  %two = arith.constant 2 : i64
  // expected-note@+1 {{the earlier wait}}
  %a = ditron.wait %sig[%n] ge %two : !tt.ptr<i64>
  // expected-note@+1 {{may reset the signals}}
  ditron.notify %sig set %one on %rank : !tt.ptr<i64>
  // expected-remark@+1 {{kept, although an earlier wait implies it}}
  %b = ditron.wait %sig[%n] ge %two : !tt.ptr<i64>
  // expected-note@+1 {{the earlier wait}}
  %c = ditron.wait %sig[%n] ge %v scope world : !tt.ptr<i64>
  // expected-remark@+1 {{kept, although an earlier wait implies it}}
  %d = ditron.wait %sig[%n] ge %v : !tt.ptr<i64>
  // expected-note@+1 {{the earlier wait}}
  %e = ditron.wait %other[%n] ge %v : !tt.ptr<i64>
  ditron.notify %other set %v on %rank : !tt.ptr<i64>
  %more = arith.addi %v, %one : i64
  ditron.notify %other set %more on %rank : !tt.ptr<i64>
  // expected-remark@+1 {{removed: an earlier wait implies it}}
  %f = ditron.wait %other[%n] ge %v : !tt.ptr<i64>
  tt.return
}

// A function that is called may do anything with the pointers it gets, but with no others.
// CHECK-LABEL: tt.func @called(
// CHECK-COUNT-3: ditron.wait
// CHECK-NOT: ditron.wait
// CHECK: tt.return
tt.func private @reset(%sig: !tt.ptr<i64>) {
  %zero = arith.constant 0 : i64
  tt.store %sig, %zero : !tt.ptr<i64>
  tt.return
}
tt.func @called(%sig: !tt.ptr<i64>, %other: !tt.ptr<i64>, %n: i32, %v: i64) {
  // expected-note@+1 {{the earlier wait}}
  %a = ditron.wait %sig[%n] ge %v : !tt.ptr<i64>
  // expected-note@+1 {{may reset the signals}}
  tt.call @reset(%sig) : (!tt.ptr<i64>) -> ()
  // expected-remark@+1 {{kept, although an earlier wait implies it}}
  %b = ditron.wait %sig[%n] ge %v : !tt.ptr<i64>
  // expected-note@+1 {{the earlier wait}}
  %c = ditron.wait %other[%n] ge %v : !tt.ptr<i64>
  // expected-remark@+1 {{removed: an earlier wait implies it}}
  %d = ditron.wait %other[%n] ge %v : !tt.ptr<i64>
  tt.return
}
