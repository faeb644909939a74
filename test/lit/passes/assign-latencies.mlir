// RUN: ditron-opt %s --allow-unregistered-dialect --assign-latencies | filecheck %s
// RUN: ditron-opt %s --allow-unregistered-dialect --assign-latencies --mlir-pass-statistics -o %t 2>&1 | filecheck %s --check-prefix=COUNT

// COUNT: 4  assign-latencies: loads issued ahead as asked for

// What a loop's loads ask for is what Triton's pipeliner reads.
// CHECK-LABEL: tt.func @both_loads(
// CHECK-NOT: ditron.load_ahead
// CHECK: tt.load %{{.*}} {tt.latency = 5 : i32}
// CHECK: tt.load %{{.*}} {tt.latency = 2 : i32}
tt.func @both_loads(%a: tensor<16x!tt.ptr<f16>>, %b: tensor<16x!tt.ptr<f16>>, %n: i32) {
  %c0 = arith.constant 0 : i32
  %c1 = arith.constant 1 : i32
  scf.for %i = %c0 to %n step %c1 : i32 {
    %x = tt.load %b {ditron.load_ahead = 5 : i32} : tensor<16x!tt.ptr<f16>>
    %y = tt.load %a {ditron.load_ahead = 2 : i32} : tensor<16x!tt.ptr<f16>>
    "use"(%x, %y) : (tensor<16xf16>, tensor<16xf16>) -> ()
  }
  tt.return
}

// A loop of its own in each of a loop's iterations, and a load before it that says nothing.
// CHECK-LABEL: tt.func @inner_loop(
// CHECK: tt.load %arg1 :
// CHECK: tt.descriptor_load{{.*}}tt.latency = 3 : i32
// CHECK: tt.load %{{.*}} {tt.latency = 1 : i32}
tt.func @inner_loop(%desc: !tt.tensordesc<tensor<16xf16>>, %a: tensor<16x!tt.ptr<f16>>, %n: i32) {
  %c0 = arith.constant 0 : i32
  %c1 = arith.constant 1 : i32
  scf.for %tile = %c0 to %n step %c1 : i32 {
    %bias = tt.load %a : tensor<16x!tt.ptr<f16>>
    scf.for %i = %c0 to %n step %c1 : i32 {
      %x = "tt.descriptor_load"(%desc, %i) {ditron.load_ahead = 3 : i32} : (!tt.tensordesc<tensor<16xf16>>, i32) -> tensor<16xf16>
      %y = tt.load %a {ditron.load_ahead = 1 : i32} : tensor<16x!tt.ptr<f16>>
      "use"(%x, %y, %bias) : (tensor<16xf16>, tensor<16xf16>, tensor<16xf16>) -> ()
    }
  }
  tt.return
}
