// RUN: ditron-opt %s --pass-pipeline='builtin.module(lower-to-amd)' --verify-diagnostics

tt.func public @cas_of_a_tensor(%ps: tensor<64x!tt.ptr<i32>>, %x: tensor<64xi32>, %ctx: !tt.ptr<i64>) attributes {ditron.kernel} {
  // expected-error@+1 {{expected a scalar pointer or scope gpu on hip:gfx942, got a tensor of pointers with scope node; Triton's compare and swap reaches only the GPU there}}
  %old = ditron.atomic_cas %ps, %x, %x scope node : tensor<64x!tt.ptr<i32>>
  tt.return
}
