// Waits that no earlier wait implies, or whose signals may be reset in between, stay.
// RUN: ditron-opt %s --merge-waits --verify-diagnostics | filecheck %s
// RUN: ditron-opt %s --merge-waits --mlir-pass-statistics -o %t 2>&1 | filecheck %s --check-prefix=COUNT

// COUNT-NOT: waits removed
// COUNT: 5  merge-waits: waits kept because signals may be reset
// COUNT-NOT: waits removed

// Not implied: more signals, other signals, a larger or another value, eq and ne, more order, a wider scope, a result
// that is used.
// CHECK-LABEL: tt.func @not_implied(
// CHECK-COUNT-9: ditron.wait
// CHECK: ditron.signal_wait_until
tt.func @not_implied(%sig: !tt.ptr<i64>, %other: !tt.ptr<i64>, %n: i32, %v: i64, %w: i64) -> i64 {
  %c1 = arith.constant 1 : i32
  %c2 = arith.constant 2 : i32
  %one = arith.constant 1 : i64
  %a = ditron.wait %sig[%c1] ge %v scope gpu semantic relaxed : !tt.ptr<i64>
  %b = ditron.wait %sig[%c2] ge %v scope gpu semantic relaxed : !tt.ptr<i64>
  %c = ditron.wait %other[%c1] ge %v scope gpu : !tt.ptr<i64>
  %more = arith.addi %v, %one : i64
  %d = ditron.wait %other[%c1] ge %more scope gpu : !tt.ptr<i64>
  %e = ditron.wait %other[%c1] ge %w scope gpu : !tt.ptr<i64>
  %f = ditron.wait %other[%c1] eq %v scope gpu : !tt.ptr<i64>
  %g = ditron.wait %other[%c1] ne %v scope gpu : !tt.ptr<i64>
  %h = ditron.wait %other[%c1] ge %v : !tt.ptr<i64>
  %next = tt.addptr %other, %n : !tt.ptr<i64>, i32
  %i = ditron.wait %next[%c1] ge %v : !tt.ptr<i64>
  %seen = ditron.signal_wait_until %other ge %v : !tt.ptr<i64>
  tt.return %seen : i64
}

// Adding a number twice is not adding it once; nor is that of a rank twice one of the ranks.
// CHECK-LABEL: tt.func @added_twice(
// CHECK-COUNT-4: ditron.wait
tt.func @added_twice(%sig: !tt.ptr<i64>, %other: !tt.ptr<i64>, %k: i32, %v: i64) {
  %c1 = arith.constant 1 : i32
  %once = tt.addptr %sig, %k : !tt.ptr<i64>, i32
  %twice = tt.addptr %once, %k : !tt.ptr<i64>, i32
  %a = ditron.wait %twice[%c1] ge %v : !tt.ptr<i64>
  %b = ditron.wait %once[%c1] ge %v : !tt.ptr<i64>
  %rank = ditron.rank
  %n = ditron.num_ranks
  %c = ditron.wait %other[%n] ge %v : !tt.ptr<i64>
  %mine = tt.addptr %other, %rank : !tt.ptr<i64>, i32
  %beyond = tt.addptr %mine, %rank : !tt.ptr<i64>, i32
  %d = ditron.wait %beyond[%c1] ge %v : !tt.ptr<i64>
  tt.return
}

// Not before: in one branch only, in a loop that may not run, of another turn of the loop.
// CHECK-LABEL: tt.func @not_before(
// CHECK-COUNT-5: ditron.wait
tt.func @not_before(%sig: !tt.ptr<i64>, %yes: i1, %n: i32, %v: i64) {
  %c0 = arith.constant 0 : i32
  %c1 = arith.constant 1 : i32
  scf.if %yes {
    %a = ditron.wait %sig[%c1] ge %v : !tt.ptr<i64>
  } else {
    %b = ditron.wait %sig[%c1] ge %v : !tt.ptr<i64>
  }
  scf.for %i = %c0 to %n step %c1 : i32 {
    %w = arith.extsi %i : i32 to i64
    %c = ditron.wait %sig[%c1] ge %w : !tt.ptr<i64>
    %at = tt.addptr %sig, %i : !tt.ptr<i64>, i32
    %d = ditron.wait %at[%c1] ge %v : !tt.ptr<i64>
  }
  %e = ditron.wait %sig[%c1] ge %v : !tt.ptr<i64>
  tt.return
}

