// RUN: ditron-opt %s --decompose-all-at-once --canonicalize | filecheck %s

// CHECK-LABEL: ditron.program @gather(
// CHECK: %[[ONE:.*]] = arith.constant 1 : i64
// CHECK: %[[RANK:.*]] = arith.extsi %rank
// CHECK: %[[RANKS:.*]] = arith.extsi %num_ranks
// CHECK: %[[ROWS:.*]] = ditron.dim %a[0]
// CHECK: %[[COLS:.*]] = ditron.dim %a[1]
// CHECK: %[[FIRST:.*]] = arith.muli %[[RANK]], %[[ROWS]]
// CHECK: %[[OWN:.*]] = ditron.slice %all[%[[FIRST]], 0] [%[[ROWS]], %[[COLS]]] : <?x?xbf16, symmetric> to <?x?xbf16, symmetric>
// CHECK: ditron.copy %a to %[[OWN]] : <?x?xbf16> to <?x?xbf16, symmetric>
// CHECK: ditron.signal_write %arrived[%[[RANK]]] set %epoch on %[[RANK]] {ditron.with_copy} : <?xi64, symmetric>
// CHECK: scf.for %[[STEP:.*]] = %[[ONE]] to %[[RANKS]] step %[[ONE]] : i64 {
// CHECK:   %[[DOWN:.*]] = arith.subi %[[RANK]], %[[STEP]]
// CHECK:   %[[UP:.*]] = arith.addi %[[DOWN]], %[[RANKS]]
// CHECK:   %[[PEER:.*]] = arith.remsi %[[UP]], %[[RANKS]]
// CHECK:   ditron.rank_copy %a to %[[OWN]] on %[[PEER]] : <?x?xbf16> to <?x?xbf16, symmetric>
// CHECK:   ditron.signal_write %arrived[%[[RANK]]] set %epoch on %[[PEER]] {ditron.with_copy} : <?xi64, symmetric>
// CHECK: }
// CHECK-NOT: all_gather
ditron.program @gather(%a: !ditron.buffer<?x?xbf16>, %all: !ditron.buffer<?x?xbf16, symmetric>, %arrived: !ditron.buffer<?xi64, symmetric>) {
  %epoch = ditron.epoch
  ditron.all_gather %a into %all signal %arrived at %epoch : <?x?xbf16>, <?x?xbf16, symmetric>, <?xi64, symmetric>
}

// Static sizes stay static.
// CHECK-LABEL: ditron.program @known_sizes(
// CHECK: ditron.slice %all[%{{.*}}, 0] [8, 64] : <32x64xbf16, symmetric> to <8x64xbf16, symmetric>
// CHECK: ditron.rank_copy %a to %{{.*}} : <8x64xbf16> to <8x64xbf16, symmetric>
ditron.program @known_sizes(%a: !ditron.buffer<8x64xbf16>, %all: !ditron.buffer<32x64xbf16, symmetric>, %arrived: !ditron.buffer<4xi64, symmetric>) {
  %epoch = ditron.epoch
  ditron.all_gather %a into %all signal %arrived at %epoch : <8x64xbf16>, <32x64xbf16, symmetric>, <4xi64, symmetric>
}

// All operations are put on the stream of the all-gather; one in a loop stays in it.
// CHECK-LABEL: ditron.program @stream(
// CHECK: scf.for
// CHECK:   ditron.copy {{.*}} stream %side
// CHECK:   ditron.signal_write {{.*}} stream %side
// CHECK:   scf.for
// CHECK:     ditron.rank_copy {{.*}} stream %side
// CHECK:     ditron.signal_write {{.*}} stream %side
ditron.program @stream(%a: !ditron.buffer<?xf32>, %all: !ditron.buffer<?xf32, symmetric>, %arrived: !ditron.buffer<?xi64, symmetric>, %n: i64) {
  %side = ditron.stream "side"
  %zero = arith.constant 0 : i64
  scf.for %i = %zero to %n step %n : i64 {
    ditron.all_gather %a into %all signal %arrived at %i stream %side : <?xf32>, <?xf32, symmetric>, <?xi64, symmetric>
  }
}

// CHECK-LABEL: ditron.program @nothing_to_do(
// CHECK-NEXT: ditron.stream_barrier
// CHECK-NEXT: }
ditron.program @nothing_to_do() {
  ditron.stream_barrier
}
