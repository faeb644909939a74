// The tile order stays where the tile index, or the program id it is computed from, has other uses.
// RUN: ditron-opt %s --split-input-file --verify-diagnostics --insert-swizzle | filecheck %s

// CHECK: module
// CHECK-NOT: ditron.swizzle

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