// Signals that the kernel sets back do not only grow.
// CHECK-LABEL: tt.func @set_back(
// CHECK-COUNT-4: ditron.wait
tt.func @set_back(%sig: !tt.ptr<i64>, %other: !tt.ptr<i64>, %n: i32, %v: i64) {
  %rank = ditron.rank
  %zero = arith.constant 0 : i64
  // expected-note@+1 {{the earlier wait}}
  %a = ditron.wait %sig[%n] ge %v : !tt.ptr<i64>
  // expected-note@+1 {{may reset the signals}}
  ditron.notify %sig set %zero on %rank : !tt.ptr<i64>
  // expected-remark@+1 {{kept, although an earlier wait implies it: its signals may be reset}}
  %b = ditron.wait %sig[%n] ge %v : !tt.ptr<i64>
  // expected-note@+1 {{the earlier wait}}
  %c = ditron.wait %other[%n] ge %v : !tt.ptr<i64>
  // expected-note@+1 {{may reset the signals}}
  tt.store %other, %zero : !tt.ptr<i64>
  // expected-remark@+1 {{kept, although an earlier wait implies it}}
  %d = ditron.wait %other[%n] ge %v : !tt.ptr<i64>
  tt.return
}

// A pointer of unknown origin may be any signal's.
// CHECK-LABEL: tt.func @unknown_origin(
// CHECK-COUNT-2: ditron.wait
tt.func @unknown_origin(%sig: !tt.ptr<i64>, %n: i32, %v: i64) {
  %zero = arith.constant 0 : i64
  %table = tt.int_to_ptr %v : i64 -> !tt.ptr<i64>
  // expected-note@+1 {{the earlier wait}}
  %a = ditron.wait %sig[%n] ge %v : !tt.ptr<i64>
  // expected-note@+1 {{may reset the signals}}
  tt.store %table, %zero : !tt.ptr<i64>
  // expected-remark@+1 {{kept, although an earlier wait implies it}}
  %b = ditron.wait %sig[%n] ge %v : !tt.ptr<i64>
  tt.return
}

// A value that is another number on the rank that sets it, or was in an earlier turn, is not known to be as much.
// CHECK-LABEL: tt.func @another_number_elsewhere(
// CHECK-COUNT-4: ditron.wait
tt.func @another_number_elsewhere(%sig: !tt.ptr<i64>, %other: !tt.ptr<i64>, %n: i32) {
  %c0 = arith.constant 0 : i32
  %c1 = arith.constant 1 : i32
  %rank = ditron.rank
  %own = arith.extsi %rank : i32 to i64
  // expected-note@+1 {{the earlier wait}}
  %a = ditron.wait %sig[%c1] ge %own : !tt.ptr<i64>
  // expected-note@+1 {{may reset the signals}}
  ditron.notify %sig set %own on %n : !tt.ptr<i64>
  // expected-remark@+1 {{kept, although an earlier wait implies it}}
  %b = ditron.wait %sig[%c1] ge %own : !tt.ptr<i64>
  scf.for %i = %c0 to %n step %c1 : i32 {
    %turn = arith.extsi %i : i32 to i64
    // expected-note@+1 {{may reset the signals}}
    ditron.notify %other set %turn on %n : !tt.ptr<i64>
    // expected-note@+1 {{the earlier wait}}
    %c = ditron.wait %other[%c1] ge %turn : !tt.ptr<i64>
    // expected-remark@+1 {{kept, although an earlier wait implies it}}
    %d = ditron.wait %other[%c1] ge %turn : !tt.ptr<i64>
  }
  tt.return
}

// The number of ranks is taken from twice, so the remainder may be negative, and none of theirs.
// CHECK-LABEL: tt.func @perhaps_negative(
// CHECK-COUNT-2: ditron.wait
tt.func @perhaps_negative(%sig: !tt.ptr<i64>, %v: i64) {
  %c0 = arith.constant 0 : i32
  %c1 = arith.constant 1 : i32
  %rank = ditron.rank
  %n = ditron.num_ranks
  %all = ditron.wait %sig[%n] ge %v : !tt.ptr<i64>
  scf.for %step = %c0 to %n step %c1 : i32 {
    %left = arith.subi %n, %step : i32
    %far = arith.subi %left, %rank : i32
    %index = arith.remsi %far, %n : i32
    %its = tt.addptr %sig, %index : !tt.ptr<i64>, i32
    %one = ditron.wait %its[%c1] ge %v : !tt.ptr<i64>
  }
  tt.return
}
