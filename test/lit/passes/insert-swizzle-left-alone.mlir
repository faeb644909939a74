// What cannot be proved stays as it is, and a remark says why.
// RUN: ditron-opt %s --split-input-file --verify-diagnostics --insert-swizzle | filecheck %s

// CHECK-COUNT-1: ditron.swizzle
// CHECK-NOT: ditron.swizzle

// The author has an order.
tt.func @has_one(%sig: !tt.ptr<i64>, %rpr: i32, %tiles_n: i32, %epoch: i64) attributes {ditron.kernel} {
  %c0 = arith.constant 0 : i32
  %c1 = arith.constant 1 : i32
  %c8 = arith.constant 8 : i32
  %c128 = arith.constant 128 : i32
  %pid = tt.get_program_id x : i32
  %m = arith.divsi %pid, %tiles_n : i32
  %size = arith.muli %rpr, %c8 : i32
  %there = ditron.swizzle gather %m of %size by %c128
  %row = arith.muli %there, %c128 : i32
  %owner = arith.divsi %row, %rpr : i32
  %theirs = tt.addptr %sig, %owner : !tt.ptr<i64>, i32
  %token = ditron.wait %theirs[%c1] ge %epoch : !tt.ptr<i64>
  tt.return
}

// -----

// So has this one, by hand.
tt.func @by_hand(%sig: !tt.ptr<i64>, %rpr: i32, %tiles_n: i32, %epoch: i64) attributes {ditron.kernel} {
  %c0 = arith.constant 0 : i32
  %c1 = arith.constant 1 : i32
  %c8 = arith.constant 8 : i32
  %c128 = arith.constant 128 : i32
  %pid = tt.get_program_id x : i32
  %rank = ditron.rank
  %n = ditron.num_ranks
  %m = arith.divsi %pid, %tiles_n : i32
  %sum = arith.addi %rank, %m : i32
  %owner = arith.remsi %sum, %n : i32
  // expected-remark@+1 {{tile order unchanged: the tile order already depends on this rank}}
  ditron.notify %sig set %epoch on %owner : !tt.ptr<i64>
  tt.return
}

// -----

// Nothing depends on a tile's owner.
// expected-remark@+1 {{tile order unchanged: no wait and no send depends on the owner of a tile}}
tt.func @no_tiles(%sig: !tt.ptr<i64>, %rpr: i32, %tiles_n: i32, %epoch: i64) attributes {ditron.kernel} {
  %c0 = arith.constant 0 : i32
  %c1 = arith.constant 1 : i32
  %c8 = arith.constant 8 : i32
  %c128 = arith.constant 128 : i32
  %pid = tt.get_program_id x : i32
  %token = ditron.wait %sig[%c1] ge %epoch : !tt.ptr<i64>
  tt.return
}

// -----

// A number of the program that is also used otherwise stays with the program.
tt.func @number_used(%sig: !tt.ptr<i64>, %rpr: i32, %tiles_n: i32, %epoch: i64) attributes {ditron.kernel} {
  %c0 = arith.constant 0 : i32
  %c1 = arith.constant 1 : i32
  %c8 = arith.constant 8 : i32
  %c128 = arith.constant 128 : i32
  %pid = tt.get_program_id x : i32
  %m = arith.divsi %pid, %tiles_n : i32
  %row = arith.muli %m, %c128 : i32
  %owner = arith.divsi %row, %rpr : i32
  %theirs = tt.addptr %sig, %owner : !tt.ptr<i64>, i32
  %token = ditron.wait %theirs[%c1] ge %epoch : !tt.ptr<i64>
  // expected-remark@+1 {{the linearized tile index is also used by this 'tt.addptr'}}
  %mine = tt.addptr %sig, %pid : !tt.ptr<i64>, i32
  tt.store %mine, %epoch : !tt.ptr<i64>
  tt.return
}

// -----

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

