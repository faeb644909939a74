// RUN: ditron-opt %s | ditron-opt | filecheck %s
// RUN: ditron-opt %s --mlir-print-op-generic | ditron-opt | filecheck %s
// RUN: ditron-opt %s --mlir-print-op-generic | filecheck %s --check-prefix=GENERIC

// CHECK-LABEL: @loads_and_stores
func.func @loads_and_stores(%p: !tt.ptr<i32>, %ps: tensor<64x!tt.ptr<f32>>, %b: !tt.ptr<f8E5M2>) {
  // CHECK: ditron.ld %arg0 : !tt.ptr<i32>
  // GENERIC: "ditron.ld"({{.*}}) <{scope = #ditron.scope<gpu>, semantic = #ditron.semantic<relaxed>}> : (!tt.ptr<i32>) -> i32
  %0 = ditron.ld %p : !tt.ptr<i32>
  // CHECK: ditron.ld %arg1 scope node semantic acquire : tensor<64x!tt.ptr<f32>>
  // GENERIC: "ditron.ld"({{.*}}) <{{.*}}> : (tensor<64x!tt.ptr<f32>>) -> tensor<64xf32>
  %1 = ditron.ld %ps scope node semantic acquire : tensor<64x!tt.ptr<f32>>
  // CHECK: ditron.ld %arg2 scope world : !tt.ptr<f8E5M2>
  %2 = ditron.ld %b scope world : !tt.ptr<f8E5M2>
  // CHECK: ditron.st %arg0, %{{.*}} : !tt.ptr<i32>
  // GENERIC: "ditron.st"({{.*}}) <{scope = #ditron.scope<gpu>, semantic = #ditron.semantic<relaxed>}> : (!tt.ptr<i32>, i32) -> ()
  ditron.st %p, %0 : !tt.ptr<i32>
  // CHECK: ditron.st %arg1, %{{.*}} scope node semantic release : tensor<64x!tt.ptr<f32>>
  ditron.st %ps, %1 scope node semantic release : tensor<64x!tt.ptr<f32>>
  return
}

// CHECK-LABEL: @atomics
func.func @atomics(%p: !tt.ptr<i32>, %v: i32, %ps: tensor<8x!tt.ptr<bf16>>, %vs: tensor<8xbf16>) {
  // CHECK: ditron.atomic_add %arg0, %arg1 : !tt.ptr<i32>
  // GENERIC: "ditron.atomic_add"({{.*}}) <{scope = #ditron.scope<gpu>, semantic = #ditron.semantic<relaxed>}> : (!tt.ptr<i32>, i32) -> i32
  %0 = ditron.atomic_add %p, %v : !tt.ptr<i32>
  // CHECK: ditron.atomic_add %arg2, %arg3 scope node semantic acq_rel : tensor<8x!tt.ptr<bf16>>
  %1 = ditron.atomic_add %ps, %vs scope node semantic acq_rel : tensor<8x!tt.ptr<bf16>>
  // CHECK: ditron.atomic_cas %arg0, %arg1, %{{.*}} : !tt.ptr<i32>
  // GENERIC: "ditron.atomic_cas"({{.*}}) <{scope = #ditron.scope<gpu>, semantic = #ditron.semantic<relaxed>}> : (!tt.ptr<i32>, i32, i32) -> i32
  %2 = ditron.atomic_cas %p, %v, %0 : !tt.ptr<i32>
  // CHECK: ditron.atomic_cas %arg0, %arg1, %{{.*}} scope world semantic release : !tt.ptr<i32>
  %3 = ditron.atomic_cas %p, %v, %0 scope world semantic release : !tt.ptr<i32>
  return
}

// CHECK-LABEL: @reductions
func.func @reductions(%p: !tt.ptr<i32>, %v: i32, %ps: tensor<8x!tt.ptr<f32>>, %vs: tensor<8xf32>) {
  // CHECK: ditron.red %arg0 add %arg1 : !tt.ptr<i32>
  // GENERIC: "ditron.red"({{.*}}) <{op = #ditron.reduce_op<add>, scope = #ditron.scope<gpu>, semantic = #ditron.semantic<relaxed>}> : (!tt.ptr<i32>, i32) -> ()
  ditron.red %p add %v : !tt.ptr<i32>
  // CHECK: ditron.red %arg0 min %arg1 scope node semantic release : !tt.ptr<i32>
  ditron.red %p min %v scope node semantic release : !tt.ptr<i32>
  // CHECK: ditron.red %arg0 max %arg1 : !tt.ptr<i32>
  ditron.red %p max %v : !tt.ptr<i32>
  // CHECK: ditron.red %arg2 add %arg3 : tensor<8x!tt.ptr<f32>>
  ditron.red %ps add %vs : tensor<8x!tt.ptr<f32>>
  return
}
