// RUN: ditron-opt %s --assign-streams=streams=2 --verify-diagnostics --split-input-file
// RUN: not ditron-opt %s --assign-streams=streams=0 --split-input-file 2>&1 | filecheck %s

// CHECK: error: option 'streams' of 'assign-streams': expected 1 or more, got 0

ditron.program @an_iteration_forwards_what_the_last_one_received(%s: !ditron.buffer<8xf32, symmetric>, %n: i64) {
  %zero = arith.constant 0 : i64
  %one = arith.constant 1 : i64
  %x = ditron.alloc "x" [8] : <8xf32>
  %peer = arith.constant 3 : i64
  scf.for %i = %zero to %n step %one : i64 {
    // expected-note@+2 {{the earlier operation}}
    // expected-remark@+1 {{the copies of this loop stay on one stream: an iteration depends on an earlier one}}
    ditron.rank_copy %x to %s on %peer : <8xf32> to <8xf32, symmetric>
    ditron.rank_copy %s on %peer to %x : <8xf32, symmetric> to <8xf32>
  }
}
