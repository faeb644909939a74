// RUN: ditron-opt %s --canonicalize --cse | filecheck %s
// RUN: ditron-opt %s --loop-invariant-code-motion | filecheck %s --check-prefix=LICM

tt.func @k(%n: i64) {
  tt.return
}

// CHECK-LABEL: ditron.program @sizes_are_known_where_memory_was_made
ditron.program @sizes_are_known_where_memory_was_made(%m: i64, %o: i64, %a: !ditron.buffer<7x?xf32>) {
  // CHECK-DAG: %[[TWO:.*]] = arith.constant 2 : i64
  // CHECK-DAG: %[[SEVEN:.*]] = arith.constant 7 : i64
  // CHECK: ditron.launch @k grid(1) (%[[SEVEN]])
  // CHECK: ditron.launch @k grid(1) (%[[TWO]])
  // CHECK: ditron.launch @k grid(1) (%m)
  // CHECK: ditron.launch @k grid(1) (%o)
  %seven = ditron.dim %a[0] : <7x?xf32>
  %two = arith.constant 2 : i64
  %x = ditron.alloc "x" [%two, %m] : <?x?xf32>
  %d0 = ditron.dim %x[0] : <?x?xf32>
  %d1 = ditron.dim %x[1] : <?x?xf32>
  %s = ditron.slice %x[0, 0] [1, %o] : <?x?xf32> to <?xf32>
  %d2 = ditron.dim %s[0] : <?xf32>
  ditron.launch @k grid(1) (%seven) : (i64)
  ditron.launch @k grid(1) (%d0) : (i64)
  ditron.launch @k grid(1) (%d1) : (i64)
  ditron.launch @k grid(1) (%d2) : (i64)
}

// CHECK-LABEL: ditron.program @strides_are_those_of_the_root
ditron.program @strides_are_those_of_the_root(%m: i64, %a: !ditron.buffer<?x?x?xf32>) {
  // CHECK-DAG: %[[ONE:.*]] = arith.constant 1 : i64
  // CHECK-DAG: %[[SIXTEEN:.*]] = arith.constant 16 : i64
  // CHECK-DAG: %[[A:.*]] = ditron.stride %a[2]
  // CHECK: ditron.launch @k grid(1) (%[[ONE]])
  // CHECK: ditron.launch @k grid(1) (%[[SIXTEEN]])
  // CHECK: ditron.launch @k grid(1) (%[[A]])
  %x = ditron.alloc "x" [%m, 2, 8] : <?x2x8xf32>
  %s1 = ditron.stride %x[2] : <?x2x8xf32>
  %s16 = ditron.stride %x[0] : <?x2x8xf32>
  %part = ditron.slice %a[%m, 1, 1] [1, 1, 4] : <?x?x?xf32> to <1x4xf32>
  %sa = ditron.stride %part[1] : <1x4xf32>
  ditron.launch @k grid(1) (%s1) : (i64)
  ditron.launch @k grid(1) (%s16) : (i64)
  ditron.launch @k grid(1) (%sa) : (i64)
}

// CHECK-LABEL: ditron.program @constants_move_in
ditron.program @constants_move_in(%sig: !ditron.buffer<8xi64, symmetric>, %v: i64) {
  // CHECK-NOT: arith.constant
  // CHECK: %x = ditron.alloc "x" [3, 4]
  // CHECK: ditron.slice %x[1, 2] [2, 2]
  // CHECK: ditron.signal_write %sig[3] set
  // CHECK: ditron.signal_wait %sig[2] ge
  // CHECK: ditron.launch @k grid(4, 1)
  %one = arith.constant 1 : i64
  %two = arith.constant 2 : i64
  %three = arith.constant 3 : i64
  %four = arith.constant 4 : i64
  %x = ditron.alloc "x" [%three, %four] : <?x?xi64>
  %s = ditron.slice %x[%one, %two] [2, %two] : <?x?xi64> to <2x?xi64>
  ditron.signal_write %sig[%three] set %v on %v : <8xi64, symmetric>
  ditron.signal_wait %sig[%two] ge %v : <8xi64, symmetric>
  ditron.launch @k grid(%four, %one) (%v) : (i64)
  ditron.fill %s, %v : <2x?xi64>
}

