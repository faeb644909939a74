// Triton's operations are written as Triton writes them, from 3.6 to 3.9.
// RUN: ditron-opt %s | filecheck %s
// RUN: ditron-opt %s | ditron-opt | filecheck %s
// RUN: ditron-opt %s --mlir-print-op-generic | ditron-opt | filecheck %s

// CHECK-LABEL: tt.func public @pointers(
// CHECK-SAME: %[[P:.*]]: !tt.ptr<f32> {tt.divisibility = 16 : i32}, %[[I:.*]]: i32, %[[L:.*]]: i64) attributes {noinline = false} {
tt.func public @pointers(%p: !tt.ptr<f32> {tt.divisibility = 16 : i32}, %i: i32, %l: i64) attributes {noinline = false} {
  // CHECK: %[[PID:.*]] = tt.get_program_id x : i32
  %pid = tt.get_program_id x : i32
  // CHECK: tt.get_num_programs z : i32
  %n = tt.get_num_programs z : i32
  // CHECK: %[[RANGE:.*]] = tt.make_range {end = 16 : i32, start = 0 : i32} : tensor<16xi32>
  %range = tt.make_range {end = 16 : i32, start = 0 : i32} : tensor<16xi32>
  // CHECK: %[[PS:.*]] = tt.splat %[[P]] : !tt.ptr<f32> -> tensor<16x!tt.ptr<f32>>
  %ps = tt.splat %p : !tt.ptr<f32> -> tensor<16x!tt.ptr<f32>>
  // CHECK: tt.addptr %[[PS]], %[[RANGE]] {tt.contiguity = 4 : i32} : tensor<16x!tt.ptr<f32>>, tensor<16xi32>
  %q = tt.addptr %ps, %range {tt.contiguity = 4 : i32} : tensor<16x!tt.ptr<f32>>, tensor<16xi32>
  // CHECK: tt.ptr_to_int %[[P]] : !tt.ptr<f32> -> i64
  %address = tt.ptr_to_int %p : !tt.ptr<f32> -> i64
  // CHECK: tt.int_to_ptr %[[L]] : i64 -> !tt.ptr<f32>
  %r = tt.int_to_ptr %l : i64 -> !tt.ptr<f32>
  // CHECK: tt.bitcast %[[P]] : !tt.ptr<f32> -> !tt.ptr<i32>
  %b = tt.bitcast %p : !tt.ptr<f32> -> !tt.ptr<i32>
  // CHECK: tt.return
  tt.return
}

// CHECK-LABEL: tt.func @memory(
// CHECK-SAME: %[[P:.*]]: tensor<16x!tt.ptr<f32>>, %[[M:.*]]: tensor<16xi1>, %[[X:.*]]: tensor<16xf32>, %[[G:.*]]: !tt.ptr<i32>, %[[I:.*]]: i32) {
tt.func @memory(%p: tensor<16x!tt.ptr<f32>>, %m: tensor<16xi1>, %x: tensor<16xf32>, %g: !tt.ptr<i32>, %i: i32) {
  // CHECK: tt.load %[[P]] : tensor<16x!tt.ptr<f32>>
  %0 = tt.load %p : tensor<16x!tt.ptr<f32>>
  // CHECK: tt.load %[[P]], %[[M]] : tensor<16x!tt.ptr<f32>>
  %1 = tt.load %p, %m : tensor<16x!tt.ptr<f32>>
  // CHECK: tt.load %[[P]], %[[M]], %[[X]] {isVolatile = true} : tensor<16x!tt.ptr<f32>>
  %2 = tt.load %p, %m, %x {isVolatile = true} : tensor<16x!tt.ptr<f32>>
  // CHECK: tt.load %[[G]] : !tt.ptr<i32>
  %4 = tt.load %g : !tt.ptr<i32>
  // CHECK: tt.store %[[P]], %[[X]] : tensor<16x!tt.ptr<f32>>
  tt.store %p, %x : tensor<16x!tt.ptr<f32>>
  // CHECK: tt.store %[[P]], %[[X]], %[[M]] : tensor<16x!tt.ptr<f32>>
  tt.store %p, %x, %m : tensor<16x!tt.ptr<f32>>
  // CHECK: tt.atomic_rmw fadd, acq_rel, gpu, %[[P]], %[[X]], %[[M]] : (tensor<16x!tt.ptr<f32>>, tensor<16xf32>, tensor<16xi1>) -> tensor<16xf32>
  %5 = tt.atomic_rmw fadd, acq_rel, gpu, %p, %x, %m : (tensor<16x!tt.ptr<f32>>, tensor<16xf32>, tensor<16xi1>) -> tensor<16xf32>
  // CHECK: tt.atomic_rmw exch, relaxed, sys, %[[G]], %[[I]] : (!tt.ptr<i32>, i32) -> i32
  %6 = tt.atomic_rmw exch, relaxed, sys, %g, %i : (!tt.ptr<i32>, i32) -> i32
  // CHECK: tt.atomic_cas release, cta, %[[G]], %[[I]], %[[I]] : (!tt.ptr<i32>, i32, i32) -> i32
  %7 = tt.atomic_cas release, cta, %g, %i, %i : (!tt.ptr<i32>, i32, i32) -> i32
  tt.return
}

