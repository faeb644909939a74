// What has no scalar base within the iteration stays as it is; the lowering says so.
// RUN: ditron-opt %s --pass-pipeline='builtin.module(hoist-symm-at)' | filecheck %s
// RUN: ditron-opt %s --pass-pipeline='builtin.module(hoist-symm-at,lower-to-nvidia)' --verify-diagnostics

// CHECK: %[[PTRS:.*]] = tt.load
// CHECK-NEXT: ditron.symm_at %[[PTRS]] on
tt.func @loaded(%table: tensor<64x!tt.ptr<!tt.ptr<f32>>>, %r: i32, %x: tensor<64xf32>, %ctx: !tt.ptr<i64>) attributes {ditron.kernel} {
  %ptrs = tt.load %table : tensor<64x!tt.ptr<!tt.ptr<f32>>>
  // expected-error@+1 {{expected pointers computed from one scalar pointer within this iteration}}
  %there = ditron.symm_at %ptrs on %r : tensor<64x!tt.ptr<f32>>
  tt.store %there, %x : tensor<64x!tt.ptr<f32>>
  tt.return
}
