// RUN: ditron-opt %s --pass-pipeline='builtin.module(lower-to-nvidia{arch=90})' | filecheck %s --check-prefix=TMA
// RUN: ditron-opt %s --pass-pipeline='builtin.module(lower-to-nvidia{arch=80})' | filecheck %s --check-prefix=PLAIN
// RUN: ditron-opt %s --pass-pipeline='builtin.module(lower-to-amd)' | filecheck %s --check-prefix=PLAIN

// TMA goes through the async proxy: after a wait a proxy fence stands before TMA loads, and a publication waits for TMA stores.
// Where descriptor accesses are ordinary ones, neither is needed.

// PLAIN-NOT: ditron_tma

// TMA-LABEL: tt.func public @load_after_wait(
// TMA: %[[SEEN:.*]] = tt.extern_elementwise {{.*}} symbol = "ditron_wait"
// TMA: %[[TOKEN:.*]] = tt.extern_elementwise %[[SEEN]] {{.*}} symbol = "ditron_tma_acquire"
// TMA: %[[ROW:.*]] = arith.addi {{.*}}, %[[TOKEN]]
// TMA: tt.descriptor_load {{.*}}[%[[ROW]], {{.*}}]
// TMA-NOT: ditron_tma_release
tt.func public @load_after_wait(%desc: !tt.tensordesc<tensor<64x64xbf16>>, %out: !tt.ptr<bf16>, %sig: !tt.ptr<i64>, %ctx: !tt.ptr<i64>) attributes {ditron.kernel} {
  %c0 = arith.constant 0 : i32
  %c1 = arith.constant 1 : i32
  %v = arith.constant 1 : i64
  %t = ditron.wait %sig[%c1] ge %v : !tt.ptr<i64>
  %row = ditron.consume_token %c0, %t : i32
  %x = tt.descriptor_load %desc[%row, %c0] : !tt.tensordesc<tensor<64x64xbf16>> -> tensor<64x64xbf16>
  %ptrs = tt.splat %out : !tt.ptr<bf16> -> tensor<64x64x!tt.ptr<bf16>>
  tt.store %ptrs, %x : tensor<64x64x!tt.ptr<bf16>>
  tt.return
}

// TMA-LABEL: tt.func public @notify_after_store(
// TMA: tt.descriptor_store
// TMA-NEXT: symbol = "ditron_tma_release"
// TMA: symbol = "ditron_notify"
// TMA-NOT: ditron_tma_acquire
tt.func public @notify_after_store(%desc: !tt.tensordesc<tensor<64x64xbf16>>, %x: tensor<64x64xbf16>, %sig: !tt.ptr<i64>, %r: i32, %ctx: !tt.ptr<i64>) attributes {ditron.kernel} {
  %c0 = arith.constant 0 : i32
  %v = arith.constant 1 : i64
  tt.descriptor_store %desc[%c0, %c0], %x : !tt.tensordesc<tensor<64x64xbf16>>, tensor<64x64xbf16>
  ditron.notify %sig set %v on %r : !tt.ptr<i64>
  tt.return
}

// A push to a peer, stored or added, by a descriptor that is made over the peer's memory.
// TMA-LABEL: tt.func public @push_to_peer(
// TMA: %[[THERE:.*]] = tt.extern_elementwise {{.*}} symbol = "ditron_symm_at"
// TMA: %[[PEER:.*]] = tt.make_tensor_descriptor %[[THERE]]
// TMA: tt.descriptor_store %[[PEER]]
// TMA: tt.descriptor_reduce add, %[[PEER]]
// TMA-NEXT: symbol = "ditron_tma_release"
// TMA: symbol = "ditron_notify"
tt.func public @push_to_peer(%box: !tt.ptr<bf16> {tt.divisibility = 16 : i32}, %x: tensor<64x64xbf16>, %sig: !tt.ptr<i64>, %r: i32, %ctx: !tt.ptr<i64>) attributes {ditron.kernel} {
  %c0 = arith.constant 0 : i32
  %rows = arith.constant 64 : i32
  %cols = arith.constant 64 : i64
  %one = arith.constant 1 : i64
  %there = ditron.symm_at %box on %r : !tt.ptr<bf16>
  %peer = tt.make_tensor_descriptor %there, [%rows, %rows], [%cols, %one] : <bf16>, <tensor<64x64xbf16>>
  tt.descriptor_store %peer[%c0, %c0], %x : !tt.tensordesc<tensor<64x64xbf16>>, tensor<64x64xbf16>
  tt.descriptor_reduce add, %peer[%c0, %c0], %x : !tt.tensordesc<tensor<64x64xbf16>>, tensor<64x64xbf16>
  ditron.notify %sig set %one on %r : !tt.ptr<i64>
  tt.return
}

