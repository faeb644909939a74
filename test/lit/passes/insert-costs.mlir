// What a kernel spends stands before the operation that spends it.
// RUN: ditron-opt %s --insert-costs | filecheck %s
// RUN: ditron-opt %s --insert-costs=operations-per-byte=72 | filecheck %s --check-prefix=FED

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

// Where tensor cores do 72 operations while a byte of their operands is loaded, a small tile takes as long as its loads;
// operands that are not loaded in the same loop, or are computed, do not count.
// FED-LABEL: tt.func @fed(
tt.func @fed(%at: tensor<128x64x!tt.ptr<bf16>>, %to: tensor<64x128x!tt.ptr<bf16>>, %wide: tensor<64x256x!tt.ptr<bf16>>, %c: tensor<128x128xf32>, %w: tensor<128x256xf32>, %n: i32) {
  %zero = arith.constant 0 : i32
  %one = arith.constant 1 : i32
  %kept = tt.load %at : tensor<128x64x!tt.ptr<bf16>>
  // FED: scf.for
  scf.for %k = %zero to %n step %one : i32 {
    %x = tt.load %at : tensor<128x64x!tt.ptr<bf16>>
    %y = tt.load %to : tensor<64x128x!tt.ptr<bf16>>
    %z = tt.load %wide : tensor<64x256x!tt.ptr<bf16>>
    // FED: %[[LOADS:.*]] = arith.constant 2359296 : i64
    // FED-NEXT: ditron.spend dot16 %[[LOADS]]
    %d = tt.dot %x, %y, %c : tensor<128x64xbf16> * tensor<64x128xbf16> -> tensor<128x128xf32>
    // FED: %[[PRODUCT:.*]] = arith.constant 4194304 : i64
    // FED-NEXT: ditron.spend dot16 %[[PRODUCT]]
    %e = tt.dot %x, %z, %w : tensor<128x64xbf16> * tensor<64x256xbf16> -> tensor<128x256xf32>
    // FED: %[[ONE:.*]] = arith.constant 2097152 : i64
    // FED-NEXT: ditron.spend dot16 %[[ONE]]
    %f = tt.dot %kept, %y, %c : tensor<128x64xbf16> * tensor<64x128xbf16> -> tensor<128x128xf32>
    %p = arith.truncf %d : tensor<128x128xf32> to tensor<128x128xbf16>
    // FED: %[[COMPUTED:.*]] = arith.constant 4194304 : i64
    // FED-NEXT: ditron.spend dot16 %[[COMPUTED]]
    %g = tt.dot %p, %p, %c : tensor<128x128xbf16> * tensor<128x128xbf16> -> tensor<128x128xf32>
  }
  tt.return
}
