// RUN: ditron-opt %s | ditron-opt | filecheck %s
// RUN: ditron-opt %s --mlir-print-op-generic | ditron-opt | filecheck %s
// RUN: ditron-opt %s --mlir-print-op-generic | filecheck %s --check-prefix=GENERIC

// CHECK-LABEL: @every_query
func.func @every_query() {
  // CHECK: %rank = ditron.rank{{$}}
  // GENERIC: "ditron.rank"() <{team = #ditron.team<group>}> : () -> i32
  %0 = ditron.rank
  // CHECK: ditron.rank team node{{$}}
  %1 = ditron.rank team node
  // CHECK: ditron.rank team world{{$}}
  %2 = ditron.rank team world
  // CHECK: %num_ranks = ditron.num_ranks{{$}}
  %3 = ditron.num_ranks
  // CHECK: ditron.num_ranks team world{{$}}
  // GENERIC: "ditron.num_ranks"() <{team = #ditron.team<world>}> : () -> i32
  %4 = ditron.num_ranks team world
  // CHECK: %local_rank = ditron.local_rank{{$}}
  // GENERIC: "ditron.local_rank"() : () -> i32
  %5 = ditron.local_rank
  // CHECK: %num_local_ranks = ditron.num_local_ranks{{$}}
  %6 = ditron.num_local_ranks
  // CHECK: %node = ditron.node{{$}}
  %7 = ditron.node
  return
}

// The default may be written; it is left out again.
// CHECK-LABEL: @default_team_is_group
func.func @default_team_is_group() {
  // CHECK: ditron.rank{{$}}
  %0 = ditron.rank team group
  // CHECK: ditron.rank{{$}}
  %1 = "ditron.rank"() : () -> i32
  // CHECK: ditron.rank {note = "kept"}
  %2 = ditron.rank {note = "kept"}
  return
}

// CHECK-LABEL: @symmetric_pointers
func.func @symmetric_pointers(%p: !tt.ptr<bf16>, %ps: tensor<4x8x!tt.ptr<f32, 3>>, %r: i32, %rs: tensor<4x8xi32>) {
  // CHECK: %peer = ditron.symm_at %arg0 on %arg2 : !tt.ptr<bf16>
  // GENERIC: "ditron.symm_at"({{.*}}) : (!tt.ptr<bf16>, i32) -> !tt.ptr<bf16>
  %0 = ditron.symm_at %p on %r : !tt.ptr<bf16>
  // CHECK: ditron.symm_at %arg1 on %arg2 : tensor<4x8x!tt.ptr<f32, 3>>
  %1 = ditron.symm_at %ps on %r : tensor<4x8x!tt.ptr<f32, 3>>
  // CHECK: ditron.symm_at %arg1 on %arg3 : tensor<4x8x!tt.ptr<f32, 3>>, tensor<4x8xi32>
  // GENERIC: "ditron.symm_at"({{.*}}) : (tensor<4x8x!tt.ptr<f32, 3>>, tensor<4x8xi32>) -> tensor<4x8x!tt.ptr<f32, 3>>
  %each = ditron.symm_at %ps on %rs : tensor<4x8x!tt.ptr<f32, 3>>, tensor<4x8xi32>
  // CHECK: %mc = ditron.multicast_ptr %arg0 : !tt.ptr<bf16>
  %2 = ditron.multicast_ptr %p : !tt.ptr<bf16>
  // CHECK: ditron.multicast_ptr %arg0 team node : !tt.ptr<bf16>
  // GENERIC: "ditron.multicast_ptr"({{.*}}) <{team = #ditron.team<node>}>
  %3 = ditron.multicast_ptr %p team node : !tt.ptr<bf16>
  return
}

// CHECK-LABEL: @swizzles
func.func @swizzles(%tile: i32, %size: i32, %block: i32) {
  // CHECK: ditron.swizzle gather %arg0 of %arg1 by %arg2{{$}}
  // GENERIC: "ditron.swizzle"({{.*}}) <{mode = #ditron.swizzle_mode<gather>, team = #ditron.team<group>}>
  %0 = ditron.swizzle gather %tile of %size by %block
  // CHECK: ditron.swizzle scatter %arg0 of %arg1 by %arg2 team node
  %1 = ditron.swizzle scatter %tile of %size by %block team node
  return
}
