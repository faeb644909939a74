// RUN: ditron-opt %s | ditron-opt | filecheck %s
// RUN: ditron-opt %s --mlir-print-op-generic | ditron-opt | filecheck %s
// RUN: ditron-opt %s --mlir-print-op-generic | filecheck %s --check-prefix=GENERIC
// RUN: ditron-opt %s --canonicalize --cse | filecheck %s --check-prefix=CANON

tt.func @k(%a: !tt.tensordesc<tensor<16x64xbf16>>, %m: i32, %n: i32, %s: i64, %t: i64) {
  tt.return
}

// CHECK-LABEL: ditron.program @descriptors
ditron.program @descriptors(%a: !ditron.buffer<?x64xbf16>, %q: !ditron.buffer<?x?xi8, symmetric>, %m: i64, %m32: i32, %s: i64) {
  %one = arith.constant 1 : i64
  %n32 = arith.constant 64 : i32
  %row = arith.constant 64 : i64
  // CHECK: %desc = ditron.tensor_descriptor %a sizes [%m, 64] strides [64, 1] : <?x64xbf16> to !tt.tensordesc<tensor<16x64xbf16>>
  // GENERIC: "ditron.tensor_descriptor"({{.*}}) <{operandSegmentSizes = array<i32: 1, 1, 0>, static_sizes = array<i64: -9223372036854775808, 64>, static_strides = array<i64: 64, 1>}>
  %desc = ditron.tensor_descriptor %a sizes [%m, 64] strides [64, 1] : !ditron.buffer<?x64xbf16> to !tt.tensordesc<tensor<16x64xbf16>>
  // CHECK: ditron.launch @k grid(1) (%desc, %m32, %{{.*}}, %{{.*}}, %{{.*}}) : (!tt.tensordesc<tensor<16x64xbf16>>, i32, i32, i64, i64)
  ditron.launch @k grid(1) (%desc, %m32, %n32, %row, %one) : (!tt.tensordesc<tensor<16x64xbf16>>, i32, i32, i64, i64)
  // As Triton 3.9 writes the type; integers are signed, buffers' are not.
  // CHECK: ditron.tensor_descriptor %q sizes [4, %m, 32] strides [%s, 32, 1] : <?x?xi8, symmetric> to !tt.tensordesc<1x8x32xsi8>
  %2 = ditron.tensor_descriptor %q sizes [4, %m, 32] strides [%s, 32, 1] : !ditron.buffer<?x?xi8, symmetric> to !tt.tensordesc<1x8x32xsi8>
  // CHECK: ditron.tensor_descriptor %a sizes [8] strides [1] nan_padding : <?x64xbf16> to !tt.tensordesc<tensor<64xbf16>>
  %3 = ditron.tensor_descriptor %a sizes [8] strides [1] nan_padding : !ditron.buffer<?x64xbf16> to !tt.tensordesc<tensor<64xbf16>>
}

// Constants become part of the operation; the same descriptor is made once, and an unused one not at all.
// CANON-LABEL: ditron.program @canonical
ditron.program @canonical(%a: !ditron.buffer<?x?xbf16>, %m: i64, %m32: i32) {
  // CANON: %[[D:.*]] = ditron.tensor_descriptor %a sizes [%m, 64] strides [128, 1]
  // CANON-NOT: tensor_descriptor
  // CANON: ditron.launch @k grid(1) (%[[D]],
  // CANON: ditron.launch @k grid(2) (%[[D]],
  %one = arith.constant 1 : i64
  %n = arith.constant 64 : i64
  %n32 = arith.constant 64 : i32
  %row = arith.constant 128 : i64
  %d = ditron.tensor_descriptor %a sizes [%m, %n] strides [%row, %one] : <?x?xbf16> to !tt.tensordesc<tensor<16x64xbf16>>
  %e = ditron.tensor_descriptor %a sizes [%m, 64] strides [%row, 1] : <?x?xbf16> to !tt.tensordesc<tensor<16x64xbf16>>
  %f = ditron.tensor_descriptor %a sizes [%m, 1] strides [%row, 1] : <?x?xbf16> to !tt.tensordesc<tensor<16x64xbf16>>
  ditron.launch @k grid(1) (%d, %m32, %n32, %row, %one) : (!tt.tensordesc<tensor<16x64xbf16>>, i32, i32, i64, i64)
  ditron.launch @k grid(2) (%e, %m32, %n32, %row, %one) : (!tt.tensordesc<tensor<16x64xbf16>>, i32, i32, i64, i64)
}
