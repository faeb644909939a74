// RUN: ditron-opt %s --verify-diagnostics --split-input-file

// expected-error@+1 {{expected '<'}}
func.func @pointer_to_nothing(%p: !tt.ptr) { return }

// -----

// expected-error@+1 {{expected integer value}}
func.func @address_space_is_a_number(%p: !tt.ptr<f32, "shared">) { return }

// -----

func.func @no_form(%x: tensor<4xi32>) {
  // expected-error@+1 {{'tt.reduce' is written in generic form, its name in quotes}}
  %0 = tt.reduce %x : tensor<4xi32>
  return
}

// -----

func.func @a_later_one(%p: !tt.ptr<i32>) {
  // expected-error@+1 {{custom op 'tt.a_later_one' is unknown}}
  tt.a_later_one %p : !tt.ptr<i32>
  return
}

// -----

func.func @no_keyword() {
  // expected-error@+1 {{'w' is no ProgramIDDim}}
  %0 = tt.get_program_id w : i32
  return
}

// -----

func.func @no_comma(%p: !tt.ptr<i32>, %x: i32) {
  // expected-error@+1 {{expected ','}}
  tt.store %p %x : !tt.ptr<i32>
  return
}

// -----

func.func @no_pointer(%x: i32) {
  // expected-error@+1 {{the type of 'result' does not follow from 'ptr'}}
  %0 = tt.load %x : i32
  return
}

// -----

func.func @too_few_types(%p: !tt.ptr<i32>, %x: i32) {
  // expected-error@+1 {{expected types of 2 operands, got 1}}
  %0 = tt.atomic_rmw add, relaxed, gpu, %p, %x : (!tt.ptr<i32>) -> i32
  return
}

// -----

func.func @two_results(%p: !tt.ptr<i32>, %x: i32) {
  // expected-error@+1 {{unexpected number of results: 2}}
  %0:2 = tt.atomic_rmw add, relaxed, gpu, %p, %x : (!tt.ptr<i32>, i32) -> (i32, i32)
  return
}

// -----

// expected-note@+1 {{prior use here}}
func.func @another_type(%p: !tt.ptr<i32>, %x: i64) {
  // expected-error@+1 {{use of value '%x' expects different type than prior uses: 'i32' vs 'i64'}}
  tt.store %p, %x : !tt.ptr<i32>
  return
}

// -----

func.func @descriptor_of_nothing(%p: !tt.ptr<i32>, %i: i32, %l: i64) {
  // expected-error@+1 {{expected '<'}}
  %0 = tt.make_tensor_descriptor %p, [%i], [%l] : <i32>, !tt.tensordesc<8xi32>
  return
}

// -----

// expected-error@+1 {{expected valid '@'-identifier for symbol name}}
tt.func public nameless() { tt.return }
