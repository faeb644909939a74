// Tiles come in the order in which waits or sends need them, when the kernel shows what that depends on.
// RUN: ditron-opt %s --split-input-file --verify-diagnostics --pass-pipeline='builtin.module(insert-swizzle,canonicalize,cse)' | filecheck %s

// The wait is for the owner of the tile's first row: gather, rows_per_rank * num_ranks rows in tiles of 128.
// CHECK-LABEL: tt.func @gather(
// CHECK: %[[INDEX:.*]] = arith.subi %{{.*}}, %c8_i32
// CHECK: %[[PLAIN:.*]] = arith.divsi %[[INDEX]], %[[TILES_N:.*]] : i32
// CHECK: %[[RANKS:.*]] = ditron.num_ranks
// CHECK: %[[SIZE:.*]] = arith.muli %[[RPR:.*]], %[[RANKS]]
// CHECK: %[[THERE:.*]] = ditron.swizzle gather %[[PLAIN]] of %[[SIZE]] by %c128_i32
// CHECK: %[[UP:.*]] = arith.addi %[[SIZE]], %c127_i32
// CHECK: %[[TILES:.*]] = arith.divsi %[[UP]], %c128_i32
// CHECK: %[[NEEDED:.*]] = arith.muli %[[TILES]], %[[TILES_N]]
// CHECK: %[[PROGRAMS:.*]] = tt.get_num_programs x
// CHECK: %[[TAKEN:.*]] = arith.subi %[[PROGRAMS]], %c8_i32
// CHECK: %[[ALL:.*]] = arith.cmpi eq, %[[NEEDED]], %[[TAKEN]]
// CHECK: %[[M:.*]] = arith.select %[[ALL]], %[[THERE]], %[[PLAIN]]
// CHECK: %[[N:.*]] = arith.remsi %[[INDEX]], %[[TILES_N]]
// CHECK: arith.muli %[[M]], %c128_i32
// CHECK: ditron.wait
tt.func @gather(%sig: !tt.ptr<i64>, %rpr: i32, %tiles_n: i32, %epoch: i64, %out: !tt.ptr<i32>) attributes {ditron.kernel} {
  %c1 = arith.constant 1 : i32
  %c8 = arith.constant 8 : i32
  %c128 = arith.constant 128 : i32
  %pid = tt.get_program_id x : i32
  %pushes = arith.cmpi slt, %pid, %c8 : i32
  scf.if %pushes {
    %there = tt.addptr %out, %pid : !tt.ptr<i32>, i32
    tt.store %there, %pid : !tt.ptr<i32>
  } else {
    %tile = arith.subi %pid, %c8 : i32
    %m = arith.divsi %tile, %tiles_n : i32
    %n = arith.remsi %tile, %tiles_n : i32
    %row = arith.muli %m, %c128 : i32
    %owner = arith.divsi %row, %rpr : i32
    %theirs = tt.addptr %sig, %owner : !tt.ptr<i64>, i32
    // expected-remark@+1 {{tiles reordered for gather: this operation depends on their owners}}
    %token = ditron.wait %theirs[%c1] ge %epoch : !tt.ptr<i64>
    %ready = ditron.consume_token %out, %token : !tt.ptr<i32>
    %place = tt.addptr %ready, %row : !tt.ptr<i32>, i32
    tt.store %place, %n : !tt.ptr<i32>
  }
  tt.return
}

// -----

// The tile is the rank that is told: scatter, one tile for each rank, under `if tile < tiles`.
// CHECK-LABEL: tt.func @scatter(
// CHECK: %[[PLAIN:.*]] = arith.divsi %[[PID:.*]], %[[PER:.*]] : i32
// CHECK: %[[RANKS:.*]] = ditron.num_ranks
// CHECK: %[[THERE:.*]] = ditron.swizzle scatter %[[PLAIN]] of %[[RANKS]] by %c1_i32
// CHECK: %[[NEEDED:.*]] = arith.muli %[[RANKS]], %[[PER]]
// CHECK: %[[PROGRAMS:.*]] = tt.get_num_programs
// CHECK: %[[TAKEN:.*]] = arith.minsi %[[PROGRAMS]], %[[TILES:.*]] :
// CHECK: arith.cmpi eq, %[[NEEDED]], %[[TAKEN]]
// CHECK: %[[OWNER:.*]] = arith.select
// CHECK: ditron.notify {{.*}} on %[[OWNER]]
tt.func @scatter(%sig: !tt.ptr<i64>, %tiles: i32, %per: i32, %epoch: i64) attributes {ditron.kernel} {
  %pid = tt.get_program_id x : i32
  %produces = arith.cmpi slt, %pid, %tiles : i32
  scf.if %produces {
    %owner = arith.divsi %pid, %per : i32
    %owned = arith.remsi %pid, %per : i32
    %flag = tt.addptr %sig, %owned : !tt.ptr<i64>, i32
    // expected-remark@+1 {{tiles reordered for scatter}}
    ditron.notify %flag set %epoch on %owner : !tt.ptr<i64>
  }
  tt.return
}

