// RUN: ditron-opt %s | ditron-opt | filecheck %s
// RUN: ditron-opt %s --mlir-print-op-generic | ditron-opt | filecheck %s
// RUN: ditron-opt %s --mlir-print-op-generic | filecheck %s --check-prefix=GENERIC

// CHECK-LABEL: @inside_a_program
func.func @inside_a_program() {
  // CHECK: %thread_id = ditron.thread_id
  // GENERIC: "ditron.thread_id"() : () -> i32
  %0 = ditron.thread_id
  // CHECK: %num_threads = ditron.num_threads
  %1 = ditron.num_threads
  // CHECK: %lane_id = ditron.lane_id
  %2 = ditron.lane_id
  // CHECK: %warp_id = ditron.warp_id
  %3 = ditron.warp_id
  // CHECK: ditron.sync_threads
  // GENERIC: "ditron.sync_threads"() : () -> ()
  ditron.sync_threads
  return
}

// CHECK-LABEL: @between_lanes
func.func @between_lanes(%v: i32, %l: i32, %f: f32, %w: i64, %c: i1) {
  // CHECK: ditron.shfl idx %arg0, %arg1 : i32
  // GENERIC: "ditron.shfl"({{.*}}) <{mode = #ditron.shfl_mode<idx>}> : (i32, i32) -> i32
  %0 = ditron.shfl idx %v, %l : i32
  // CHECK: ditron.shfl up %arg2, %arg1 : f32
  %1 = ditron.shfl up %f, %l : f32
  // CHECK: ditron.shfl down %arg3, %arg1 : i64
  %2 = ditron.shfl down %w, %l : i64
  // CHECK: ditron.shfl bfly %arg0, %arg1 : i32
  // GENERIC: "ditron.shfl"({{.*}}) <{mode = #ditron.shfl_mode<bfly>}>
  %3 = ditron.shfl bfly %v, %l : i32
  // CHECK: ditron.ballot %arg4
  // GENERIC: "ditron.ballot"({{.*}}) : (i1) -> i64
  %4 = ditron.ballot %c
  return
}

// CHECK-LABEL: @conditions
func.func @conditions(%c: i1) {
  // CHECK: ditron.expect %arg0, 2.500000e-01
  // GENERIC: "ditron.expect"({{.*}}) <{probability = 2.500000e-01 : f64}> : (i1) -> i1
  %0 = ditron.expect %c, 2.500000e-01
  // CHECK: ditron.expect %arg0, 1.000000e+00 uniform
  // GENERIC: "ditron.expect"({{.*}}) <{probability = 1.000000e+00 : f64, uniform}> : (i1) -> i1
  %1 = ditron.expect %c, 1.0 uniform
  // CHECK: ditron.expect 0.000000e+00
  // GENERIC: "ditron.expect"() <{probability = 0.000000e+00 : f64}> : () -> i1
  %2 = ditron.expect 0.0
  return
}

// CHECK-LABEL: @extern_calls
func.func @extern_calls(%a: i32, %x: tensor<4xf32>) {
  // CHECK: ditron.extern_call "nothing"() : () -> ()
  // GENERIC: "ditron.extern_call"() <{libname = "", libpath = "", symbol = "nothing"}> : () -> ()
  ditron.extern_call "nothing"() : () -> ()
  // CHECK: ditron.extern_call "sin"(%arg1) from "libdevice" at "lib.bc" pure : (tensor<4xf32>) -> tensor<4xf32>
  // GENERIC: "ditron.extern_call"({{.*}}) <{libname = "libdevice", libpath = "lib.bc", pure, symbol = "sin"}>
  %0 = ditron.extern_call "sin"(%x) from "libdevice" at "lib.bc" pure : (tensor<4xf32>) -> tensor<4xf32>
  // CHECK: ditron.extern_call "two"(%arg0, %arg0) from "mine" : (i32, i32) -> (i32, i64)
  %1:2 = ditron.extern_call "two"(%a, %a) from "mine" : (i32, i32) -> (i32, i64)
  return
}
