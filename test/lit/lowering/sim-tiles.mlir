// RUN: ditron-opt --pass-pipeline='builtin.module(lower-to-sim{checks=none})' %s | filecheck %s

// A chain of elementwise operations is one loop body, in the nest of the store; what depends on the row only is computed
// once per row.
// CHECK-LABEL: func.func @chain
tt.func public @chain(%p: !tt.ptr<f32>, %x: f32, %stride: i32) {
  // CHECK: scf.for %[[I:.*]] = %{{.*}} to %{{.*}} step %{{.*}} : i64 {
  // CHECK: %[[ROW:.*]] = arith.muli
  // CHECK: scf.for %[[J:.*]] = %{{.*}} to %{{.*}} step %{{.*}} : i64 {
  // CHECK: %[[OFFSET:.*]] = arith.addi %[[ROW]], %{{.*}} : i32
  // CHECK: arith.sitofp %[[OFFSET]]
  // CHECK: arith.mulf
  // CHECK: arith.addf
  // CHECK: llvm.store
  // CHECK-NOT: scf.for
  // CHECK: return
  %m = tt.make_range {end = 8 : i32, start = 0 : i32} : tensor<8xi32>
  %n = tt.make_range {end = 32 : i32, start = 0 : i32} : tensor<32xi32>
  %col = tt.expand_dims %m {axis = 1 : i32} : tensor<8xi32> -> tensor<8x1xi32>
  %row = tt.expand_dims %n {axis = 0 : i32} : tensor<32xi32> -> tensor<1x32xi32>
  %s = tt.splat %stride : i32 -> tensor<8x1xi32>
  %start = arith.muli %col, %s : tensor<8x1xi32>
  %a = tt.broadcast %start : tensor<8x1xi32> -> tensor<8x32xi32>
  %b = tt.broadcast %row : tensor<1x32xi32> -> tensor<8x32xi32>
  %offsets = arith.addi %a, %b : tensor<8x32xi32>
  %base = tt.splat %p : !tt.ptr<f32> -> tensor<8x32x!tt.ptr<f32>>
  %addresses = tt.addptr %base, %offsets : tensor<8x32x!tt.ptr<f32>>, tensor<8x32xi32>
  %f = arith.sitofp %offsets : tensor<8x32xi32> to tensor<8x32xf32>
  %xs = tt.splat %x : f32 -> tensor<8x32xf32>
  %g = arith.mulf %f, %xs : tensor<8x32xf32>
  %h = arith.addf %g, %xs : tensor<8x32xf32>
  tt.store %addresses, %h : tensor<8x32x!tt.ptr<f32>>
  tt.return
}

// A load happens at its place, under its mask, into a buffer; bf16 becomes an f32 of the same value.
// CHECK-LABEL: func.func @load
tt.func public @load(%p: !tt.ptr<bf16>, %limit: i32) {
  // CHECK: %[[BUFFER:.*]] = llvm.alloca %{{.*}} x !llvm.array<32 x f32> {alignment = 64 : i64}
  // CHECK: scf.for %[[I:.*]] = %{{.*}} {
  // CHECK: %[[MASK:.*]] = arith.cmpi slt
  // CHECK: %[[VALUE:.*]] = scf.if %[[MASK]] -> (f32) {
  // CHECK: %[[BITS:.*]] = llvm.load %{{.*}} : !llvm.ptr -> i16
  // CHECK: arith.shli
  // CHECK: %[[TO:.*]] = llvm.getelementptr %[[BUFFER]][%[[I]]]
  // CHECK: llvm.store %[[VALUE]], %[[TO]]
  // CHECK: } {llvm.loop_annotation = #loop_annotation}
  // CHECK: call @ditron_sim_fence
  %n = tt.make_range {end = 32 : i32, start = 0 : i32} : tensor<32xi32>
  %s = tt.splat %limit : i32 -> tensor<32xi32>
  %mask = arith.cmpi slt, %n, %s : tensor<32xi32>
  %base = tt.splat %p : !tt.ptr<bf16> -> tensor<32x!tt.ptr<bf16>>
  %addresses = tt.addptr %base, %n : tensor<32x!tt.ptr<bf16>>, tensor<32xi32>
  %v = tt.load %addresses, %mask : tensor<32x!tt.ptr<bf16>>
  ditron.fence
  tt.store %addresses, %v : tensor<32x!tt.ptr<bf16>>
  tt.return
}

