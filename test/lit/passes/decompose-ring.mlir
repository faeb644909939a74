// RUN: ditron-opt %s --decompose-ring --canonicalize | filecheck %s

// CHECK-LABEL: ditron.program @gather(
// CHECK: %[[ONE:.*]] = arith.constant 1 : i64
// CHECK: %[[RANK:.*]] = arith.extsi %rank
// CHECK: %[[RANKS:.*]] = arith.extsi %num_ranks
// CHECK: %[[OWN:.*]] = ditron.slice %all[
// CHECK: %[[LAST:.*]] = arith.subi %[[RANKS]], %[[ONE]]
// CHECK: %[[SUM:.*]] = arith.addi %[[RANK]], %[[LAST]]
// CHECK: %[[LEFT:.*]] = arith.remsi %[[SUM]], %[[RANKS]]
// CHECK: ditron.copy %a to %[[OWN]]
// CHECK: ditron.signal_write %arrived[%[[RANK]]] set %epoch on %[[RANK]]
// CHECK: %[[SEVERAL:.*]] = arith.cmpi sgt, %[[RANKS]], %[[ONE]]
// CHECK: scf.if %[[SEVERAL]] {
// CHECK:   ditron.rank_copy %a to %[[OWN]] on %[[LEFT]]
// CHECK:   ditron.signal_write %arrived[%[[RANK]]] set %epoch on %[[LEFT]] {ditron.with_copy}
// CHECK: }
// CHECK: scf.for %[[STEP:.*]] = %[[ONE]] to %[[LAST]] step %[[ONE]] : i64 {
// CHECK:   %[[UP:.*]] = arith.addi %[[RANK]], %[[STEP]]
// CHECK:   %[[FROM:.*]] = arith.remsi %[[UP]], %[[RANKS]]
// CHECK:   %[[FIRST:.*]] = arith.muli %[[FROM]]
// CHECK:   %[[SHARD:.*]] = ditron.slice %all[%[[FIRST]], 0]
// CHECK:   ditron.signal_wait %arrived[%[[FROM]]] ge %epoch {ditron.with_copy}
// CHECK:   ditron.rank_copy %[[SHARD]] to %[[SHARD]] on %[[LEFT]] : <?x?xbf16, symmetric> to <?x?xbf16, symmetric>
// CHECK:   ditron.signal_write %arrived[%[[FROM]]] set %epoch on %[[LEFT]] {ditron.with_copy}
// CHECK: }
// CHECK-NOT: all_gather
ditron.program @gather(%a: !ditron.buffer<?x?xbf16>, %all: !ditron.buffer<?x?xbf16, symmetric>, %arrived: !ditron.buffer<?xi64, symmetric>) {
  %epoch = ditron.epoch
  ditron.all_gather %a into %all signal %arrived at %epoch : <?x?xbf16>, <?x?xbf16, symmetric>, <?xi64, symmetric>
}

// All operations are put on the stream of the all-gather.
// CHECK-LABEL: ditron.program @stream(
// CHECK-COUNT-7: stream %side{{ (:|{)}}
ditron.program @stream(%a: !ditron.buffer<?xf32>, %all: !ditron.buffer<?xf32, symmetric>, %arrived: !ditron.buffer<?xi64, symmetric>) {
  %epoch = ditron.epoch
  %side = ditron.stream "side"
  ditron.all_gather %a into %all signal %arrived at %epoch stream %side : <?xf32>, <?xf32, symmetric>, <?xi64, symmetric>
}

// CHECK-LABEL: ditron.program @nothing_to_do(
// CHECK-NEXT: ditron.stream_barrier
// CHECK-NEXT: }
ditron.program @nothing_to_do() {
  ditron.stream_barrier
}
