// What a kernel spends stands before the operation that spends it.
// RUN: ditron-opt %s --insert-costs | filecheck %s

// CHECK-LABEL: tt.func @product(
tt.func @product(%a: tensor<64x32xbf16>, %b: tensor<32x16xbf16>, %c: tensor<64x16xf32>) -> tensor<64x16xf32> {
  // CHECK: %[[FLOP:.*]] = arith.constant 65536 : i64
  // CHECK-NEXT: ditron.spend dot16 %[[FLOP]]
  // CHECK-NEXT: tt.dot
  %d = tt.dot %a, %b, %c : tensor<64x32xbf16> * tensor<32x16xbf16> -> tensor<64x16xf32>
  tt.return %d : tensor<64x16xf32>
}

// The rate of a product depends on the width of its operands.
// CHECK-LABEL: tt.func @widths(
tt.func @widths(%a: tensor<16x32xi8>, %b: tensor<32x16xi8>, %c: tensor<16x16xi32>, %x: tensor<16x16xf32>) {
  // CHECK: ditron.spend dot8
  %d = tt.dot %a, %b, %c : tensor<16x32xi8> * tensor<32x16xi8> -> tensor<16x16xi32>
  // CHECK: ditron.spend dot32
  %e = tt.dot %x, %x, %x : tensor<16x16xf32> * tensor<16x16xf32> -> tensor<16x16xf32>
  tt.return
}

// A load that only products use costs nothing beside them, one that is stored costs its bytes. Scalars cost nothing.
// CHECK-LABEL: tt.func @loads(
tt.func @loads(%p: !tt.ptr<bf16>, %at: tensor<16x16x!tt.ptr<bf16>>, %c: tensor<16x16xf32>) {
  // CHECK-NOT: ditron.spend
  // CHECK: tt.load
  %x = tt.load %at : tensor<16x16x!tt.ptr<bf16>>
  // CHECK-NOT: ditron.spend load
  // CHECK: ditron.spend dot16
  %t = tt.trans %x {order = array<i32: 1, 0>} : tensor<16x16xbf16> -> tensor<16x16xbf16>
  %d = tt.dot %x, %t, %c : tensor<16x16xbf16> * tensor<16x16xbf16> -> tensor<16x16xf32>
  // CHECK: %[[BYTES:.*]] = arith.constant 512 : i64
  // CHECK-NEXT: ditron.spend load %[[BYTES]]
  // CHECK-NEXT: tt.load
  %y = tt.load %at : tensor<16x16x!tt.ptr<bf16>>
  // CHECK: ditron.spend store
  // CHECK-NEXT: tt.store
  tt.store %at, %y : tensor<16x16x!tt.ptr<bf16>>
  // CHECK-NOT: ditron.spend
  %s = tt.load %p : !tt.ptr<bf16>
  tt.store %p, %s : !tt.ptr<bf16>
  tt.return
}

// Memory of another rank is named by the scalar that symm_at gave, also behind a descriptor.
// CHECK-LABEL: tt.func @peers(
tt.func @peers(%p: !tt.ptr<bf16>, %r: i32, %n: i32, %m: i64, %offsets: tensor<16x64xi32>, %x: tensor<16x64xbf16>) {
  // CHECK: %[[FAR:.*]] = ditron.symm_at
  %far = ditron.symm_at %p on %r : !tt.ptr<bf16>
  %s = tt.splat %far : !tt.ptr<bf16> -> tensor<16x64x!tt.ptr<bf16>>
  %at = tt.addptr %s, %offsets : tensor<16x64x!tt.ptr<bf16>>, tensor<16x64xi32>
  // CHECK: ditron.spend store %{{.*}} at %[[FAR]] : !tt.ptr<bf16>
  tt.store %at, %x : tensor<16x64x!tt.ptr<bf16>>
  %one = arith.constant 1 : i64
  %desc = tt.make_tensor_descriptor %far, [%n, %n], [%m, %one] : <bf16>, <tensor<16x64xbf16>>
  // CHECK: ditron.spend store %{{.*}} at %[[FAR]] : !tt.ptr<bf16>
  tt.descriptor_store %desc[%n, %n], %x : !tt.tensordesc<tensor<16x64xbf16>>, tensor<16x64xbf16>
  tt.return
}
