// RUN: ditron-opt %s | ditron-opt | filecheck %s
// RUN: ditron-opt %s --mlir-print-op-generic | ditron-opt | filecheck %s
// RUN: ditron-opt %s --mlir-print-op-generic | filecheck %s --check-prefix=GENERIC

// CHECK-LABEL: @waits
func.func @waits(%sig: !tt.ptr<i64>, %n: i32, %v: i64) {
  // CHECK: %token = ditron.wait %arg0[%arg1] ge %arg2 : !tt.ptr<i64>
  // GENERIC: "ditron.wait"({{.*}}) <{cmp = #ditron.cmp<ge>, scope = #ditron.scope<node>, semantic = #ditron.semantic<acquire>}> : (!tt.ptr<i64>, i32, i64) -> !ditron.token
  %0 = ditron.wait %sig[%n] ge %v : !tt.ptr<i64>
  // CHECK: ditron.wait %arg0[%arg1] eq %arg2 scope world : !tt.ptr<i64>
  %1 = ditron.wait %sig[%n] eq %v scope world : !tt.ptr<i64>
  // CHECK: ditron.wait %arg0[%arg1] lt %arg2 scope gpu semantic relaxed : !tt.ptr<i64>
  %2 = ditron.wait %sig[%n] lt %v scope gpu semantic relaxed : !tt.ptr<i64>
  // CHECK: ditron.wait %arg0[%arg1] ge %arg2 : !tt.ptr<i64>
  %3 = "ditron.wait"(%sig, %n, %v) : (!tt.ptr<i64>, i32, i64) -> !ditron.token
  return
}

// CHECK-LABEL: @tokens_tie_any_value
func.func @tokens_tie_any_value(%t: !ditron.token, %p: !tt.ptr<f16>, %i: i32, %x: tensor<4x!tt.ptr<f16>>) {
  // CHECK: ditron.consume_token %arg1, %arg0 : !tt.ptr<f16>
  // GENERIC: "ditron.consume_token"({{.*}}) : (!tt.ptr<f16>, !ditron.token) -> !tt.ptr<f16>
  %0 = ditron.consume_token %p, %t : !tt.ptr<f16>
  // CHECK: ditron.consume_token %arg2, %arg0 : i32
  %1 = ditron.consume_token %i, %t : i32
  // CHECK: ditron.consume_token %arg3, %arg0 : tensor<4x!tt.ptr<f16>>
  %2 = ditron.consume_token %x, %t : tensor<4x!tt.ptr<f16>>
  return
}

// CHECK-LABEL: @tokens_through_control_flow
func.func @tokens_through_control_flow(%c: i1, %sig: !tt.ptr<i64>, %n: i32, %v: i64) {
  // CHECK: scf.if %arg0 -> (!ditron.token)
  %t = scf.if %c -> !ditron.token {
    %a = ditron.wait %sig[%n] ge %v : !tt.ptr<i64>
    scf.yield %a : !ditron.token
  } else {
    %b = ditron.wait %sig[%n] ge %v scope gpu : !tt.ptr<i64>
    scf.yield %b : !ditron.token
  }
  %0 = ditron.consume_token %sig, %t : !tt.ptr<i64>
  return
}

// CHECK-LABEL: @notifiers
func.func @notifiers(%sig: !tt.ptr<i64>, %v: i64, %r: i32) {
  // CHECK: ditron.notify %arg0 set %arg1 on %arg2 : !tt.ptr<i64>
  // GENERIC: "ditron.notify"({{.*}}) <{op = #ditron.signal_op<set>, scope = #ditron.scope<node>}> : (!tt.ptr<i64>, i64, i32) -> ()
  ditron.notify %sig set %v on %r : !tt.ptr<i64>
  // CHECK: ditron.notify %arg0 add %arg1 on %arg2 scope world : !tt.ptr<i64>
  ditron.notify %sig add %v on %r scope world : !tt.ptr<i64>
  // CHECK: ditron.signal_op %arg0 set %arg1 on %arg2 : !tt.ptr<i64>
  ditron.signal_op %sig set %v on %r : !tt.ptr<i64>
  // CHECK: ditron.signal_op %arg0 add %arg1 on %arg2 : !tt.ptr<i64>
  // GENERIC: "ditron.signal_op"({{.*}}) <{op = #ditron.signal_op<add>}>
  ditron.signal_op %sig add %v on %r : !tt.ptr<i64>
  return
}

// CHECK-LABEL: @signal_wait_until
func.func @signal_wait_until(%sig: !tt.ptr<i64>, %v: i64) -> i64 {
  // CHECK: ditron.signal_wait_until %arg0 ge %arg1 : !tt.ptr<i64>
  // GENERIC: "ditron.signal_wait_until"({{.*}}) <{cmp = #ditron.cmp<ge>}> : (!tt.ptr<i64>, i64) -> i64
  %0 = ditron.signal_wait_until %sig ge %v : !tt.ptr<i64>
  return %0 : i64
}

// CHECK-LABEL: @signal_fetch
func.func @signal_fetch(%sig: !tt.ptr<i64>) -> (i64, i64) {
  // CHECK: ditron.signal_fetch %arg0 : !tt.ptr<i64>
  // GENERIC: "ditron.signal_fetch"({{.*}}) <{semantic = #ditron.semantic<acquire>}> : (!tt.ptr<i64>) -> i64
  %0 = ditron.signal_fetch %sig semantic acquire : !tt.ptr<i64>
  // CHECK: ditron.signal_fetch %arg0 semantic relaxed : !tt.ptr<i64>
  %1 = ditron.signal_fetch %sig semantic relaxed : !tt.ptr<i64>
  return %0, %1 : i64, i64
}
