// RUN: ditron-opt %S/Inputs/gpu-ops.mlir --pass-pipeline='builtin.module(lower-to-nvidia{transport=p2p sanitize=true},canonicalize,cse)' | filecheck %s --check-prefixes=CHECK,P2P
// RUN: ditron-opt %S/Inputs/gpu-ops.mlir --pass-pipeline='builtin.module(lower-to-nvidia{transport=nvshmem sanitize=true},canonicalize,cse)' | filecheck %s --check-prefixes=CHECK,SHMEM
// RUN: ditron-opt %S/Inputs/gpu-ops.mlir --pass-pipeline='builtin.module(lower-to-amd{transport=p2p sanitize=true},canonicalize,cse)' | filecheck %s --check-prefixes=CHECK,P2P
// RUN: ditron-opt %S/Inputs/gpu-ops.mlir --pass-pipeline='builtin.module(lower-to-nvidia{transport=p2p},canonicalize,cse)' | filecheck %s --check-prefix=OFF

// The sanitizer: waits take the context and a number for their place, whose text is the call's libpath; accesses to another rank are
// looked at before they happen. Whether the peer must be mapped (p2p) is a constant.

// OFF-NOT: check
// CHECK-LABEL: tt.func public @symm_at(
// CHECK: tt.extern_elementwise %arg6, %arg0, %arg4, %c{{.*}}_i64 {libname = "ditron", libpath = "symm_at in symm_at at {{.*}}", pure = false, symbol = "ditron_sanitizer_symm_at"
// CHECK-LABEL: tt.func public @wait(
// CHECK: tt.extern_elementwise %arg6, %arg2, %arg5, %arg3, %c3_i32, %c1_i32, %c1_i32, %c{{.*}}_i64 {libname = "ditron", libpath = "wait in wait at {{.*}}", pure = false, symbol = "ditron_sanitizer_wait", tt.divisibility = dense<16>
// CHECK-LABEL: tt.func public @notify(
// P2P: tt.extern_elementwise %arg6, %arg2, %c8_i64, %arg4, %c1_i32, %c{{.*}}_i64 {{.*}}symbol = "ditron_check_remote"
// SHMEM: tt.extern_elementwise %arg6, %arg2, %c8_i64, %arg4, %c0_i32, %c{{.*}}_i64 {{.*}}symbol = "ditron_check_remote"
// CHECK: symbol = "ditron_notify"
// CHECK-LABEL: tt.func public @signal_wait_until(
// CHECK: symbol = "ditron_sanitizer_signal_wait_until"
// CHECK-LABEL: tt.func public @putmem(
// CHECK: libpath = "putmem in putmem at {{.*}}symbol = "ditron_check_remote"
// CHECK: symbol = "ditron_putmem"
// CHECK-LABEL: tt.func public @putmem_signal(
// CHECK: symbol = "ditron_check_remote"
// CHECK: symbol = "ditron_check_remote"
// CHECK: symbol = "ditron_putmem_signal"
// CHECK-LABEL: tt.func public @ll_put(
// CHECK: libpath = "ll_put in ll_put at {{.*}}symbol = "ditron_check_remote"
// CHECK: symbol = "ditron_ll_put"
// CHECK-LABEL: tt.func public @ll_get(
// CHECK: tt.extern_elementwise %arg6, %arg0, %arg2, %arg3, %arg3, %c{{.*}}_i64 {{.*}}libpath = "ll_get in ll_get at {{.*}}symbol = "ditron_sanitizer_ll_get"
// CHECK-LABEL: tt.func public @barrier_all(
// CHECK: symbol = "ditron_sanitizer_barrier"