// CHECK-LABEL: ditron.program @the_whole_is_the_source
ditron.program @the_whole_is_the_source(%a: !ditron.buffer<?x8xf32>, %b: !ditron.buffer<?x8xf32>, %n: i64, %z: f32) {
  // CHECK: ditron.fill %a
  // CHECK: %[[ONE_DOWN:.*]] = ditron.slice %a[1, 0]
  // CHECK: %[[OTHER:.*]] = ditron.slice %b[0, 0]
  // CHECK: ditron.fill %[[ONE_DOWN]]
  // CHECK: ditron.fill %[[OTHER]]
  %rows = ditron.dim %a[0] : <?x8xf32>
  %0 = ditron.slice %a[0, 0] [%rows, 8] : <?x8xf32> to <?x8xf32>
  ditron.fill %0, %z : <?x8xf32>
  %1 = ditron.slice %a[1, 0] [%n, 8] : <?x8xf32> to <?x8xf32>
  %2 = ditron.slice %b[0, 0] [%rows, 8] : <?x8xf32> to <?x8xf32>
  ditron.fill %1, %z : <?x8xf32>
  ditron.fill %2, %z : <?x8xf32>
}

// CHECK-LABEL: ditron.program @a_part_of_a_part
ditron.program @a_part_of_a_part(%a: !ditron.buffer<?x?x?xf32>, %i: i64, %j: i64, %n: i64, %z: f32) {
  // CHECK: %[[SUM:.*]] = arith.addi %i, %j
  // CHECK: %[[PART:.*]] = ditron.slice %a[%i, %[[SUM]], 5] [1, 1, %n] : <?x?x?xf32> to <?xf32>
  // CHECK: ditron.fill %[[PART]]
  %0 = ditron.slice %a[%i, %i, 2] [1, %n, %n] : <?x?x?xf32> to <?x?xf32>
  %1 = ditron.slice %0[%j, 3] [1, %n] : <?x?xf32> to <?xf32>
  ditron.fill %1, %z : <?xf32>
}

// What does nothing goes: unused memory and views, records that nobody awaits, awaiting oneself.
// CHECK-LABEL: ditron.program @useless
ditron.program @useless(%a: !ditron.buffer<4xf32>) {
  // CHECK-NEXT: }
  %x = ditron.alloc "x" [4] : <4xf32>
  %s = ditron.slice %a[0] [2] : <4xf32> to <2xf32>
  %copy = ditron.stream "copy"
  %event = ditron.record stream %copy
  %same = ditron.record stream %copy
  ditron.await %same stream %copy
}

// CHECK-LABEL: ditron.program @order_stays
ditron.program @order_stays(%a: !ditron.buffer<4xf32>, %z: f32) {
  // CHECK: ditron.fill
  // CHECK: ditron.fill
  // CHECK: ditron.stream_barrier
  // CHECK: ditron.stream_barrier
  // CHECK: ditron.record stream %copy
  // CHECK: ditron.await
  %copy = ditron.stream "copy"
  ditron.fill %a, %z : <4xf32>
  ditron.fill %a, %z : <4xf32>
  ditron.stream_barrier
  ditron.stream_barrier
  %event = ditron.record stream %copy
  ditron.await %event
}

// The same stream is one value; two allocations are two.
// CHECK-LABEL: ditron.program @same_and_different
ditron.program @same_and_different(%z: f32) {
  // CHECK: ditron.alloc "x"
  // CHECK: ditron.alloc "y"
  // CHECK: ditron.stream "copy"
  // CHECK-NOT: ditron.stream "copy"
  %x = ditron.alloc "x" [4] : <4xf32>
  %y = ditron.alloc "y" [4] : <4xf32>
  %c = ditron.stream "copy"
  %d = ditron.stream "copy"
  ditron.fill %x, %z stream %c : <4xf32>
  ditron.fill %y, %z stream %d : <4xf32>
}

// A slice that a loop of no turns never takes may lie outside: it stays where it is. Numbers may move.
// LICM-LABEL: ditron.program @slices_stay_in_their_loop
ditron.program @slices_stay_in_their_loop(%a: !ditron.buffer<?xf32>, %n: i64, %z: f32) {
  // LICM: ditron.epoch
  // LICM: scf.for
  // LICM-NEXT: ditron.slice
  %zero = arith.constant 0 : i64
  scf.for %i = %zero to %n step %n : i64 {
    %s = ditron.slice %a[%n] [1] : <?xf32> to <1xf32>
    %e = ditron.epoch
    ditron.fill %s, %z : <1xf32>
    ditron.launch @k grid(1) (%e) : (i64)
  }
}