// A matrix product: the pointers are carried as one offset, the accumulator is updated in place.
// CHECK-LABEL: func.func @product
tt.func public @product(%p: !tt.ptr<f16>, %out: !tt.ptr<f32>, %steps: i32, %stride: i32) {
  // CHECK-DAG: %[[ACC:.*]] = llvm.alloca %{{.*}} x !llvm.array<256 x f32>
  // CHECK: %{{.*}} = scf.for %{{.*}} = %{{.*}} to %{{.*}} step %{{.*}} iter_args(%[[AT:.*]] = %{{.*}}) -> (i64) : i32 {
  // CHECK: llvm.getelementptr %{{.*}}[%[[AT]]]
  // CHECK-COUNT-1: call @ditron_sim_dot_f32(
  // CHECK: %[[NEXT:.*]] = arith.addi %[[AT]], %{{.*}} : i64
  // CHECK-NEXT: scf.yield %[[NEXT]] : i64
  %zero = "arith.constant"() <{value = dense<0.0> : tensor<16x16xf32>}> : () -> tensor<16x16xf32>
  %c0 = arith.constant 0 : i32
  %c1 = arith.constant 1 : i32
  %m = tt.make_range {end = 16 : i32, start = 0 : i32} : tensor<16xi32>
  %col = tt.expand_dims %m {axis = 1 : i32} : tensor<16xi32> -> tensor<16x1xi32>
  %row = tt.expand_dims %m {axis = 0 : i32} : tensor<16xi32> -> tensor<1x16xi32>
  %a = tt.broadcast %col : tensor<16x1xi32> -> tensor<16x16xi32>
  %b = tt.broadcast %row : tensor<1x16xi32> -> tensor<16x16xi32>
  %offsets = arith.addi %a, %b : tensor<16x16xi32>
  %base = tt.splat %p : !tt.ptr<f16> -> tensor<16x16x!tt.ptr<f16>>
  %start = tt.addptr %base, %offsets : tensor<16x16x!tt.ptr<f16>>, tensor<16x16xi32>
  %r:2 = scf.for %k = %c0 to %steps step %c1 iter_args(%ptrs = %start, %acc = %zero)
      -> (tensor<16x16x!tt.ptr<f16>>, tensor<16x16xf32>) : i32 {
    %x = tt.load %ptrs : tensor<16x16x!tt.ptr<f16>>
    %d = tt.dot %x, %x, %acc, inputPrecision = tf32 : tensor<16x16xf16> * tensor<16x16xf16> -> tensor<16x16xf32>
    %by = tt.splat %stride : i32 -> tensor<16x16xi32>
    %next = tt.addptr %ptrs, %by : tensor<16x16x!tt.ptr<f16>>, tensor<16x16xi32>
    scf.yield %next, %d : tensor<16x16x!tt.ptr<f16>>, tensor<16x16xf32>
  }
  %obase = tt.splat %out : !tt.ptr<f32> -> tensor<16x16x!tt.ptr<f32>>
  %to = tt.addptr %obase, %offsets : tensor<16x16x!tt.ptr<f32>>, tensor<16x16xi32>
  tt.store %to, %r#1 : tensor<16x16x!tt.ptr<f32>>
  tt.return
}

// A sum of floats is made by halves, side by side; what is used twice and costs is in a buffer, computed once.
// CHECK-LABEL: func.func @reduce
tt.func public @reduce(%p: !tt.ptr<f32>) {
  // CHECK-COUNT-1: math.exp
  // CHECK: scf.for
  // CHECK: scf.for
  // CHECK-COUNT-5: arith.addf
  // CHECK-NOT: arith.addf
  // CHECK: %[[SUM:.*]] = llvm.load
  // CHECK: arith.divf %{{.*}}, %[[SUM]]
  // CHECK-NOT: math.exp
  // CHECK: return
  %n = tt.make_range {end = 32 : i32, start = 0 : i32} : tensor<32xi32>
  %base = tt.splat %p : !tt.ptr<f32> -> tensor<32x!tt.ptr<f32>>
  %addresses = tt.addptr %base, %n : tensor<32x!tt.ptr<f32>>, tensor<32xi32>
  %v = tt.load %addresses : tensor<32x!tt.ptr<f32>>
  %e = math.exp %v : tensor<32xf32>
  %s = "tt.reduce"(%e) <{axis = 0 : i32}> ({
  ^bb0(%left: f32, %right: f32):
    %add = arith.addf %left, %right : f32
    tt.reduce.return %add : f32
  }) : (tensor<32xf32>) -> f32
  %all = tt.splat %s : f32 -> tensor<32xf32>
  %q = arith.divf %e, %all : tensor<32xf32>
  tt.store %addresses, %q : tensor<32x!tt.ptr<f32>>
  tt.return
}

// Any other reduction along the rows carries a scalar.
// CHECK-LABEL: func.func @largest
tt.func public @largest(%p: !tt.ptr<f32>, %o: !tt.ptr<f32>) {
  // CHECK: %{{.*}} = scf.for %{{.*}} iter_args(%[[PART:.*]] = %{{.*}}) -> (f32) : i64 {
  // CHECK: %[[MORE:.*]] = arith.maxnumf %[[PART]], %{{.*}} : f32
  // CHECK: scf.yield %[[MORE]] : f32
  %n = tt.make_range {end = 32 : i32, start = 0 : i32} : tensor<32xi32>
  %base = tt.splat %p : !tt.ptr<f32> -> tensor<32x!tt.ptr<f32>>
  %addresses = tt.addptr %base, %n : tensor<32x!tt.ptr<f32>>, tensor<32xi32>
  %v = tt.load %addresses : tensor<32x!tt.ptr<f32>>
  %m = "tt.reduce"(%v) <{axis = 0 : i32}> ({
  ^bb0(%left: f32, %right: f32):
    %larger = arith.maxnumf %left, %right : f32
    tt.reduce.return %larger : f32
  }) : (tensor<32xf32>) -> f32
  tt.store %o, %m : !tt.ptr<f32>
  tt.return
}

