// RUN: ditron-opt --lower-to-sim %s | filecheck %s

// CHECK-DAG: @ditron_text_0("wait\00")
// CHECK-DAG: @ditron_text_1("pid (%u, %u, %u) idx () x: %i\00")
// CHECK-DAG: @ditron_text_2("pid (%u, %u, %u) idx (%2u) 5%%: 0x%08x\00")
// CHECK-DAG: @ditron_text_3("pid (%u, %u, %u) here\00")
// CHECK-DAG: @ditron_text_4(": not ok\00")

// Two carried tiles that change places: both are read before either is written.
// CHECK-LABEL: func.func @swap
tt.func public @swap(%p: !tt.ptr<f32>, %steps: i32) {
  // CHECK: scf.for %{{.*}} : i32 {
  // CHECK: scf.for %{{.*}} : i64 {
  // CHECK-DAG: %[[LEFT:.*]] = llvm.load
  // CHECK-DAG: %[[RIGHT:.*]] = llvm.load
  // CHECK: llvm.store
  // CHECK: llvm.store
  %zero = "arith.constant"() <{value = dense<0.0> : tensor<32xf32>}> : () -> tensor<32xf32>
  %one = "arith.constant"() <{value = dense<1.0> : tensor<32xf32>}> : () -> tensor<32xf32>
  %c0 = arith.constant 0 : i32
  %c1 = arith.constant 1 : i32
  %r:2 = scf.for %k = %c0 to %steps step %c1 iter_args(%a = %zero, %b = %one) -> (tensor<32xf32>, tensor<32xf32>) : i32 {
    scf.yield %b, %a : tensor<32xf32>, tensor<32xf32>
  }
  %n = tt.make_range {end = 32 : i32, start = 0 : i32} : tensor<32xi32>
  %base = tt.splat %p : !tt.ptr<f32> -> tensor<32x!tt.ptr<f32>>
  %addresses = tt.addptr %base, %n : tensor<32x!tt.ptr<f32>>, tensor<32xi32>
  tt.store %addresses, %r#0 : tensor<32x!tt.ptr<f32>>
  tt.return
}

// Both branches write the result's buffer; scalars stay values, tokens vanish.
// CHECK-LABEL: func.func @branches
tt.func public @branches(%p: !tt.ptr<f32>, %sig: !tt.ptr<i64>, %c: i1, %x: f32) {
  // CHECK: %[[TO:.*]] = llvm.alloca %{{.*}} x !llvm.array<32 x f32>
  // CHECK: %[[S:.*]] = scf.if %{{.*}} -> (f32) {
  // CHECK: call @ditron_sim_wait
  // CHECK: llvm.getelementptr %[[TO]]
  // CHECK: scf.yield %{{.*}} : f32
  // CHECK: } else {
  // CHECK: call @ditron_sim_wait
  // CHECK: llvm.getelementptr %[[TO]]
  // CHECK: scf.yield %{{.*}} : f32
  // CHECK: llvm.load %{{.*}} : !llvm.ptr -> f32
  // CHECK: arith.mulf %{{.*}}, %[[S]] : f32
  %i1 = arith.constant 1 : i32
  %v = arith.constant 5 : i64
  %zero = "arith.constant"() <{value = dense<0.0> : tensor<32xf32>}> : () -> tensor<32xf32>
  %one = "arith.constant"() <{value = dense<1.0> : tensor<32xf32>}> : () -> tensor<32xf32>
  %t, %s, %tile = scf.if %c -> (!ditron.token, f32, tensor<32xf32>) {
    %w = ditron.wait %sig[%i1] ge %v : !tt.ptr<i64>
    scf.yield %w, %x, %zero : !ditron.token, f32, tensor<32xf32>
  } else {
    %w = ditron.wait %sig[%i1] eq %v : !tt.ptr<i64>
    %y = arith.addf %x, %x : f32
    scf.yield %w, %y, %one : !ditron.token, f32, tensor<32xf32>
  }
  %q = ditron.consume_token %p, %t : !tt.ptr<f32>
  %n = tt.make_range {end = 32 : i32, start = 0 : i32} : tensor<32xi32>
  %base = tt.splat %q : !tt.ptr<f32> -> tensor<32x!tt.ptr<f32>>
  %addresses = tt.addptr %base, %n : tensor<32x!tt.ptr<f32>>, tensor<32xi32>
  %all = tt.splat %s : f32 -> tensor<32xf32>
  %product = arith.mulf %tile, %all : tensor<32xf32>
  tt.store %addresses, %product : tensor<32x!tt.ptr<f32>>
  tt.return
}

