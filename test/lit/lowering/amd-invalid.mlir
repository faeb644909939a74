// RUN: ditron-opt %s --pass-pipeline='builtin.module(lower-to-amd)' --verify-diagnostics

"tt.func"() <{function_type = (tensor<64x!tt.ptr<i32>>, tensor<64xi32>, !tt.ptr<i64>) -> (), sym_name = "cas_of_a_tensor", sym_visibility = "public"}> ({
^bb0(%ps: tensor<64x!tt.ptr<i32>>, %x: tensor<64xi32>, %ctx: !tt.ptr<i64>):
  // expected-error@+1 {{expected a scalar pointer or scope gpu on hip:gfx942, got a tensor of pointers with scope node; Triton's compare and swap reaches only the GPU there}}
  %old = ditron.atomic_cas %ps, %x, %x scope node : tensor<64x!tt.ptr<i32>>
  "tt.return"() : () -> ()
}) {ditron.kernel} : () -> ()
