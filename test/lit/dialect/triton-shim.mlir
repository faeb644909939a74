// What Triton prints in generic form comes back as it was.
// RUN: ditron-opt %s --mlir-print-op-generic | ditron-opt --mlir-print-op-generic | filecheck %s

module attributes {
  "ttg.num-warps" = 4 : i32, ttg.target = "cuda:90"
} {
  // CHECK: "tt.func"() <{arg_attrs = [{tt.divisibility = 16 : i32}, {}, {}], function_type = (!tt.ptr<f32>, !tt.ptr<f16, 3>, !tt.tensordesc<tensor<16x64xf16>>) -> (), sym_name = "kernel", sym_visibility = "public"}> ({
  "tt.func"() <{arg_attrs = [{tt.divisibility = 16 : i32}, {}, {}], function_type = (!tt.ptr<f32>, !tt.ptr<f16, 3>, !tt.tensordesc<tensor<16x64xf16>>) -> (), sym_name = "kernel", sym_visibility = "public"}> ({
  // CHECK-NEXT: ^bb0(%[[X:.*]]: !tt.ptr<f32>, %[[S:.*]]: !tt.ptr<f16, 3>, %[[D:.*]]: !tt.tensordesc<tensor<16x64xf16>>):
  ^bb0(%x: !tt.ptr<f32>, %s: !tt.ptr<f16, 3>, %d: !tt.tensordesc<tensor<16x64xf16>>):
    %zero = arith.constant 0 : i32
    // CHECK: "tt.splat"(%[[X]]) : (!tt.ptr<f32>) -> tensor<16x!tt.ptr<f32>>
    %xs = "tt.splat"(%x) : (!tt.ptr<f32>) -> tensor<16x!tt.ptr<f32>>
    // CHECK: %[[R:.*]] = "tt.make_range"() <{end = 16 : i32, start = 0 : i32}> : () -> tensor<16xi32>
    %range = "tt.make_range"() <{end = 16 : i32, start = 0 : i32}> : () -> tensor<16xi32>
    %p = "tt.addptr"(%xs, %range) : (tensor<16x!tt.ptr<f32>>, tensor<16xi32>) -> tensor<16x!tt.ptr<f32>>
    // What has its default value is not kept: not all versions of Triton write it.
    // CHECK: "tt.load"(%{{.*}}) <{operandSegmentSizes = array<i32: 1, 0, 0>}> : (tensor<16x!tt.ptr<f32>>) -> tensor<16xf32>
    %v = "tt.load"(%p) <{boundaryCheck = array<i32>, cache = 1 : i32, evict = 1 : i32, isVolatile = false, operandSegmentSizes = array<i32: 1, 0, 0>}> : (tensor<16x!tt.ptr<f32>>) -> tensor<16xf32>
    // CHECK: "tt.reduce"(%{{.*}}) <{axis = 0 : i32}> ({
    // CHECK-NEXT: ^bb0(%[[A:.*]]: f32, %[[B:.*]]: f32):
    %sum = "tt.reduce"(%v) <{axis = 0 : i32}> ({
    ^bb0(%a: f32, %b: f32):
      %c = arith.addf %a, %b : f32
      // CHECK: "tt.reduce.return"(%{{.*}}) : (f32) -> ()
      "tt.reduce.return"(%c) : (f32) -> ()
    }) : (tensor<16xf32>) -> f32
    // CHECK: "tt.descriptor_load"(%[[D]], %{{.*}}, %{{.*}}) <{evict = 2 : i32}> : (!tt.tensordesc<tensor<16x64xf16>>, i32, i32) -> tensor<16x64xf16>
    %t = "tt.descriptor_load"(%d, %zero, %zero) <{cache = 1 : i32, evict = 2 : i32}> : (!tt.tensordesc<tensor<16x64xf16>>, i32, i32) -> tensor<16x64xf16>
    // A later Triton's operation, with types and attributes nobody here knows.
    // CHECK: "tt.poll"(%[[S]]) <{how = #tt.poll_kind<spin, 3 : i32>}> {a = #tt.plain, b = #ttg.blocked<{order = [1, 0]}>} : (!tt.ptr<f16, 3>) -> !tt.event<"x", [1, 2]>
    %e = "tt.poll"(%s) <{how = #tt.poll_kind<spin, 3 : i32>}> {a = #tt.plain, b = #ttg.blocked<{order = [1, 0]}>} : (!tt.ptr<f16, 3>) -> !tt.event<"x", [1, 2]>
    // CHECK: "ttg.convert_layout"(%{{.*}}) : (tensor<16xf32>) -> tensor<16xf32, #ttg.slice<{dim = 1, parent = #ttg.linear<{register = [[0, 1]]}>}>>
    %l = "ttg.convert_layout"(%v) : (tensor<16xf32>) -> tensor<16xf32, #ttg.slice<{dim = 1, parent = #ttg.linear<{register = [[0, 1]]}>}>>
    // CHECK: "ttng.arrive"() : () -> !ttg.memdesc<16x64xf16, #ttg.nvmma_shared<{swizzlingByteWidth = 128}>, #ttng.tensor_memory, mutable>
    %m = "ttng.arrive"() : () -> !ttg.memdesc<16x64xf16, #ttg.nvmma_shared<{swizzlingByteWidth = 128}>, #ttng.tensor_memory, mutable>
    // CHECK: "amdg.buffer_load"() {g = #gluon.auto_encoding, k = !amdg.token, n = #nvws.state<1>}
    "amdg.buffer_load"() {g = #gluon.auto_encoding, k = !amdg.token, n = #nvws.state<1>} : () -> ()
    // Pointers in address space 1 say so by saying nothing; a pointer may point to anything.
    // CHECK: "tt.same"() : () -> (!tt.ptr<i8>, !tt.ptr<!tt.ptr<i64>>, !tt.ptr<tensor<4x4xf16>>)
    %q:3 = "tt.same"() : () -> (!tt.ptr<i8, 1>, !tt.ptr<!tt.ptr<i64>>, !tt.ptr<tensor<4x4xf16>>)
    // CHECK: "tt.return"() : () -> ()
    "tt.return"() : () -> ()
  }) {noinline = false} : () -> ()
}
// CHECK: }) {"ttg.num-warps" = 4 : i32, ttg.target = "cuda:90"} : () -> ()