// Two orders are asked for.
tt.func @two_orders(%sig: !tt.ptr<i64>, %rpr: i32, %tiles_n: i32, %epoch: i64) attributes {ditron.kernel} {
  %c0 = arith.constant 0 : i32
  %c1 = arith.constant 1 : i32
  %c8 = arith.constant 8 : i32
  %c128 = arith.constant 128 : i32
  %pid = tt.get_program_id x : i32
  %m = arith.divsi %pid, %tiles_n : i32
  %row = arith.muli %m, %c128 : i32
  %owner = arith.divsi %row, %rpr : i32
  %theirs = tt.addptr %sig, %owner : !tt.ptr<i64>, i32
  %token = ditron.wait %theirs[%c1] ge %epoch : !tt.ptr<i64>
  // expected-remark@+1 {{this send and a wait both depend on the owner of a tile, and want different orders}}
  ditron.notify %sig set %epoch on %owner : !tt.ptr<i64>
  tt.return
}

// -----

// Two dimensions are sharded.
tt.func @two_dimensions(%sig: !tt.ptr<i64>, %rpr: i32, %tiles_n: i32, %epoch: i64) attributes {ditron.kernel} {
  %c0 = arith.constant 0 : i32
  %c1 = arith.constant 1 : i32
  %c8 = arith.constant 8 : i32
  %c128 = arith.constant 128 : i32
  %pid = tt.get_program_id x : i32
  %m = arith.divsi %pid, %tiles_n : i32
  %row = arith.muli %m, %c128 : i32
  %owner = arith.divsi %row, %rpr : i32
  %theirs = tt.addptr %sig, %owner : !tt.ptr<i64>, i32
  %other = arith.divsi %row, %tiles_n : i32
  %token = ditron.wait %theirs[%c1] ge %epoch : !tt.ptr<i64>
  %others = tt.addptr %sig, %other : !tt.ptr<i64>, i32
  // expected-remark@+1 {{depend on different tile indices, or on different shardings}}
  %again = ditron.wait %others[%c1] ge %epoch : !tt.ptr<i64>
  tt.return
}

// -----

// The rows of a tile are not known.
tt.func @any_block(%sig: !tt.ptr<i64>, %rpr: i32, %tiles_n: i32, %epoch: i64) attributes {ditron.kernel} {
  %c0 = arith.constant 0 : i32
  %c1 = arith.constant 1 : i32
  %c8 = arith.constant 8 : i32
  %c128 = arith.constant 128 : i32
  %pid = tt.get_program_id x : i32
  // expected-remark@+1 {{the rows of a tile are not a positive constant}}
  %m = arith.divsi %pid, %tiles_n : i32
  %row = arith.muli %m, %tiles_n : i32
  %owner = arith.divsi %row, %rpr : i32
  ditron.notify %sig set %epoch on %owner : !tt.ptr<i64>
  tt.return
}

// -----

