// A scope that cannot work, since the signal or the cell is another rank's: a warning, and a scope that does.
// RUN: ditron-opt %s --infer-scope --verify-diagnostics | filecheck %s

// CHECK-LABEL: tt.func @too_weak(
// CHECK-COUNT-2: ditron.notify {{.*}} scope world
// CHECK: ditron.wait {{.*}} scope world
// CHECK: ditron.st {{.*}} scope node
// CHECK: ditron.ld {{.*}} scope node semantic acquire
tt.func @too_weak(%sig: !tt.ptr<i64>, %v: i64) {
  %c0 = arith.constant 0 : i32
  %c1 = arith.constant 1 : i32
  %rank = ditron.rank
  %n = ditron.num_ranks
  %sum = arith.addi %rank, %n : i32
  %before = arith.subi %sum, %c1 : i32
  %left = arith.remsi %before, %n : i32
  // expected-warning@+1 {{scope 'gpu' of 'ditron.notify' is too narrow, because the signal is on another rank: widened to 'world'; write scope="world"}}
  ditron.notify %sig set %v on %left scope gpu : !tt.ptr<i64>
  scf.for %step = %c1 to %n step %c1 : i32 {
    %ahead = arith.addi %rank, %step : i32
    %peer = arith.remsi %ahead, %n : i32
    // expected-warning@+1 {{'ditron.notify' is too narrow}}
    ditron.notify %sig set %v on %peer scope gpu : !tt.ptr<i64>
  }
  // expected-warning@+1 {{'ditron.wait' is too narrow, because other ranks update these signals in this kernel}}
  %t = ditron.wait %sig[%c1] ge %v scope gpu : !tt.ptr<i64>
  %there = ditron.symm_at %sig on %left : !tt.ptr<i64>
  // expected-warning@+1 {{'ditron.st' is too narrow, because the pointer is to another rank's memory: widened to 'node'}}
  ditron.st %there, %v : !tt.ptr<i64>
  // expected-warning@+1 {{'ditron.ld' is too narrow}}
  %x = ditron.ld %there semantic acquire : !tt.ptr<i64>
  tt.return
}
