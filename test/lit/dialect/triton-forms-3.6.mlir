// What Triton 3.6 writes and 3.9 does not: pointers to tensors, modifiers of the cache by keywords, descriptors of tensors.
// RUN: ditron-opt %s | filecheck %s
// RUN: ditron-opt %s | ditron-opt | filecheck %s
// RUN: ditron-opt %s --mlir-print-op-generic | ditron-opt | filecheck %s

// CHECK-LABEL: tt.func @tensor_pointers(
// CHECK-SAME: %[[P:.*]]: !tt.ptr<f32>, %[[I:.*]]: i32, %[[L:.*]]: i64) {
tt.func @tensor_pointers(%p: !tt.ptr<f32>, %i: i32, %l: i64) {
  // CHECK: %[[T:.*]] = tt.make_tensor_ptr %[[P]], [%[[L]], %[[L]]], [%[[L]], %[[L]]], [%[[I]], %[[I]]] {order = array<i32: 1, 0>} : <tensor<8x8xf32>>
  %t = tt.make_tensor_ptr %p, [%l, %l], [%l, %l], [%i, %i] {order = array<i32: 1, 0>} : <tensor<8x8xf32>>
  // CHECK: %[[A:.*]] = tt.advance %[[T]], [%[[I]], %[[I]]] : <tensor<8x8xf32>>
  %a = tt.advance %t, [%i, %i] : <tensor<8x8xf32>>
  // CHECK: %[[V:.*]] = tt.load %[[A]] {boundaryCheck = array<i32: 0, 1>, padding = 1 : i32} : !tt.ptr<tensor<8x8xf32>>
  %v = tt.load %a {boundaryCheck = array<i32: 0, 1>, padding = 1 : i32} : !tt.ptr<tensor<8x8xf32>>
  // CHECK: tt.store %[[A]], %[[V]] {boundaryCheck = array<i32: 0>} : !tt.ptr<tensor<8x8xf32>>
  tt.store %a, %v {boundaryCheck = array<i32: 0>} : !tt.ptr<tensor<8x8xf32>>
  tt.return
}

// CHECK-LABEL: tt.func @memory(
// CHECK-SAME: %[[P:.*]]: tensor<16x!tt.ptr<f32>>, %[[M:.*]]: tensor<16xi1>, %[[X:.*]]: tensor<16xf32>, %[[S:.*]]: !tt.ptr<i32, 3>) {
tt.func @memory(%p: tensor<16x!tt.ptr<f32>>, %m: tensor<16xi1>, %x: tensor<16xf32>, %s: !tt.ptr<i32, 3>) {
  // CHECK: tt.load %[[P]], %[[M]] cacheModifier = cg : tensor<16x!tt.ptr<f32>>
  %1 = tt.load %p, %m cacheModifier = cg : tensor<16x!tt.ptr<f32>>
  // CHECK: tt.load %[[P]], %[[M]], %[[X]] cacheModifier = ca evictionPolicy = evict_last {isVolatile = true} : tensor<16x!tt.ptr<f32>>
  %2 = tt.load %p, %m, %x cacheModifier = ca evictionPolicy = evict_last {isVolatile = true} : tensor<16x!tt.ptr<f32>>
  // CHECK: tt.load %[[S]] : !tt.ptr<i32, 3>
  %4 = tt.load %s : !tt.ptr<i32, 3>
  // CHECK: tt.store %[[P]], %[[X]], %[[M]] evictionPolicy = evict_first : tensor<16x!tt.ptr<f32>>
  tt.store %p, %x, %m evictionPolicy = evict_first : tensor<16x!tt.ptr<f32>>
  tt.return
}

// CHECK-LABEL: tt.func @descriptors(
// CHECK-SAME: %[[P:.*]]: !tt.ptr<f32>, %[[I:.*]]: i32, %[[L:.*]]: i64, %[[IS:.*]]: tensor<8xi32>, %[[ROWS:.*]]: !tt.tensordesc<tensor<1x8xf32>>) {
tt.func @descriptors(%p: !tt.ptr<f32>, %i: i32, %l: i64, %is: tensor<8xi32>, %rows: !tt.tensordesc<tensor<1x8xf32>>) {
  // CHECK: %[[D:.*]] = tt.make_tensor_descriptor %[[P]], [%[[I]], %[[I]]], [%[[L]], %[[L]]] {padding = 2 : i32} : <f32>, <tensor<8x8xf32>>
  %d = tt.make_tensor_descriptor %p, [%i, %i], [%l, %l] {padding = 2 : i32} : <f32>, <tensor<8x8xf32>>
  // CHECK: %[[V:.*]] = tt.descriptor_load %[[D]][%[[I]], %[[I]]] evictionPolicy = evict_first : !tt.tensordesc<tensor<8x8xf32>> -> tensor<8x8xf32>
  %v = tt.descriptor_load %d[%i, %i] evictionPolicy = evict_first : !tt.tensordesc<tensor<8x8xf32>> -> tensor<8x8xf32>
  // CHECK: tt.descriptor_store %[[D]][%[[I]], %[[I]]], %[[V]] : !tt.tensordesc<tensor<8x8xf32>>, tensor<8x8xf32>
  tt.descriptor_store %d[%i, %i], %v : !tt.tensordesc<tensor<8x8xf32>>, tensor<8x8xf32>
  // CHECK: tt.descriptor_reduce add, %[[D]][%[[I]], %[[I]]], %[[V]] : !tt.tensordesc<tensor<8x8xf32>>, tensor<8x8xf32>
  tt.descriptor_reduce add, %d[%i, %i], %v : !tt.tensordesc<tensor<8x8xf32>>, tensor<8x8xf32>
  // CHECK: tt.descriptor_gather %[[ROWS]][%[[IS]], %[[I]]] : (!tt.tensordesc<tensor<1x8xf32>>, tensor<8xi32>, i32) -> tensor<8x8xf32>
  %g = tt.descriptor_gather %rows[%is, %i] : (!tt.tensordesc<tensor<1x8xf32>>, tensor<8xi32>, i32) -> tensor<8x8xf32>
  // CHECK: tt.descriptor_scatter %[[ROWS]][%[[IS]], %[[I]]], %[[V]] : !tt.tensordesc<tensor<1x8xf32>>, tensor<8xi32>, i32, tensor<8x8xf32>
  tt.descriptor_scatter %rows[%is, %i], %v : !tt.tensordesc<tensor<1x8xf32>>, tensor<8xi32>, i32, tensor<8x8xf32>
  tt.return
}
