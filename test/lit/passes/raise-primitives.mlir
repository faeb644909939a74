// RUN: ditron-opt %s --pass-pipeline='builtin.module(raise-primitives)' --split-input-file | filecheck %s

// The symbol names the operation, the library path holds its attributes; a public function is a kernel.
// CHECK-LABEL: tt.func public @placeholders_become_operations(
// CHECK-SAME: %[[P:.*]]: !tt.ptr<f32>, %[[SIG:.*]]: !tt.ptr<i64>, %[[N:.*]]: i32, %[[V:.*]]: i64, {{.*}} attributes {ditron.kernel} {
tt.func public @placeholders_become_operations(%p: !tt.ptr<f32>, %sig: !tt.ptr<i64>, %n: i32, %v: i64, %ctx: !tt.ptr<i64>) {
  // CHECK: %[[RANK:.*]] = ditron.rank team node
  %rank = tt.extern_elementwise {libname = "ditron", libpath = "{team = #ditron.team<node>}", pure = true, symbol = "ditron.rank"} : () -> i32
  // CHECK: %[[TOKEN:.*]] = ditron.wait %[[SIG]][%[[N]]] gt %[[V]] scope world : !tt.ptr<i64>
  %token = tt.extern_elementwise %sig, %n, %v {libname = "ditron", libpath = "{cmp = #ditron.cmp<gt>, scope = #ditron.scope<world>, semantic = #ditron.semantic<acquire>}", pure = false, symbol = "ditron.wait"} : (!tt.ptr<i64>, i32, i64) -> i32
  // CHECK: %[[READY:.*]] = ditron.consume_token %[[P]], %[[TOKEN]] : !tt.ptr<f32>
  %ready = tt.extern_elementwise %p, %token {libname = "ditron", libpath = "", pure = true, symbol = "ditron.consume_token"} : (!tt.ptr<f32>, i32) -> !tt.ptr<f32>
  // CHECK: ditron.putmem %[[P]], %[[READY]], %[[V]] on %[[RANK]] nbi : !tt.ptr<f32>, !tt.ptr<f32>
  %unused = tt.extern_elementwise %p, %ready, %v, %rank {libname = "ditron", libpath = "{nbi, granularity = #ditron.granularity<block>, void}", pure = false, symbol = "ditron.putmem"} : (!tt.ptr<f32>, !tt.ptr<f32>, i64, i32) -> i32
  // CHECK: ditron.quiet
  %unused2 = tt.extern_elementwise {libname = "ditron", libpath = "{void}", pure = false, symbol = "ditron.quiet"} : () -> i32
  // CHECK: ditron.extern_call "f"(%[[N]]) from "lib" at "lib.bc" : (i32) -> ()
  %unused3 = tt.extern_elementwise %n {libname = "ditron", libpath = "{symbol = \22f\22, libname = \22lib\22, libpath = \22lib.bc\22, void}", pure = false, symbol = "ditron.extern_call"} : (i32) -> i32
  // CHECK: tt.return
  tt.return
}

// -----

// Calls into other libraries stay, and so do private functions: only public ones are kernels.
// CHECK-LABEL: tt.func private @others_stay(
// CHECK-NOT: ditron.kernel
tt.func private @others_stay(%x: f32) -> f32 {
  // CHECK: tt.extern_elementwise {{.*}} {libname = "libdevice", libpath = "", pure = true, symbol = "__nv_sinf"}
  %y = tt.extern_elementwise %x {libname = "libdevice", libpath = "", pure = true, symbol = "__nv_sinf"} : (f32) -> f32
  tt.return %y : f32
}

// -----

// A token is typed wherever it flows: branches, loops, selects.
// CHECK-LABEL: tt.func public @tokens_flow(
tt.func public @tokens_flow(%sig: !tt.ptr<i64>, %n: i32, %v: i64, %c: i1, %ctx: !tt.ptr<i64>) {
  %zero = arith.constant 0 : i32
  %one = arith.constant 1 : i32
  // CHECK: %[[IF:.*]] = scf.if %{{.*}} -> (!ditron.token)
  %if = scf.if %c -> (i32) {
    %a = tt.extern_elementwise %sig, %n, %v {libname = "ditron", libpath = "{cmp = #ditron.cmp<ge>}", pure = false, symbol = "ditron.wait"} : (!tt.ptr<i64>, i32, i64) -> i32
    scf.yield %a : i32
  } else {
    %b = tt.extern_elementwise %sig, %one, %v {libname = "ditron", libpath = "{cmp = #ditron.cmp<ge>}", pure = false, symbol = "ditron.wait"} : (!tt.ptr<i64>, i32, i64) -> i32
    scf.yield %b : i32
  }
  // CHECK: %[[FOR:.*]] = scf.for {{.*}} iter_args(%{{.*}} = %[[IF]]) -> (!ditron.token)
  %for = scf.for %i = %zero to %n step %one iter_args(%carried = %if) -> (i32) : i32 {
    %t = tt.extern_elementwise %sig, %n, %v {libname = "ditron", libpath = "{cmp = #ditron.cmp<ge>}", pure = false, symbol = "ditron.wait"} : (!tt.ptr<i64>, i32, i64) -> i32
    scf.yield %t : i32
  }
  // CHECK: %[[WHILE:.*]] = scf.while (%[[ARG:.*]] = %[[FOR]]) : (!ditron.token) -> !ditron.token
  %while = scf.while (%arg = %for) : (i32) -> i32 {
    scf.condition(%c) %arg : i32
  } do {
  ^bb0(%arg: i32):
    scf.yield %arg : i32
  }
  // CHECK: %[[SELECT:.*]] = arith.select %{{.*}}, %[[IF]], %[[WHILE]] : !ditron.token
  %select = arith.select %c, %if, %while : i32
  // CHECK: ditron.consume_token %{{.*}}, %[[SELECT]] : i32
  %m = tt.extern_elementwise %n, %select {libname = "ditron", libpath = "", pure = true, symbol = "ditron.consume_token"} : (i32, i32) -> i32
  %w = tt.extern_elementwise %sig, %m, %v {libname = "ditron", libpath = "{}", pure = false, symbol = "ditron.wait"} : (!tt.ptr<i64>, i32, i64) -> i32
  tt.return
}

// Triton's barrier of a program is of a dialect that is not ours.
// RUN: ditron-opt %S/Inputs/debug-barrier.mlir --allow-unregistered-dialect --raise-primitives | ditron-opt | filecheck %s --check-prefix=BARRIER
// BARRIER-LABEL: tt.func public @barrier
// BARRIER-COUNT-2: ditron.sync_threads
// BARRIER-NOT: gpu.barrier
