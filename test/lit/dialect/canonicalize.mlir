// RUN: ditron-opt %s --canonicalize | filecheck %s

// CHECK-LABEL: @own_address_needs_no_translation
func.func @own_address_needs_no_translation(%p: !tt.ptr<f16>, %ps: tensor<4x!tt.ptr<f16>>) -> (!tt.ptr<f16>, tensor<4x!tt.ptr<f16>>) {
  // CHECK-NEXT: return %arg0, %arg1
  %me = ditron.rank
  %0 = ditron.symm_at %p on %me : !tt.ptr<f16>
  %1 = ditron.symm_at %ps on %me : tensor<4x!tt.ptr<f16>>
  return %0, %1 : !tt.ptr<f16>, tensor<4x!tt.ptr<f16>>
}

// A rank of the group is meant: the number in another team is another number.
// CHECK-LABEL: @a_world_rank_is_not_the_own_rank
func.func @a_world_rank_is_not_the_own_rank(%p: !tt.ptr<f16>) -> !tt.ptr<f16> {
  // CHECK: ditron.symm_at
  %me = ditron.rank team world
  %0 = ditron.symm_at %p on %me : !tt.ptr<f16>
  return %0 : !tt.ptr<f16>
}

// CHECK-LABEL: @a_peer_after_the_own_rank
func.func @a_peer_after_the_own_rank(%p: !tt.ptr<f16>, %r: i32) -> !tt.ptr<f16> {
  // CHECK-NEXT: %[[PEER:.*]] = ditron.symm_at %arg0 on %arg1
  // CHECK-NEXT: return %[[PEER]]
  %me = ditron.rank
  %0 = ditron.symm_at %p on %me : !tt.ptr<f16>
  %1 = ditron.symm_at %0 on %r : !tt.ptr<f16>
  return %1 : !tt.ptr<f16>
}

// CHECK-LABEL: @a_token_is_consumed_once
func.func @a_token_is_consumed_once(%p: !tt.ptr<f16>, %s: !ditron.token, %t: !ditron.token) -> !tt.ptr<f16> {
  // CHECK-NEXT: %[[S:.*]] = ditron.consume_token %arg0, %arg1
  // CHECK-NEXT: %[[T:.*]] = ditron.consume_token %[[S]], %arg2
  // CHECK-NEXT: return %[[T]]
  %0 = ditron.consume_token %p, %s : !tt.ptr<f16>
  %1 = ditron.consume_token %0, %s : !tt.ptr<f16>
  %2 = ditron.consume_token %1, %t : !tt.ptr<f16>
  %3 = ditron.consume_token %2, %s : !tt.ptr<f16>
  return %3 : !tt.ptr<f16>
}

// CHECK-LABEL: @a_single_tile_stays_where_it_is
func.func @a_single_tile_stays_where_it_is(%tile: i32) -> i32 {
  // CHECK-NEXT: return %arg0
  %size = arith.constant 100 : i32
  %block = arith.constant 128 : i32
  %0 = ditron.swizzle gather %tile of %size by %block
  return %0 : i32
}

// CHECK-LABEL: @two_tiles_are_reordered
func.func @two_tiles_are_reordered(%tile: i32) -> i32 {
  // CHECK: ditron.swizzle
  %size = arith.constant 129 : i32
  %block = arith.constant 128 : i32
  %0 = ditron.swizzle gather %tile of %size by %block
  return %0 : i32
}

// CHECK-LABEL: @a_fence_right_beside_something_stronger
func.func @a_fence_right_beside_something_stronger(%sig: !tt.ptr<i64>, %v: i64, %r: i32) {
  // CHECK-NEXT: ditron.quiet
  // CHECK-NEXT: ditron.signal_op
  // CHECK-NEXT: ditron.barrier_all
  // CHECK-NEXT: ditron.signal_op
  // CHECK-NEXT: ditron.fence
  // CHECK-NEXT: ditron.signal_op
  // CHECK-NEXT: return
  ditron.fence
  %n = ditron.num_ranks
  ditron.quiet
  ditron.fence
  ditron.signal_op %sig add %v on %r : !tt.ptr<i64>
  ditron.quiet
  ditron.fence
  ditron.barrier_all
  ditron.quiet
  ditron.signal_op %sig add %v on %r : !tt.ptr<i64>
  ditron.fence
  ditron.fence
  ditron.signal_op %sig add %v on %r : !tt.ptr<i64>
  return
}

// A quiet that may be erased, for what a kernel ends with, replaces nothing.
// CHECK-LABEL: @a_quiet_for_signals_at_the_end
func.func @a_quiet_for_signals_at_the_end(%sig: !tt.ptr<i64>, %v: i64, %r: i32) {
  // CHECK-NEXT: ditron.fence
  // CHECK-NEXT: ditron.quiet {ditron.signals_at_end}
  // CHECK-NEXT: ditron.fence
  // CHECK-NEXT: ditron.signal_op
  // CHECK-NEXT: ditron.quiet{{$}}
  // CHECK-NEXT: ditron.signal_op
  // CHECK-NEXT: ditron.quiet{{$}}
  // CHECK-NEXT: return
  ditron.fence
  ditron.quiet {ditron.signals_at_end}
  ditron.fence
  ditron.signal_op %sig add %v on %r : !tt.ptr<i64>
  ditron.quiet
  ditron.quiet {ditron.signals_at_end}
  ditron.signal_op %sig add %v on %r : !tt.ptr<i64>
  ditron.quiet {ditron.signals_at_end}
  ditron.quiet
  return
}

// CHECK-LABEL: @a_fence_with_work_between_stays
func.func @a_fence_with_work_between_stays(%p: !tt.ptr<i32>, %v: i32) {
  // CHECK-NEXT: ditron.fence
  // CHECK-NEXT: ditron.st
  // CHECK-NEXT: ditron.quiet
  // CHECK-NEXT: ditron.st
  // CHECK-NEXT: ditron.quiet
  // CHECK-NEXT: ditron.sync_all
  ditron.fence
  ditron.st %p, %v : !tt.ptr<i32>
  ditron.quiet
  ditron.st %p, %v : !tt.ptr<i32>
  ditron.quiet
  ditron.sync_all
  return
}

// CHECK-LABEL: @one_barrier_of_the_threads
func.func @one_barrier_of_the_threads() {
  // CHECK-NEXT: ditron.sync_threads
  // CHECK-NEXT: ditron.quiet
  // CHECK-NEXT: ditron.sync_threads
  // CHECK-NEXT: return
  ditron.sync_threads
  ditron.sync_threads
  ditron.quiet
  ditron.sync_threads
  return
}
