// What MLIR's own passes may and may not do with the dialect's operations.
// RUN: ditron-opt %s --cse --canonicalize | filecheck %s --check-prefixes=CHECK,CSE
// RUN: ditron-opt %s --loop-invariant-code-motion | filecheck %s --check-prefix=LICM

// CHECK-LABEL: @one_question_one_answer
func.func @one_question_one_answer(%p: !tt.ptr<f16>, %r: i32) -> (i1, !tt.ptr<f16>, !tt.ptr<f16>) {
  // A rank equals itself, and the same address is asked for once.
  // CHECK-DAG: %[[TRUE:.*]] = arith.constant true
  // CHECK-DAG: %[[PEER:.*]] = ditron.symm_at
  // CHECK-NEXT: return %[[TRUE]], %[[PEER]], %[[PEER]]
  %a = ditron.rank
  %b = ditron.rank
  %same = arith.cmpi eq, %a, %b : i32
  %0 = ditron.symm_at %p on %r : !tt.ptr<f16>
  %1 = ditron.symm_at %p on %r : !tt.ptr<f16>
  return %same, %0, %1 : i1, !tt.ptr<f16>, !tt.ptr<f16>
}

// CHECK-LABEL: @the_team_is_part_of_the_question
func.func @the_team_is_part_of_the_question() -> (i32, i32) {
  // CHECK-COUNT-2: ditron.num_ranks
  %a = ditron.num_ranks
  %b = ditron.num_ranks team world
  return %a, %b : i32, i32
}

// CHECK-LABEL: @unused_answers_go
func.func @unused_answers_go(%p: !tt.ptr<f32>, %x: i32, %t: !ditron.token, %c: i1) {
  // CHECK-NEXT: return
  %0 = ditron.thread_id
  %1 = ditron.num_threads
  %2 = ditron.lane_id
  %3 = ditron.warp_id
  %4 = ditron.node
  %5 = ditron.local_rank
  %6 = ditron.num_local_ranks
  %7 = ditron.multicast_ptr %p : !tt.ptr<f32>
  %8 = ditron.consume_token %p, %t : !tt.ptr<f32>
  %9 = ditron.swizzle gather %x of %x by %x
  %10 = ditron.expect %c, 0.5
  %11 = ditron.multimem_ld_reduce add %p : !tt.ptr<f32>
  %12 = ditron.extern_call "f"(%x) pure : (i32) -> i32
  return
}

// A loop that polls does nothing with what it reads in its last turn, and yet it must not go.
// CHECK-LABEL: @an_unused_load_stays
func.func @an_unused_load_stays(%p: !tt.ptr<f32>) {
  // CHECK-NEXT: ditron.ld
  %0 = ditron.ld %p : !tt.ptr<f32>
  return
}

// CHECK-LABEL: @what_acts_stays_twice
func.func @what_acts_stays_twice(%sig: !tt.ptr<i64>, %n: i32, %v: i64, %c: i1) {
  // CHECK-COUNT-2: ditron.wait
  %0 = ditron.wait %sig[%n] ge %v : !tt.ptr<i64>
  %1 = ditron.wait %sig[%n] ge %v : !tt.ptr<i64>
  // CHECK-COUNT-2: ditron.signal_wait_until
  %2 = ditron.signal_wait_until %sig ge %v : !tt.ptr<i64>
  %3 = ditron.signal_wait_until %sig ge %v : !tt.ptr<i64>
  // CHECK-COUNT-2: ditron.signal_fetch
  %14 = ditron.signal_fetch %sig : !tt.ptr<i64>
  %15 = ditron.signal_fetch %sig : !tt.ptr<i64>
  // CHECK-COUNT-2: ditron.notify
  ditron.notify %sig add %v on %n : !tt.ptr<i64>
  ditron.notify %sig add %v on %n : !tt.ptr<i64>
  // CHECK-COUNT-2: ditron.signal_op
  ditron.signal_op %sig add %v on %n : !tt.ptr<i64>
  ditron.signal_op %sig add %v on %n : !tt.ptr<i64>
  // CHECK-COUNT-2: ditron.putmem %
  ditron.putmem %sig, %sig, %v on %n : !tt.ptr<i64>, !tt.ptr<i64>
  ditron.putmem %sig, %sig, %v on %n : !tt.ptr<i64>, !tt.ptr<i64>
  // CHECK-COUNT-2: ditron.getmem %
  ditron.getmem %sig, %sig, %v on %n : !tt.ptr<i64>, !tt.ptr<i64>
  ditron.getmem %sig, %sig, %v on %n : !tt.ptr<i64>, !tt.ptr<i64>
  // CHECK-COUNT-2: ditron.putmem_signal
  ditron.putmem_signal %sig, %sig, %v, %sig set %v on %n : !tt.ptr<i64>, !tt.ptr<i64>, !tt.ptr<i64>
  ditron.putmem_signal %sig, %sig, %v, %sig set %v on %n : !tt.ptr<i64>, !tt.ptr<i64>, !tt.ptr<i64>
  // CHECK-COUNT-2: ditron.atomic_add
  %4 = ditron.atomic_add %sig, %v : !tt.ptr<i64>
  %5 = ditron.atomic_add %sig, %v : !tt.ptr<i64>
  // CHECK-COUNT-2: ditron.atomic_cas
  %6 = ditron.atomic_cas %sig, %v, %v : !tt.ptr<i64>
  %7 = ditron.atomic_cas %sig, %v, %v : !tt.ptr<i64>
  // CHECK-COUNT-2: ditron.red
  ditron.red %sig add %v : !tt.ptr<i64>
  ditron.red %sig add %v : !tt.ptr<i64>
  // CHECK-COUNT-2: ditron.multimem_st
  ditron.multimem_st %sig, %v : !tt.ptr<i64>
  ditron.multimem_st %sig, %v : !tt.ptr<i64>
  // CHECK-COUNT-2: ditron.multimem_red
  ditron.multimem_red %sig add %v : !tt.ptr<i64>
  ditron.multimem_red %sig add %v : !tt.ptr<i64>
  // CHECK-COUNT-2: ditron.barrier{{$}}
  ditron.barrier
  ditron.barrier
  // CHECK-COUNT-2: ditron.barrier_all
  ditron.barrier_all
  ditron.barrier_all
  // CHECK-COUNT-2: ditron.sync_all
  ditron.sync_all
  ditron.sync_all
  // CHECK-COUNT-2: ditron.shfl
  %8 = ditron.shfl idx %v, %n : i64
  %9 = ditron.shfl idx %v, %n : i64
  // CHECK-COUNT-2: ditron.ballot
  %10 = ditron.ballot %c
  %11 = ditron.ballot %c
  // CHECK-COUNT-2: ditron.expect 5
  %16 = ditron.expect 0.5
  %17 = ditron.expect 0.5
  // CHECK-COUNT-2: ditron.extern_call
  %12 = ditron.extern_call "f"(%v) : (i64) -> i64
  %13 = ditron.extern_call "f"(%v) : (i64) -> i64
  // CHECK-COUNT-2: ditron.st
  ditron.st %sig, %v : !tt.ptr<i64>
  ditron.st %sig, %v : !tt.ptr<i64>
  // CHECK: return
  return
}

