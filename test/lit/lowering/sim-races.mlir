// With races, the machine hears of every run of bytes that is loaded or stored.
// RUN: ditron-opt %s --pass-pipeline='builtin.module(lower-to-sim{races=true})' | filecheck %s
// RUN: ditron-opt %s --pass-pipeline='builtin.module(lower-to-sim)' | filecheck %s --check-prefix=OFF

// OFF-LABEL: func.func @copy
// OFF-NOT: call @ditron_sim_record

// CHECK-LABEL: func.func @copy
// A contiguous tile under no mask is one run: 64 elements of 4 bytes. A load, then a store.
// CHECK: %[[BYTES:.*]] = arith.constant 256 : i64
// CHECK-COUNT-2: call @ditron_sim_record(
"tt.func"() <{function_type = (!tt.ptr<f32>) -> (), sym_name = "copy", sym_visibility = "public"}> ({
^bb0(%x: !tt.ptr<f32>):
  %range = "tt.make_range"() <{start = 0 : i32, end = 64 : i32}> : () -> tensor<64xi32>
  %splat = "tt.splat"(%x) : (!tt.ptr<f32>) -> tensor<64x!tt.ptr<f32>>
  %at = "tt.addptr"(%splat, %range) : (tensor<64x!tt.ptr<f32>>, tensor<64xi32>) -> tensor<64x!tt.ptr<f32>>
  %v = "tt.load"(%at) <{operandSegmentSizes = array<i32: 1, 0, 0>}> : (tensor<64x!tt.ptr<f32>>) -> tensor<64xf32>
  "tt.store"(%at, %v) : (tensor<64x!tt.ptr<f32>>, tensor<64xf32>) -> ()
  "tt.return"() : () -> ()
}) : () -> ()
