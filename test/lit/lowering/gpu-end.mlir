// A kernel that has ended has sent its signals under transport p2p of NVIDIA: its last quiet is nothing, if only signals
// are in flight.
// RUN: ditron-opt %s --pass-pipeline='builtin.module(lower-to-nvidia)' | filecheck %s --check-prefix=MAPPED
// RUN: ditron-opt %s --pass-pipeline='builtin.module(lower-to-nvidia{transport=nvshmem})' | filecheck %s --check-prefix=SENT
// RUN: ditron-opt %s --pass-pipeline='builtin.module(lower-to-amd)' | filecheck %s --check-prefix=SENT

// MAPPED-LABEL: tt.func public @signals(
// MAPPED: symbol = "ditron_signal_op"
// MAPPED-NOT: ditron_quiet
// MAPPED: tt.return
// SENT-LABEL: tt.func public @signals(
// SENT: symbol = "ditron_signal_op"
// SENT: symbol = "ditron_quiet"
tt.func public @signals(%sig: !tt.ptr<i64>, %v: i64, %r: i32, %ctx: !tt.ptr<i64>) attributes {ditron.kernel} {
  ditron.signal_op %sig set %v on %r : !tt.ptr<i64>
  ditron.quiet {ditron.signals_at_end}
  tt.return
}

// What an author has written stays.
// MAPPED-LABEL: tt.func public @written(
// MAPPED: symbol = "ditron_quiet"
// SENT-LABEL: tt.func public @written(
// SENT: symbol = "ditron_quiet"
tt.func public @written(%sig: !tt.ptr<i64>, %v: i64, %r: i32, %ctx: !tt.ptr<i64>) attributes {ditron.kernel} {
  ditron.signal_op %sig set %v on %r : !tt.ptr<i64>
  ditron.quiet
  tt.return
}

// The fence of a wait that lower-nonatomic-sync relaxes stays, beside a quiet of which nothing comes.
// RUN: ditron-opt %s --pass-pipeline='builtin.module(lower-nonatomic-sync,canonicalize,cse,lower-to-nvidia)' | filecheck %s --check-prefix=RELAXED
// RELAXED-LABEL: tt.func public @wait_before_the_end_of_a_branch(
// RELAXED: symbol = "ditron_wait"
// RELAXED: symbol = "ditron_fence"
// RELAXED-NOT: ditron_quiet
// RELAXED: tt.load
tt.func public @wait_before_the_end_of_a_branch(%p: !tt.ptr<f32>, %own: i1, %sig: !tt.ptr<i64>, %v: i64, %r: i32, %ctx: !tt.ptr<i64>) attributes {ditron.kernel} {
  %c1 = arith.constant 1 : i32
  scf.if %own {
    ditron.notify %sig set %v on %r : !tt.ptr<i64>
    %t = ditron.wait %sig[%c1] ge %v : !tt.ptr<i64>
    ditron.quiet {ditron.signals_at_end}
  }
  %x = tt.load %p : !tt.ptr<f32>
  tt.store %p, %x : !tt.ptr<f32>
  tt.return
}
