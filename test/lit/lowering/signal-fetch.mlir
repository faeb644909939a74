// RUN: ditron-opt %s --pass-pipeline='builtin.module(lower-to-nvidia{transport=p2p},canonicalize,cse)' | filecheck %s --check-prefixes=GPU,CAS
// RUN: ditron-opt %s --pass-pipeline='builtin.module(lower-to-amd{transport=p2p},canonicalize,cse)' | filecheck %s --check-prefixes=GPU,AMD
// RUN: ditron-opt %s --pass-pipeline='builtin.module(lower-to-sim)' | filecheck %s --check-prefix=SIM

// A signal is read by an atomic whose result is the same in every thread, and behind it, with acquire, is the barrier that makes
// the thread's order the program's.

// GPU-LABEL: tt.func public @acquire(
// CAS: %[[SEEN:.*]] = tt.atomic_cas acquire, sys, %arg0, %c-1_i64, %c-1_i64 :
// AMD: "ditron_cas_at_b64"
// GPU: symbol = "ditron_sync_threads"
// GPU: tt.store
// SIM-LABEL: func.func @acquire
// SIM-DAG: %[[BYTES:.*]] = arith.constant 8 : i32
// SIM-DAG: %[[WORLD:.*]] = arith.constant 2 : i32
// SIM-DAG: %[[ACQUIRE:.*]] = arith.constant 1 : i32
// SIM: call @ditron_sim_ld(%{{.*}}, %[[BYTES]], %[[WORLD]], %[[ACQUIRE]], %{{.*}}) : (!llvm.ptr, i32, i32, i32, i32) -> i64
tt.func public @acquire(%sig: !tt.ptr<i64>, %out: !tt.ptr<i64>, %ctx: !tt.ptr<i64>) attributes {ditron.kernel} {
  %seen = ditron.signal_fetch %sig : !tt.ptr<i64>
  tt.store %out, %seen : !tt.ptr<i64>
  tt.return
}

// GPU-LABEL: tt.func public @relaxed(
// CAS: tt.atomic_cas relaxed, sys, %arg0, %c-1_i64, %c-1_i64 :
// GPU-NOT: symbol = "ditron_sync_threads"
// GPU: tt.store
// SIM-LABEL: func.func @relaxed
// SIM-DAG: %[[BYTES:.*]] = arith.constant 8 : i32
// SIM-DAG: %[[WORLD:.*]] = arith.constant 2 : i32
// SIM-DAG: %[[RELAXED:.*]] = arith.constant 0 : i32
// SIM: call @ditron_sim_ld(%{{.*}}, %[[BYTES]], %[[WORLD]], %[[RELAXED]], %{{.*}})
tt.func public @relaxed(%sig: !tt.ptr<i64>, %out: !tt.ptr<i64>, %ctx: !tt.ptr<i64>) attributes {ditron.kernel} {
  %seen = ditron.signal_fetch %sig semantic relaxed : !tt.ptr<i64>
  tt.store %out, %seen : !tt.ptr<i64>
  tt.return
}
