// RUN: ditron-opt %s | ditron-opt | filecheck %s
// RUN: ditron-opt %s --mlir-print-op-generic | ditron-opt | filecheck %s
// RUN: ditron-opt %s --mlir-print-op-generic | filecheck %s --check-prefix=GENERIC
// RUN: ditron-opt %s --canonicalize --cse | filecheck %s --check-prefix=KEPT

// CHECK-LABEL: @messages
func.func @messages(%packets: !tt.ptr<i64>, %p: !tt.ptr<bf16>, %n: i64, %epoch: i64, %r: i32) {
  // CHECK: ditron.ll_put %arg0, %arg1, %arg2, %arg3 on %arg4 : !tt.ptr<i64>, !tt.ptr<bf16>
  // GENERIC: "ditron.ll_put"({{.*}}) <{protocol = #ditron.protocol<ll>}> : (!tt.ptr<i64>, !tt.ptr<bf16>, i64, i64, i32) -> ()
  ditron.ll_put %packets, %p, %n, %epoch on %r : !tt.ptr<i64>, !tt.ptr<bf16>
  // CHECK: ditron.ll_put %arg0, %arg1, %arg2, %arg3 on %arg4 protocol ll128 : !tt.ptr<i64>, !tt.ptr<bf16>
  // GENERIC: "ditron.ll_put"({{.*}}) <{protocol = #ditron.protocol<ll128>}>
  ditron.ll_put %packets, %p, %n, %epoch on %r protocol ll128 : !tt.ptr<i64>, !tt.ptr<bf16>
  // CHECK: %[[TOKEN:.*]] = ditron.ll_get %arg1, %arg0, %arg2, %arg3 : !tt.ptr<bf16>, !tt.ptr<i64>
  // GENERIC: "ditron.ll_get"({{.*}}) <{protocol = #ditron.protocol<ll>}> : (!tt.ptr<bf16>, !tt.ptr<i64>, i64, i64) -> !ditron.token
  %token = ditron.ll_get %p, %packets, %n, %epoch : !tt.ptr<bf16>, !tt.ptr<i64>
  // CHECK: ditron.ll_get %arg1, %arg0, %arg2, %arg3 protocol ll128 : !tt.ptr<bf16>, !tt.ptr<i64>
  %lines = ditron.ll_get %p, %packets, %n, %epoch protocol ll128 : !tt.ptr<bf16>, !tt.ptr<i64>
  // CHECK: ditron.consume_token %arg1, %[[TOKEN]]
  %q = ditron.consume_token %p, %token : !tt.ptr<bf16>
  return
}

// Neither is merged with its like nor dropped, and the bounds of the constants are allowed.
// CHECK-LABEL: @nothing_is_merged
// KEPT-LABEL: @nothing_is_merged
// KEPT-COUNT-2: ditron.ll_put
// KEPT-COUNT-2: ditron.ll_get
func.func @nothing_is_merged(%packets: !tt.ptr<i64>, %p: !tt.ptr<f32>, %r: i32) {
  %zero = arith.constant 0 : i64
  %one = arith.constant 1 : i64
  // CHECK-COUNT-2: ditron.ll_put
  ditron.ll_put %packets, %p, %zero, %one on %r : !tt.ptr<i64>, !tt.ptr<f32>
  ditron.ll_put %packets, %p, %zero, %one on %r : !tt.ptr<i64>, !tt.ptr<f32>
  // CHECK-COUNT-2: ditron.ll_get
  %a = ditron.ll_get %p, %packets, %zero, %one : !tt.ptr<f32>, !tt.ptr<i64>
  %b = ditron.ll_get %p, %packets, %zero, %one : !tt.ptr<f32>, !tt.ptr<i64>
  return
}