// A descriptor is its scalars; a load is clipped at the bounds, each dimension tested where its index is known.
// CHECK-LABEL: func.func @descriptor
tt.func public @descriptor(%p: !tt.ptr<f32>, %rows: i32, %columns: i32, %stride: i64) {
  // CHECK-DAG: %[[ZERO:.*]] = arith.constant 0.000000e+00 : f32
  // CHECK-DAG: %[[NAN:.*]] = arith.constant 0x7FC00000 : f32
  // CHECK-DAG: %[[WITH_NANS:.*]] = arith.constant false
  // CHECK: %[[PAD:.*]] = arith.select %[[WITH_NANS]], %[[NAN]], %[[ZERO]] : f32
  // CHECK: scf.for
  // CHECK: %[[ROW:.*]] = arith.cmpi ult
  // CHECK: scf.for
  // CHECK: %[[COLUMN:.*]] = arith.cmpi ult
  // CHECK: %[[INSIDE:.*]] = arith.andi %[[ROW]], %[[COLUMN]] : i1
  // CHECK: scf.if %[[INSIDE]] -> (f32) {
  // CHECK: } else {
  // CHECK-NEXT: scf.yield %[[PAD]]
  %one = arith.constant 1 : i64
  %d = tt.make_tensor_descriptor %p, [%rows, %columns], [%stride, %one] : <f32>, <tensor<8x32xf32>>
  %v = tt.descriptor_load %d[%rows, %columns] : !tt.tensordesc<tensor<8x32xf32>> -> tensor<8x32xf32>
  tt.descriptor_store %d[%rows, %rows], %v : !tt.tensordesc<tensor<8x32xf32>>, tensor<8x32xf32>
  tt.return
}

// Offsets that may wrap: both ends tell whether they do, and where they do not, only the row's first address is computed.
// CHECK-LABEL: func.func @wrapped
tt.func public @wrapped(%p: !tt.ptr<bf16>, %n: i32) {
  // CHECK: %[[FAR:.*]] = arith.subi
  // CHECK: %[[ONE_PIECE:.*]] = arith.cmpi eq, %[[FAR]], %c31_i64
  // CHECK: scf.if %[[ONE_PIECE]]
  // CHECK: %[[FIRST:.*]] = llvm.getelementptr
  // CHECK: scf.for %[[I:.*]] =
  // CHECK-NEXT: llvm.getelementptr %[[FIRST]][%[[I]]] : (!llvm.ptr, i64) -> !llvm.ptr, i16
  // CHECK-NEXT: llvm.load
  // CHECK: llvm.loop_annotation
  // CHECK: } else {
  // CHECK: scf.for
  // CHECK: llvm.load
  // CHECK-NOT: llvm.loop_annotation
  // CHECK: return
  %r = tt.make_range {end = 32 : i32, start = 0 : i32} : tensor<32xi32>
  %s = tt.splat %n : i32 -> tensor<32xi32>
  %i = arith.remsi %r, %s : tensor<32xi32>
  %base = tt.splat %p : !tt.ptr<bf16> -> tensor<32x!tt.ptr<bf16>>
  %at = tt.addptr %base, %i : tensor<32x!tt.ptr<bf16>>, tensor<32xi32>
  %v = tt.load %at : tensor<32x!tt.ptr<bf16>>
  tt.return
}

// A tile of many axes, as tl.sort's, is one loop and not one inside of the other; an axis of two elements needs none.
// CHECK-LABEL: func.func @cube
tt.func public @cube(%p: !tt.ptr<i32>) {
  // CHECK: scf.for
  // CHECK-NOT: scf.for
  // CHECK: arith.xori
  // CHECK: llvm.store
  // CHECK: }
  // CHECK: scf.for
  // CHECK-NOT: scf.for
  // CHECK: return
  %r = tt.make_range {end = 64 : i32, start = 0 : i32} : tensor<64xi32>
  %h = tt.reshape %r : tensor<64xi32> -> tensor<2x2x2x2x2x2xi32>
  %x = "tt.reduce"(%h) <{axis = 3 : i32}> ({
  ^bb0(%left: i32, %right: i32):
    %xor = arith.xori %left, %right : i32
    tt.reduce.return %xor : i32
  }) : (tensor<2x2x2x2x2x2xi32>) -> tensor<2x2x2x2x2xi32>
  %v = tt.reshape %x : tensor<2x2x2x2x2xi32> -> tensor<32xi32>
  %n = tt.make_range {end = 32 : i32, start = 0 : i32} : tensor<32xi32>
  %base = tt.splat %p : !tt.ptr<i32> -> tensor<32x!tt.ptr<i32>>
  %addresses = tt.addptr %base, %n : tensor<32x!tt.ptr<i32>>, tensor<32xi32>
  tt.store %addresses, %v : tensor<32x!tt.ptr<i32>>
  tt.return
}
