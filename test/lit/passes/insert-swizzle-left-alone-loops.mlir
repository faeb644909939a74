// The tile order stays where the programs may not take every tile once, or take them in an order that matters.
// RUN: ditron-opt %s --split-input-file --verify-diagnostics --insert-swizzle | filecheck %s

// CHECK: module
// CHECK-NOT: ditron.swizzle

// Programs before the first tile are not told apart.
tt.func @before_the_first(%sig: !tt.ptr<i64>, %rpr: i32, %tiles_n: i32, %epoch: i64) attributes {ditron.kernel} {
  %c0 = arith.constant 0 : i32
  %c1 = arith.constant 1 : i32
  %c8 = arith.constant 8 : i32
  %c128 = arith.constant 128 : i32
  %pid = tt.get_program_id x : i32
  %tile = arith.subi %pid, %c8 : i32
  // expected-remark@+1 {{no condition separates the programs below 8 from those that have a tile}}
  %m = arith.divsi %tile, %tiles_n : i32
  %row = arith.muli %m, %c128 : i32
  %owner = arith.divsi %row, %rpr : i32
  ditron.notify %sig set %epoch on %owner : !tt.ptr<i64>
  tt.return
}

// -----

// One tile after the other adds to a sum, whose rounding another order would change.
tt.func @sum(%sig: !tt.ptr<i64>, %rpr: i32, %tiles_n: i32, %epoch: i64) attributes {ditron.kernel} {
  %c0 = arith.constant 0 : i32
  %c1 = arith.constant 1 : i32
  %c8 = arith.constant 8 : i32
  %c128 = arith.constant 128 : i32
  %pid = tt.get_program_id x : i32
  %programs = tt.get_num_programs x : i32
  %zero = arith.constant 0.0 : f32
  // expected-remark@+1 {{the loop over tiles has loop-carried values}}
  %sum = scf.for %tile = %pid to %rpr step %programs iter_args(%s = %zero) -> (f32) : i32 {
    %m = arith.divsi %tile, %tiles_n : i32
    %row = arith.muli %m, %c128 : i32
    %owner = arith.divsi %row, %rpr : i32
    ditron.notify %sig set %epoch on %owner : !tt.ptr<i64>
    %f = arith.sitofp %m : i32 to f32
    %next = arith.addf %s, %f : f32
    scf.yield %next : f32
  }
  tt.return
}

// -----

// Steps along one axis from a start on another do not take all tiles once.
tt.func @two_axes(%sig: !tt.ptr<i64>, %rpr: i32, %tiles_n: i32, %epoch: i64) attributes {ditron.kernel} {
  %c0 = arith.constant 0 : i32
  %c1 = arith.constant 1 : i32
  %c8 = arith.constant 8 : i32
  %c128 = arith.constant 128 : i32
  %pid = tt.get_program_id x : i32
  %programs = tt.get_num_programs y : i32
  // expected-remark@+1 {{does not step by the number of programs along the axis of its lower bound}}
  scf.for %tile = %pid to %rpr step %programs : i32 {
    %m = arith.divsi %tile, %tiles_n : i32
    ditron.notify %sig set %epoch on %m : !tt.ptr<i64>
  }
  tt.return
}

// -----

// Programs that are not the first take steps of a constant.
tt.func @steps(%sig: !tt.ptr<i64>, %rpr: i32, %tiles_n: i32, %epoch: i64) attributes {ditron.kernel} {
  %c8 = arith.constant 8 : i32
  %pid = tt.get_program_id x : i32
  // expected-remark@+1 {{the loop over tiles steps by 8, but is not run by the first 8 programs}}
  scf.for %tile = %pid to %rpr step %c8 : i32 {
    %m = arith.divsi %tile, %tiles_n : i32
    ditron.notify %sig set %epoch on %m : !tt.ptr<i64>
  }
  tt.return
}

// -----

// Half of the programs come to a tile.
tt.func @half(%sig: !tt.ptr<i64>, %rpr: i32, %tiles_n: i32, %epoch: i64) attributes {ditron.kernel} {
  %c0 = arith.constant 0 : i32
  %c2 = arith.constant 2 : i32
  %pid = tt.get_program_id x : i32
  %half = arith.remsi %pid, %c2 : i32
  %even = arith.cmpi eq, %half, %c0 : i32
  // expected-remark@+1 {{which programs reach the tile depends on a condition other than 'index < tiles'}}
  scf.if %even {
    %programs = tt.get_num_programs x : i32
    scf.for %tile = %pid to %rpr step %programs : i32 {
      %m = arith.divsi %tile, %tiles_n : i32
      ditron.notify %sig set %epoch on %m : !tt.ptr<i64>
    }
  }
  tt.return
}
