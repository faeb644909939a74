// RUN: ditron-opt %s --verify-diagnostics --split-input-file

func.func @unknown_team() {
  // expected-error@+1 {{expected one of [group, node, world] for set of ranks an operation speaks of, got: planet}}
  %0 = ditron.rank team planet
  return
}

// -----

func.func @result_is_i32() {
  // expected-error@+1 {{'ditron.num_ranks' op result #0 must be 32-bit signless integer, but got 'i64'}}
  %0 = "ditron.num_ranks"() : () -> i64
  return
}

// -----

func.func @symm_at_of_no_pointer(%x: f32, %r: i32) {
  // expected-error@+1 {{'ditron.symm_at' op operand #0 must be pointer or tensor of pointers, !tt.ptr<T>, but got 'f32'}}
  %0 = ditron.symm_at %x on %r : f32
  return
}

// -----

func.func @symm_at_changes_no_type(%p: !tt.ptr<f32>, %r: i32) {
  // expected-error@+1 {{failed to verify that all of {ptr, result} have same type}}
  %0 = "ditron.symm_at"(%p, %r) : (!tt.ptr<f32>, i32) -> !tt.ptr<f16>
  return
}

// -----

func.func @negative_rank(%p: !tt.ptr<f32>) {
  %r = arith.constant -1 : i32
  // expected-error@+1 {{'ditron.symm_at' op expected rank to be in [0, num_ranks), got constant -1}}
  %0 = ditron.symm_at %p on %r : !tt.ptr<f32>
  return
}

// -----

func.func @negative_ranks(%ps: tensor<4x!tt.ptr<f32>>) {
  %r = arith.constant dense<-1> : tensor<4xi32>
  // expected-error@+1 {{'ditron.symm_at' op expected rank to be in [0, num_ranks), got constant -1}}
  %0 = ditron.symm_at %ps on %r : tensor<4x!tt.ptr<f32>>, tensor<4xi32>
  return
}

// -----

func.func @ranks_of_one_pointer(%p: !tt.ptr<f32>, %r: tensor<4xi32>) {
  // expected-error@+1 {{'ditron.symm_at' op expected a rank for each pointer, got 'tensor<4xi32>' for '!tt.ptr<f32>'}}
  %0 = ditron.symm_at %p on %r : !tt.ptr<f32>, tensor<4xi32>
  return
}

// -----

func.func @ranks_of_other_shape(%ps: tensor<4x!tt.ptr<f32>>, %r: tensor<8xi32>) {
  // expected-error@+1 {{'ditron.symm_at' op expected a rank for each pointer, got 'tensor<8xi32>' for 'tensor<4x!tt.ptr<f32>>'}}
  %0 = ditron.symm_at %ps on %r : tensor<4x!tt.ptr<f32>>, tensor<8xi32>
  return
}

// -----

func.func @ranks_of_64_bits(%ps: tensor<4x!tt.ptr<f32>>, %r: tensor<4xi64>) {
  // expected-error@+1 {{'ditron.symm_at' op operand #1 must be i32 or tensor of i32, but got 'tensor<4xi64>'}}
  %0 = ditron.symm_at %ps on %r : tensor<4x!tt.ptr<f32>>, tensor<4xi64>
  return
}

// -----

func.func @symm_at_twice(%p: !tt.ptr<f32>, %r: i32) {
  // expected-note@+1 {{translated here}}
  %0 = ditron.symm_at %p on %r : !tt.ptr<f32>
  // expected-error@+1 {{'ditron.symm_at' op expected ptr to be this rank's own symmetric address, which the operation translates itself, got the result of 'ditron.symm_at'; pass its operand}}
  %1 = ditron.symm_at %0 on %r : !tt.ptr<f32>
  return
}

// -----

func.func @multicast_of_a_peer(%p: !tt.ptr<f32>, %r: i32) {
  // expected-note@+1 {{translated here}}
  %0 = ditron.symm_at %p on %r : !tt.ptr<f32>
  // expected-error@+1 {{'ditron.multicast_ptr' op expected ptr to be this rank's own symmetric address}}
  %1 = ditron.multicast_ptr %0 : !tt.ptr<f32>
  return
}

// -----

func.func @multicast_of_no_pointer(%p: i64) {
  // expected-error@+1 {{operand #0 must be pointer or tensor of pointers}}
  %1 = ditron.multicast_ptr %p : i64
  return
}

// -----

func.func @swizzle_needs_a_mode(%x: i32) {
  // expected-error@+1 {{'ditron.swizzle' op requires attribute 'mode'}}
  %0 = "ditron.swizzle"(%x, %x, %x) : (i32, i32, i32) -> i32
  return
}

// -----

func.func @swizzle_by_nothing(%x: i32) {
  %zero = arith.constant 0 : i32
  // expected-error@+1 {{'ditron.swizzle' op expected block to be positive, got constant 0}}
  %0 = ditron.swizzle gather %x of %x by %zero
  return
}

// -----

func.func @swizzle_of_less_than_nothing(%x: i32) {
  %less = arith.constant -8 : i32
  // expected-error@+1 {{'ditron.swizzle' op expected size to be 0 or more, got constant -8}}
  %0 = ditron.swizzle gather %x of %less by %x
  return
}

// -----

func.func @swizzle_before_the_first_tile(%x: i32) {
  %tile = arith.constant -2 : i32
  // expected-error@+1 {{'ditron.swizzle' op expected tile to be 0 or more, got constant -2}}
  %0 = ditron.swizzle scatter %tile of %x by %x
  return
}
