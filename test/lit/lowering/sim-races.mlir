// With races, the machine hears of every run of bytes that is loaded or stored.
// RUN: ditron-opt %s --pass-pipeline='builtin.module(lower-to-sim{races=true})' | filecheck %s
// RUN: ditron-opt %s --pass-pipeline='builtin.module(lower-to-sim)' | filecheck %s --check-prefix=OFF

// OFF-NOT: call @ditron_sim_record

// CHECK-LABEL: func.func @copy
// A contiguous tile under no mask is one run: 64 elements of 4 bytes. A load, then a store.
// CHECK-DAG: %[[BYTES:.*]] = arith.constant 256 : i64
// CHECK-DAG: %[[ONE:.*]] = arith.constant 1 : i64
// CHECK: llvm.store %[[BYTES]], %{{.*}} : i64, !llvm.ptr
// CHECK: call @ditron_sim_record_runs(%{{.*}}, %[[ONE]], %{{.*}}, %{{.*}})
// CHECK: llvm.store %[[BYTES]], %{{.*}} : i64, !llvm.ptr
// CHECK: call @ditron_sim_record_runs(%{{.*}}, %[[ONE]], %{{.*}}, %{{.*}})
// CHECK-NOT: call @ditron_sim_record(
tt.func public @copy(%x: !tt.ptr<f32>) {
  %range = tt.make_range {end = 64 : i32, start = 0 : i32} : tensor<64xi32>
  %splat = tt.splat %x : !tt.ptr<f32> -> tensor<64x!tt.ptr<f32>>
  %at = tt.addptr %splat, %range : tensor<64x!tt.ptr<f32>>, tensor<64xi32>
  %v = tt.load %at : tensor<64x!tt.ptr<f32>>
  tt.store %at, %v : tensor<64x!tt.ptr<f32>>
  tt.return
}

// Addresses that come from memory may lie anywhere: a call per element that is part of no run.
// CHECK-LABEL: func.func @gather
// CHECK: scf.for
// CHECK: call @ditron_sim_record(
// CHECK: call @ditron_sim_record_runs(
tt.func public @gather(%x: !tt.ptr<f32>, %where: !tt.ptr<i32>) {
  %range = tt.make_range {end = 64 : i32, start = 0 : i32} : tensor<64xi32>
  %splat = tt.splat %where : !tt.ptr<i32> -> tensor<64x!tt.ptr<i32>>
  %at = tt.addptr %splat, %range : tensor<64x!tt.ptr<i32>>, tensor<64xi32>
  %i = tt.load %at : tensor<64x!tt.ptr<i32>>
  %base = tt.splat %x : !tt.ptr<f32> -> tensor<64x!tt.ptr<f32>>
  %p = tt.addptr %base, %i : tensor<64x!tt.ptr<f32>>, tensor<64xi32>
  %v = tt.load %p : tensor<64x!tt.ptr<f32>>
  tt.return
}