// CHECK-LABEL: tt.func @tiles(
// CHECK-SAME: %[[X:.*]]: tensor<16x16xf32>, %[[R:.*]]: tensor<16xf32>, %[[I:.*]]: tensor<16xi32>, %[[M:.*]]: tensor<16xi1>, %[[A:.*]]: tensor<16x32xi8>, %[[A2:.*]]: tensor<32x16xi8>, %[[B:.*]]: tensor<16x1xi8>) {
tt.func @tiles(%x: tensor<16x16xf32>, %r: tensor<16xf32>, %i: tensor<16xi32>, %m: tensor<16xi1>, %a: tensor<16x32xi8>, %a2: tensor<32x16xi8>, %b: tensor<16x1xi8>) {
  // CHECK: %[[C:.*]] = tt.expand_dims %[[R]] {axis = 1 : i32} : tensor<16xf32> -> tensor<16x1xf32>
  %c = tt.expand_dims %r {axis = 1 : i32} : tensor<16xf32> -> tensor<16x1xf32>
  // CHECK: tt.broadcast %[[C]] : tensor<16x1xf32> -> tensor<16x16xf32>
  %0 = tt.broadcast %c : tensor<16x1xf32> -> tensor<16x16xf32>
  // CHECK: tt.trans %[[X]] {order = array<i32: 1, 0>} : tensor<16x16xf32> -> tensor<16x16xf32>
  %1 = tt.trans %x {order = array<i32: 1, 0>} : tensor<16x16xf32> -> tensor<16x16xf32>
  // CHECK: tt.reshape %[[X]] allow_reorder efficient_layout : tensor<16x16xf32> -> tensor<256xf32>
  %2 = tt.reshape %x allow_reorder efficient_layout : tensor<16x16xf32> -> tensor<256xf32>
  // CHECK: tt.reshape %[[X]] : tensor<16x16xf32> -> tensor<8x32xf32>
  %3 = tt.reshape %x : tensor<16x16xf32> -> tensor<8x32xf32>
  // CHECK: %[[J:.*]] = tt.join %[[R]], %[[R]] : tensor<16xf32> -> tensor<16x2xf32>
  %j = tt.join %r, %r : tensor<16xf32> -> tensor<16x2xf32>
  // CHECK: %outLHS, %outRHS = tt.split %[[J]] : tensor<16x2xf32> -> tensor<16xf32>
  %4:2 = tt.split %j : tensor<16x2xf32> -> tensor<16xf32>
  // CHECK: tt.cat %[[R]], %[[R]] : tensor<16xf32> -> tensor<32xf32>
  %5 = tt.cat %r, %r : tensor<16xf32> -> tensor<32xf32>
  // CHECK: tt.gather %[[R]][%[[I]]] {axis = 0 : i32, efficient_layout} : (tensor<16xf32>, tensor<16xi32>) -> tensor<16xf32>
  %6 = tt.gather %r[%i] {axis = 0 : i32, efficient_layout} : (tensor<16xf32>, tensor<16xi32>) -> tensor<16xf32>
  // CHECK: tt.histogram %[[I]], %[[M]] : tensor<16xi32> -> tensor<4xi32>
  %7 = tt.histogram %i, %m : tensor<16xi32> -> tensor<4xi32>
  // CHECK: tt.unsplat %{{.*}} : tensor<1xf32>
  %one = arith.constant dense<1.0> : tensor<1xf32>
  %8 = tt.unsplat %one : tensor<1xf32>
  // CHECK: tt.dot %[[X]], %[[X]], %[[X]] : tensor<16x16xf32> * tensor<16x16xf32> -> tensor<16x16xf32>
  %9 = tt.dot %x, %x, %x : tensor<16x16xf32> * tensor<16x16xf32> -> tensor<16x16xf32>
  // CHECK: tt.dot %[[X]], %[[X]], %[[X]], inputPrecision = tf32x3 {maxNumImpreciseAcc = 32 : i32} : tensor<16x16xf32> * tensor<16x16xf32> -> tensor<16x16xf32>
  %10 = tt.dot %x, %x, %x, inputPrecision = tf32x3 {maxNumImpreciseAcc = 32 : i32} : tensor<16x16xf32> * tensor<16x16xf32> -> tensor<16x16xf32>
  // CHECK: tt.dot_scaled %[[A]] scale %[[B]], %[[A2]], %[[X]] lhs = e4m3 rhs = e5m2 {fastMath = true} : tensor<16x32xi8>, tensor<16x1xi8> * tensor<32x16xi8> -> tensor<16x16xf32>
  %11 = tt.dot_scaled %a scale %b, %a2, %x lhs = e4m3 rhs = e5m2 {fastMath = true} : tensor<16x32xi8>, tensor<16x1xi8> * tensor<32x16xi8> -> tensor<16x16xf32>
  // CHECK: tt.dot_scaled %[[A]], %[[A2]] scale %[[B]], %[[X]] lhs = e4m3 rhs = e4m3 {fastMath = false} : tensor<16x32xi8> * tensor<32x16xi8>, tensor<16x1xi8> -> tensor<16x16xf32>
  %12 = tt.dot_scaled %a, %a2 scale %b, %x lhs = e4m3 rhs = e4m3 {fastMath = false} : tensor<16x32xi8> * tensor<32x16xi8>, tensor<16x1xi8> -> tensor<16x16xf32>
  // The reduction itself Triton too writes in generic form.
  // CHECK: "tt.reduce"(%[[R]]) <{axis = 0 : i32}> ({
  // CHECK-NEXT: ^bb0(%[[F:.*]]: f32, %[[G:.*]]: f32):
  // CHECK-NEXT: tt.reduce.return %[[F]] : f32
  %13 = "tt.reduce"(%r) <{axis = 0 : i32}> ({
  ^bb0(%f: f32, %g: f32):
    tt.reduce.return %f : f32
  }) : (tensor<16xf32>) -> f32
  tt.return
}

