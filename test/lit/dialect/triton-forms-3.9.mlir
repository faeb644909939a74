// What Triton 3.9 writes and 3.6 does not: one attribute for the cache, descriptors without `tensor`, atomic loads and stores.
// RUN: ditron-opt %s | filecheck %s
// RUN: ditron-opt %s | ditron-opt | filecheck %s
// RUN: ditron-opt %s --mlir-print-op-generic | ditron-opt | filecheck %s

// CHECK-LABEL: tt.func @memory(
// CHECK-SAME: %[[P:.*]]: tensor<16x!tt.ptr<i32>>, %[[M:.*]]: tensor<16xi1>, %[[X:.*]]: tensor<16xi32>, %[[S:.*]]: !tt.ptr<i32>, %[[I:.*]]: i32, %[[L:.*]]: i64, %[[F:.*]]: f32) {
tt.func @memory(%p: tensor<16x!tt.ptr<i32>>, %m: tensor<16xi1>, %x: tensor<16xi32>, %s: !tt.ptr<i32>, %i: i32, %l: i64, %f: f32) {
  // CHECK: tt.load %[[P]] {cachePolicy = #tt.cache_policy<cache_modifier = cg, eviction_policy = evict_first>} : tensor<16x!tt.ptr<i32>>
  %3 = tt.load %p {cachePolicy = #tt.cache_policy<cache_modifier = cg, eviction_policy = evict_first>} : tensor<16x!tt.ptr<i32>>
  // CHECK: tt.atomic_load acquire, gpu, %[[S]] : (!tt.ptr<i32>) -> i32
  %4 = tt.atomic_load acquire, gpu, %s : (!tt.ptr<i32>) -> i32
  // CHECK: tt.atomic_load relaxed, sys, %[[P]], %[[M]] : (tensor<16x!tt.ptr<i32>>, tensor<16xi1>) -> tensor<16xi32>
  %5 = tt.atomic_load relaxed, sys, %p, %m : (tensor<16x!tt.ptr<i32>>, tensor<16xi1>) -> tensor<16xi32>
  // CHECK: tt.atomic_store release, gpu, %[[S]], %[[I]] : !tt.ptr<i32>
  tt.atomic_store release, gpu, %s, %i : !tt.ptr<i32>
  // CHECK: tt.atomic_store release, gpu, %[[P]], %[[X]], %[[M]] : tensor<16x!tt.ptr<i32>>
  tt.atomic_store release, gpu, %p, %x, %m : tensor<16x!tt.ptr<i32>>
  // CHECK: tt.atomic_poll acquire, gpu, %[[S]], %[[I]] : !tt.ptr<i32>, i32 -> i1
  %6 = tt.atomic_poll acquire, gpu, %s, %i : !tt.ptr<i32>, i32 -> i1
  // CHECK: tt.atomic_poll acquire, gpu, %[[S]], %[[I]] timeout %[[L]] : !tt.ptr<i32>, i32 -> i1
  %8 = tt.atomic_poll acquire, gpu, %s, %i timeout %l : !tt.ptr<i32>, i32 -> i1
  // CHECK: tt.approx_divf %[[F]], %[[F]] : f32
  %7 = tt.approx_divf %f, %f : f32
  // CHECK: tt.grid_dependency_wait
  tt.grid_dependency_wait
  // CHECK: tt.grid_dependency_launch_dependents
  tt.grid_dependency_launch_dependents
  tt.return
}

// CHECK-LABEL: tt.func @descriptors(
// CHECK-SAME: %[[P:.*]]: !tt.ptr<f32>, %[[I:.*]]: i32, %[[L:.*]]: i64, %[[IS:.*]]: tensor<8xi32>, %[[ROWS:.*]]: !tt.tensordesc<1x8xf32>) {
tt.func @descriptors(%p: !tt.ptr<f32>, %i: i32, %l: i64, %is: tensor<8xi32>, %rows: !tt.tensordesc<1x8xf32>) {
  // CHECK: %[[D:.*]] = tt.make_tensor_descriptor %[[P]], [%[[I]], %[[I]]], [%[[L]], %[[L]]] {padding = 2 : i32} : <f32>, <8x8xf32>
  %d = tt.make_tensor_descriptor %p, [%i, %i], [%l, %l] {padding = 2 : i32} : <f32>, <8x8xf32>
  // CHECK: %[[V:.*]] = tt.descriptor_load %[[D]][%[[I]], %[[I]]] {cachePolicy = #tt.cache_policy<cache_modifier = none, eviction_policy = evict_first>} : !tt.tensordesc<8x8xf32> -> tensor<8x8xf32>
  %v = tt.descriptor_load %d[%i, %i] {cachePolicy = #tt.cache_policy<cache_modifier = none, eviction_policy = evict_first>} : !tt.tensordesc<8x8xf32> -> tensor<8x8xf32>
  // CHECK: tt.descriptor_store %[[D]][%[[I]], %[[I]]], %[[V]] : !tt.tensordesc<8x8xf32>, tensor<8x8xf32>
  tt.descriptor_store %d[%i, %i], %v : !tt.tensordesc<8x8xf32>, tensor<8x8xf32>
  // CHECK: tt.descriptor_reduce add, %[[D]][%[[I]], %[[I]]], %[[V]] : !tt.tensordesc<8x8xf32>, tensor<8x8xf32>
  tt.descriptor_reduce add, %d[%i, %i], %v : !tt.tensordesc<8x8xf32>, tensor<8x8xf32>
  // CHECK: tt.descriptor_gather %[[ROWS]][%[[IS]], %[[I]]] : (!tt.tensordesc<1x8xf32>, tensor<8xi32>, i32) -> tensor<8x8xf32>
  %g = tt.descriptor_gather %rows[%is, %i] : (!tt.tensordesc<1x8xf32>, tensor<8xi32>, i32) -> tensor<8x8xf32>
  // CHECK: tt.descriptor_scatter %[[ROWS]][%[[IS]], %[[I]]], %[[V]] : !tt.tensordesc<1x8xf32>, tensor<8xi32>, i32, tensor<8x8xf32>
  tt.descriptor_scatter %rows[%is, %i], %v : !tt.tensordesc<1x8xf32>, tensor<8xi32>, i32, tensor<8x8xf32>
  tt.return
}
