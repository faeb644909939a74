// RUN: ditron-opt %s | ditron-opt | filecheck %s
// RUN: ditron-opt %s --mlir-print-op-generic | ditron-opt | filecheck %s
// RUN: ditron-opt %s --mlir-print-op-generic | filecheck %s --check-prefix=GENERIC

// CHECK-LABEL: @multimem
func.func @multimem(%p: !tt.ptr<bf16>, %v: bf16, %ps: tensor<8x!tt.ptr<f32>>, %vs: tensor<8xf32>) {
  // CHECK: ditron.multimem_ld_reduce add %arg0 : !tt.ptr<bf16>
  // GENERIC: "ditron.multimem_ld_reduce"({{.*}}) <{op = #ditron.reduce_op<add>}> : (!tt.ptr<bf16>) -> bf16
  %0 = ditron.multimem_ld_reduce add %p : !tt.ptr<bf16>
  // CHECK: ditron.multimem_ld_reduce max %arg0 : !tt.ptr<bf16>
  %1 = ditron.multimem_ld_reduce max %p : !tt.ptr<bf16>
  // CHECK: ditron.multimem_ld_reduce add %arg2 : tensor<8x!tt.ptr<f32>>
  // GENERIC: "ditron.multimem_ld_reduce"({{.*}}) <{op = #ditron.reduce_op<add>}> : (tensor<8x!tt.ptr<f32>>) -> tensor<8xf32>
  %2 = ditron.multimem_ld_reduce add %ps : tensor<8x!tt.ptr<f32>>
  // CHECK: ditron.multimem_st %arg0, %arg1 : !tt.ptr<bf16>
  // GENERIC: "ditron.multimem_st"({{.*}}) : (!tt.ptr<bf16>, bf16) -> ()
  ditron.multimem_st %p, %v : !tt.ptr<bf16>
  // CHECK: ditron.multimem_st %arg2, %arg3 : tensor<8x!tt.ptr<f32>>
  ditron.multimem_st %ps, %vs : tensor<8x!tt.ptr<f32>>
  // CHECK: ditron.multimem_red %arg0 min %arg1 : !tt.ptr<bf16>
  // GENERIC: "ditron.multimem_red"({{.*}}) <{op = #ditron.reduce_op<min>}> : (!tt.ptr<bf16>, bf16) -> ()
  ditron.multimem_red %p min %v : !tt.ptr<bf16>
  // CHECK: ditron.multimem_red %arg2 add %arg3 : tensor<8x!tt.ptr<f32>>
  ditron.multimem_red %ps add %vs : tensor<8x!tt.ptr<f32>>
  return
}

// CHECK-LABEL: @every_type_adds
func.func @every_type_adds(%a: !tt.ptr<i32>, %b: !tt.ptr<i64>, %c: !tt.ptr<f16>) {
  // CHECK-COUNT-3: ditron.multimem_ld_reduce add
  %0 = ditron.multimem_ld_reduce add %a : !tt.ptr<i32>
  %1 = ditron.multimem_ld_reduce add %b : !tt.ptr<i64>
  %2 = ditron.multimem_ld_reduce add %c : !tt.ptr<f16>
  // CHECK-COUNT-2: ditron.multimem_ld_reduce min
  %3 = ditron.multimem_ld_reduce min %a : !tt.ptr<i32>
  %4 = ditron.multimem_ld_reduce min %b : !tt.ptr<i64>
  return
}
