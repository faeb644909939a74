// Bytecode keeps operations of Triton's: with properties, without, isolated ones, and their types.
// RUN: ditron-opt %s --emit-bytecode -o %t.bc
// RUN: ditron-opt %t.bc | filecheck %s
// RUN: ditron-opt %t.bc --mlir-print-op-generic | filecheck %s --check-prefix=GENERIC
// RUN: ditron-opt %s --emit-bytecode --emit-bytecode-version=4 | ditron-opt --mlir-print-op-generic | filecheck %s --check-prefix=GENERIC
// RUN: ditron-opt %s --verify-roundtrip | filecheck %s

// Before version 5 there were no properties, only attributes; they are told apart by name.
// GENERIC: "tt.load"(%{{.*}}) <{isVolatile = true, operandSegmentSizes = array<i32: 1, 0, 0>}> {mark = #ditron.scope<node>}
// GENERIC: "tt.func"() <{function_type = (!tt.ptr<f32>, !tt.tensordesc<tensor<16xf32>>) -> (), sym_name = "k"}> ({

// CHECK-LABEL: func.func @shim
// CHECK: tt.load %{{.*}} {isVolatile = true, mark = #ditron.scope<node>} : !tt.ptr<i64, 3>
// CHECK: tt.return
func.func @shim(%p: !tt.ptr<i64, 3>) {
  %0 = tt.load %p {isVolatile = true, mark = #ditron.scope<node>} : !tt.ptr<i64, 3>
  tt.return
}

// CHECK: tt.func @k(%{{.*}}: !tt.ptr<f32>, %{{.*}}: !tt.tensordesc<tensor<16xf32>>) {
// CHECK: "tt.unknown"() <{a = 1 : i32}> : () -> !ttg.memdesc<1xi64>
tt.func @k(%a: !tt.ptr<f32>, %d: !tt.tensordesc<tensor<16xf32>>) {
  %r = ditron.rank
  %u = "tt.unknown"() <{a = 1 : i32}> : () -> !ttg.memdesc<1xi64>
  tt.return
}
