// RUN: ditron-opt %s --hoist-symm-at --canonicalize | filecheck %s
// RUN: ditron-opt %s --pass-pipeline='builtin.module(hoist-symm-at,lower-to-nvidia,canonicalize)' | filecheck %s --check-prefix=ALIGNED
// RUN: ditron-opt %s --hoist-symm-at --mlir-pass-statistics -o %t 2>&1 | filecheck %s --check-prefix=COUNT

// COUNT-DAG: 6  hoist-symm-at: moved to a scalar base
// COUNT-DAG: 5  hoist-symm-at: moved out of a loop
// COUNT-DAG: 4  hoist-symm-at: common subexpressions eliminated

// One scalar call instead of one per element, with the alignment of the argument.
// CHECK-LABEL: tt.func @tensor_of_pointers(
// CHECK: %[[PEER:.*]] = ditron.symm_at %arg0 on %arg1 : !tt.ptr<bf16>
// CHECK-NEXT: %[[BASES:.*]] = tt.splat %[[PEER]] :
// CHECK-NEXT: %[[PTRS:.*]] = tt.addptr %[[BASES]], %arg2 :
// CHECK-NEXT: tt.store %[[PTRS]],
// ALIGNED-LABEL: tt.func @tensor_of_pointers(
// ALIGNED: symbol = "ditron_symm_at", tt.divisibility = dense<16>
tt.func @tensor_of_pointers(%p: !tt.ptr<bf16> {tt.divisibility = 16 : i32}, %r: i32, %range: tensor<64xi32>, %x: tensor<64xbf16>, %ctx: !tt.ptr<i64>) attributes {ditron.kernel} {
  %bases = tt.splat %p : !tt.ptr<bf16> -> tensor<64x!tt.ptr<bf16>>
  %ptrs = tt.addptr %bases, %range : tensor<64x!tt.ptr<bf16>>, tensor<64xi32>
  %there = ditron.symm_at %ptrs on %r : tensor<64x!tt.ptr<bf16>>
  tt.store %there, %x : tensor<64x!tt.ptr<bf16>>
  tt.return
}

// One translation for all chunks of a loop; it and the computation of the rank are hoisted out of both loops.
// CHECK-LABEL: tt.func @chunks(
// CHECK: %[[RIGHT:.*]] = arith.remsi
// CHECK-NEXT: %[[PEER:.*]] = ditron.symm_at %arg0 on %[[RIGHT]] : !tt.ptr<f32>
// CHECK-NEXT: scf.for
// CHECK-NEXT: scf.for %[[J:.*]] =
// CHECK-NEXT: %[[CHUNK:.*]] = tt.addptr %[[PEER]], %[[J]] :
// CHECK-NEXT: tt.store %[[CHUNK]],
tt.func @chunks(%p: !tt.ptr<f32>, %x: f32, %n: i32, %ctx: !tt.ptr<i64>) attributes {ditron.kernel} {
  %c0 = arith.constant 0 : i32
  %c1 = arith.constant 1 : i32
  scf.for %i = %c0 to %n step %c1 : i32 {
    scf.for %j = %i to %n step %c1 : i32 {
      %rank = ditron.rank
      %ranks = ditron.num_ranks
      %next = arith.addi %rank, %c1 : i32
      %right = arith.remsi %next, %ranks : i32
      %chunk = tt.addptr %p, %j : !tt.ptr<f32>, i32
      %there = ditron.symm_at %chunk on %right : !tt.ptr<f32>
      tt.store %there, %x : !tt.ptr<f32>
    }
  }
  tt.return
}

// A loop with at least one iteration: over the ranks, or a constant number of times.
// CHECK-LABEL: tt.func @loops_that_run(
// CHECK: ditron.symm_at %arg0 on %arg2
// CHECK: scf.for
// CHECK-NOT: ditron.symm_at
// CHECK: tt.return
tt.func @loops_that_run(%p: !tt.ptr<f32>, %x: f32, %r: i32, %ctx: !tt.ptr<i64>) attributes {ditron.kernel} {
  %c0 = arith.constant 0 : i32
  %c1 = arith.constant 1 : i32
  %c4 = arith.constant 4 : i32
  %ranks = ditron.num_ranks
  scf.for %i = %c0 to %ranks step %c1 : i32 {
    %there = ditron.symm_at %p on %r : !tt.ptr<f32>
    tt.store %there, %x : !tt.ptr<f32>
  }
  scf.for %i = %c0 to %c4 step %c1 : i32 {
    %there = ditron.symm_at %p on %r : !tt.ptr<f32>
    tt.store %there, %x : !tt.ptr<f32>
  }
  scf.while : () -> () {
    %there = ditron.symm_at %p on %r : !tt.ptr<f32>
    %seen = tt.load %there {isVolatile = true} : !tt.ptr<f32>
    %again = arith.cmpf olt, %seen, %x : f32
    scf.condition(%again)
  } do {
    scf.yield
  }
  tt.return
}