// CHECK-LABEL: @no_load_is_taken_from_before_a_wait
func.func @no_load_is_taken_from_before_a_wait(%p: !tt.ptr<f32>, %sig: !tt.ptr<i64>, %n: i32, %v: i64) -> (f32, f32, f32) {
  // CSE: %[[BEFORE:.*]] = tt.load
  // CSE-NEXT: ditron.wait
  // CSE-NEXT: %[[AFTER:.*]] = tt.load
  // CSE-NEXT: return %[[BEFORE]], %[[AFTER]], %[[AFTER]]
  %0 = tt.load %p : !tt.ptr<f32>
  %t = ditron.wait %sig[%n] ge %v : !tt.ptr<i64>
  %1 = tt.load %p : !tt.ptr<f32>
  %2 = tt.load %p : !tt.ptr<f32>
  return %0, %1, %2 : f32, f32, f32
}

// CHECK-LABEL: @an_acquire_stays_and_parts_loads
func.func @an_acquire_stays_and_parts_loads(%p: !tt.ptr<f32>, %sig: !tt.ptr<i64>) -> (f32, f32) {
  // CSE: %[[BEFORE:.*]] = tt.load
  // CSE-NEXT: ditron.ld %arg1 scope node semantic acquire
  // CSE-NEXT: %[[AFTER:.*]] = tt.load
  // CSE-NEXT: return %[[BEFORE]], %[[AFTER]]
  %0 = tt.load %p : !tt.ptr<f32>
  %unused = ditron.ld %sig scope node semantic acquire : !tt.ptr<i64>
  %1 = tt.load %p : !tt.ptr<f32>
  return %0, %1 : f32, f32
}

// LICM-LABEL: @out_of_the_loop
func.func @out_of_the_loop(%sig: !tt.ptr<i64>, %n: i32, %v: i64, %lo: index, %up: index, %cond: i1) {
  // LICM: ditron.symm_at
  // LICM: ditron.extern_call "f"
  // LICM: ditron.expect %arg5
  // LICM: scf.for
  // LICM-NOT: symm_at
  // LICM: ditron.wait
  // LICM-NEXT: ditron.ld
  // LICM-NEXT: ditron.ballot
  // LICM-NEXT: ditron.extern_call "g"
  // LICM-NEXT: ditron.expect 5
  scf.for %i = %lo to %up step %up {
    %t = ditron.wait %sig[%n] ge %v : !tt.ptr<i64>
    %peer = ditron.symm_at %sig on %n : !tt.ptr<i64>
    %x = ditron.ld %sig : !tt.ptr<i64>
    %c = arith.cmpi eq, %v, %v : i64
    %l = ditron.ballot %c
    %f = ditron.extern_call "f"(%v) pure : (i64) -> i64
    %g = ditron.extern_call "g"(%v) : (i64) -> i64
    %known = ditron.expect %cond, 0.5
    %drawn = ditron.expect 0.5
  }
  return
}
