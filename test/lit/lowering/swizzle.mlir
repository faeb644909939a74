// RUN: ditron-opt %s --lower-swizzle | filecheck %s

// CHECK-LABEL: @gather
// CHECK: %[[ONE:.*]] = arith.constant 1 : i32
// CHECK: %[[RANK:.*]] = ditron.rank
// CHECK: %[[RANKS:.*]] = ditron.num_ranks
// CHECK: %[[TILES:.*]] = arith.divsi {{.*}}, %arg2
// CHECK: %[[SHARD:.*]] = arith.divsi {{.*}}, %[[RANKS]]
// CHECK: %[[START:.*]] = arith.muli %[[RANK]], %[[SHARD]]
// CHECK: %[[UP:.*]] = arith.addi %[[START]], %arg2
// CHECK: %[[UP1:.*]] = arith.subi %[[UP]], %[[ONE]]
// CHECK: %[[FIRST:.*]] = arith.divsi %[[UP1]], %arg2
// CHECK: %[[SUM:.*]] = arith.addi %arg0, %[[FIRST]]
// CHECK: %[[M:.*]] = arith.remsi %[[SUM]], %[[TILES]]
// CHECK: return %[[M]]
func.func @gather(%tile: i32, %size: i32, %block: i32) -> i32 {
  %m = ditron.swizzle gather %tile of %size by %block
  return %m : i32
}

// CHECK-LABEL: @scatter_in_the_node
// CHECK: %[[RANK:.*]] = ditron.rank team node
// CHECK: %[[RANKS:.*]] = ditron.num_ranks team node
// CHECK: %[[NEXT:.*]] = arith.remsi {{.*}}, %[[RANKS]]
// CHECK: %[[START:.*]] = arith.muli %[[NEXT]], {{.*}}
// CHECK: arith.divsi %[[START]], %arg2
func.func @scatter_in_the_node(%tile: i32, %size: i32, %block: i32) -> i32 {
  %m = ditron.swizzle scatter %tile of %size by %block team node
  return %m : i32
}
