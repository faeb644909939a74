// NVLink multicast, per element type.

tt.func public @multimem_f32(%p: !tt.ptr<f32>, %ctx: !tt.ptr<i64>) attributes {ditron.kernel} {
  %m = ditron.multicast_ptr %p : !tt.ptr<f32>
  %x = ditron.multimem_ld_reduce add %m : !tt.ptr<f32>
  ditron.multimem_red %m add %x : !tt.ptr<f32>
  ditron.multimem_st %m, %x : !tt.ptr<f32>
  tt.return
}

tt.func public @multimem_bf16(%p: !tt.ptr<bf16>, %ctx: !tt.ptr<i64>) attributes {ditron.kernel} {
  %m = ditron.multicast_ptr %p : !tt.ptr<bf16>
  %x = ditron.multimem_ld_reduce add %m : !tt.ptr<bf16>
  ditron.multimem_red %m add %x : !tt.ptr<bf16>
  ditron.multimem_st %m, %x : !tt.ptr<bf16>
  tt.return
}

tt.func public @multimem_f16(%p: !tt.ptr<f16>, %ctx: !tt.ptr<i64>) attributes {ditron.kernel} {
  %m = ditron.multicast_ptr %p : !tt.ptr<f16>
  %x = ditron.multimem_ld_reduce max %m : !tt.ptr<f16>
  ditron.multimem_red %m add %x : !tt.ptr<f16>
  ditron.multimem_st %m, %x : !tt.ptr<f16>
  tt.return
}

tt.func public @multimem_i64(%p: !tt.ptr<i64>, %ctx: !tt.ptr<i64>) attributes {ditron.kernel} {
  %m = ditron.multicast_ptr %p : !tt.ptr<i64>
  %x = ditron.multimem_ld_reduce min %m : !tt.ptr<i64>
  ditron.multimem_red %m min %x : !tt.ptr<i64>
  ditron.multimem_st %m, %x : !tt.ptr<i64>
  tt.return
}
