// The tile order stays where the author has one, or where the owner of a tile is not known from its index.
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
