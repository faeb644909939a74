// What MLIR's passes may do with Triton's operations.
// RUN: ditron-opt %s --canonicalize --cse | filecheck %s
// RUN: ditron-opt %s --pass-pipeline='builtin.module(tt.func(loop-invariant-code-motion))' | filecheck %s --check-prefix=LICM

// CHECK-LABEL: @known_to_do_nothing
func.func @known_to_do_nothing(%x: i32, %p: !tt.ptr<f32>) -> (tensor<4xi32>, tensor<4xi32>) {
  // The same question is asked once; what nobody uses goes, a reduction too.
  // CHECK-NEXT: %[[S:.*]] = tt.splat %arg0 :
  // CHECK-NEXT: return %[[S]], %[[S]]
  %0 = tt.splat %x : i32 -> tensor<4xi32>
  %1 = tt.splat %x : i32 -> tensor<4xi32>
  %2 = tt.make_range {end = 4 : i32, start = 0 : i32} : tensor<4xi32>
  %3 = tt.get_program_id x : i32
  %4 = "tt.reduce"(%2) <{axis = 0 : i32}> ({
  ^bb0(%a: i32, %b: i32):
    tt.reduce.return %a : i32
  }) : (tensor<4xi32>) -> i32
  %5 = tt.load %p : !tt.ptr<f32>
  %6 = tt.extern_elementwise %x {libname = "", libpath = "", pure = true, symbol = "f"} : (i32) -> i32
  return %0, %1 : tensor<4xi32>, tensor<4xi32>
}

// CHECK-LABEL: @properties_tell_apart
func.func @properties_tell_apart() -> (i32, i32) {
  // CHECK-COUNT-2: tt.get_program_id
  %0 = tt.get_program_id x : i32
  %1 = tt.get_program_id y : i32
  return %0, %1 : i32, i32
}

// CHECK-LABEL: @known_to_act
func.func @known_to_act(%x: i32, %c: i1, %p: !tt.ptr<i32>, %d: !tt.tensordesc<tensor<4xi32>>, %t: tensor<4xi32>) {
  // CHECK-COUNT-2: tt.load
  %0 = tt.load %p {isVolatile = true} : !tt.ptr<i32>
  %1 = tt.load %p {isVolatile = true} : !tt.ptr<i32>
  // CHECK-COUNT-2: tt.atomic_rmw
  %2 = tt.atomic_rmw add, acq_rel, gpu, %p, %x : (!tt.ptr<i32>, i32) -> i32
  %3 = tt.atomic_rmw add, acq_rel, gpu, %p, %x : (!tt.ptr<i32>, i32) -> i32
  // CHECK-COUNT-2: tt.atomic_cas
  %4 = tt.atomic_cas acq_rel, gpu, %p, %x, %x : (!tt.ptr<i32>, i32, i32) -> i32
  %5 = tt.atomic_cas acq_rel, gpu, %p, %x, %x : (!tt.ptr<i32>, i32, i32) -> i32
  // CHECK-COUNT-2: tt.extern_elementwise
  %6 = tt.extern_elementwise %x {pure = false, symbol = "f"} : (i32) -> i32
  %7 = tt.extern_elementwise %x {pure = false, symbol = "f"} : (i32) -> i32
  // CHECK: tt.store
  tt.store %p, %x : !tt.ptr<i32>
  // CHECK: tt.print
  tt.print "x" : %x : i32
  // CHECK: tt.assert
  tt.assert %c, "x" : i1
  // CHECK: tt.descriptor_store
  tt.descriptor_store %d[%x], %t : !tt.tensordesc<tensor<4xi32>>, tensor<4xi32>
  // Not in the table: nobody knows what it does.
  // CHECK-COUNT-2: tt.a_later_one
  %8 = "tt.a_later_one"(%x) : (i32) -> i32
  %9 = "tt.a_later_one"(%x) : (i32) -> i32
  return
}

// CHECK-LABEL: @loads_and_stores_keep_their_order
func.func @loads_and_stores_keep_their_order(%p: !tt.ptr<i32>, %q: !tt.ptr<i32>) -> (i32, i32, i32) {
  // CHECK: %[[A:.*]] = tt.load %arg0 :
  // CHECK: tt.store
  // CHECK: %[[B:.*]] = tt.load %arg0 :
  // CHECK-NEXT: return %[[A]], %[[B]], %[[B]]
  %0 = tt.load %p : !tt.ptr<i32>
  tt.store %q, %0 : !tt.ptr<i32>
  %1 = tt.load %p : !tt.ptr<i32>
  %2 = tt.load %p : !tt.ptr<i32>
  return %0, %1, %2 : i32, i32, i32
}

// A function of Triton's is closed, so a pass can run on each by itself.
// LICM-LABEL: tt.func @loop(
tt.func @loop(%n: index, %x: i32, %p: !tt.ptr<i32>) {
  // LICM: tt.splat
  // LICM: scf.for
  // LICM-NEXT: tt.load
  // LICM-NEXT: tt.store
  // LICM-NEXT: }
  scf.for %i = %n to %n step %n {
    %0 = tt.splat %x : i32 -> tensor<4xi32>
    %1 = tt.load %p : !tt.ptr<i32>
    tt.store %p, %1 : !tt.ptr<i32>
  }
  tt.return
}
