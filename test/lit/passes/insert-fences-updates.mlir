// Updates of signals that may overtake one another.
// RUN: ditron-opt %s --insert-fences --verify-diagnostics | filecheck %s

// One update of a signal may overtake another: of the same signal at the same rank, when one sets it, unless both set it
// to the same. Sums do not mind.
// CHECK-LABEL: tt.func @updates(
// CHECK: ditron.signal_op %arg0 set %arg1 on %arg3
// CHECK-NEXT: ditron.fence
// CHECK-NEXT: ditron.signal_op %arg0 set %arg2 on %arg3
// CHECK-NEXT: ditron.notify %arg0 set %arg1 on %arg3
// CHECK-NEXT: ditron.signal_op %arg0 set %arg1 on %arg3
// CHECK-NEXT: ditron.fence
// CHECK-NEXT: ditron.signal_op %arg0 add %arg1 on %arg4
// CHECK-NEXT: ditron.signal_op %arg0 add %arg1 on %arg4
// CHECK-NEXT: ditron.fence
// CHECK-NEXT: scf.for
// CHECK-NEXT: ditron.signal_op %arg0 set %arg1 on %arg3
// CHECK-NEXT: }
// CHECK-NEXT: scf.for
// CHECK-NEXT: arith.extsi
// CHECK-NEXT: ditron.fence
// CHECK-NEXT: ditron.signal_op
// CHECK-NEXT: }
// CHECK-NEXT: ditron.quiet
tt.func @updates(%sig: !tt.ptr<i64>, %v: i64, %w: i64, %a: i32, %b: i32) {
  %c0 = arith.constant 0 : i32
  %c1 = arith.constant 1 : i32
  // expected-note@+2 {{an earlier update of this signal}}
  // expected-note@+1 {{a signal in flight}}
  ditron.signal_op %sig set %v on %a : !tt.ptr<i64>
  // expected-remark@+1 {{inserted 'ditron.fence' before this operation: an earlier update of this signal may still be unordered}}
  ditron.signal_op %sig set %w on %a : !tt.ptr<i64>
  // expected-note@+1 {{an earlier update of this signal}}
  ditron.notify %sig set %v on %a : !tt.ptr<i64>
  ditron.signal_op %sig set %v on %a : !tt.ptr<i64>
  // expected-remark@+2 {{an earlier update of this signal may still be unordered}}
  // expected-note@+1 {{an earlier update of this signal}}
  ditron.signal_op %sig add %v on %b : !tt.ptr<i64>
  ditron.signal_op %sig add %v on %b : !tt.ptr<i64>
  scf.for %i = %c0 to %b step %c1 : i32 {
    // expected-remark@+2 {{an earlier update of this signal may still be unordered}}
    // expected-note@+1 {{an earlier update of this signal}}
    ditron.signal_op %sig set %v on %a : !tt.ptr<i64>
  }
  scf.for %i = %c0 to %b step %c1 : i32 {
    %next = arith.extsi %i : i32 to i64
    // expected-warning@+1 {{an earlier update of this signal may still be unordered}}
    ditron.signal_op %sig set %next on %a : !tt.ptr<i64>
  }
  // expected-remark@+1 {{inserted 'ditron.quiet'}}
  tt.return
}

// Other signals: of another argument, at another distance; at each turn of a loop another signal or another rank. What
// may be the same signal at some turn is, and what has no name any more behind a loop, too.
// CHECK-LABEL: tt.func @other_signals(
// CHECK-NOT: ditron.fence
// CHECK: scf.for
// CHECK-NOT: ditron.fence
// CHECK: scf.for
// CHECK-NOT: ditron.fence
// CHECK: arith.divsi
// CHECK: ditron.fence
// CHECK-NEXT: ditron.signal_op
// CHECK-NEXT: }
// CHECK: ditron.fence
// CHECK-NEXT: ditron.signal_op
// CHECK-NEXT: tt.addptr
// CHECK-NEXT: ditron.fence
// CHECK-NEXT: ditron.signal_op
// CHECK-NEXT: ditron.quiet
tt.func @other_signals(%sig: !tt.ptr<i64>, %other: !tt.ptr<i64>, %v: i64, %w: i64, %r: i32, %n: i32) {
  %c0 = arith.constant 0 : i32
  %c1 = arith.constant 1 : i32
  %c4 = arith.constant 4 : i32
  %rank = ditron.rank
  %ranks = ditron.num_ranks
  %second = tt.addptr %sig, %c1 : !tt.ptr<i64>, i32
  ditron.signal_op %sig set %v on %r : !tt.ptr<i64>
  ditron.signal_op %second set %w on %r : !tt.ptr<i64>
  ditron.signal_op %other set %w on %r : !tt.ptr<i64>
  ditron.quiet
  scf.for %i = %c0 to %ranks step %c1 : i32 {
    %e = arith.extsi %i : i32 to i64
    %its = tt.addptr %sig, %i : !tt.ptr<i64>, i32
    ditron.signal_op %its set %e on %r : !tt.ptr<i64>
  }
  ditron.quiet
  scf.for %i = %c0 to %ranks step %c1 : i32 {
    %e = arith.extsi %i : i32 to i64
    %to = arith.addi %rank, %i : i32
    %peer = arith.remsi %to, %ranks : i32
    ditron.signal_op %sig set %e on %peer : !tt.ptr<i64>
  }
  ditron.quiet
  scf.for %i = %c0 to %n step %c1 : i32 {
    %e = arith.extsi %i : i32 to i64
    %quarter = arith.divsi %i, %c4 : i32
    %its = tt.addptr %sig, %quarter : !tt.ptr<i64>, i32
    // expected-warning@+3 {{an earlier update of this signal may still be unordered}}
    // expected-note@+2 {{an earlier update of this signal}}
    // expected-note@+1 {{a signal in flight}}
    ditron.signal_op %its set %e on %r : !tt.ptr<i64>
  }
  // expected-remark@+2 {{an earlier update of this signal may still be unordered}}
  // expected-note@+1 {{an earlier update of this signal}}
  ditron.signal_op %second set %w on %r : !tt.ptr<i64>
  %some = tt.addptr %sig, %n : !tt.ptr<i64>, i32
  // expected-remark@+1 {{an earlier update of this signal may still be unordered}}
  ditron.signal_op %some set %v on %r : !tt.ptr<i64>
  // expected-remark@+1 {{inserted 'ditron.quiet'}}
  tt.return
}

// In a loop of blocks names say nothing of the turn before: each signal may be another's, at any rank, of any value.
// CHECK-LABEL: tt.func @loop_of_blocks(
// CHECK: ^bb1
// CHECK: tt.load
// CHECK-NEXT: ditron.fence
// CHECK-NEXT: ditron.signal_op
tt.func @loop_of_blocks(%sig: !tt.ptr<i64>, %values: !tt.ptr<i64>, %r: i32, %again: i1) {
  cf.br ^bb1
^bb1:
  %v = tt.load %values {isVolatile = true} : !tt.ptr<i64>
  // expected-remark@+3 {{an earlier update of this signal may still be unordered}}
  // expected-note@+2 {{an earlier update of this signal}}
  // expected-note@+1 {{a signal in flight}}
  ditron.signal_op %sig set %v on %r : !tt.ptr<i64>
  cf.cond_br %again, ^bb1, ^bb2
^bb2:
  // expected-remark@+1 {{inserted 'ditron.quiet'}}
  tt.return
}
