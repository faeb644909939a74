// RUN: ditron-opt %s --split-input-file --pass-pipeline='builtin.module(lower-swizzle,canonicalize,cse)' | filecheck %s
// RUN: ditron-opt %s --split-input-file --pass-pipeline='builtin.module(lower-swizzle{one-node=true},canonicalize,cse)' | filecheck %s --check-prefix=ONE

// CHECK-LABEL: @gather
// CHECK-DAG: %[[RANKS:.*]] = ditron.num_ranks
// CHECK-DAG: %[[NODE:.*]] = ditron.node
// CHECK-DAG: %[[LOCAL:.*]] = ditron.local_rank
// CHECK-DAG: %[[PER:.*]] = ditron.num_local_ranks
// CHECK: %[[TILES:.*]] = arith.divsi {{.*}}, %arg2
// CHECK: %[[SHARD:.*]] = arith.divsi {{.*}}, %[[RANKS]]
// CHECK: %[[NODE_SHARD:.*]] = arith.muli %[[PER]], %[[SHARD]]
// CHECK: arith.muli %[[NODE]], %[[NODE_SHARD]]
// CHECK: arith.remsi {{.*}}, %[[NODE_SHARD]]
// CHECK: arith.remsi {{.*}}, %[[SHARD]]
// CHECK-NOT: ditron.
// CHECK: return
// ONE-LABEL: @gather
// ONE-NOT: node
// ONE-NOT: local
// ONE: %[[RANK:.*]] = ditron.rank
// ONE: %[[RANKS:.*]] = ditron.num_ranks
// ONE: %[[TILES:.*]] = arith.divsi {{.*}}, %arg2
// ONE: %[[SHARD:.*]] = arith.divsi {{.*}}, %[[RANKS]]
// ONE: arith.muli %[[RANK]], %[[SHARD]]
// ONE: arith.remsi {{.*}}, %[[SHARD]]
// ONE-NOT: ditron.
// ONE: return
func.func @gather(%tile: i32, %size: i32, %block: i32) -> i32 {
  %m = ditron.swizzle gather %tile of %size by %block
  return %m : i32
}

// The ranks of a node are on one node.
// CHECK-LABEL: @scatter_in_the_node
// CHECK-NEXT: arith.constant
// CHECK-NEXT: arith.constant
// CHECK-NEXT: %[[RANK:.*]] = ditron.rank team node
// CHECK-NEXT: %[[RANKS:.*]] = ditron.num_ranks team node
// CHECK-NOT: ditron.
// CHECK: %[[SHARD:.*]] = arith.divsi {{.*}}, %[[RANKS]]
// CHECK: %[[START:.*]] = arith.muli %[[RANK]], %[[SHARD]]
// CHECK: %[[NEXT:.*]] = arith.addi %[[START]], %[[SHARD]]
// CHECK: arith.cmpi slt, %[[NEXT]], %arg1
func.func @scatter_in_the_node(%tile: i32, %size: i32, %block: i32) -> i32 {
  %m = ditron.swizzle scatter %tile of %size by %block team node
  return %m : i32
}

// -----

// The result is used more than once, and other operations are left alone.
// CHECK-LABEL: @used_twice
// CHECK: %[[SUM:.*]] = arith.addi %[[M:.*]], %[[M]]
// CHECK: return %[[SUM]]
// ONE-LABEL: @used_twice
func.func @used_twice(%tile: i32, %size: i32) -> i32 {
  %block = arith.constant 64 : i32
  %m = ditron.swizzle gather %tile of %size by %block
  %sum = arith.addi %m, %m : i32
  return %sum : i32
}

// -----

// CHECK-LABEL: @nothing_to_do
// CHECK-NEXT: return %arg0
// ONE-LABEL: @nothing_to_do
func.func @nothing_to_do(%tile: i32) -> i32 {
  return %tile : i32
}