// Not hoisted: a loop that may not run, of a rank that may be out of range; a rank that varies by iteration; a condition.
// CHECK-LABEL: tt.func @stays(
// CHECK: scf.for
// CHECK-NEXT: ditron.symm_at
// CHECK: scf.for %[[R:.*]] =
// CHECK-NEXT: ditron.symm_at %arg0 on %[[R]]
// CHECK: scf.for
// CHECK-NEXT: scf.if
// CHECK-NEXT: ditron.symm_at
tt.func @stays(%p: !tt.ptr<f32>, %x: f32, %r: i32, %n: i32, %yes: i1, %ctx: !tt.ptr<i64>) attributes {ditron.kernel} {
  %c0 = arith.constant 0 : i32
  %c1 = arith.constant 1 : i32
  %ranks = ditron.num_ranks
  scf.for %i = %c0 to %n step %c1 : i32 {
    %there = ditron.symm_at %p on %r : !tt.ptr<f32>
    tt.store %there, %x : !tt.ptr<f32>
  }
  scf.for %i = %c0 to %ranks step %c1 : i32 {
    %there = ditron.symm_at %p on %i : !tt.ptr<f32>
    tt.store %there, %x : !tt.ptr<f32>
  }
  scf.for %i = %c0 to %ranks step %c1 : i32 {
    scf.if %yes {
      %there = ditron.symm_at %p on %r : !tt.ptr<f32>
      tt.store %there, %x : !tt.ptr<f32>
    }
  }
  tt.return
}

// Not moved: pointers passed to opaque code, or merged by a branch with one whose address is observed.
// CHECK-LABEL: tt.func @shown_to_others(
// CHECK: %[[AT:.*]] = tt.addptr %arg0, %arg2 :
// CHECK-NEXT: ditron.symm_at %[[AT]] on %arg2
tt.func @shown_to_others(%p: !tt.ptr<f32>, %x: f32, %r: i32, %ctx: !tt.ptr<i64>) attributes {ditron.kernel} {
  %q = tt.addptr %p, %r : !tt.ptr<f32>, i32
  %a = ditron.symm_at %q on %r : !tt.ptr<f32>
  %b = ditron.extern_call "is_null"(%a) from "mine" : (!tt.ptr<f32>) -> i32
  tt.return
}
// CHECK-LABEL: tt.func @brought_by_a_branch(
// CHECK: %[[AT:.*]] = tt.addptr %arg0, %arg1 :
// CHECK-NEXT: ditron.symm_at %[[AT]] on %arg1
tt.func @brought_by_a_branch(%p: !tt.ptr<f32>, %r: i32, %ctx: !tt.ptr<i64>) attributes {ditron.kernel} {
  %q = tt.addptr %p, %r : !tt.ptr<f32>, i32
  %a = ditron.symm_at %q on %r : !tt.ptr<f32>
  cf.br ^bb1(%a : !tt.ptr<f32>)
^bb1(%some: !tt.ptr<f32>):
  %address = tt.ptr_to_int %some : !tt.ptr<f32> -> i64
  tt.store %ctx, %address : !tt.ptr<i64>
  tt.return
}

// Across nodes the result is null, which base + offset is not: where the address is observed, nothing is moved.
// CHECK-LABEL: tt.func @is_it_null(
// CHECK: %[[AT:.*]] = tt.addptr %arg0, %arg1 :
// CHECK-NEXT: ditron.symm_at %[[AT]] on %arg1
tt.func @is_it_null(%p: !tt.ptr<f32>, %r: i32, %out: !tt.ptr<i64>, %ctx: !tt.ptr<i64>) attributes {ditron.kernel} {
  %at = tt.addptr %p, %r : !tt.ptr<f32>, i32
  %there = ditron.symm_at %at on %r : !tt.ptr<f32>
  %address = tt.ptr_to_int %there : !tt.ptr<f32> -> i64
  tt.store %out, %address : !tt.ptr<i64>
  tt.return
}