// The rows of a rank are computed too late.
tt.func @late_shard(%sig: !tt.ptr<i64>, %rpr: i32, %tiles_n: i32, %epoch: i64) attributes {ditron.kernel} {
  %c0 = arith.constant 0 : i32
  %c1 = arith.constant 1 : i32
  %c8 = arith.constant 8 : i32
  %c128 = arith.constant 128 : i32
  %pid = tt.get_program_id x : i32
  // expected-remark@+1 {{the rows of a rank, or the number of tiles, are computed after the tile index}}
  %m = arith.divsi %pid, %tiles_n : i32
  %row = arith.muli %m, %c128 : i32
  %shard = arith.muli %rpr, %rpr : i32
  %owner = arith.divsi %row, %shard : i32
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

// Helpers are not looked at, nor is what is not a kernel.
tt.func @no_kernel(%sig: !tt.ptr<i64>, %rpr: i32, %tiles_n: i32, %epoch: i64) attributes {noinline = false} {
  %c0 = arith.constant 0 : i32
  %c1 = arith.constant 1 : i32
  %c8 = arith.constant 8 : i32
  %c128 = arith.constant 128 : i32
  %pid = tt.get_program_id x : i32
  %m = arith.divsi %pid, %tiles_n : i32
  %row = arith.muli %m, %c128 : i32
  %owner = arith.divsi %row, %rpr : i32
  %theirs = tt.addptr %sig, %owner : !tt.ptr<i64>, i32
  %token = ditron.wait %theirs[%c1] ge %epoch : !tt.ptr<i64>
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

// -----

// The first tile is treated otherwise, and would be another.
tt.func @first_tile(%sig: !tt.ptr<i64>, %rpr: i32, %tiles_n: i32, %epoch: i64) attributes {ditron.kernel} {
  %c0 = arith.constant 0 : i32
  %c2 = arith.constant 2 : i32
  %pid = tt.get_program_id x : i32
  // expected-remark@+1 {{the linearized tile index is also used by this 'arith.cmpi'}}
  %is_first = arith.cmpi eq, %pid, %c0 : i32
  %m = arith.divsi %pid, %tiles_n : i32
  scf.if %is_first {
    tt.store %sig, %epoch : !tt.ptr<i64>
  }
  ditron.notify %sig set %epoch on %m : !tt.ptr<i64>
  tt.return
}

// -----

// Who sends and who computes is told by the number that is the tile.
tt.func @roles(%sig: !tt.ptr<i64>, %rpr: i32, %tiles: i32, %epoch: i64) attributes {ditron.kernel} {
  %c8 = arith.constant 8 : i32
  %pid = tt.get_program_id x : i32
  %row = arith.muli %pid, %c8 : i32
  %owner = arith.divsi %row, %rpr : i32
  // expected-remark@+1 {{the linearized tile index is also used by this 'arith.cmpi'}}
  %sends = arith.cmpi slt, %pid, %c8 : i32
  scf.if %sends {
    ditron.notify %sig set %epoch on %owner : !tt.ptr<i64>
  }
  tt.return
}

// -----

// The program's number is asked for twice, and where the tile goes depends on the other one.
tt.func @asked_twice(%sig: !tt.ptr<i64>, %rpr: i32, %flag: i32, %epoch: i64) attributes {ditron.kernel} {
  %c0 = arith.constant 0 : i32
  %c1 = arith.constant 1 : i32
  %c8 = arith.constant 8 : i32
  %takes = arith.cmpi sgt, %flag, %c0 : i32
  scf.if %takes {
    %pid = tt.get_program_id x : i32
    %m = arith.divsi %pid, %c8 : i32
    %owner = arith.divsi %m, %rpr : i32
    %theirs = tt.addptr %sig, %owner : !tt.ptr<i64>, i32
    %token = ditron.wait %theirs[%c1] ge %epoch : !tt.ptr<i64>
  }
  // expected-remark@+1 {{tile order unchanged: the program id is also read here}}
  %again = tt.get_program_id x : i32
  %place = tt.addptr %sig, %again : !tt.ptr<i64>, i32
  tt.store %place, %epoch : !tt.ptr<i64>
  tt.return
}

// -----

// The tile is computed twice.
tt.func @divided_twice(%sig: !tt.ptr<i64>, %rpr: i32, %flag: i32, %epoch: i64) attributes {ditron.kernel} {
  %c0 = arith.constant 0 : i32
  %c1 = arith.constant 1 : i32
  %c8 = arith.constant 8 : i32
  %pid = tt.get_program_id x : i32
  %takes = arith.cmpi sgt, %flag, %c0 : i32
  scf.if %takes {
    %m = arith.divsi %pid, %c8 : i32
    %owner = arith.divsi %m, %rpr : i32
    %theirs = tt.addptr %sig, %owner : !tt.ptr<i64>, i32
    %token = ditron.wait %theirs[%c1] ge %epoch : !tt.ptr<i64>
  }
  // expected-remark@+1 {{the linearized tile index is also used by this 'arith.divsi'}}
  %again = arith.divsi %pid, %c8 : i32
  %place = tt.addptr %sig, %again : !tt.ptr<i64>, i32
  tt.store %place, %epoch : !tt.ptr<i64>
  tt.return
}

// -----

// A function asks, which a called one calls.
tt.func @asks(%sig: !tt.ptr<i64>, %epoch: i64) attributes {noinline = true} {
  %pid = tt.get_program_id x : i32
  %place = tt.addptr %sig, %pid : !tt.ptr<i64>, i32
  tt.store %place, %epoch : !tt.ptr<i64>
  tt.return
}
tt.func @calls(%sig: !tt.ptr<i64>, %epoch: i64) attributes {noinline = true} {
  tt.call @asks(%sig, %epoch) : (!tt.ptr<i64>, i64) -> ()
  tt.return
}
tt.func @called_function_asks(%sig: !tt.ptr<i64>, %rpr: i32, %tiles_n: i32, %epoch: i64) attributes {ditron.kernel} {
  %c1 = arith.constant 1 : i32
  %pid = tt.get_program_id x : i32
  %m = arith.divsi %pid, %tiles_n : i32
  %owner = arith.divsi %m, %rpr : i32
  %theirs = tt.addptr %sig, %owner : !tt.ptr<i64>, i32
  %token = ditron.wait %theirs[%c1] ge %epoch : !tt.ptr<i64>
  // expected-remark@+1 {{tile order unchanged: this call may depend on the program id}}
  tt.call @calls(%sig, %epoch) : (!tt.ptr<i64>, i64) -> ()
  tt.return
}

// -----

// A program takes one branch in one turn and the other in the next.
tt.func @both_branches(%sig: !tt.ptr<i64>, %rpr: i32, %tiles_n: i32, %epoch: i64) attributes {ditron.kernel} {
  %c0 = arith.constant 0 : i32
  %c1 = arith.constant 1 : i32
  %c2 = arith.constant 2 : i32
  %pid = tt.get_program_id x : i32
  scf.for %turn = %c0 to %c2 step %c1 : i32 {
    %first = arith.cmpi eq, %turn, %c0 : i32
    scf.if %first {
      %m = arith.divsi %pid, %tiles_n : i32
      %owner = arith.divsi %m, %rpr : i32
      ditron.notify %sig set %epoch on %owner : !tt.ptr<i64>
    } else {
      // expected-remark@+1 {{the linearized tile index is also used by this 'tt.addptr'}}
      %place = tt.addptr %sig, %pid : !tt.ptr<i64>, i32
      tt.store %place, %epoch : !tt.ptr<i64>
    }
  }
  tt.return
}

// -----

// A persistent program reads at its own number what it has made of a tile.
tt.func @behind_the_loop(%sig: !tt.ptr<i64>, %tiles: i32, %tiles_n: i32, %epoch: i64) attributes {ditron.kernel} {
  %pid = tt.get_program_id x : i32
  %programs = tt.get_num_programs x : i32
  scf.for %tile = %pid to %tiles step %programs : i32 {
    %m = arith.divsi %tile, %tiles_n : i32
    ditron.notify %sig set %epoch on %m : !tt.ptr<i64>
  }
  // expected-remark@+1 {{the linearized tile index is also used by this 'tt.addptr'}}
  %place = tt.addptr %sig, %pid : !tt.ptr<i64>, i32
  tt.store %place, %epoch : !tt.ptr<i64>
  tt.return
}

// -----

// A mirrored index is an order of the author's own: its quotient is not the rank.
tt.func @mirrored(%sig: !tt.ptr<i64>, %rpr: i32, %tiles_n: i32, %last: i32, %epoch: i64) attributes {ditron.kernel} {
  %c1 = arith.constant 1 : i32
  %c128 = arith.constant 128 : i32
  %pid = tt.get_program_id x : i32
  %q = arith.divsi %pid, %tiles_n : i32
  // expected-remark@+1 {{tile order unchanged: the owner of a tile is computed from this 'arith.subi'}}
  %m = arith.subi %last, %q : i32
  %row = arith.muli %m, %c128 : i32
  %owner = arith.divsi %row, %rpr : i32
  %theirs = tt.addptr %sig, %owner : !tt.ptr<i64>, i32
  %token = ditron.wait %theirs[%c1] ge %epoch : !tt.ptr<i64>
  tt.return
}

// -----

// Nor is what a mirrored rank is made of.
tt.func @mirrored_rank(%sig: !tt.ptr<i64>, %last: i32, %tiles_n: i32, %epoch: i64) attributes {ditron.kernel} {
  %pid = tt.get_program_id x : i32
  %m = arith.divsi %pid, %tiles_n : i32
  // expected-remark@+1 {{tile order unchanged: the owner of a tile is computed from this 'arith.subi'}}
  %owner = arith.subi %last, %m : i32
  ditron.notify %sig set %epoch on %owner : !tt.ptr<i64>
  tt.return
}

// -----

// The signal's place is mirrored, of a rank that is not looked for there.
tt.func @mirrored_signal(%sig: !tt.ptr<i64>, %last: i32, %rpr: i32, %epoch: i64) attributes {ditron.kernel} {
  %c1 = arith.constant 1 : i32
  %c128 = arith.constant 128 : i32
  %pid = tt.get_program_id x : i32
  %row = arith.muli %pid, %c128 : i32
  %owner = arith.divsi %row, %rpr : i32
  // expected-remark@+1 {{tile order unchanged: the owner of a tile is computed from this 'arith.subi'}}
  %place = arith.subi %last, %owner : i32
  %theirs = tt.addptr %sig, %place : !tt.ptr<i64>, i32
  %token = ditron.wait %theirs[%c1] ge %epoch : !tt.ptr<i64>
  tt.return
}

// -----

// Tiles by columns: the wait does depend on the owner, and the tile is a remainder.
tt.func @by_columns(%sig: !tt.ptr<i64>, %rpr: i32, %tiles_m: i32, %epoch: i64) attributes {ditron.kernel} {
  %c1 = arith.constant 1 : i32
  %c128 = arith.constant 128 : i32
  %pid = tt.get_program_id x : i32
  // expected-remark@+1 {{tile order unchanged: the owner of a tile is computed from this 'arith.remsi'}}
  %m = arith.remsi %pid, %tiles_m : i32
  %row = arith.muli %m, %c128 : i32
  %owner = arith.divsi %row, %rpr : i32
  %theirs = tt.addptr %sig, %owner : !tt.ptr<i64>, i32
  %token = ditron.wait %theirs[%c1] ge %epoch : !tt.ptr<i64>
  tt.return
}

// -----

// Three dimensions in one number: the tile is the quotient of a remainder.
tt.func @three_dimensions(%sig: !tt.ptr<i64>, %rpr: i32, %tiles_n: i32, %tiles: i32, %epoch: i64) attributes {ditron.kernel} {
  %c1 = arith.constant 1 : i32
  %c128 = arith.constant 128 : i32
  %pid = tt.get_program_id x : i32
  // expected-remark@+1 {{tile order unchanged: the owner of a tile is computed from this 'arith.remsi'}}
  %rest = arith.remsi %pid, %tiles : i32
  %m = arith.divsi %rest, %tiles_n : i32
  %row = arith.muli %m, %c128 : i32
  %owner = arith.divsi %row, %rpr : i32
  %theirs = tt.addptr %sig, %owner : !tt.ptr<i64>, i32
  %token = ditron.wait %theirs[%c1] ge %epoch : !tt.ptr<i64>
  tt.return
}
