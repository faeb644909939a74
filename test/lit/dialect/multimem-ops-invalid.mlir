// RUN: ditron-opt %s --verify-diagnostics --split-input-file

func.func @no_double(%p: !tt.ptr<f64>) {
  // expected-error@+1 {{custom op 'ditron.multimem_ld_reduce' 'ptr' must be multicast pointer or tensor of them to i32, i64, f16, bf16 or f32 (what NVLink SHARP reduces), but got '!tt.ptr<f64>'}}
  %0 = ditron.multimem_ld_reduce add %p : !tt.ptr<f64>
  return
}

// -----

func.func @no_max_of_f32(%p: tensor<8x!tt.ptr<f32>>) {
  // expected-error@+1 {{'ditron.multimem_ld_reduce' op expected i32, i64, f16 or bf16 under max, got 'f32'; NVLink SHARP can only add f32}}
  %0 = ditron.multimem_ld_reduce max %p : tensor<8x!tt.ptr<f32>>
  return
}

// -----

func.func @ld_reduce_returns_the_element(%p: !tt.ptr<bf16>) {
  // expected-error@+1 {{'ditron.multimem_ld_reduce' op failed to verify that 'result' has the type that 'ptr' points to}}
  %0 = "ditron.multimem_ld_reduce"(%p) : (!tt.ptr<bf16>) -> f32
  return
}

// -----

func.func @ld_reduce_of_a_peer(%p: !tt.ptr<bf16>, %r: i32) {
  // expected-note@+1 {{the address of one rank is made here}}
  %peer = ditron.symm_at %p on %r : !tt.ptr<bf16>
  // expected-error@+1 {{'ditron.multimem_ld_reduce' op expected ptr to come from ditron.multicast_ptr, got the result of 'ditron.symm_at'}}
  %0 = ditron.multimem_ld_reduce add %peer : !tt.ptr<bf16>
  return
}

// -----

func.func @store_bytes(%p: !tt.ptr<i8>, %v: i8) {
  // expected-error@+1 {{custom op 'ditron.multimem_st' 'ptr' must be multicast pointer or tensor of them}}
  ditron.multimem_st %p, %v : !tt.ptr<i8>
  return
}

// -----

func.func @store_another_shape(%p: tensor<8x!tt.ptr<f32>>, %v: tensor<4xf32>) {
  // expected-error@+1 {{'ditron.multimem_st' op failed to verify that 'value' has the type that 'ptr' points to}}
  "ditron.multimem_st"(%p, %v) : (tensor<8x!tt.ptr<f32>>, tensor<4xf32>) -> ()
  return
}

// -----

func.func @store_to_a_peer(%p: !tt.ptr<bf16>, %v: bf16, %r: i32) {
  // expected-note@+1 {{the address of one rank is made here}}
  %peer = ditron.symm_at %p on %r : !tt.ptr<bf16>
  // expected-error@+1 {{'ditron.multimem_st' op expected ptr to come from ditron.multicast_ptr}}
  ditron.multimem_st %peer, %v : !tt.ptr<bf16>
  return
}

// -----

func.func @no_min_of_f32(%p: !tt.ptr<f32>, %v: f32) {
  // expected-error@+1 {{'ditron.multimem_red' op expected i32, i64, f16 or bf16 under min, got 'f32'; NVLink SHARP can only add f32}}
  ditron.multimem_red %p min %v : !tt.ptr<f32>
  return
}

// -----

func.func @red_of_a_peer(%p: !tt.ptr<f32>, %v: f32, %r: i32) {
  // expected-note@+1 {{the address of one rank is made here}}
  %peer = ditron.symm_at %p on %r : !tt.ptr<f32>
  // expected-error@+1 {{'ditron.multimem_red' op expected ptr to come from ditron.multicast_ptr}}
  ditron.multimem_red %peer add %v : !tt.ptr<f32>
  return
}

// -----

func.func @red_of_another_type(%p: !tt.ptr<f32>, %v: f16) {
  // expected-error@+1 {{'ditron.multimem_red' op failed to verify that 'value' has the type that 'ptr' points to}}
  "ditron.multimem_red"(%p, %v) : (!tt.ptr<f32>, f16) -> ()
  return
}