// CHECK-LABEL: tt.func private @elementwise(
// CHECK-SAME: %[[X:.*]]: tensor<16xf32>, %[[I:.*]]: i32) -> (f32, tensor<16xf32> {tt.constancy = 4 : i32}) {
tt.func private @elementwise(%x: tensor<16xf32>, %i: i32) -> (f32, tensor<16xf32> {tt.constancy = 4 : i32}) {
  // CHECK: tt.clampf %[[X]], %[[X]], %[[X]], propagateNan = all : tensor<16xf32>
  %0 = tt.clampf %x, %x, %x, propagateNan = all : tensor<16xf32>
  // CHECK: tt.fp_to_fp %[[X]], rounding = rtne : tensor<16xf32> -> tensor<16xf8E4M3FN>
  %1 = tt.fp_to_fp %x, rounding = rtne : tensor<16xf32> -> tensor<16xf8E4M3FN>
  // CHECK: tt.fp_to_fp %{{.*}} : tensor<16xf8E4M3FN> -> tensor<16xf32>
  %2 = tt.fp_to_fp %1 : tensor<16xf8E4M3FN> -> tensor<16xf32>
  // CHECK: tt.mulhiui %[[I]], %[[I]] : i32
  %3 = tt.mulhiui %i, %i : i32
  // CHECK: tt.precise_sqrt %[[X]] : tensor<16xf32>
  %4 = tt.precise_sqrt %x : tensor<16xf32>
  // CHECK: tt.precise_divf %[[X]], %[[X]] : tensor<16xf32>
  %5 = tt.precise_divf %x, %x : tensor<16xf32>
  // CHECK: tt.extern_elementwise {libname = "l", libpath = "", pure = false, symbol = "f"} : () -> f32
  %6 = tt.extern_elementwise {libname = "l", libpath = "", pure = false, symbol = "f"} : () -> f32
  // CHECK: tt.elementwise_inline_asm "mov $0, \22x\22;" {constraints = "=r,r", packed_element = 1 : i32, pure = true} %[[I]] : i32 -> i32, i32
  %7:2 = tt.elementwise_inline_asm "mov $0, \22x\22;" {constraints = "=r,r", packed_element = 1 : i32, pure = true} %i : i32 -> i32, i32
  // CHECK: tt.elementwise_inline_asm "mov $0, 1;" {constraints = "=r", packed_element = 1 : i32, pure = true} -> i32
  %8 = tt.elementwise_inline_asm "mov $0, 1;" {constraints = "=r", packed_element = 1 : i32, pure = true} -> i32
  // CHECK: tt.print " x: " {hex = false, isSigned = array<i32: 1>} : %[[I]] : i32
  tt.print " x: " {hex = false, isSigned = array<i32: 1>} : %i : i32
  // CHECK: tt.print " only" {hex = false, isSigned = array<i32>}
  tt.print " only" {hex = false, isSigned = array<i32>}
  %true = arith.constant true
  // CHECK: tt.assert %{{.*}}, "message" : i1
  tt.assert %true, "message" : i1
  // CHECK: tt.return %{{.*}}, %[[X]] : f32, tensor<16xf32>
  tt.return %6, %x : f32, tensor<16xf32>
}

// CHECK-LABEL: tt.func @call(
tt.func @call(%x: tensor<16xf32>, %i: i32) {
  // CHECK: tt.call @elementwise(%{{.*}}, %{{.*}}) : (tensor<16xf32>, i32) -> (f32, tensor<16xf32>)
  %0:2 = tt.call @elementwise(%x, %i) : (tensor<16xf32>, i32) -> (f32, tensor<16xf32>)
  // CHECK: tt.call @"a name"() {noinline} : () -> ()
  tt.call @"a name"() {noinline} : () -> ()
  tt.return
}

// CHECK: tt.func private @"a name"()
tt.func private @"a name"()
