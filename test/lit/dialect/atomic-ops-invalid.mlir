// RUN: ditron-opt %s --verify-diagnostics --split-input-file

func.func @load_with_release(%p: !tt.ptr<i32>) {
  // expected-error@+1 {{'ditron.ld' op attribute 'semantic' failed to satisfy constraint: memory order of an atomic access that is relaxed or acquire}}
  %0 = ditron.ld %p semantic release : !tt.ptr<i32>
  return
}

// -----

func.func @load_with_acq_rel(%p: !tt.ptr<i32>) {
  // expected-error@+1 {{that is relaxed or acquire, because this operation only reads}}
  %0 = ditron.ld %p semantic acq_rel : !tt.ptr<i32>
  return
}

// -----

func.func @load_a_bit(%p: !tt.ptr<i1>) {
  // expected-error@+1 {{custom op 'ditron.ld' 'ptr' must be pointer or tensor of pointers to 8- to 64-bit integers or floats, but got '!tt.ptr<i1>'}}
  %0 = ditron.ld %p : !tt.ptr<i1>
  return
}

// -----

func.func @load_of_another_type(%p: !tt.ptr<i32>) {
  // expected-error@+1 {{'ditron.ld' op failed to verify that 'result' has the type that 'ptr' points to}}
  %0 = "ditron.ld"(%p) : (!tt.ptr<i32>) -> f32
  return
}

// -----

func.func @load_of_another_shape(%p: tensor<8x!tt.ptr<i32>>) {
  // expected-error@+1 {{elementwise and in the same shape for a tensor of pointers}}
  %0 = "ditron.ld"(%p) : (tensor<8x!tt.ptr<i32>>) -> tensor<4xi32>
  return
}

// -----

func.func @store_with_acquire(%p: !tt.ptr<i32>, %v: i32) {
  // expected-error@+1 {{'ditron.st' op attribute 'semantic' failed to satisfy constraint: memory order of an atomic access that is relaxed or release, because this operation returns nothing that was read; acquire belongs to the load or wait}}
  ditron.st %p, %v semantic acquire : !tt.ptr<i32>
  return
}

// -----

func.func @store_a_scalar_everywhere(%p: tensor<8x!tt.ptr<i32>>, %v: i32) {
  // expected-error@+1 {{'ditron.st' op failed to verify that 'value' has the type that 'ptr' points to}}
  "ditron.st"(%p, %v) : (tensor<8x!tt.ptr<i32>>, i32) -> ()
  return
}

// -----

// expected-note@+1 {{prior use here}}
func.func @store_of_another_type(%p: !tt.ptr<i32>, %v: f32) {
  // expected-error@+1 {{use of value '%v' expects different type than prior uses: 'i32' vs 'f32'}}
  ditron.st %p, %v : !tt.ptr<i32>
  return
}

// -----

func.func @add_to_bytes(%p: !tt.ptr<i8>, %v: i8) {
  // expected-error@+1 {{custom op 'ditron.atomic_add' 'ptr' must be pointer or tensor of pointers to i32, i64, f16, bf16, f32 or f64 (what the GPUs add atomically), but got '!tt.ptr<i8>'}}
  %0 = ditron.atomic_add %p, %v : !tt.ptr<i8>
  return
}

// -----

func.func @add_returns_the_element(%p: !tt.ptr<i32>, %v: i32) {
  // expected-error@+1 {{'ditron.atomic_add' op failed to verify that 'old' has the type that 'ptr' points to}}
  %0 = "ditron.atomic_add"(%p, %v) : (!tt.ptr<i32>, i32) -> i64
  return
}

// -----

func.func @swap_floats(%p: !tt.ptr<f32>, %v: f32) {
  // expected-error@+1 {{custom op 'ditron.atomic_cas' 'ptr' must be pointer or tensor of pointers to i32 or i64 (what the GPUs compare and swap), but got '!tt.ptr<f32>'}}
  %0 = ditron.atomic_cas %p, %v, %v : !tt.ptr<f32>
  return
}

// -----

func.func @compare_with_another_type(%p: !tt.ptr<i32>, %c: i64, %v: i32) {
  // expected-error@+1 {{'ditron.atomic_cas' op failed to verify that 'cmp' has the type that 'ptr' points to}}
  %0 = "ditron.atomic_cas"(%p, %c, %v) : (!tt.ptr<i32>, i64, i32) -> i32
  return
}

// -----

func.func @red_with_acquire(%p: !tt.ptr<i32>, %v: i32) {
  // expected-error@+1 {{'ditron.red' op attribute 'semantic' failed to satisfy constraint: memory order of an atomic access that is relaxed or release}}
  ditron.red %p add %v semantic acquire : !tt.ptr<i32>
  return
}

// -----

func.func @max_of_floats(%p: tensor<8x!tt.ptr<f32>>, %v: tensor<8xf32>) {
  // expected-error@+1 {{'ditron.red' op expected i32 or i64 under max, got 'f32'; floats can only be added}}
  ditron.red %p max %v : tensor<8x!tt.ptr<f32>>
  return
}

// -----

func.func @unknown_reduction(%p: !tt.ptr<i32>, %v: i32) {
  // expected-error@+1 {{expected one of [add, min, max] for how values are combined, got: mul}}
  ditron.red %p mul %v : !tt.ptr<i32>
  return
}

// -----

func.func @red_of_another_type(%p: !tt.ptr<i32>, %v: i64) {
  // expected-error@+1 {{'ditron.red' op failed to verify that 'value' has the type that 'ptr' points to}}
  "ditron.red"(%p, %v) : (!tt.ptr<i32>, i64) -> ()
  return
}
