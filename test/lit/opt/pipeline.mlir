// Python and C++ passes stand in one pipeline; a pass can also be a flag of its own.
// RUN: ditron-opt %s --pass-pipeline='builtin.module(raise-primitives,canonicalize,cse,lower-to-nvidia{transport=p2p})' | filecheck %s
// RUN: ditron-opt %s --raise-primitives --canonicalize | filecheck %s --check-prefix=RAISED
// RUN: ditron-opt %s --raise-primitives --dump-pass-pipeline 2>&1 | filecheck %s --check-prefix=DUMP
// RUN: ditron-opt %s --lower-to-amd=transport=rocshmem --dump-pass-pipeline 2>&1 | filecheck %s --check-prefix=OPTION

// CHECK: tt.func
// CHECK-NOT: ditron.rank

// RAISED: ditron.rank

// DUMP: Pass Manager with 1 passes:
// DUMP: raise-primitives

// OPTION: lower-to-amd{{.*}}transport=rocshmem

tt.func public @k(%out: !tt.ptr<i32>, %ctx: !tt.ptr<i64>) {
  %rank = tt.extern_elementwise {libname = "ditron", libpath = "", pure = true, symbol = "ditron.rank"} : () -> i32
  tt.store %out, %rank : !tt.ptr<i32>
  tt.return
}