// Programs that publish in one branch have stored nothing by TMA in the other; in a loop around both they may have.
// TMA-LABEL: tt.func public @notify_in_the_other_branch(
// TMA: scf.if
// TMA: tt.descriptor_store
// TMA-NOT: ditron_tma_release
// TMA: symbol = "ditron_notify"
tt.func public @notify_in_the_other_branch(%desc: !tt.tensordesc<tensor<64x64xbf16>>, %x: tensor<64x64xbf16>, %sig: !tt.ptr<i64>, %r: i32, %is: i1, %ctx: !tt.ptr<i64>) attributes {ditron.kernel} {
  %c0 = arith.constant 0 : i32
  %c1 = arith.constant 1 : i32
  %c2 = arith.constant 2 : i32
  %v = arith.constant 1 : i64
  scf.if %is {
    tt.descriptor_store %desc[%c0, %c0], %x : !tt.tensordesc<tensor<64x64xbf16>>, tensor<64x64xbf16>
  } else {
    ditron.notify %sig set %v on %r : !tt.ptr<i64>
  }
  tt.return
}

// TMA-LABEL: tt.func public @notify_in_a_later_iteration(
// TMA: tt.descriptor_store
// TMA: symbol = "ditron_tma_release"
// TMA: symbol = "ditron_notify"
tt.func public @notify_in_a_later_iteration(%desc: !tt.tensordesc<tensor<64x64xbf16>>, %x: tensor<64x64xbf16>, %sig: !tt.ptr<i64>, %r: i32, %ctx: !tt.ptr<i64>) attributes {ditron.kernel} {
  %c0 = arith.constant 0 : i32
  %c1 = arith.constant 1 : i32
  %c2 = arith.constant 2 : i32
  %v = arith.constant 1 : i64
  scf.for %i = %c0 to %c2 step %c1 : i32 {
    %is = arith.cmpi eq, %i, %c0 : i32
    scf.if %is {
      tt.descriptor_store %desc[%c0, %c0], %x : !tt.tensordesc<tensor<64x64xbf16>>, tensor<64x64xbf16>
    } else {
      ditron.notify %sig set %v on %r : !tt.ptr<i64>
    }
  }
  tt.return
}

// Everything that acquires orders the TMA loads after it; each of these is followed by its own proxy fence.
// TMA-LABEL: tt.func public @load_after_any_acquire(
// TMA: symbol = "ditron_quiet"
// TMA-NEXT: %{{.*}} = arith.constant 0 : i32
// TMA-NEXT: symbol = "ditron_tma_acquire"
// TMA: symbol = "ditron_barrier_all"
// TMA-NEXT: %{{.*}} = arith.constant 0 : i32
// TMA-NEXT: symbol = "ditron_tma_acquire"
// TMA: symbol = "ditron_barrier"
// TMA-NEXT: %{{.*}} = arith.constant 0 : i32
// TMA-NEXT: symbol = "ditron_tma_acquire"
// TMA: symbol = "ditron_sync_all"
// TMA-NEXT: %{{.*}} = arith.constant 0 : i32
// TMA-NEXT: symbol = "ditron_tma_acquire"
// TMA: symbol = "ditron_signal_wait_until"
// TMA-NEXT: %{{.*}} = arith.constant 0 : i32
// TMA-NEXT: symbol = "ditron_tma_acquire"
// TMA: symbol = "ditron_fence"
// TMA-NEXT: %{{.*}} = arith.constant 0 : i32
// TMA-NEXT: symbol = "ditron_tma_acquire"
// TMA: tt.descriptor_load
tt.func public @load_after_any_acquire(%desc: !tt.tensordesc<tensor<64x64xbf16>>, %out: !tt.ptr<bf16>, %sig: !tt.ptr<i64>, %ctx: !tt.ptr<i64>) attributes {ditron.kernel} {
  %c0 = arith.constant 0 : i32
  %v = arith.constant 1 : i64
  ditron.quiet
  ditron.barrier_all
  ditron.barrier
  ditron.sync_all
  %seen = ditron.signal_wait_until %sig ge %v : !tt.ptr<i64>
  ditron.fence
  %x = tt.descriptor_load %desc[%c0, %c0] : !tt.tensordesc<tensor<64x64xbf16>> -> tensor<64x64xbf16>
  %ptrs = tt.splat %out : !tt.ptr<bf16> -> tensor<64x64x!tt.ptr<bf16>>
  tt.store %ptrs, %x : tensor<64x64x!tt.ptr<bf16>>
  tt.return
}
