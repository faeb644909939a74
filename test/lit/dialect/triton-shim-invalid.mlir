// RUN: ditron-opt %s --verify-diagnostics --split-input-file

func.func @tritons_own_form(%p: !tt.ptr<f32>) {
  // expected-error@+1 {{expected the generic form, in quotes, of an operation of Triton's; its own form only Triton reads}}
  %0 = tt.splat %p : !tt.ptr<f32> -> tensor<16x!tt.ptr<f32>>
  return
}

// -----

// expected-error@+1 {{expected '<'}}
func.func @pointer_to_nothing(%p: !tt.ptr) { return }

// -----

// expected-error@+1 {{expected integer value}}
func.func @address_space_is_a_number(%p: !tt.ptr<f32, "shared">) { return }