// An early return keeps its blocks.
// CHECK-LABEL: func.func @early
tt.func public @early(%limit: i32) {
  // CHECK-SAME: %[[PID:arg1]]: i32
  // CHECK: %[[OUT:.*]] = arith.cmpi sge, %[[PID]], %{{.*}} : i32
  // CHECK: cf.cond_br %[[OUT]]
  // CHECK: return
  // CHECK: call @ditron_sim_quiet
  // CHECK: return
  %pid = tt.get_program_id x : i32
  %out = arith.cmpi sge, %pid, %limit : i32
  cf.cond_br %out, ^done, ^go
^done:
  tt.return
^go:
  ditron.quiet
  tt.return
}

// A noinline function gets the grid too.
// CHECK-LABEL: func.func private @helper(%arg0: i32, %arg1: i32, %arg2: i32, %arg3: i32, %arg4: i32, %arg5: i32, %arg6: i32) -> i32
tt.func private @helper(%x: i32) -> i32 {
  // CHECK: arith.addi %arg0, %arg5
  %n = tt.get_num_programs y : i32
  %y = arith.addi %x, %n : i32
  tt.return %y : i32
}

// CHECK-LABEL: func.func @calls
tt.func public @calls(%x: i32) {
  // CHECK: call @helper(%{{.*}}, %arg1, %arg2, %arg3, %arg4, %arg5, %arg6)
  %y = tt.call @helper(%x) : (i32) -> i32
  tt.return
}

// What a program says: printf's formats, as Triton writes them for a GPU. They are in the module's head.
// CHECK-LABEL: func.func @speech
tt.func public @speech(%x: i32, %ok: i1) {
  // CHECK: %[[ONE:.*]] = llvm.mlir.addressof @ditron_text_1
  // CHECK: llvm.call @ditron_sim_print(%[[ONE]], %{{.*}}, %arg1, %arg2, %arg3, %{{.*}}) vararg
  // CHECK: %[[ALL:.*]] = llvm.mlir.addressof @ditron_text_2
  // CHECK: scf.for %[[AT:.*]] = {{.*}} : i64 {
  // CHECK: arith.trunci %[[AT]] : i64 to i32
  // CHECK: %[[INDEX:.*]] = arith.trunci %[[AT]] : i64 to i32
  // CHECK-NEXT: llvm.call @ditron_sim_print(%[[ALL]], %{{.*}}, %arg1, %arg2, %arg3, %[[INDEX]], %{{.*}}) vararg
  // CHECK: %[[TEXT:.*]] = llvm.mlir.addressof @ditron_text_3
  // CHECK: llvm.call @ditron_sim_print(%[[TEXT]], %{{.*}}, %arg1, %arg2, %arg3) vararg
  // CHECK: scf.if
  // CHECK: llvm.call @ditron_sim_assert_fail
  %n = tt.make_range {end = 32 : i32, start = 0 : i32} : tensor<32xi32>
  tt.print " x: " {hex = false, isSigned = array<i32: 1>} : %x : i32
  tt.print " 5%: " {hex = true, isSigned = array<i32: 0>} : %n : tensor<32xi32>
  tt.print " here" {hex = false, isSigned = array<i32>}
  tt.assert %ok, "not ok" : i1
  tt.return
}