// Common subexpressions: of one base, also in a dominated branch; not those of two branches, nor of two ranks.
// CHECK-LABEL: tt.func @common_subexpressions(
// CHECK-COUNT-4: ditron.symm_at
// CHECK-NOT: ditron.symm_at
// CHECK: tt.return
tt.func @common_subexpressions(%p: !tt.ptr<f32>, %x: f32, %r: i32, %s: i32, %yes: i1, %ctx: !tt.ptr<i64>) attributes {ditron.kernel} {
  %q = tt.addptr %p, %r : !tt.ptr<f32>, i32
  %a = ditron.symm_at %p on %r : !tt.ptr<f32>
  %b = ditron.symm_at %q on %r : !tt.ptr<f32>
  %c = ditron.symm_at %q on %s : !tt.ptr<f32>
  tt.store %a, %x : !tt.ptr<f32>
  tt.store %b, %x : !tt.ptr<f32>
  tt.store %c, %x : !tt.ptr<f32>
  %c0 = arith.constant 0 : i32
  scf.if %yes {
    %d = ditron.symm_at %q on %r : !tt.ptr<f32>
    tt.store %d, %x : !tt.ptr<f32>
    %e = ditron.symm_at %p on %c0 : !tt.ptr<f32>
    tt.store %e, %x : !tt.ptr<f32>
  } else {
    %f = ditron.symm_at %p on %c0 : !tt.ptr<f32>
    tt.store %f, %x : !tt.ptr<f32>
  }
  tt.return
}

// Alignment through a select, a loop, and offsets that keep it; half of it where the offset is 4 elements of 2 bytes.
// ALIGNED-LABEL: tt.func @alignment(
// ALIGNED: symbol = "ditron_symm_at", tt.divisibility = dense<8> : tensor<1xi32>
tt.func @alignment(%p: !tt.ptr<bf16> {tt.divisibility = 16 : i32}, %q: !tt.ptr<bf16> {tt.divisibility = 16 : i32}, %x: bf16, %r: i32, %yes: i1, %ctx: !tt.ptr<i64>) attributes {ditron.kernel} {
  %c0 = arith.constant 0 : i32
  %c1 = arith.constant 1 : i32
  %c4 = arith.constant 4 : i32
  %some = arith.muli %r, %c4 : i32
  %last = scf.for %i = %c0 to %r step %c1 iter_args(%at = %p) -> (!tt.ptr<bf16>) : i32 {
    %next = tt.addptr %at, %some : !tt.ptr<bf16>, i32
    scf.yield %next : !tt.ptr<bf16>
  }
  %one = arith.select %yes, %last, %q : !tt.ptr<bf16>
  %there = ditron.symm_at %one on %r : !tt.ptr<bf16>
  tt.store %there, %x : !tt.ptr<bf16>
  tt.return
}

// Ranks that are all one scalar are that scalar; other tensors of ranks stay.
// CHECK-LABEL: tt.func @tensors_of_ranks(
// CHECK: ditron.symm_at %arg0 on %arg1 : !tt.ptr<f32>
// CHECK: ditron.symm_at %{{.*}} on %arg2 : tensor<64x!tt.ptr<f32>>, tensor<64xi32>
tt.func @tensors_of_ranks(%p: !tt.ptr<f32>, %r: i32, %rs: tensor<64xi32>, %x: tensor<64xf32>, %ctx: !tt.ptr<i64>) attributes {ditron.kernel} {
  %bases = tt.splat %p : !tt.ptr<f32> -> tensor<64x!tt.ptr<f32>>
  %same = tt.splat %r : i32 -> tensor<64xi32>
  %one = ditron.symm_at %bases on %same : tensor<64x!tt.ptr<f32>>, tensor<64xi32>
  tt.store %one, %x : tensor<64x!tt.ptr<f32>>
  %each = ditron.symm_at %bases on %rs : tensor<64x!tt.ptr<f32>>, tensor<64xi32>
  tt.store %each, %x : tensor<64x!tt.ptr<f32>>
  tt.return
}
