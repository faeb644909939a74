// What the form of an operation would not say is printed in generic form.
// RUN: ditron-opt %s | filecheck %s
// RUN: ditron-opt %s | ditron-opt | filecheck %s

// CHECK-LABEL: tt.func @kept(
tt.func @kept(%p: !tt.ptr<f32>, %i: i32, %x: f32) {
  // An attribute that a later Triton might add, a value of an enumeration, an operand.
  // CHECK: "tt.load"(%{{.*}}) <{latency = 3 : i32, operandSegmentSizes = array<i32: 1, 0, 0>}> : (!tt.ptr<f32>) -> f32
  %0 = "tt.load"(%p) <{cache = 1 : i32, latency = 3 : i32, operandSegmentSizes = array<i32: 1, 0, 0>}> : (!tt.ptr<f32>) -> f32
  // CHECK: "tt.get_program_id"() <{axis = 3 : i32}> : () -> i32
  %1 = "tt.get_program_id"() <{axis = 3 : i32}> : () -> i32
  // CHECK: "tt.store"(%{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}) : (!tt.ptr<f32>, f32, i32, i32) -> ()
  "tt.store"(%p, %x, %i, %i) : (!tt.ptr<f32>, f32, i32, i32) -> ()
  // Types that do not follow from those that are written.
  // CHECK: "tt.load"(%{{.*}}) <{operandSegmentSizes = array<i32: 1, 0, 0>}> : (!tt.ptr<f32>) -> i32
  %2 = "tt.load"(%p) <{operandSegmentSizes = array<i32: 1, 0, 0>}> : (!tt.ptr<f32>) -> i32
  // CHECK: "tt.addptr"(%{{.*}}, %{{.*}}) : (!tt.ptr<f32>, i32) -> !tt.ptr<i32>
  %3 = "tt.addptr"(%p, %i) : (!tt.ptr<f32>, i32) -> !tt.ptr<i32>
  // Which operand is the mask is not said.
  // CHECK: "tt.load"(%{{.*}}) : (!tt.ptr<f32>) -> f32
  %4 = "tt.load"(%p) : (!tt.ptr<f32>) -> f32
  // Attributes that the form needs.
  // CHECK: "tt.atomic_rmw"(%{{.*}}, %{{.*}}) <{atomic_rmw_op = 5 : i32}> : (!tt.ptr<f32>, f32) -> f32
  %5 = "tt.atomic_rmw"(%p, %x) <{atomic_rmw_op = 5 : i32}> : (!tt.ptr<f32>, f32) -> f32
  // CHECK: "tt.print"() <{hex = false, prefix = 3 : i32}> : () -> ()
  "tt.print"() <{hex = false, prefix = 3 : i32}> : () -> ()
  // CHECK: tt.return
  tt.return
}

// A function whose attributes are not those of its type's arguments, and an attribute that no function has here.
// CHECK: "tt.func"() <{arg_attrs = [{tt.divisibility = 16 : i32}], function_type = () -> (), sym_name = "too_many"}> ({
"tt.func"() <{arg_attrs = [{tt.divisibility = 16 : i32}], function_type = () -> (), sym_name = "too_many"}> ({
  tt.return
}) : () -> ()
// CHECK: "tt.func"() <{function_type = () -> (), later, sym_name = "later"}> ({
"tt.func"() <{function_type = () -> (), later, sym_name = "later"}> ({
  tt.return
}) : () -> ()
