// RUN: ditron-opt --lower-to-sim %s | filecheck %s
// RUN: ditron-opt --pass-pipeline='builtin.module(lower-to-sim{checks=all})' %s | filecheck %s --check-prefix=ALL
// RUN: ditron-opt --pass-pipeline='builtin.module(lower-to-sim{checks=none})' %s | filecheck %s --check-prefix=NONE
// RUN: not ditron-opt --pass-pipeline='builtin.module(lower-to-sim{checks=some})' %s 2>&1 | filecheck %s --check-prefix=WRONG

// WRONG: option 'checks' of 'lower-to-sim': expected ends, all or none, got 'some'
// NONE-NOT: ditron_sim_check_
// CHECK-DAG: @ditron_text_0("an atomic\00")
// CHECK-DAG: @ditron_text_1("notify\00")

// Before a tile is loaded, the machine looks at the lowest and the highest address that the mask lets through.
// CHECK-LABEL: func.func @tile
// ALL-LABEL: func.func @tile
tt.func public @tile(%p: !tt.ptr<f32>, %limit: i32) {
  // CHECK: %[[ENDS:.*]]:2 = scf.for %{{.*}} iter_args(%[[LOW:.*]] = %{{.*}}, %[[HIGH:.*]] = %{{.*}}) -> (i64, i64) : i64 {
  // CHECK: arith.minui %[[LOW]]
  // CHECK: arith.maxui %[[HIGH]]
  // CHECK: %[[SOME:.*]] = arith.cmpi ule, %[[ENDS]]#0, %[[ENDS]]#1
  // CHECK: scf.if %[[SOME]] {
  // CHECK-COUNT-2: func.call @ditron_sim_check_range(
  // CHECK: scf.for
  // CHECK: llvm.load
  // ALL: scf.for
  // ALL: scf.if
  // ALL: func.call @ditron_sim_check_range(
  // ALL: scf.for
  // ALL: llvm.load
  %n = tt.make_range {end = 32 : i32, start = 0 : i32} : tensor<32xi32>
  %s = tt.splat %limit : i32 -> tensor<32xi32>
  %mask = arith.cmpi slt, %n, %s : tensor<32xi32>
  %base = tt.splat %p : !tt.ptr<f32> -> tensor<32x!tt.ptr<f32>>
  %addresses = tt.addptr %base, %n : tensor<32x!tt.ptr<f32>>, tensor<32xi32>
  %v = tt.load %addresses, %mask : tensor<32x!tt.ptr<f32>>
  tt.return
}

// A scalar is looked at as it is; a loop that only loads must let others go on, and this call does.
// CHECK-LABEL: func.func @spin
tt.func public @spin(%p: !tt.ptr<i64>) {
  // CHECK: scf.while
  // CHECK: call @ditron_sim_check_range(%[[P:.*]], %{{.*}}, %{{.*}}, %{{.*}})
  // CHECK: llvm.load %[[P]]
  %zero = arith.constant 0 : i64
  scf.while : () -> () {
    %v = tt.load %p : !tt.ptr<i64>
    %again = arith.cmpi eq, %v, %zero : i64
    scf.condition(%again)
  } do {
    scf.yield
  }
  tt.return
}

// The machine checks what it does itself, but for whose memory it is: that is the kernel's second argument's.
// CHECK-LABEL: func.func @origins
// ALL-LABEL: func.func @origins
tt.func public @origins(%by: i32, %p: !tt.ptr<i64>, %v: i64) {
  // CHECK-DAG: %[[C1:.*]] = arith.constant 1 : i32
  // CHECK-DAG: %[[BYTES:.*]] = arith.constant 8 : i64
  // CHECK: %[[WHAT:.*]] = llvm.mlir.addressof @ditron_text_0
  // CHECK: scf.if %{{.*}} {
  // CHECK-COUNT-2: func.call @ditron_sim_check_origin(%{{.*}}, %[[BYTES]], %[[C1]], %[[WHAT]], %{{.*}}) : (!llvm.ptr, i64, i32, !llvm.ptr, i32)
  // CHECK: scf.for
  // CHECK: func.call @ditron_sim_atomic_rmw(
  // ALL: scf.for
  // ALL: func.call @ditron_sim_check_origin(
  // ALL: scf.for
  // ALL: func.call @ditron_sim_atomic_rmw(
  %n = tt.make_range {end = 32 : i32, start = 0 : i32} : tensor<32xi32>
  %base = tt.splat %p : !tt.ptr<i64> -> tensor<32x!tt.ptr<i64>>
  %addresses = tt.addptr %base, %n : tensor<32x!tt.ptr<i64>>, tensor<32xi32>
  %vs = tt.splat %v : i64 -> tensor<32xi64>
  %old = tt.atomic_rmw add, relaxed, gpu, %addresses, %vs : (tensor<32x!tt.ptr<i64>>, tensor<32xi64>) -> tensor<32xi64>
  // CHECK: call @ditron_sim_check_origin(%[[SIG:.*]], %{{.*}}, %[[C1]], %{{.*}}, %{{.*}})
  // CHECK: call @ditron_sim_notify(%[[SIG]],
  %sig = tt.addptr %p, %by : !tt.ptr<i64>, i32
  ditron.notify %sig set %v on %by : !tt.ptr<i64>
  // Of an address that is computed from an integer nothing is known.
  // CHECK-NOT: check_origin
  // CHECK: call @ditron_sim_notify(
  %address = tt.int_to_ptr %v : i64 -> !tt.ptr<i64>
  ditron.notify %address set %v on %by : !tt.ptr<i64>
  tt.return
}
