// Bytecode keeps operations of Triton's: with properties, without, isolated ones, and their types.
// RUN: ditron-opt %s --emit-bytecode -o %t.bc
// RUN: ditron-opt %t.bc | filecheck %s
// RUN: ditron-opt %s --emit-bytecode --emit-bytecode-version=4 | ditron-opt | filecheck %s --check-prefix=OLD
// RUN: ditron-opt %s --verify-roundtrip | filecheck %s

// Before version 5 there were no properties, only attributes.
// OLD: "tt.load"(%{{.*}}) {isVolatile = true, mark = #ditron.scope<node>}
// OLD: "tt.func"() ({
// OLD: }) {function_type = (!tt.ptr<f32>, !tt.tensordesc<tensor<16xf32>>) -> (), sym_name = "k"

// CHECK-LABEL: func.func @shim
// CHECK: "tt.load"(%{{.*}}) <{isVolatile = true}> {mark = #ditron.scope<node>}
// CHECK: "tt.return"() : () -> ()
func.func @shim(%p: !tt.ptr<i64, 3>) {
  %0 = "tt.load"(%p) <{isVolatile = true}> {mark = #ditron.scope<node>} : (!tt.ptr<i64, 3>) -> i64
  "tt.return"() : () -> ()
}

// CHECK: "tt.func"() <{function_type = (!tt.ptr<f32>, !tt.tensordesc<tensor<16xf32>>) -> (), sym_name = "k"}> ({
// CHECK: "tt.unknown"() <{a = 1 : i32}> : () -> !ttg.memdesc<1xi64>
"tt.func"() <{function_type = (!tt.ptr<f32>, !tt.tensordesc<tensor<16xf32>>) -> (), sym_name = "k"}> ({
^bb0(%a: !tt.ptr<f32>, %d: !tt.tensordesc<tensor<16xf32>>):
  %r = "ditron.rank"() <{team = #ditron.team<group>}> : () -> i32
  %u = "tt.unknown"() <{a = 1 : i32}> : () -> !ttg.memdesc<1xi64>
  "tt.return"() : () -> ()
}) : () -> ()