// -----

// A persistent program, and a tile that several ranks own: it tells each of them.
// CHECK-LABEL: tt.func @persistent(
// CHECK: scf.for %[[TILE:.*]] = %{{.*}} to %[[END:.*]] step
// CHECK: %[[PLAIN:.*]] = arith.divsi %[[TILE]], %[[TILES_N:.*]] :
// CHECK: %[[THERE:.*]] = ditron.swizzle scatter %[[PLAIN]] of %{{.*}} by %c64_i32
// CHECK: %[[NEEDED:.*]] = arith.muli %{{.*}}, %[[TILES_N]]
// CHECK: arith.cmpi eq, %[[NEEDED]], %[[END]]
tt.func @persistent(%sig: !tt.ptr<i64>, %rpr: i32, %tiles_n: i32, %tiles: i32, %epoch: i64) attributes {ditron.kernel} {
  %c1 = arith.constant 1 : i32
  %c63 = arith.constant 63 : i32
  %c64 = arith.constant 64 : i32
  %pid = tt.get_program_id x : i32
  %programs = tt.get_num_programs x : i32
  scf.for %tile = %pid to %tiles step %programs : i32 {
    %m = arith.divsi %tile, %tiles_n : i32
    %row = arith.muli %m, %c64 : i32
    %first = arith.divsi %row, %rpr : i32
    %last_row = arith.addi %row, %c63 : i32
    %last = arith.divsi %last_row, %rpr : i32
    %end = arith.addi %last, %c1 : i32
    scf.for %owner = %first to %end step %c1 : i32 {
      // expected-remark@+1 {{tiles reordered for scatter}}
      ditron.notify %sig add %epoch on %owner : !tt.ptr<i64>
    }
  }
  tt.return
}

// -----

// A wait and a send depend on the tile; the kernel says which of them counts.
// CHECK-LABEL: tt.func @told(
// CHECK: ditron.swizzle gather
tt.func @told(%sig: !tt.ptr<i64>, %per: i32, %epoch: i64) attributes {ditron.kernel, ditron.swizzle_mode = #ditron.swizzle_mode<gather>} {
  %c1 = arith.constant 1 : i32
  %pid = tt.get_program_id x : i32
  %m = arith.divsi %pid, %per : i32
  %owner = arith.divsi %m, %per : i32
  %theirs = tt.addptr %sig, %owner : !tt.ptr<i64>, i32
  // expected-remark@+1 {{tiles reordered for gather}}
  %token = ditron.wait %theirs[%c1] ge %epoch : !tt.ptr<i64>
  ditron.notify %sig set %epoch on %owner : !tt.ptr<i64>
  tt.return
}

// -----

// The first eight programs are persistent, others do something else.
// CHECK-LABEL: tt.func @eight_producers(
// CHECK: ditron.swizzle scatter
// CHECK: %[[PROGRAMS:.*]] = tt.get_num_programs
// CHECK: %[[ALL:.*]] = arith.cmpi eq
// CHECK: %[[ENOUGH:.*]] = arith.cmpi sge, %[[PROGRAMS]], %c8_i32
// CHECK: arith.andi %[[ALL]], %[[ENOUGH]]
tt.func @eight_producers(%sig: !tt.ptr<i64>, %tiles: i32, %per: i32, %epoch: i64) attributes {ditron.kernel} {
  %c8 = arith.constant 8 : i32
  %pid = tt.get_program_id x : i32
  %produces = arith.cmpi slt, %pid, %c8 : i32
  scf.if %produces {
    scf.for %tile = %pid to %tiles step %c8 : i32 {
      %m = arith.divsi %tile, %per : i32
      // expected-remark@+1 {{tiles reordered for scatter}}
      ditron.notify %sig set %epoch on %m : !tt.ptr<i64>
    }
  }
  tt.return
}

// -----

