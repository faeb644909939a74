// RUN: ditron-opt %s | ditron-opt | filecheck %s
// RUN: ditron-opt %s --mlir-print-op-generic | ditron-opt | filecheck %s
// RUN: ditron-opt %s --mlir-print-op-generic | filecheck %s --check-prefix=GENERIC

// CHECK-LABEL: @transfers
func.func @transfers(%d: !tt.ptr<f16>, %s: !tt.ptr<f16>, %n: i64, %r: i32) {
  // CHECK: ditron.putmem %arg0, %arg1, %arg2 on %arg3 : !tt.ptr<f16>, !tt.ptr<f16>
  // GENERIC: "ditron.putmem"({{.*}}) <{granularity = #ditron.granularity<block>}> : (!tt.ptr<f16>, !tt.ptr<f16>, i64, i32) -> ()
  ditron.putmem %d, %s, %n on %r : !tt.ptr<f16>, !tt.ptr<f16>
  // CHECK: ditron.putmem %arg0, %arg1, %arg2 on %arg3 nbi granularity warp : !tt.ptr<f16>, !tt.ptr<f16>
  // GENERIC: "ditron.putmem"({{.*}}) <{granularity = #ditron.granularity<warp>, nbi}>
  ditron.putmem %d, %s, %n on %r nbi granularity warp : !tt.ptr<f16>, !tt.ptr<f16>
  // CHECK: ditron.getmem %arg0, %arg1, %arg2 on %arg3 : !tt.ptr<f16>, !tt.ptr<f16>
  ditron.getmem %d, %s, %n on %r : !tt.ptr<f16>, !tt.ptr<f16>
  // CHECK: ditron.getmem %arg0, %arg1, %arg2 on %arg3 nbi granularity thread : !tt.ptr<f16>, !tt.ptr<f16>
  // GENERIC: "ditron.getmem"({{.*}}) <{granularity = #ditron.granularity<thread>, nbi}>
  ditron.getmem %d, %s, %n on %r nbi granularity thread : !tt.ptr<f16>, !tt.ptr<f16>
  return
}

// CHECK-LABEL: @whole_elements_pass
func.func @whole_elements_pass(%d: !tt.ptr<f16>, %p: !tt.ptr<!tt.ptr<f16>>, %b: !tt.ptr<i1>, %r: i32) {
  %zero = arith.constant 0 : i64
  %three = arith.constant 3 : i64
  %eight = arith.constant 8 : i64
  // CHECK-COUNT-4: ditron.putmem
  ditron.putmem %d, %d, %zero on %r : !tt.ptr<f16>, !tt.ptr<f16>
  ditron.putmem %d, %d, %eight on %r : !tt.ptr<f16>, !tt.ptr<f16>
  ditron.putmem %p, %p, %eight on %r : !tt.ptr<!tt.ptr<f16>>, !tt.ptr<!tt.ptr<f16>>
  ditron.putmem %b, %b, %three on %r : !tt.ptr<i1>, !tt.ptr<i1>
  return
}

// Only the symmetric side must be this rank's own address.
// CHECK-LABEL: @the_local_side_may_be_a_peer
func.func @the_local_side_may_be_a_peer(%d: !tt.ptr<f16>, %n: i64, %r: i32) {
  %peer = ditron.symm_at %d on %r : !tt.ptr<f16>
  // CHECK: ditron.putmem %arg0, %peer
  ditron.putmem %d, %peer, %n on %r : !tt.ptr<f16>, !tt.ptr<f16>
  // CHECK: ditron.getmem %peer, %arg0
  ditron.getmem %peer, %d, %n on %r : !tt.ptr<f16>, !tt.ptr<f16>
  return
}

// CHECK-LABEL: @puts_with_signal
func.func @puts_with_signal(%d: !tt.ptr<f16>, %s: !tt.ptr<f16>, %n: i64, %sig: !tt.ptr<i64>, %v: i64, %r: i32) {
  // CHECK: ditron.putmem_signal %arg0, %arg1, %arg2, %arg3 set %arg4 on %arg5 : !tt.ptr<f16>, !tt.ptr<f16>, !tt.ptr<i64>
  // GENERIC: "ditron.putmem_signal"({{.*}}) <{granularity = #ditron.granularity<block>, op = #ditron.signal_op<set>}>
  ditron.putmem_signal %d, %s, %n, %sig set %v on %r : !tt.ptr<f16>, !tt.ptr<f16>, !tt.ptr<i64>
  // CHECK: ditron.putmem_signal %arg0, %arg1, %arg2, %arg3 add %arg4 on %arg5 nbi granularity warp : !tt.ptr<f16>
  ditron.putmem_signal %d, %s, %n, %sig add %v on %r nbi granularity warp : !tt.ptr<f16>, !tt.ptr<f16>, !tt.ptr<i64>
  return
}

// CHECK-LABEL: @order_and_collectives
func.func @order_and_collectives() {
  // CHECK: ditron.fence
  // GENERIC: "ditron.fence"() : () -> ()
  ditron.fence
  // CHECK-NEXT: ditron.quiet
  ditron.quiet
  // CHECK-NEXT: ditron.barrier_all
  ditron.barrier_all
  // CHECK-NEXT: ditron.barrier{{$}}
  // GENERIC: "ditron.barrier"() <{team = #ditron.team<group>}> : () -> ()
  ditron.barrier
  // CHECK-NEXT: ditron.barrier team node
  ditron.barrier team node
  // CHECK-NEXT: ditron.sync_all{{$}}
  ditron.sync_all
  // CHECK-NEXT: ditron.sync_all team world
  ditron.sync_all team world
  return
}
