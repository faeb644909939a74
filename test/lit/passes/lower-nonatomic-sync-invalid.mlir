// What needs a read-modify-write on another GPU is an error at its line, and says what to do.
// RUN: ditron-opt %s --lower-nonatomic-sync --verify-diagnostics

tt.func @counts(%p: !tt.ptr<f32>, %sig: !tt.ptr<i64>, %v: i64, %r: i32) {
  // expected-error@+1 {{'ditron.notify add' needs a read-modify-write on another GPU, which the links of this pipeline do not support: give each writer its own signal}}
  ditron.notify %sig add %v on %r : !tt.ptr<i64>
  // expected-error@+1 {{'ditron.signal_op add' needs a read-modify-write}}
  ditron.signal_op %sig add %v on %r : !tt.ptr<i64>
  // expected-error@+1 {{'ditron.putmem_signal add' needs a read-modify-write}}
  ditron.putmem_signal %p, %p, %v, %sig add %v on %r : !tt.ptr<f32>, !tt.ptr<f32>, !tt.ptr<i64>
  %there = ditron.symm_at %sig on %r : !tt.ptr<i64>
  // expected-error@+1 {{'ditron.red' is a read-modify-write that may be on another GPU}}
  ditron.red %there add %v : !tt.ptr<i64>
  // expected-error@+1 {{'ditron.atomic_cas' is a read-modify-write}}
  %old = ditron.atomic_cas %sig, %v, %v scope node : !tt.ptr<i64>
  %yes = arith.constant true
  // expected-error@+1 {{'tt.atomic_rmw' is a read-modify-write}}
  %sum = tt.atomic_rmw add, relaxed, sys, %there, %v, %yes : (!tt.ptr<i64>, i64, i1) -> i64
  // expected-error@+1 {{'ditron.multicast_ptr' needs NVLink}}
  %mc = ditron.multicast_ptr %sig : !tt.ptr<i64>
  // expected-error@+1 {{'ditron.multimem_st' needs NVLink}}
  ditron.multimem_st %mc, %v : !tt.ptr<i64>
  tt.return
}

// What is done in a function that is called counts, when it gets another GPU's memory; a reduction by descriptor, too.
tt.func private @adds(%p: !tt.ptr<i64>, %v: i64) {
  %yes = arith.constant true
  %sum = tt.atomic_rmw add, relaxed, sys, %p, %v, %yes : (!tt.ptr<i64>, i64, i1) -> i64
  tt.return
}
tt.func private @stores(%p: !tt.ptr<i64>, %v: i64) {
  tt.store %p, %v : !tt.ptr<i64>
  tt.return
}
tt.func @calls(%p: !tt.ptr<i64>, %v: i64, %r: i32, %x: tensor<8xi64>) {
  %c0 = arith.constant 0 : i32
  %there = ditron.symm_at %p on %r : !tt.ptr<i64>
  tt.call @adds(%p, %v) : (!tt.ptr<i64>, i64) -> ()
  tt.call @stores(%there, %v) : (!tt.ptr<i64>, i64) -> ()
  // expected-error@+1 {{the callee has a 'tt.atomic_rmw', a read-modify-write, and is passed a pointer to another GPU's memory}}
  tt.call @adds(%there, %v) : (!tt.ptr<i64>, i64) -> ()
  %desc = tt.make_tensor_descriptor %there, [%r], [%v] : <i64>, <tensor<8xi64>>
  // expected-error@+1 {{'tt.descriptor_reduce' is a read-modify-write that may be on another GPU}}
  tt.descriptor_reduce add, %desc[%c0], %x : !tt.tensordesc<tensor<8xi64>>, tensor<8xi64>
  tt.return
}