// Tiles of one dimension: the program's number is the tile, in this branch.
// CHECK-LABEL: tt.func @one_dimension(
// CHECK: %[[PID:.*]] = tt.get_program_id
// CHECK: %[[TAKES:.*]] = arith.cmpi slt, %[[PID]], %[[TILES:.*]] :
// CHECK: scf.if %[[TAKES]]
// CHECK: %[[THERE:.*]] = ditron.swizzle gather %[[PID]] of %{{.*}} by %c128_i32
// CHECK: %[[M:.*]] = arith.select %{{.*}}, %[[THERE]], %[[PID]]
// CHECK: arith.muli %[[M]], %c128_i32
// CHECK: tt.addptr %{{.*}}, %[[M]] :
// CHECK: else
// CHECK-NEXT: tt.addptr %{{.*}}, %[[PID]] :
tt.func @one_dimension(%sig: !tt.ptr<i64>, %tiles: i32, %rpr: i32, %epoch: i64) attributes {ditron.kernel} {
  %c1 = arith.constant 1 : i32
  %c128 = arith.constant 128 : i32
  %pid = tt.get_program_id x : i32
  %takes = arith.cmpi slt, %pid, %tiles : i32
  scf.if %takes {
    %row = arith.muli %pid, %c128 : i32
    %owner = arith.divsi %row, %rpr : i32
    %theirs = tt.addptr %sig, %owner : !tt.ptr<i64>, i32
    // expected-remark@+1 {{tiles reordered for gather}}
    %token = ditron.wait %theirs[%c1] ge %epoch : !tt.ptr<i64>
    %place = tt.addptr %sig, %pid : !tt.ptr<i64>, i32
    tt.store %place, %epoch : !tt.ptr<i64>
  } else {
    %place = tt.addptr %sig, %pid : !tt.ptr<i64>, i32
    tt.store %place, %epoch : !tt.ptr<i64>
  }
  tt.return
}

// -----

// And of one dimension in a loop.
// CHECK-LABEL: tt.func @steps_of_one_dimension(
// CHECK: scf.for %[[TILE:.*]] = %{{.*}} to %[[END:.*]] step
// CHECK: %[[THERE:.*]] = ditron.swizzle scatter %[[TILE]] of
// CHECK: arith.cmpi eq, %{{.*}}, %[[END]]
// CHECK: %[[M:.*]] = arith.select %{{.*}}, %[[THERE]], %[[TILE]]
// CHECK: ditron.notify {{.*}} on %[[M]]
tt.func @steps_of_one_dimension(%sig: !tt.ptr<i64>, %tiles: i32, %epoch: i64) attributes {ditron.kernel} {
  %pid = tt.get_program_id x : i32
  %programs = tt.get_num_programs x : i32
  scf.for %tile = %pid to %tiles step %programs : i32 {
    // expected-remark@+1 {{tiles reordered for scatter}}
    ditron.notify %sig set %epoch on %tile : !tt.ptr<i64>
  }
  tt.return
}

// -----

// Functions that do not ask for the program's number on this axis, and programs that have no tile, are no matter.
// CHECK-LABEL: tt.func @calls_a_function(
// CHECK: ditron.swizzle gather
tt.func @stores(%sig: !tt.ptr<i64>, %epoch: i64) attributes {noinline = true} {
  %pid = tt.get_program_id y : i32
  %place = tt.addptr %sig, %pid : !tt.ptr<i64>, i32
  tt.store %place, %epoch : !tt.ptr<i64>
  tt.return
}
tt.func @calls_a_function(%sig: !tt.ptr<i64>, %tiles: i32, %per: i32, %epoch: i64) attributes {ditron.kernel} {
  %c1 = arith.constant 1 : i32
  %pid = tt.get_program_id x : i32
  %takes = arith.cmpi slt, %pid, %tiles : i32
  scf.if %takes {
    %m = arith.divsi %pid, %per : i32
    %owner = arith.divsi %m, %per : i32
    %theirs = tt.addptr %sig, %owner : !tt.ptr<i64>, i32
    // expected-remark@+1 {{tiles reordered for gather}}
    %token = ditron.wait %theirs[%c1] ge %epoch : !tt.ptr<i64>
    tt.call @stores(%sig, %epoch) : (!tt.ptr<i64>, i64) -> ()
  } else {
    %again = tt.get_program_id x : i32
    %place = tt.addptr %sig, %again : !tt.ptr<i64>, i32
    tt.store %place, %epoch : !tt.ptr<i64>
  }
  tt.return
}
