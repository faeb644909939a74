// RUN: ditron-opt %s --pass-pipeline='builtin.module(lower-to-nvidia)' --verify-diagnostics --split-input-file

tt.func public @min_of_pairs(%p: !tt.ptr<f16>, %x: f16, %ctx: !tt.ptr<i64>) attributes {ditron.kernel} {
  %m = ditron.multicast_ptr %p : !tt.ptr<f16>
  // expected-error@+1 {{expected i32 or i64 under min, got f16; PTX's multimem.red can only add 16-bit floats}}
  ditron.multimem_red %m min %x : !tt.ptr<f16>
  tt.return
}
